//! Errors by operation. Each message is a sentence for a person; there is no HTTP here.

use machinery::Revision;
use thiserror::Error;

use crate::entry::Entry;
use crate::key::Key;

/// Why a text is not a key.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    #[error("the key is empty")]
    Empty,
    #[error("the key has {bytes} bytes, more than the {max} allowed")]
    TooLong { bytes: usize, max: usize },
    #[error("the key {key:?} is not a path of at least three non-empty segments")]
    Malformed { key: String },
}

/// A failure of the engine. The text names the file or endpoint and the error of the system.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct EngineError {
    pub message: String,
}

impl EngineError {
    pub fn new(message: impl Into<String>) -> Self {
        EngineError { message: message.into() }
    }
}

/// Why a store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{path} is in use by another process ({holder}); stop it, or choose another data directory")]
    Locked { path: String, holder: String },
    #[error("{path} cannot be used: {reason}")]
    Inaccessible { path: String, reason: String },
    #[error("{path} is not a dogwatch store: {reason}")]
    Foreign { path: String, reason: String },
    #[error("{path} has storage format {found}, newer than the {known} this version reads; use a newer dogwatch")]
    Newer { path: String, found: i64, known: i64 },
    #[error("{path} is damaged: {reason}; restore it from a backup")]
    Corrupt { path: String, reason: String },
    #[error("cannot reach {endpoint}: {reason}")]
    Unreachable { endpoint: String, reason: String },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

#[derive(Clone, Debug, Error)]
pub enum ReadError {
    #[error("revision {asked} is compacted; the oldest that can be read is {oldest}")]
    Compacted { asked: Revision, oldest: Revision },
    #[error("revision {asked} has not happened yet; the current one is {current}")]
    Future { asked: Revision, current: Revision },
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error("the store cannot be read right now: {0}")]
    Unavailable(#[from] EngineError),
}

#[derive(Clone, Debug, Error)]
pub enum WriteError {
    /// Create found the key taken.
    #[error("{} exists already at revision {}", .0.key, .0.revision)]
    Exists(Entry),
    /// Update or delete found another revision, or no entry.
    #[error("{key} is not at revision {expected}{}", .current.as_ref().map_or(": it does not exist".to_owned(), |e| format!(" but at {}", e.revision)))]
    Conflict { key: Key, expected: Revision, current: Option<Entry> },
    #[error("the value has {bytes} bytes, more than the {max} allowed")]
    TooLarge { bytes: usize, max: usize },
    /// Nothing was written; the same write may succeed once there is space.
    #[error("no space left for the store: {0}")]
    Full(String),
    /// A sync has failed. The content of the disk is unknown, so no write is accepted until the store is opened again.
    #[error("the store stopped accepting writes: {0}")]
    Poisoned(String),
    /// The outcome of the write is unknown: it may or may not have happened.
    #[error("the outcome of the write is unknown: {0}")]
    Unknown(String),
    /// Nothing was written.
    #[error("the store cannot be written right now: {0}")]
    Unavailable(#[from] EngineError),
    /// Nothing was written, and nothing ever will be.
    #[error("{0}")]
    ReadOnly(String),
}

#[derive(Clone, Debug, Error)]
pub enum WatchError {
    /// History does not reach back that far: list again and watch from there.
    #[error("history after revision {asked} is compacted; the oldest to watch from is {oldest}")]
    Compacted { asked: Revision, oldest: Revision },
    #[error("revision {asked} has not happened yet; the current one is {current}")]
    Future { asked: Revision, current: Revision },
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error("the watch ended: {0}")]
    Unavailable(#[from] EngineError),
}
