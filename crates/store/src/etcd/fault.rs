//! Failed calls, classified by whether they may have taken effect.

use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

use crate::error::{EngineError, WriteError};
use crate::key::Key;

/// Bytes that etcd accepts above its `--max-request-bytes`, for the overhead of gRPC.
const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;

/// Default of etcd's `--max-request-bytes`.
const REQUEST_BYTES_DEFAULT: usize = 1536 * 1024;

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Certainly had no effect: the call may be sent to another member.
    Unsent(String),
    /// Sent without an answer: it may or may not have had an effect.
    Lost(String),
    /// The token is not valid, or no longer valid, for this member. Certainly had no effect.
    Token(String),
    Compacted,
    Future,
    /// etcd has reached its quota. The write that filled it may have had an effect.
    Full(String),
    /// With the limit, if the answer has it.
    TooLarge(Option<usize>),
    Corrupt(String),
    /// The member belongs to another cluster than the one that answered first. Certainly had no effect.
    OtherCluster(String),
    /// Refused for another reason: permissions, a missing method. Certainly had no effect.
    Refused(String),
}

impl Fault {
    /// True if a read may succeed on another member, or later on the same one.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Fault::Unsent(_) | Fault::Lost(_))
    }

    /// The error of a write of `bytes` bytes that failed with this fault.
    pub(super) fn into_write_error(self, key: &Key, bytes: usize) -> WriteError {
        match self {
            Fault::Lost(reason) => WriteError::Unknown(reason),
            Fault::Full(reason) => WriteError::Full(reason),
            Fault::TooLarge(limit) => {
                // Without a limit in the answer, the default is the best guess; it is certainly below this size.
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
            | Fault::OtherCluster(reason)
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

/// Classifies a gRPC status of a call to the member at `url`.
pub(super) fn from_status(url: &str, status: &Status) -> Fault {
    if let Some(source) = status.source() {
        // A status with a source is from the client's transport, not from etcd.
        let reason = format!("{url}: {}", chain(source));
        return if was_never_sent(source) { Fault::Unsent(reason) } else { Fault::Lost(reason) };
    }
    from_answer(url, status.code(), status.message())
}

/// Classifies an error of etcd itself. Also used for the reason of a cancelled watch, which has only the text.
pub(super) fn from_answer(url: &str, code: Code, message: &str) -> Fault {
    let text = message.strip_prefix("etcdserver: ").unwrap_or(message);
    let reason = format!("{url}: etcd says: {text}");
    let has = |part: &str| message.contains(part);
    if has("required revision has been compacted") {
        return Fault::Compacted;
    }
    if has("required revision is a future revision") {
        return Fault::Future;
    }
    if has("database space exceeded") {
        return Fault::Full(format!(
            "{reason}; compact and defragment etcd, or raise its quota, then disarm its alarm"
        ));
    }
    if has("request is too large") {
        return Fault::TooLarge(None);
    }
    if has("received message larger than max") {
        return Fault::TooLarge(limit_in(message));
    }
    if code == Code::Unauthenticated || has("invalid auth token") || has("revision of auth store is old") {
        return Fault::Token(reason);
    }
    if has("permission denied") {
        return Fault::Refused(reason);
    }
    if has("user name is empty") {
        return Fault::Refused(format!("{url}: etcd asks for a user and a password"));
    }
    if code == Code::DataLoss || has("corrupt") {
        return Fault::Corrupt(reason);
    }
    // Every call requires a member that has a leader. etcd checks this before it processes the call, and so it checks for too
    // many requests.
    if has("etcdserver: no leader") || has("too many requests") {
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
        // Timeouts inside etcd, a stopping member, a lost leader: the proposal may still be committed.
        _ => Fault::Lost(reason),
    }
}

/// True if there was no connection for this request.
fn was_never_sent(error: &(dyn Error + 'static)) -> bool {
    links(error).any(|link| link.is::<tonic::ConnectError>())
}

/// An error and its causes, as one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for link in links(error) {
        let text = link.to_string();
        // Wrappers often repeat the text of the error they wrap.
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

/// The limit in "received message larger than max (1048677 vs. 1048576)", less the overhead of gRPC.
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
    fn only_a_definite_answer_rules_a_write_out() {
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
        let error = fault.into_write_error(&Key::new("core/pods/a").unwrap(), 1);
        assert!(matches!(&error, WriteError::Full(reason) if reason.contains("quota")), "{error}");
    }

    #[test]
    fn a_refused_size_names_the_limit_where_it_is_known() {
        let key = Key::new("core/pods/a").unwrap();
        let with_limit =
            answer(Code::ResourceExhausted, "grpc: received message larger than max (2500000 vs. 2097152)");
        assert!(matches!(
            with_limit.into_write_error(&key, 2_499_000),
            WriteError::TooLarge { bytes: 2_499_000, max: 1_572_864 }
        ));
        let without_limit = answer(Code::InvalidArgument, "etcdserver: request is too large");
        assert!(matches!(without_limit.into_write_error(&key, 2_000_000), WriteError::TooLarge { max: 1_572_864, .. }));
    }

    #[test]
    fn compacted_and_future_revisions_are_distinguished() {
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(answer(Code::OutOfRange, compacted), Fault::Compacted);
        let future = "etcdserver: mvcc: required revision is a future revision";
        assert_eq!(answer(Code::OutOfRange, future), Fault::Future);
    }
}
