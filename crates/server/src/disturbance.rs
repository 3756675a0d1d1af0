//! What happens to requests on purpose: the seam by which a lab disturbs a server.
//!
//! The server asks at two places: before a request is handled, and for each event of a watch. It knows nothing about faults, only
//! what the answers ask of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use machinery::{Revision, Status};
use registry::EventNote;
use tokio::sync::watch;

/// Decides what happens to requests and events. Called on the path of every request, so it answers at once.
pub trait Disturbances: Send + Sync {
    /// True while anything is disturbed. Otherwise nothing else is asked.
    fn active(&self) -> &Arc<AtomicBool>;

    /// What happens to a request instead of, or around, its handling.
    fn of_request(&self, request: &Disturbed) -> Disturbance;

    /// What happens to the next event of a watch.
    fn of_event(&self, request: &Disturbed, event: &EventNote) -> Step;

    /// What happens to a watch now, whether or not it has an event.
    fn of_stream(&self, request: &Disturbed) -> Step;

    /// Whether events that were held stay held.
    fn holds(&self, request: &Disturbed) -> bool;

    /// The newest revision that a request may see; none if it may see everything. It never goes back.
    fn horizon(&self, request: &Disturbed) -> Option<Revision>;

    /// Counts changes of what is disturbed.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Whether any new connection may be refused. Otherwise none is asked about.
    fn refuses_connections(&self) -> bool;

    /// Whether a new connection is refused.
    fn of_connection(&self, connection: &ConnectionNote) -> bool;

    /// The positions of the open connections that are cut now.
    fn of_open_connections(&self, open: &[ConnectionNote]) -> Vec<usize>;
}

/// A connection, as far as it decides whether it is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionNote {
    pub source: IpAddr,
    /// The name that the client asked for in the TLS handshake; empty if it did not.
    pub server_name: String,
}

/// A request, as far as it decides whether it is disturbed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disturbed {
    /// The name of the world.
    pub world: Arc<str>,
    pub verb: &'static str,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub user: String,
    pub agent: String,
}

/// What happens to a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// The names of the faults that hit it.
    pub faults: Vec<String>,
    /// Waits so long before it is handled.
    pub delay: Duration,
    /// Answers with this, and does nothing.
    pub answer: Option<Box<Status>>,
    /// Closes the connection instead of sending the answer.
    pub loses_answer: bool,
    /// Reads are answered as of this revision.
    pub as_of: Option<Revision>,
    /// The answer is sent at this speed.
    pub bytes_per_second: Option<u64>,
}

/// What happens to an event of a watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    #[default]
    Send,
    /// It is sent so much later, and those after it not before.
    After(Duration),
    /// It and those after it are sent at this speed, in bytes per second.
    Pace(u64),
    /// It is replaced by a newer event of the same object, if one comes soon.
    Merge,
    /// It never comes.
    Drop,
    /// It and all after it wait until nothing holds them any more.
    Hold,
    /// The watch ends here; abruptly, it breaks off in the middle of the event.
    Cut { abruptly: bool },
    /// The watch ends with the error that its revision is too old.
    Expire,
}

/// In the extensions of a response that is not sent: the connection is closed instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostAnswer;

/// The error of a watch whose revision is said to be too old.
#[must_use]
pub fn expired(revision: Revision) -> Status {
    Status::watch_expired(revision, revision.next())
}
