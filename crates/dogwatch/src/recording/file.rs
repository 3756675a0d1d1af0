//! The file of a recording: compressed lines of JSON, one record each.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use machinery::Revision;
use machinery::json::{self, Value, json};
use store::Key;

/// The word by which a recording is recognised.
const FORMAT: &str = "dogwatch-recording";
/// The version that is written, and the newest that is read.
const VERSION: u64 = 1;
/// Longest line that is read: the largest object with every byte escaped.
const LINE_BYTES_MAX: u64 = 32 << 20;

/// The first line.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) started: Timestamp,
    pub(crate) command: Vec<String>,
    /// The server was ready at this revision: what it writes by itself when it starts is there.
    pub(crate) ready: Revision,
    /// Whether the server had controllers: some kinds are served only then.
    pub(crate) has_controllers: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedChange {
    pub(crate) revision: Revision,
    pub(crate) time: Timestamp,
    pub(crate) key: Key,
    /// The bytes of the object; none deletes it.
    pub(crate) value: Option<Bytes>,
}

/// A whole recording.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) header: Header,
    /// In the order of their revisions, without a gap from the first revision on.
    pub(crate) changes: Vec<RecordedChange>,
    /// Who made the changes, and the requests, as the lab showed them.
    pub(crate) rows: lab::Rows,
}

/// Writes a recording. The file has its name when it is whole, and another one before.
pub(super) struct Writer {
    path: PathBuf,
    part: PathBuf,
    out: GzEncoder<BufWriter<File>>,
}

impl Writer {
    pub(super) fn create(path: &Path, header: &Header) -> std::io::Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        // Objects hold secrets.
        let file = private(&part)?;
        let out = GzEncoder::new(BufWriter::new(file), Compression::fast());
        let mut writer = Writer { path: path.to_owned(), part, out };
        writer.line(&json!({
            "format": FORMAT,
            "version": VERSION,
            "program": concat!("dogwatch ", env!("CARGO_PKG_VERSION")),
            "started": header.started.to_string(),
            "command": header.command,
            "ready": header.ready.0,
            "controllers": header.has_controllers,
        }))?;
        Ok(writer)
    }

    pub(super) fn change(&mut self, change: &RecordedChange) -> std::io::Result<()> {
        let value = change.value.as_deref().map(|bytes| {
            std::str::from_utf8(bytes)
                .map_err(|_| std::io::Error::other(format!("{} is not a text", change.key.as_str())))
        });
        let record = json!({
            "revision": change.revision.0,
            "time": change.time.to_string(),
            "key": change.key.as_str(),
            "value": value.transpose()?,
        });
        self.line(&json!({"change": record}))
    }

    /// Who made a change, or a request, with its name and status.
    pub(super) fn row(&mut self, kind: &str, name: &str, status: &Value) -> std::io::Result<()> {
        self.line(&json!({kind: {"name": name, "status": status.clone()}}))
    }

    /// Ends the file and gives it its name.
    pub(super) fn finish(mut self, revision: Revision, code: i32) -> std::io::Result<()> {
        self.line(&json!({"end": {"revision": revision.0, "code": code}}))?;
        self.out.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&self.part, &self.path)
    }

    fn line(&mut self, record: &Value) -> std::io::Result<()> {
        self.out.write_all(record.to_string().as_bytes())?;
        self.out.write_all(b"\n")
    }
}

fn private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

impl Recording {
    /// Reads a whole recording. The error is a sentence about the file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: String| format!("{} cannot be replayed: {why}", path.display());
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(BufReader::new(GzDecoder::new(BufReader::new(file)))).map_err(wrong)
    }

    fn parse(mut lines: impl BufRead) -> Result<Self, String> {
        let first = next_line(&mut lines, 1).map_err(|_| "it is not a recording".to_owned())?;
        let header = header(&first.unwrap_or_default())?;
        let mut recording = Recording { header, changes: Vec::new(), rows: lab::Rows::default() };
        let mut number = 1;
        while let Some(record) = next_line(&mut lines, number + 1)? {
            number += 1;
            let wrong = |what: &str| format!("line {number} {what}");
            let (kind, content) =
                record.as_object().and_then(|object| object.iter().next()).ok_or_else(|| wrong("is not a record"))?;
            match &**kind {
                "change" => {
                    let change = change(content).ok_or_else(|| wrong("is not a change"))?;
                    let last = recording.changes.last().map_or(Revision::ZERO, |last| last.revision);
                    if change.revision != last.next() {
                        return Err(wrong(&format!("has revision {} after {last}", change.revision)));
                    }
                    recording.changes.push(change);
                }
                "writer" | "request" => {
                    let name = content["name"].as_str().unwrap_or_default();
                    recording.rows.add(kind == "request", name, content["status"].clone());
                }
                "end" => return Ok(recording),
                // Of a later version that adds something.
                _ => {}
            }
        }
        Err("it ends too early".to_owned())
    }
}

