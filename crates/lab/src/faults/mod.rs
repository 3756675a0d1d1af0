//! Faults: what happens to requests and to the events of watches.
//!
//! - `spec`: a Fault as it was written; `matching`: which requests it is about; `counting`: which of those it hits
//! - `table`: all faults, and what they do; `refusal`: the errors they answer with; `connections`: which connections they refuse
//! - `report`: writes into their status what they did

mod connections;
mod counting;
mod matching;
mod refusal;
mod report;
mod spec;
mod table;

pub use connections::SERVER_NAME;
pub(crate) use report::report;
pub(crate) use table::Faults;
