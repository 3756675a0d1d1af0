//! The checklist of list and watch, by topic.
//!
//! - `options.rs`: request options (3, 4, 9, 10, 20)
//! - `events.rs`: events and their order (1, 2, 5, 6, 7, 21)
//! - `forms.rs`: bytes on the wire (11 to 16)
//! - `pages.rs`: limits, counts and order of lists (17, 18, 19)
//!
//! Rows 8 and 22 need a server of their own: `../restarted.rs`.

mod events;
mod forms;
mod options;
mod pages;
