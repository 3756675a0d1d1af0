//! The checklist of the verbs, by what its rows are about.
//!
//! - `writing.rs`: create and update (1, 2, 3, 11, 12, 19, 30, 31, 32)
//! - `deleting.rs`: delete and finalizers (4 to 10, 18, 20)
//! - `patching.rs`: patches and apply (13, 14, 15, 17)
//! - `reading.rs`: reviews, credentials, discovery, health (23, 24, 25, 28, 29)
//!
//! The second half of row 24 needs a server of its own: `../restarted.rs`. Rows 2 and 16 ask for a custom resource: row
//! 2 is shown on another kind with the same rule. Rows 16, 21, 22, 26 and 27 are about definitions, roles and webhooks.

mod deleting;
mod patching;
mod reading;
mod writing;
