//! Errors of SQLite and the file system, classified by what they mean for the store.

use rusqlite::ffi;

use crate::error::{EngineError, OpenError, ReadError, WatchError};

/// An error below the store.
#[derive(Debug)]
pub(super) enum Fault {
    /// A value that was read is not the value that was written. The text names the place.
    Corrupt(String),
    Sqlite(rusqlite::Error),
}

/// Effect of a fault before or during a commit on the writes of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitFailure {
    /// Nothing was written for lack of space: the same write may succeed later.
    Full,
    /// A write or a sync failed: the content of the disk is unknown until the log is read again from the start.
    Lost,
    /// Nothing was written.
    Refused,
}

impl Fault {
    pub(super) fn is_corruption(&self) -> bool {
        match self {
            Fault::Corrupt(_) => true,
            Fault::Sqlite(error) => {
                use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
                matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
                    || matches!(
                        error,
                        // The tables are strict: a cell of another type was not written by this engine.
                        rusqlite::Error::InvalidColumnType(..)
                            | rusqlite::Error::FromSqlConversionFailure(..)
                            | rusqlite::Error::IntegralValueOutOfRange(..)
                            | rusqlite::Error::Utf8Error(..)
                    )
            }
        }
    }

    /// True for a failed write as opposed to a failed sync. A lack of space is then a possible cause.
    pub(super) fn is_failed_write(&self) -> bool {
        let Fault::Sqlite(rusqlite::Error::SqliteFailure(error, _)) = self else { return false };
        error.extended_code == ffi::SQLITE_IOERR_WRITE
    }

    pub(super) fn commit_failure(&self) -> CommitFailure {
        let Fault::Sqlite(rusqlite::Error::SqliteFailure(error, _)) = self else { return CommitFailure::Refused };
        match error.extended_code & 0xff {
            ffi::SQLITE_FULL => CommitFailure::Full,
            ffi::SQLITE_IOERR => CommitFailure::Lost,
            _ => CommitFailure::Refused,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Corrupt(what) => f.write_str(what),
            Fault::Sqlite(rusqlite::Error::SqliteFailure(error, message)) => {
                // Only the extended code distinguishes a failed sync from a failed write; the message does not.
                let message = message.clone().unwrap_or_else(|| error.to_string());
                write!(f, "{message} (SQLite code {}{})", error.extended_code, code_name(error.extended_code))
            }
            Fault::Sqlite(error) => error.fmt(f),
        }
    }
}

fn code_name(extended_code: i32) -> &'static str {
    match extended_code {
        ffi::SQLITE_IOERR_FSYNC => ", sync failed",
        ffi::SQLITE_IOERR_DIR_FSYNC => ", sync of the directory failed",
        ffi::SQLITE_IOERR_WRITE => ", write failed",
        ffi::SQLITE_IOERR_READ => ", read failed",
        ffi::SQLITE_IOERR_SHORT_READ => ", file too short",
        _ => "",
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Fault::Sqlite(error)
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        if fault.is_corruption() {
            ReadError::Corrupt(fault.to_string())
        } else {
            ReadError::Unavailable(EngineError::new(fault.to_string()))
        }
    }
}

impl From<Fault> for WatchError {
    fn from(fault: Fault) -> Self {
        if fault.is_corruption() {
            WatchError::Corrupt(fault.to_string())
        } else {
            WatchError::Unavailable(EngineError::new(fault.to_string()))
        }
    }
}

impl Fault {
    /// The error of opening `path`.
    pub(super) fn into_open_error(self, path: &std::path::Path) -> OpenError {
        let path = path.display().to_string();
        if self.is_corruption() {
            return OpenError::Corrupt { path, reason: self.to_string() };
        }
        if let Fault::Sqlite(rusqlite::Error::SqliteFailure(error, _)) = &self
            && matches!(
                error.code,
                rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::PermissionDenied | rusqlite::ErrorCode::ReadOnly
            )
        {
            return OpenError::Inaccessible { path, reason: self.to_string() };
        }
        OpenError::Engine(EngineError::new(format!("{path}: {self}")))
    }
}
