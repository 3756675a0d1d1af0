//! A file of this host as the log of a container, as KWOK's rules name one.
//!
//! The lines of such a file have the form of a container runtime: time, stream, tag, text. Other lines are shown as they are.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncSeekExt as _, AsyncWrite, AsyncWriteExt as _};

use super::log::{CurrentPod, FOLLOW_EVERY, LogSink, LogWanted, time};
use super::logs::LOG_BYTES_MAX;
use super::state;

/// Writes a file as a log: at most its last [`LOG_BYTES_MAX`] bytes, and what is appended while it is followed.
#[expect(clippy::disallowed_methods, reason = "a file of the machine is read again; nothing depends on when")]
pub(super) async fn write_file<W: AsyncWrite + Unpin>(
    path: &Path,
    wanted: &LogWanted,
    follows: bool,
    container: &str,
    current: &CurrentPod,
    sink: &mut LogSink<W>,
) -> io::Result<()> {
    let mut file = tokio::fs::File::open(path).await?;
    let len = file.metadata().await?.len();
    file.seek(io::SeekFrom::Start(len.saturating_sub(LOG_BYTES_MAX as u64))).await?;
    let mut text = Vec::new();
    (&mut file).take(LOG_BYTES_MAX as u64).read_to_end(&mut text).await?;
    text.drain(..tail_start(&text, wanted.tail_lines));
    let mut lines = Lines { pending: text, since: wanted.since };
    if !lines.write(sink, !follows).await? {
        return Ok(());
    }
    sink.to.flush().await?;
    if !follows {
        return Ok(());
    }
    loop {
        tokio::time::sleep(FOLLOW_EVERY).await;
        if !copy_appended(&mut file, &mut lines, sink).await? {
            return Ok(());
        }
        let runs = current().is_some_and(|pod| state::instance(&pod, container, false).is_ok_and(|found| found.runs()));
        if !runs {
            lines.write(sink, true).await?;
            return Ok(());
        }
    }
}

async fn copy_appended<W: AsyncWrite + Unpin>(
    file: &mut (impl AsyncRead + Unpin),
    lines: &mut Lines,
    sink: &mut LogSink<W>,
) -> io::Result<bool> {
    let mut piece = [0; 8 * 1024];
    loop {
        let len = file.read(&mut piece).await?;
        if len == 0 {
            sink.to.flush().await?;
            return Ok(true);
        }
        lines.pending.extend_from_slice(piece.get(..len).unwrap_or_default());
        // A line without an end must not fill the memory.
        let is_too_long = lines.pending.len() > LOG_BYTES_MAX;
        if !lines.write(sink, is_too_long).await? {
            return Ok(false);
        }
    }
}

/// Text that was read and not written yet.
struct Lines {
    pending: Vec<u8>,
    since: Option<Timestamp>,
}

impl Lines {
    /// Writes the lines that are complete, and with `all` also the last one. False if nothing more may be written.
    async fn write<W: AsyncWrite + Unpin>(&mut self, sink: &mut LogSink<W>, all: bool) -> io::Result<bool> {
        let end = match all {
            true => self.pending.len(),
            false => self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1),
        };
        let complete: Vec<u8> = self.pending.drain(..end).collect();
        for line in complete.split_inclusive(|byte| *byte == b'\n') {
            let goes_on = match Written::of(line) {
                None => sink.bytes(line).await?,
                Some(written) if self.since.is_some_and(|since| written.at < since) => true,
                Some(written) => {
                    let stamp = if sink.timestamps { format!("{} ", time(written.at)) } else { String::new() };
                    sink.bytes(stamp.as_bytes()).await? && sink.bytes(written.text).await?
                }
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A line in the form of a container runtime.
struct Written<'a> {
    at: Timestamp,
    /// With the end of the line, unless the line goes on in the next one.
    text: &'a [u8],
}

impl<'a> Written<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let at = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let is_stream = matches!(parts.next()?, b"stdout" | b"stderr");
        // Tags are separated by colons; the first says whether the line is whole.
        let is_partial = match parts.next()?.split(|byte| *byte == b':').next()? {
            b"F" => false,
            b"P" => true,
            _ => return None,
        };
        let text = parts.next()?;
        let text = if is_partial { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
        is_stream.then_some(Written { at, text })
    }
}

/// The position of the last lines of a text.
fn tail_start(text: &[u8], lines: Option<u64>) -> usize {
    let Some(lines) = lines.and_then(|lines| usize::try_from(lines).ok()) else { return 0 };
    let ends: Vec<usize> = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let complete = text.is_empty() || text.ends_with(b"\n");
    let all = ends.len() + usize::from(!complete);
    match all.checked_sub(lines) {
        None | Some(0) => 0,
        Some(skipped) => ends.get(skipped - 1).copied().unwrap_or(text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_file() {
        let last = |text: &'static str, lines| &text[tail_start(text.as_bytes(), Some(lines))..];
        let (two, one) = (last("a\nb\nc\n", 2), last("a\nb\nc", 1));
        assert_eq!((two, one, last("a\n", 5), last("a\n", 0)), ("b\nc\n", "c", "a\n", ""));
        assert_eq!(tail_start(b"a\nb", None), 0);
    }

    #[test]
    fn kw_4_lines_have_the_form_of_a_container_runtime() {
        let text = |line: &'static str| Written::of(line.as_bytes()).map(|written| written.text);
        assert_eq!(text("2026-01-01T00:00:00.5Z stdout F a b\n"), Some(&b"a b\n"[..]));
        assert_eq!(text("2026-01-01T00:00:00Z stderr P begins \n"), Some(&b"begins "[..]));
        assert_eq!(text("2026-01-01T00:00:00Z stdout F \n"), Some(&b"\n"[..]));
        for other in ["plain text\n", "2026-01-01T00:00:00Z stdin F x\n", "2026-01-01T00:00:00Z stdout X x\n", "\n", ""]
        {
            assert_eq!(text(other), None, "{other:?}");
        }
    }
}
