//! The lock on a data directory: an advisory lock on a file that names its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::OpenError;

/// Held while any file of the store is open. The system releases it when the process ends, in any way.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(super) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("lock");
        let inaccessible = |error: std::io::Error| OpenError::Inaccessible {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(inaccessible)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The holder is only for the message; the directory is locked in any case.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "its pid is not known".to_owned() } else { holder.to_owned() };
                return Err(OpenError::Locked { path: dir.display().to_string(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(inaccessible(error)),
        }
        // Only under the lock: a refused process must not erase the holder's name.
        file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0)).map(drop)).map_err(inaccessible)?;
        writeln!(file, "pid {}", std::process::id()).map_err(inaccessible)?;
        Ok(DirectoryLock { _file: file })
    }
}
