//! What a script writes, with its times, bounded.

use jiff::Timestamp;

/// Bytes of output that are kept until they are taken; more are dropped.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// Bytes that were written at one time to one of the two outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub at: Timestamp,
    pub is_error: bool,
    pub bytes: Vec<u8>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputLine {
    pub at: Timestamp,
    pub is_error: bool,
    pub text: String,
}

/// The output of a script that has not been taken yet.
#[derive(Debug, Default)]
pub(super) struct Output {
    chunks: Vec<Chunk>,
    bytes: usize,
    /// Lines without an end, of both outputs.
    partial: [Vec<u8>; 2],
    finished: Option<Timestamp>,
}

impl Output {
    pub(super) fn write(&mut self, at: Timestamp, is_error: bool, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(OUTPUT_BYTES_MAX.saturating_sub(self.bytes))];
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        match self.chunks.last_mut() {
            Some(last) if last.at == at && last.is_error == is_error => last.bytes.extend_from_slice(bytes),
            _ => self.chunks.push(Chunk { at, is_error, bytes: bytes.to_vec() }),
        }
    }

    pub(super) fn finish(&mut self, at: Timestamp) {
        self.finished = Some(at);
    }

    pub(super) fn take_chunks(&mut self) -> Vec<Chunk> {
        self.bytes = 0;
        std::mem::take(&mut self.chunks)
    }

    /// The lines that are complete; after the end also what has no end of line.
    pub(super) fn take_lines(&mut self) -> Vec<OutputLine> {
        let mut lines = Vec::new();
        for chunk in self.take_chunks() {
            let partial = &mut self.partial[usize::from(chunk.is_error)];
            partial.extend_from_slice(&chunk.bytes);
            let Some(end) = partial.iter().rposition(|byte| *byte == b'\n') else { continue };
            let complete: Vec<u8> = partial.drain(..=end).collect();
            let texts = complete[..end].split(|byte| *byte == b'\n');
            lines.extend(texts.map(|text| line_of(chunk.at, chunk.is_error, text)));
        }
        let ended = self.finished;
        for (is_error, partial) in [false, true].into_iter().zip(&mut self.partial) {
            if let Some(at) = ended.filter(|_| !partial.is_empty()) {
                lines.push(line_of(at, is_error, partial));
                partial.clear();
            }
            // A line that never ends is cut.
            partial.truncate(OUTPUT_BYTES_MAX);
        }
        lines
    }
}

fn line_of(at: Timestamp, is_error: bool, bytes: &[u8]) -> OutputLine {
    OutputLine { at, is_error, text: String::from_utf8_lossy(bytes).into_owned() }
}
