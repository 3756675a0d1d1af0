//! Archives of `tar`, which `kubectl cp` sends and receives: files and directories, with long names.
//!
//! An entry is a head of 512 bytes (name at 0, size in octal at 124, checksum at 148, type at 156) and its bytes, padded to
//! 512. Two empty heads are the end.

use std::io::Write as _;
use std::sync::Arc;

use crate::nodes::shell::Files;
use crate::nodes::shell::files::{FileError, PATH_BYTES_MAX};

/// Bytes of an archive that is read or written.
pub(super) const ARCHIVE_BYTES_MAX: usize = 4 * 1024 * 1024;
const BLOCK: usize = 512;

/// An entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// None for a directory.
    pub(super) bytes: Option<Vec<u8>>,
}

/// Whether an archive is complete: the two empty blocks of its end have arrived.
pub(super) fn is_complete(archive: &[u8]) -> bool {
    let mut at = 0;
    while let Some(head) = archive.get(at..at + BLOCK) {
        if head.iter().all(|byte| *byte == 0) {
            return archive.len() >= at + 2 * BLOCK;
        }
        let Some(size) = size_of(head) else { return true };
        at = at.saturating_add(BLOCK).saturating_add(size.next_multiple_of(BLOCK));
    }
    false
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned()
}

fn size_of(head: &[u8]) -> Option<usize> {
    let digits = text(head.get(124..136)?);
    let digits = digits.trim();
    if digits.is_empty() {
        return Some(0);
    }
    usize::from_str_radix(digits, 8).ok().filter(|size| *size <= ARCHIVE_BYTES_MAX)
}

/// Reads an archive.
pub(super) fn read(archive: &[u8]) -> Result<Vec<Entry>, &'static str> {
    const DAMAGED: &str = "This does not look like a tar archive";
    let mut entries = Vec::new();
    let (mut at, mut long_name) = (0, None);
    while let Some(head) = archive.get(at..at + BLOCK).filter(|head| head.iter().any(|byte| *byte != 0)) {
        let sum: u64 =
            head.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u64::from(*b) }).sum();
        let stated = u64::from_str_radix(text(head.get(148..156).unwrap_or_default()).trim(), 8);
        if stated != Ok(sum) {
            return Err(DAMAGED);
        }
        let size = size_of(head).ok_or("an entry of the archive is too large")?;
        let bytes = archive.get(at + BLOCK..at + BLOCK + size).ok_or("Unexpected EOF in archive")?;
        at += BLOCK + size.next_multiple_of(BLOCK);
        let (name, prefix) = (text(head.get(..100).unwrap_or_default()), text(head.get(345..500).unwrap_or_default()));
        let is_posix = head.get(257..263) == Some(b"ustar\0");
        let name = if is_posix && !prefix.is_empty() { format!("{prefix}/{name}") } else { name };
        if long_name.as_ref().is_some_and(|name: &String| name.len() > PATH_BYTES_MAX) {
            return Err("a name of the archive is too long");
        }
        match head.get(156) {
            // The name of the next entry, in the forms of GNU and of POSIX.
            Some(b'L') => long_name = Some(text(bytes)),
            Some(b'x') => long_name = pax_path(bytes).or(long_name),
            Some(b'0' | 0) => {
                entries.push(Entry { name: long_name.take().unwrap_or(name), bytes: Some(bytes.to_vec()) });
            }
            Some(b'5') => entries.push(Entry { name: long_name.take().unwrap_or(name), bytes: None }),
            // Links and devices are left out, as kubectl leaves them out.
            _ => long_name = None,
        }
    }
    if entries.is_empty() && at == 0 && archive.len() < BLOCK {
        return Err(DAMAGED);
    }
    Ok(entries)
}

/// The path of an extended head: lines of `LENGTH path=NAME`.
fn pax_path(bytes: &[u8]) -> Option<String> {
    let records = String::from_utf8_lossy(bytes);
    records.lines().find_map(|line| line.split_once(' ')?.1.strip_prefix("path=").map(str::to_owned))
}

fn append(archive: &mut Vec<u8>, name: &str, kind: u8, bytes: &[u8]) {
    let mut head = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| {
        if let Some(field) = head.get_mut(at..at + text.len()) {
            field.copy_from_slice(text);
        }
    };
    put(0, name.as_bytes().get(..name.len().min(100)).unwrap_or_default());
    put(100, if kind == b'5' { b"0000755\0" } else { b"0000644\0" });
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", bytes.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar  \0");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(field) = head.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    archive.extend_from_slice(&head);
    archive.extend_from_slice(bytes);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

