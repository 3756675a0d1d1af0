//! The checklist of the verbs, by topic.
//!
//! - `writing.rs`: create and update (1, 2, 3, 11, 12, 19, 30, 31, 32)
//! - `deleting.rs`: delete and finalizers (4 to 10, 18, 20)
//! - `patching.rs`: patches, apply and custom resources (13 to 17, 21)
//! - `reading.rs`: reviews, credentials, discovery, health (23, 24, 25, 28, 29)
//!
//! The second half of row 24 needs a server of its own: `../restarted.rs`. Row 2 is about a custom resource, and is tested
//! with another kind of the same rule as well. Rows 22, 26 and 27 (definitions, roles, webhooks) are tested elsewhere.

mod deleting;
mod patching;
mod reading;
mod writing;
