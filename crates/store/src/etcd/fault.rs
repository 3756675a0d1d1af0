//! What went wrong with a call, in the one respect that matters: can it have happened?

use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

use crate::error::{EngineError, WriteError};
use crate::key::Key;

/// etcd accepts this much above its `--max-request-bytes` before it stops reading a message, for gRPC's own bytes.
const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;

/// etcd's `--max-request-bytes` unless somebody raised it.
const REQUEST_BYTES_DEFAULT: usize = 1536 * 1024;

/// A call that did not answer what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Certainly not carried out: another member may be asked the same.
    Unsent(String),
    /// Sent, and no answer: it may or may not have been carried out.
    Lost(String),
    /// The token is not (or no longer) known to this member. Certainly not carried out.
    Token(String),
    Compacted,
    Future,
    /// etcd has reached its quota. It may have carried out the write that made it so.
    Full(String),
    /// With the limit, where the member told it.
    TooLarge(Option<usize>),
    Corrupt(String),
    /// Any other clear "no": rights, a missing method, another cluster. Certainly not carried out.
    Refused(String),
}

impl Fault {
    /// Whether asking another member, or the same one later, may help a call that changes nothing.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Fault::Unsent(_) | Fault::Lost(_))
    }

    /// The error of a write of `bytes` bytes that met this fault.
    pub(super) fn of_write(self, key: &Key, bytes: usize) -> WriteError {
        match self {
            Fault::Lost(reason) => WriteError::Unknown(reason),
            Fault::Full(reason) => WriteError::Full(reason),
            Fault::TooLarge(limit) => {
                // A member that only says "too large" has a limit below this size; its default is the best guess.
                let max = limit.unwrap_or(REQUEST_BYTES_DEFAULT).min(bytes.saturating_sub(1));
                WriteError::TooLarge { bytes, max }
            }
            other => WriteError::Unavailable(EngineError::new(format!("writing {key}: {other}"))),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unsent(reason)
            | Fault::Lost(reason)
            | Fault::Token(reason)
            | Fault::Full(reason)
            | Fault::Corrupt(reason)
            | Fault::Refused(reason) => f.write_str(reason),
            Fault::Compacted => f.write_str("the revision is compacted"),
            Fault::Future => f.write_str("the revision has not happened yet"),
            Fault::TooLarge(_) => f.write_str("the request is larger than etcd accepts"),
        }
    }
}

impl From<Fault> for EngineError {
    fn from(fault: Fault) -> Self {
        EngineError::new(fault.to_string())
    }
}

/// Sorts what gRPC reports about a call to the member at `url`.
pub(super) fn from_status(url: &str, status: &Status) -> Fault {
    if let Some(source) = status.source() {
        // A source means the client's own transport speaks, not etcd.
        let reason = format!("{url}: {}", chain(source));
        return if was_never_sent(source) { Fault::Unsent(reason) } else { Fault::Lost(reason) };
    }
    from_answer(url, status.code(), status.message())
}

/// Sorts an answer of etcd itself. Also used for the reason of a cancelled watch, which has only the text.
pub(super) fn from_answer(url: &str, code: Code, message: &str) -> Fault {
    let text = message.strip_prefix("etcdserver: ").unwrap_or(message);
    let reason = format!("{url}: etcd says: {text}");
    let says = |part: &str| message.contains(part);
    if says("required revision has been compacted") {
        return Fault::Compacted;
    }
    if says("required revision is a future revision") {
        return Fault::Future;
    }
    if says("database space exceeded") {
        return Fault::Full(format!(
            "{reason}; compact and defragment etcd, or raise its quota, then disarm its alarm"
        ));
    }
    if says("request is too large") {
        return Fault::TooLarge(None);
    }
    if says("received message larger than max") {
        return Fault::TooLarge(limit_in(message));
    }
    if code == Code::Unauthenticated || says("invalid auth token") || says("revision of auth store is old") {
        return Fault::Token(reason);
    }
    if says("permission denied") {
        return Fault::Refused(reason);
    }
    if says("user name is empty") {
        return Fault::Refused(format!("{url}: etcd asks for a user and a password"));
    }
    if code == Code::DataLoss || says("corrupt") {
        return Fault::Corrupt(reason);
    }
    // Every call asks for a member that has a leader; this check comes before the call is looked at. So does the one
    // for too many requests.
    if says("etcdserver: no leader") || says("too many requests") {
        return Fault::Unsent(reason);
    }
    match code {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::ResourceExhausted
        | Code::Unimplemented => Fault::Refused(reason),
        // Timeouts inside etcd, a member that stops, a leader that was lost: the proposal may yet be committed.
        _ => Fault::Lost(reason),
    }
}

/// True if the connection for this request was never made.
fn was_never_sent(error: &(dyn Error + 'static)) -> bool {
    links(error).any(|link| link.is::<tonic::ConnectError>())
}

/// An error and what caused it, as one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for link in links(error) {
        let text = link.to_string();
        // Wrappers often repeat what they wrap.
        if !line.contains(&text) {
            line.push_str(if line.is_empty() { "" } else { ": " });
            line.push_str(&text);
        }
    }
    line
}

fn links<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |link: &&'e (dyn Error + 'static)| (*link).source())
}

/// The limit in "received message larger than max (1048677 vs. 1048576)", less gRPC's share.
fn limit_in(message: &str) -> Option<usize> {
    let limit: usize = message.rsplit_once("vs. ")?.1.trim_end_matches(')').parse().ok()?;
    limit.checked_sub(GRPC_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: Code, message: &str) -> Fault {
        from_status("http://m1", &Status::new(code, message))
    }

    #[test]
    fn only_a_clear_answer_rules_a_write_out() {
        assert!(matches!(answer(Code::Unavailable, "etcdserver: no leader"), Fault::Unsent(_)));
        assert!(matches!(answer(Code::ResourceExhausted, "etcdserver: too many requests"), Fault::Unsent(_)));
        assert!(matches!(answer(Code::Unavailable, "etcdserver: request timed out"), Fault::Lost(_)));
        assert!(matches!(
            answer(Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure"),
            Fault::Lost(_)
        ));
        assert!(matches!(answer(Code::Unavailable, "etcdserver: server stopped"), Fault::Lost(_)));
        assert!(matches!(answer(Code::PermissionDenied, "etcdserver: permission denied"), Fault::Refused(_)));
        assert!(matches!(answer(Code::Unauthenticated, "etcdserver: invalid auth token"), Fault::Token(_)));
    }

    #[test]
    fn a_full_database_is_named() {
        let fault = answer(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        let error = fault.of_write(&Key::new("core/pods/a").unwrap(), 1);
        assert!(matches!(&error, WriteError::Full(reason) if reason.contains("quota")), "{error}");
    }

    #[test]
    fn a_refused_size_tells_the_limit_where_it_is_known() {
        let key = Key::new("core/pods/a").unwrap();
        let told = answer(Code::ResourceExhausted, "grpc: received message larger than max (2500000 vs. 2097152)");
        assert!(matches!(told.of_write(&key, 2_499_000), WriteError::TooLarge { bytes: 2_499_000, max: 1_572_864 }));
        let untold = answer(Code::InvalidArgument, "etcdserver: request is too large");
        assert!(matches!(untold.of_write(&key, 2_000_000), WriteError::TooLarge { max: 1_572_864, .. }));
    }

    #[test]
    fn positions_outside_the_log_are_told_apart() {
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(answer(Code::OutOfRange, compacted), Fault::Compacted);
        let future = "etcdserver: mvcc: required revision is a future revision";
        assert_eq!(answer(Code::OutOfRange, future), Fault::Future);
    }
}
