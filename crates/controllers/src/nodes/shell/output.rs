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
            // Only what is new can have an end of line: a long line that comes in small parts is not searched again and again.
            let Some(end) = chunk.bytes.iter().rposition(|byte| *byte == b'\n') else {
                partial.extend_from_slice(&chunk.bytes);
                continue;
            };
            let (complete, rest) = (&chunk.bytes[..end], &chunk.bytes[end + 1..]);
            partial.extend_from_slice(complete);
            let texts = partial.split(|byte| *byte == b'\n');
            lines.extend(texts.map(|text| line_of(chunk.at, chunk.is_error, text)));
            *partial = rest.to_vec();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_come_in_parts_are_put_together_by_stream() {
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH + std::time::Duration::from_secs(1));
        let mut output = Output::default();
        for (at, is_error, bytes) in [
            (early, false, "on"),
            (early, true, "er"),
            (late, false, "e\ntwo\nth"),
            (late, true, "ror\n"),
            (late, false, "ree"),
        ] {
            output.write(at, is_error, bytes.as_bytes());
        }
        let texts =
            |lines: Vec<OutputLine>| lines.into_iter().map(|line| (line.is_error, line.text)).collect::<Vec<_>>();
        let expected =
            [(false, "one"), (false, "two"), (true, "error")].map(|(is_error, text)| (is_error, text.to_owned()));
        assert_eq!(texts(output.take_lines()), expected);
        assert!(output.take_lines().is_empty());
        output.finish(late);
        assert_eq!(texts(output.take_lines()), [(false, "three".to_owned())]);
    }
}
