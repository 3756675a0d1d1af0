//! Errors of the store and the cache as a `Status`.

use cache::cache::FreshError;
use cache::{ExactError, TooFarAhead};
use machinery::{GroupResource, Status};
use store::{DamagedEntry, WriteError};

pub(crate) fn too_far_ahead(error: TooFarAhead) -> Status {
    Status::too_large_resource_version(error.asked, error.current)
}

pub(crate) fn fresh(error: FreshError) -> Status {
    match error {
        // The delay is ours, not the client's: it may try again.
        FreshError::Behind(error) => Status::timeout(error),
        FreshError::Unavailable(why) => Status::internal(why),
    }
}

pub(crate) fn exact(error: ExactError) -> Status {
    match error {
        ExactError::Compacted { .. } => Status::list_expired(),
        ExactError::Future { asked, current } => Status::too_large_resource_version(asked, current),
        ExactError::Unavailable(why) => Status::internal(why),
    }
}

/// The refusal of a read that would have to leave out an object. The reason names a file, which is for the log.
pub(crate) fn damaged(object: &DamagedEntry) -> Status {
    let DamagedEntry { key, revision, .. } = object;
    Status::internal(format_args!("{key} at revision {revision} cannot be read: its stored value is damaged"))
}

/// A damaged object and what follows from it, for the operator.
pub(crate) fn damage(object: &DamagedEntry) -> String {
    let DamagedEntry { key, revision, reason } = object;
    // The objects of this group are the rules by which writes of others are checked.
    let is_rule = key.as_str().starts_with("admissionregistration.k8s.io/");
    let effect = if is_rule { "; writes that it might apply to are refused until the store is repaired" } else { "" };
    format!("{key} at revision {revision}: {reason}{effect}")
}

/// The refusal of a write.
pub(crate) fn write(error: &WriteError, gr: &GroupResource, name: &str) -> Status {
    match error {
        WriteError::Exists(_) => Status::already_exists(gr, name),
        WriteError::Conflict { .. } => Status::modified(gr, name),
        WriteError::TooLarge { max, .. } => Status::request_entity_too_large(format_args!("limit is {max}")),
        WriteError::Unknown(why) => Status::timeout(why),
        WriteError::ReadOnly(why) => Status::forbidden(gr, name, why),
        WriteError::Full(_) | WriteError::Poisoned(_) | WriteError::Unavailable(_) => Status::internal(error),
    }
}
