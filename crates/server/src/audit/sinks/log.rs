//! The audit log: one JSON object a line, in a file or on standard output.

use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;

use machinery::clock::Clock;
use parking_lot::Mutex;

use super::rotation::{self, Rotation};
use super::{Delivery, Sink};
use crate::audit::event::Line;

/// Writes events to a file or to standard output.
pub struct Log(Arc<Inner>);

struct Inner {
    /// None is standard output.
    path: Option<PathBuf>,
    rotation: Rotation,
    clock: Clock,
    /// The only writer. A line is one write, so that lines never mix.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<File>,
    bytes: u64,
    /// A write failed in the middle of a line: the next one begins with the end of that line.
    is_torn: bool,
    /// Removes and compresses old files.
    tidying: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens a log for appending; `-` is standard output. Files are readable by their owner only, and so are folders that are
    /// created for them.
    pub fn open(path: &Path, rotation: Rotation, clock: Clock) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Log(Arc::new(Inner { path: None, rotation, clock, state: Mutex::default() })));
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let state = Mutex::new(State { file: Some(file), bytes, ..State::default() });
        Ok(Log(Arc::new(Inner { path: Some(path.to_owned()), rotation, clock, state })))
    }

    /// Writes one or more whole lines.
    pub fn write(&self, lines: &[u8]) -> io::Result<()> {
        self.0.write(lines)
    }

    /// Waits until old files are removed and compressed, and syncs the file.
    fn finish(&self) -> io::Result<()> {
        let (tidying, file) = {
            let mut state = self.0.state.lock();
            (state.tidying.take(), state.file.as_ref().map(File::try_clone).transpose()?)
        };
        if let Some(tidying) = tidying {
            let _ = tidying.join();
        }
        match file {
            Some(file) => file.sync_all(),
            None => io::stdout().flush(),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Inner {
    fn write(self: &Arc<Self>, lines: &[u8]) -> io::Result<()> {
        let Some(path) = &self.path else { return io::stdout().lock().write_all(lines) };
        let mut state = self.state.lock();
        let bytes = lines.len() as u64;
        if self.rotation.bytes_max > 0 && state.bytes > 0 && state.bytes + bytes > self.rotation.bytes_max {
            self.rotate(&mut state, path)?;
        }
        if state.file.is_none() {
            state.file = Some(open(path)?);
        }
        let State { file: Some(file), bytes: written, is_torn, .. } = &mut *state else { return Ok(()) };
        if *is_torn {
            file.write_all(b"\n")?;
            *is_torn = false;
        }
        if let Err(error) = file.write_all(lines) {
            *is_torn = true;
            return Err(error);
        }
        *written += bytes;
        Ok(())
    }

    /// Renames the file and opens a new one. Old files are removed and compressed on a thread of their own.
    fn rotate(self: &Arc<Self>, state: &mut State, path: &Path) -> io::Result<()> {
        let now = self.clock.now();
        if let Some(file) = state.file.take() {
            file.sync_all()?;
        }
        std::fs::rename(path, rotation::old_name(path, now))?;
        state.file = Some(open(path)?);
        (state.bytes, state.is_torn) = (0, false);
        if state.tidying.as_ref().is_some_and(|thread| !thread.is_finished()) {
            // The next rotation does what this one leaves.
            return Ok(());
        }
        let inner = Arc::clone(self);
        let tidy = move || {
            let Some(path) = &inner.path else { return };
            if let Err(error) = rotation::tidy(path, &inner.rotation, now) {
                tracing::warn!(file = %path.display(), %error, "old audit logs could not be removed or compressed");
            }
        };
        state.tidying = Some(std::thread::Builder::new().name("audit-rotation".to_owned()).spawn(tidy)?);
        Ok(())
    }
}

impl Sink for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn send(&self, line: &Line) -> Delivery {
        match self.write(&line.0) {
            Ok(()) => Delivery::Done,
            Err(error) => Delivery::Lost(error.to_string()),
        }
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let log = Log(Arc::clone(&self.0));
        Box::pin(async move {
            let finished = tokio::task::spawn_blocking(move || log.finish()).await;
            if let Ok(Err(error)) = finished {
                tracing::error!(%error, "the audit log could not be synced");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn aud_35_36_lines_are_appended_to_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs").join("audit.log");
        let log = Log::open(&path, Rotation::default(), Clock::system()).unwrap();
        log.write(b"{\"a\":1}\n").unwrap();
        drop(log);
        let log = Log::open(&path, Rotation::default(), Clock::system()).unwrap();
        log.write(b"{\"a\":2}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"a\":2}\n");
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(Log::open(Path::new("-"), Rotation::default(), Clock::system()).is_ok());
        assert!(Log::open(&path.join("below-a-file"), Rotation::default(), Clock::system()).is_err());
    }

    #[tokio::test]
    async fn aud_36_a_file_that_would_be_too_large_is_replaced_and_no_line_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let rotation = Rotation { bytes_max: 20, files_max: 0, ..Rotation::default() };
        let millis = Arc::new(std::sync::atomic::AtomicI64::new(0));
        let clock = Clock::from_fn(move || {
            let now = millis.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            jiff::Timestamp::from_millisecond(now).unwrap()
        });
        let log = Log::open(&path, rotation, clock).unwrap();
        let lines: Vec<String> = (0..10).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        for line in &lines {
            assert!(matches!(log.send(&Line(line.clone().into())), Delivery::Done));
        }
        log.close().await;
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert_eq!(files.len(), 5, "two lines of eight bytes fit");
        let all: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        assert_eq!(all, lines.concat());
        assert_eq!(mode(&path), 0o600);
    }
}
