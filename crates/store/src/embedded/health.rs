//! The conditions under which the store does not accept writes, and the identity of its files.
//!
//! SQLite writes to the files that it has opened, wherever they are. If the data directory is removed or replaced, writes
//! would still succeed, and be lost with the process. So the writer compares the files at their paths with those that it
//! opened, before each transaction and again before each acknowledgement: two calls of `stat`, next to a sync.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::with_suffix;
use crate::contract::HealthCheck;

/// The checks of this engine.
const SYNC: &str = "store-sync";
const SPACE: &str = "store-space";
const DIRECTORY: &str = "store-directory";

/// Bytes written to find out whether there is space.
const PROBE_BYTES: usize = 64 * 1024;

pub(super) struct Health {
    files: Vec<OpenedFile>,
    database: PathBuf,
    state: Mutex<State>,
}

/// Problems found so far.
#[derive(Default)]
struct State {
    /// A sync failed: the reason.
    poisoned: Option<String>,
    /// The last write failed for lack of space: the reason.
    full: Option<String>,
    /// A file was removed or replaced: the reason.
    moved: Option<String>,
}

/// A file as it was when the store was opened.
struct OpenedFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OpenedFile {
    fn new(path: PathBuf) -> std::io::Result<Self> {
        let metadata = path.metadata()?;
        Ok(OpenedFile { device: metadata.dev(), inode: metadata.ino(), path })
    }

    fn check(&self) -> Result<(), String> {
        let path = self.path.display();
        match self.path.metadata() {
            Ok(metadata) if (metadata.dev(), metadata.ino()) == (self.device, self.inode) => Ok(()),
            Ok(_) => Err(format!("{path} was replaced while the store was open")),
            Err(error) => Err(format!("{path} was removed while the store was open ({error})")),
        }
    }
}

impl Health {
    /// Records the identity of the files. The store is open, so its log exists.
    pub(super) fn new(database: &Path) -> std::io::Result<Self> {
        let files = [database.to_owned(), with_suffix(database, "-wal")];
        let files = files.into_iter().map(OpenedFile::new).collect::<std::io::Result<_>>()?;
        Ok(Health { files, database: database.to_owned(), state: Mutex::default() })
    }

    /// Checks that the files at their paths are those that the store has open. A file that was moved once stays a failure: what
    /// happened in between is unknown.
    pub(super) fn check_files(&self) -> Result<(), String> {
        let checked = self.files.iter().try_for_each(OpenedFile::check);
        let mut state = self.state.lock();
        if let (Err(reason), None) = (&checked, &state.moved) {
            tracing::error!(reason, "the store takes no more writes until it is opened again");
            state.moved = Some(reason.clone());
        }
        state.moved.clone().map_or(Ok(()), Err)
    }

    pub(super) fn set_poisoned(&self, reason: String) {
        self.state.lock().poisoned = Some(reason);
    }

    /// Records the result of the last transaction: the reason if it failed for lack of space.
    pub(super) fn set_full(&self, reason: Option<String>) {
        self.state.lock().full = reason;
    }

    /// Writes a probe at the offset where the log would grow. SQLite reports a full disk, but not a quota or a limit on file
    /// size. Returns true if there is a lack of space.
    pub(super) fn probe_is_full(&self) -> bool {
        let end = with_suffix(&self.database, "-wal").metadata().map_or(0, |metadata| metadata.len());
        let probe = with_suffix(&self.database, "-probe");
        let probed = File::create(&probe).and_then(|file| file.write_all_at(&[0; PROBE_BYTES], end));
        let _ = std::fs::remove_file(&probe);
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(probed, Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }

    /// The state of each check. Blocks for a few calls to the file system.
    pub(super) fn report(&self) -> Vec<HealthCheck> {
        let moved = self.check_files().err();
        // A full disk may have space again although nothing was written since.
        if self.state.lock().full.is_some() && moved.is_none() && !self.probe_is_full() {
            self.set_full(None);
        }
        let state = self.state.lock();
        let check = |name, problem: &Option<String>, needs_restart| match problem {
            Some(reason) => HealthCheck::failed(name, reason.clone(), needs_restart),
            None => HealthCheck::passed(name),
        };
        vec![check(SYNC, &state.poisoned, true), check(SPACE, &state.full, false), check(DIRECTORY, &moved, true)]
    }
}
