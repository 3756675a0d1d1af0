//! Archives with the same bytes for the same content: entries in the order of their paths, one fixed time, no names of users.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libdeflater::{CompressionLvl, Compressor, Crc};
use sha2::{Digest, Sha256};

/// Time of every entry in seconds: the first instant that a zip archive can express, 1980-01-01.
const MTIME: u64 = 315_532_800;
/// The same day in the form of a zip archive.
const ZIP_DATE: u16 = (1 << 5) | 1;

/// A file, folder or link of a package.
#[derive(Debug, Clone)]
pub(super) struct Entry<'a> {
    /// Relative, without a leading `./`.
    pub(super) path: String,
    pub(super) mode: u32,
    /// Number of the user and of the group.
    pub(super) owner: u32,
    pub(super) body: Body<'a>,
}

#[derive(Debug, Clone)]
pub(super) enum Body<'a> {
    Folder,
    File(Cow<'a, [u8]>),
}

impl<'a> Entry<'a> {
    pub(super) fn file(path: impl Into<String>, content: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { path: path.into(), mode: 0o644, owner: 0, body: Body::File(content.into()) }
    }

    pub(super) fn program(path: impl Into<String>, content: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { mode: 0o755, ..Self::file(path, content) }
    }

    pub(super) fn folder(path: impl Into<String>, mode: u32, owner: u32) -> Self {
        Self { path: path.into(), mode, owner, body: Body::Folder }
    }

    /// Moves the entry below a folder.
    pub(super) fn below(self, folder: &str) -> Self {
        Self { path: format!("{folder}/{}", self.path), ..self }
    }

    pub(super) fn content(&self) -> &[u8] {
        match &self.body {
            Body::File(content) => content,
            Body::Folder => &[],
        }
    }
}

/// Adds the folders above the entries, for formats whose readers do not create them.
pub(super) fn with_folders(mut entries: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    let mut folders: Vec<String> = entries
        .iter()
        .flat_map(|entry| entry.path.match_indices('/').map(|(end, _)| entry.path[..end].to_owned()))
        .collect();
    folders.sort();
    folders.dedup();
    folders.retain(|folder| !entries.iter().any(|entry| entry.path == *folder));
    entries.extend(folders.into_iter().map(|folder| Entry::folder(folder, 0o755, 0)));
    entries
}

/// Returns a tar archive. `prefix` is put before each path: Debian packages have `./`.
pub(super) fn tar(mut entries: Vec<Entry<'_>>, prefix: &str) -> Result<Vec<u8>, String> {
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let size: usize = entries.iter().map(|entry| entry.content().len() + 1024).sum();
    let mut builder = tar::Builder::new(Vec::with_capacity(size + 1024));
    for entry in &entries {
        let mut header = tar::Header::new_ustar();
        let (kind, end) = match entry.body {
            Body::Folder => (tar::EntryType::Directory, "/"),
            Body::File(_) => (tar::EntryType::Regular, ""),
        };
        header.set_entry_type(kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.into());
        header.set_gid(entry.owner.into());
        header.set_mtime(MTIME);
        header.set_size(entry.content().len() as u64);
        set_path(&mut header, &format!("{prefix}{}{end}", entry.path))?;
        header.set_cksum();
        builder.append(&header, entry.content()).map_err(|e| format!("{}: {e}", entry.path))?;
    }
    builder.into_inner().map_err(|e| format!("tar: {e}"))
}

/// Writes the path as it is: the library would drop the leading `./`.
fn set_path(header: &mut tar::Header, path: &str) -> Result<(), String> {
    let name = &mut header.as_old_mut().name;
    if path.len() > name.len() {
        return Err(format!("{path} is longer than the {} characters of a tar entry", name.len()));
    }
    name.fill(0);
    name[..path.len()].copy_from_slice(path.as_bytes());
    Ok(())
}

/// Compresses; `fast` is for tests, where the time counts and the size does not.
pub(super) fn gzip(bytes: &[u8], fast: bool) -> Result<Vec<u8>, String> {
    let mut compressor = compressor(fast)?;
    let mut output = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let size = compressor.gzip_compress(bytes, &mut output).map_err(|e| format!("gzip: {e}"))?;
    output.truncate(size);
    Ok(output)
}

