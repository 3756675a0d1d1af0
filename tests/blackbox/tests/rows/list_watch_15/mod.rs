//! The checklist of list and watch, by what its rows are about.
//!
//! - `options.rs`: what a request may ask for (3, 4, 9, 10, 20)
//! - `events.rs`: which events come, and in which order (1, 2, 5, 6, 7, 21)
//! - `forms.rs`: bytes on the wire (11 to 16)
//! - `pages.rs`: limits, counts and order of lists (17, 18, 19)
//!
//! Rows 8 and 22 need a server of their own: `../restarted.rs`.

mod events;
mod forms;
mod options;
mod pages;