fn next_line(lines: &mut impl BufRead, number: u64) -> Result<Option<Value>, String> {
    let mut line = Vec::new();
    let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    let read = read.map_err(|error| format!("line {number} cannot be read: {error}"))?;
    if read == 0 {
        return Ok(None);
    }
    if read as u64 == LINE_BYTES_MAX {
        return Err(format!("line {number} is too long"));
    }
    json::from_slice(&line).map(Some).map_err(|error| format!("line {number} is not JSON: {error}"))
}

fn header(first: &Value) -> Result<Header, String> {
    if first["format"] != FORMAT {
        return Err("it is not a recording".to_owned());
    }
    let version = first["version"].as_u64().unwrap_or_default();
    if version == 0 || version > VERSION {
        return Err(format!("it has version {version} of the format, and this program reads {VERSION}"));
    }
    let words = first["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let started = first["started"].as_str().and_then(|text| text.parse().ok()).ok_or("line 1 has no time")?;
    let ready = Revision(first["ready"].as_u64().ok_or("line 1 has no revision")?);
    let has_controllers = first["controllers"] == true;
    Ok(Header { started, command: words.map(str::to_owned).collect(), ready, has_controllers })
}

fn change(content: &Value) -> Option<RecordedChange> {
    Some(RecordedChange {
        revision: Revision(content["revision"].as_u64()?),
        time: content["time"].as_str()?.parse().ok()?,
        key: Key::new(content["key"].as_str()?).ok()?,
        value: match &content["value"] {
            Value::Null => None,
            value => Some(Bytes::copy_from_slice(value.as_str()?.as_bytes())),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Recording, String> {
        Recording::parse(text.as_bytes())
    }

    const FIRST: &str =
        r#"{"format":"dogwatch-recording","version":1,"started":"2026-01-01T00:00:00Z","command":["true"],"ready":0}"#;

    #[test]
    fn see_5_a_recording_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.recording");
        let started: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let header =
            Header { started, command: vec!["go".into(), "test".into()], ready: Revision(1), has_controllers: true };
        let change = |revision, value: Option<&str>| RecordedChange {
            revision: Revision(revision),
            time: started,
            key: Key::new("core/configmaps/default/a").unwrap(),
            value: value.map(|text| Bytes::copy_from_slice(text.as_bytes())),
        };
        let changes = [change(1, Some("{\"a\": \"ä\\n\"}")), change(2, None)];
        let mut writer = Writer::create(&path, &header).unwrap();
        changes.iter().for_each(|change| writer.change(change).unwrap());
        writer.row("request", "req-1", &json!({"verb": "get"})).unwrap();
        assert!(!path.exists(), "it has its name when it is whole");
        writer.finish(Revision(2), 0).unwrap();
        let read = Recording::read(&path).unwrap();
        assert_eq!((read.changes, read.header.command), (changes.to_vec(), header.command));
        assert_eq!((read.header.ready, read.header.has_controllers), (Revision(1), true));
    }

    #[test]
    fn see_5_a_bad_file_is_refused_with_one_sentence() {
        let end = "{\"end\":{}}\n";
        for (text, why) in [
            (String::new(), "it is not a recording"),
            ("hello\n".to_owned(), "it is not a recording"),
            ("{}\n".to_owned(), "it is not a recording"),
            (FIRST.replace(":1,", ":7,"), "it has version 7 of the format, and this program reads 1"),
            (FIRST.to_owned(), "it ends too early"),
            (format!("{FIRST}\n{{\"change\":{{}}}}\n{end}"), "line 2 is not a change"),
            (format!("{FIRST}\n[]\n{end}"), "line 2 is not a record"),
            (
                format!(
                    "{FIRST}\n{{\"change\":{{\"revision\":3,\"time\":\"2026-01-01T00:00:00Z\",\"key\":\"a/b/c\",\"value\":null}}}}\n{end}"
                ),
                "line 2 has revision 3 after 0",
            ),
        ] {
            assert_eq!(parse(&text).err().as_deref(), Some(why), "{text}");
        }
        assert!(
            parse(&format!("{FIRST}\n{{\"later\":1}}\n{end}")).is_ok(),
            "records of later versions are passed over"
        );
    }
}