fn compressor(fast: bool) -> Result<Compressor, String> {
    let level = CompressionLvl::new(if fast { 1 } else { 12 }).map_err(|e| format!("compression level: {e:?}"))?;
    Ok(Compressor::new(level))
}

/// Returns a zip archive in the given order: the last file of a wheel lists those before it.
pub(super) fn zip(entries: &[Entry<'_>], fast: bool) -> Result<Vec<u8>, String> {
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let content = entry.content();
        let mut compressor = compressor(fast)?;
        let mut packed = vec![0; compressor.deflate_compress_bound(content.len())];
        let size = compressor.deflate_compress(content, &mut packed).map_err(|e| format!("zip: {e}"))?;
        packed.truncate(size);
        let mut crc = Crc::new();
        crc.update(content);
        let offset = number(archive.len())?;
        // From the version needed (2.0) to the length of the extra field, equal in both headers.
        let mut common = Vec::new();
        for value in [20, 0, 8, 0, ZIP_DATE] {
            common.extend(u16::to_le_bytes(value));
        }
        for value in [crc.sum(), number(size)?, number(content.len())?] {
            common.extend(value.to_le_bytes());
        }
        let name = u16::try_from(entry.path.len()).map_err(|_| format!("{} is too long a name", entry.path))?;
        common.extend(name.to_le_bytes());
        common.extend([0, 0]);

        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(entry.path.as_bytes());
        archive.extend(&packed);

        // 3 is Unix: readers take the mode from the upper half of the attributes.
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        // Length of the comment, number of the disk, internal attributes.
        directory.extend([0; 6]);
        directory.extend(((0o100_000 | entry.mode) << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.path.as_bytes());
    }
    let count = u16::try_from(entries.len()).map_err(|_| "too many files for a zip archive")?.to_le_bytes();
    let (start, size) = (number(archive.len())?, number(directory.len())?);
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(count);
    archive.extend(count);
    archive.extend(size.to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0, 0]);
    Ok(archive)
}

fn number(size: usize) -> Result<u32, String> {
    u32::try_from(size).map_err(|_| "a zip archive holds at most 4 GB".to_owned())
}

/// Returns the archive format of Debian packages.
pub(super) fn ar(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        // Name, time, user, group, mode, size.
        let header = format!("{name:<16}{MTIME:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, content.len());
        archive.extend(header.as_bytes());
        archive.extend(content);
        if content.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

/// A checksum in the forms that package formats write it in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checksum([u8; 32]);

impl Checksum {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(super) fn hex(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    pub(super) fn base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// As wheels have it: with the alphabet of URLs and without padding.
    pub(super) fn url_base64(&self) -> String {
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Checksum, Entry, ar, tar, with_folders};

    #[test]
    fn archives_do_not_depend_on_the_order_of_their_entries() {
        let one = Entry::file("b/two", b"2".as_slice());
        let two = Entry::program("a", b"1".as_slice());
        let forward = tar(with_folders(vec![one.clone(), two.clone()]), "./").expect("short names fit");
        let backward = tar(with_folders(vec![two, one]), "./").expect("short names fit");
        assert_eq!(forward, backward);
        assert!(forward.starts_with(b"./a\0"), "the prefix is kept");
    }

    #[test]
    fn members_of_odd_length_are_padded() {
        let archive = ar(&[("debian-binary", b"2.0".to_vec()), ("x", Vec::new())]);
        assert_eq!(archive.len(), 8 + 60 + 4 + 60);
        assert_eq!(&archive[8 + 58..8 + 60], b"`\n");
    }

    #[test]
    fn a_checksum_has_three_forms() {
        let checksum = Checksum::of(b"");
        assert!(checksum.hex().starts_with("e3b0c44298fc1c149afb"));
        assert_eq!(checksum.base64(), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_eq!(checksum.url_base64(), "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
    }
}
