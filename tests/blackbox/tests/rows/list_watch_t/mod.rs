//! The test ideas in the sections of list and watch.
//!
//! - `reading.rs`: URLs, selectors, lists and pages (sections 1 to 6)
//! - `watching.rs`: order, initial events, bookmarks, ends (sections 7 to 9)
//! - `requests.rs`: option checks, media types and methods (sections 2, 8, 10 to 12)
//!
//! The idea of section 6 that needs compaction is in `../restarted.rs`.

mod reading;
mod requests;
mod watching;