/// Writes an archive. Names are as given, without the slash at their beginning.
pub(super) fn write(entries: &[(String, Option<Arc<[u8]>>)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, bytes) in entries {
        let mut name = name.trim_start_matches('/').to_owned();
        if bytes.is_none() {
            name.push('/');
        }
        if name.len() >= 100 {
            let mut long = name.clone().into_bytes();
            let _ = long.write_all(&[0]);
            append(&mut archive, "././@LongLink", b'L', &long);
        }
        append(&mut archive, &name, if bytes.is_some() { b'0' } else { b'5' }, bytes.as_deref().unwrap_or_default());
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

/// Unpacks an archive into a directory. The error is what `tar` would print.
pub(super) fn unpack(files: &Files, archive: &[u8], directory: &str) -> Result<(), String> {
    let failed = |name: &str, error: FileError| format!("tar: {name}: Cannot open: {error}\n");
    if !files.is_directory(directory) {
        return Err(format!(
            "tar: {directory}: Cannot open: No such file or directory\ntar: Error is not recoverable: exiting now\n"
        ));
    }
    for entry in read(archive).map_err(|why| format!("tar: {why}\ntar: Error is not recoverable: exiting now\n"))? {
        let relative = entry.name.trim_start_matches('/').trim_end_matches('/');
        if relative.split('/').any(|part| part == "..") {
            return Err(format!("tar: {relative}: Member name contains '..'\n"));
        }
        let path = format!("{}/{relative}", directory.trim_end_matches('/'));
        match entry.bytes {
            None => files.make_directory(&path, true).map_err(|error| failed(relative, error))?,
            Some(bytes) => {
                if let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
                    files.make_directory(parent, true).map_err(|error| failed(relative, error))?;
                }
                files.write(&path, &bytes, false).map_err(|error| failed(relative, error))?;
            }
        }
    }
    Ok(())
}

/// Packs a file, or a directory with what is in it. The error is what `tar` would print.
pub(super) fn pack(files: &Files, path: &str, name: &str) -> Result<Vec<u8>, String> {
    let mut entries = Vec::new();
    collect(files, path, name, &mut entries).map_err(|error| {
        format!("tar: {name}: Cannot stat: {error}\ntar: Exiting with failure status due to previous errors\n")
    })?;
    Ok(write(&entries))
}

fn collect(
    files: &Files,
    path: &str,
    name: &str,
    entries: &mut Vec<(String, Option<Arc<[u8]>>)>,
) -> Result<(), FileError> {
    let mut waiting = vec![(path.to_owned(), name.to_owned())];
    let mut total = 0;
    while let Some((path, name)) = waiting.pop() {
        total += name.len() + BLOCK;
        if files.is_directory(&path) {
            let children = files.list(&path)?;
            let join = |parent: &str, child: &str| format!("{}/{child}", parent.trim_end_matches('/'));
            waiting.extend(children.iter().rev().map(|child| (join(&path, child), join(&name, child))));
            entries.push((name.trim_end_matches('/').to_owned(), None));
        } else {
            let bytes = files.read(&path)?;
            total += bytes.len();
            entries.push((name, Some(bytes)));
        }
        if total > ARCHIVE_BYTES_MAX {
            return Err(FileError::Full);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cp_1_archives_are_read_as_they_are_written() {
        let long = format!("{}/file", "d".repeat(120));
        let entries = [
            ("/a/b".to_owned(), None),
            ("/a/b/c.txt".to_owned(), Some(Arc::from(&b"hello"[..]))),
            (long.clone(), Some(Arc::from(&b""[..]))),
        ];
        let archive = write(&entries);
        assert!(is_complete(&archive) && !is_complete(&archive[..archive.len() - 1]));
        let read = read(&archive).unwrap();
        assert_eq!(read[0], Entry { name: "a/b/".to_owned(), bytes: None });
        assert_eq!(read[1], Entry { name: "a/b/c.txt".to_owned(), bytes: Some(b"hello".to_vec()) });
        assert_eq!(read[2].name, long);
    }

    #[test]
    fn cp_2_damaged_archives_are_refused() {
        let mut archive = write(&[("a".to_owned(), Some(Arc::from(&b"hello"[..])))]);
        archive[0] = b'b';
        assert!(read(&archive).is_err(), "the checksum differs");
        assert!(read(b"nonsense").is_err());
        assert_eq!(read(&[0; 1024]), Ok(Vec::new()));
        let files = Files::default();
        let up = write(&[("../../etc/passwd".to_owned(), Some(Arc::from(&b"x"[..])))]);
        assert!(unpack(&files, &up, "/tmp").is_err());
        assert!(unpack(&files, &write(&[]), "/missing").is_err());
        let deep = write(&[("a/".repeat(100_000), None)]);
        assert!(unpack(&files, &deep, "/tmp").is_err(), "a long name");
    }

    #[test]
    fn cp_2_every_change_of_an_archive_is_read_or_refused() {
        let archive = write(&[("a".repeat(120), Some(Arc::from(&b"hello"[..]))), ("d".to_owned(), None)]);
        for at in 0..archive.len() {
            for value in [0, b'7', 0xff] {
                let mut changed = archive.clone();
                changed[at] = value;
                let _ = (read(&changed), read(&changed[..at]), is_complete(&changed));
            }
        }
    }

    #[test]
    fn cp_1_files_are_copied_in_and_out() {
        let files = Files::default();
        let archive = write(&[("dir".to_owned(), None), ("dir/x".to_owned(), Some(Arc::from(&b"1"[..])))]);
        unpack(&files, &archive, "/tmp").unwrap();
        assert_eq!(&*files.read("/tmp/dir/x").unwrap(), b"1");
        let packed = read(&pack(&files, "/tmp/dir", "/tmp/dir").unwrap()).unwrap();
        assert_eq!(packed.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["tmp/dir/", "tmp/dir/x"]);
        assert!(pack(&files, "/missing", "missing").unwrap_err().contains("No such file or directory"));
    }
}
