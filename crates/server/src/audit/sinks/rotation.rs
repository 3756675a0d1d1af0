//! Old log files: `audit.log` becomes `audit-2026-11-16T10-00-00.000.log`; the number and age of these is bounded.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const FORMAT: &str = "%Y-%m-%dT%H-%M-%S";
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// When a log file is replaced, and which old ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// A file that would become larger is replaced; zero is never.
    pub bytes_max: u64,
    /// Old files beyond this number are removed, the oldest first; zero keeps all.
    pub files_max: usize,
    /// Old files beyond this age are removed; zero keeps all.
    pub days_max: u64,
    /// Whether old files are compressed with gzip.
    pub compress: bool,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation { bytes_max: 100 << 20, files_max: 100, days_max: 366, compress: false }
    }
}

/// The name of an old file that was replaced at this time.
pub(super) fn old_name(path: &Path, now: Timestamp) -> PathBuf {
    let (stem, extension) = parts(path);
    let millis = now.subsec_millisecond().rem_euclid(1000);
    path.with_file_name(format!("{stem}-{}.{millis:03}{extension}", now.strftime(FORMAT)))
}

/// The name of a file without its extension, and the extension with its dot.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let extension = text(path.extension()).map(|extension| format!(".{extension}")).unwrap_or_default();
    (text(path.file_stem()).unwrap_or_default(), extension)
}

/// Removes the old files of a log that are too many or too old, and compresses the others if wanted.
pub(super) fn tidy(path: &Path, rotation: &Rotation, now: Timestamp) -> io::Result<()> {
    let mut old = old_files(path)?;
    old.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    for (at, (time, file)) in old.into_iter().enumerate() {
        let is_too_many = rotation.files_max > 0 && at >= rotation.files_max;
        let age_seconds = now.as_second().saturating_sub(time.as_second());
        let is_too_old = rotation.days_max > 0 && age_seconds / SECONDS_PER_DAY >= rotation.days_max as i64;
        if is_too_many || is_too_old {
            fs::remove_file(&file)?;
        } else if rotation.compress && file.extension().is_none_or(|extension| extension != "gz") {
            compress(&file)?;
        }
    }
    Ok(())
}

/// The old files of a log with the times in their names. Other files in the folder are none of ours.
fn old_files(path: &Path) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let (stem, extension) = parts(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let time = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('-'));
        let Some(time) = time.and_then(|rest| rest.strip_suffix(&extension)).and_then(parse_time) else { continue };
        found.push((time, file));
    }
    Ok(found)
}

fn parse_time(text: &str) -> Option<Timestamp> {
    let (seconds, millis) = text.split_once('.')?;
    let millis: i64 = millis.parse().ok().filter(|_| millis.len() == 3)?;
    let time = DateTime::strptime(FORMAT, seconds).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Timestamp::from_millisecond(time.as_millisecond() + millis).ok()
}

/// Replaces a file by its compressed form. The original is removed only once the other one is on disk.
fn compress(file: &Path) -> io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".gz");
    let target = PathBuf::from(name);
    let out = File::options().write(true).create(true).truncate(true).mode(0o600).open(&target)?;
    let mut encoder = GzEncoder::new(out, Compression::default());
    io::copy(&mut File::open(file)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::remove_file(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn aud_36_old_files_have_the_time_in_their_names() {
        let name = old_name(Path::new("/x/audit.log"), Timestamp::from_millisecond(1_234).unwrap());
        assert_eq!(name, Path::new("/x/audit-1970-01-01T00-00-01.234.log"));
        assert_eq!(old_name(Path::new("audit"), at(0)), Path::new("audit-1970-01-01T00-00-00.000"));
        assert_eq!(parse_time("1970-01-01T00-00-01.234"), Some(Timestamp::from_millisecond(1_234).unwrap()));
        assert_eq!(parse_time("latest"), None);
    }

    #[test]
    fn aud_36_old_files_are_bounded_by_number_and_age_and_compressed() {
        use std::io::Read as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let day = SECONDS_PER_DAY;
        for second in [0, 5 * day, 6 * day, 7 * day] {
            fs::write(old_name(&path, at(second)), format!("at {second}")).unwrap();
        }
        fs::write(dir.path().join("audit-notes.log"), "mine").unwrap();
        let names = || {
            let mut names: Vec<String> = fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        let rotation = Rotation { files_max: 0, days_max: 7, ..Rotation::default() };
        tidy(&path, &rotation, at(7 * day)).unwrap();
        assert_eq!(names().len(), 4, "the one of seven days is gone: {:?}", names());
        let rotation = Rotation { files_max: 2, days_max: 0, compress: true, ..Rotation::default() };
        tidy(&path, &rotation, at(7 * day)).unwrap();
        assert_eq!(
            names(),
            ["audit-1970-01-07T00-00-00.000.log.gz", "audit-1970-01-08T00-00-00.000.log.gz", "audit-notes.log"]
        );
        let mut text = String::new();
        let file = File::open(dir.path().join("audit-1970-01-08T00-00-00.000.log.gz")).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("at {}", 7 * day));
        tidy(&path, &rotation, at(8 * day)).unwrap();
        assert_eq!(names().len(), 3, "a compressed file is not compressed again");
    }
}
