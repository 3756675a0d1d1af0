//! The files that a simulated container sees: its own root, and the volumes that it mounts.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes of files in one volume or root.
pub const FILES_BYTES_MAX: usize = 1024 * 1024;
/// Files and directories in one volume or root.
pub const FILES_MAX: usize = 1_000;
/// Bytes of a path; longer ones are refused.
pub const PATH_BYTES_MAX: usize = 4096;

/// Directories that every image has.
const DIRECTORIES: [&str; 24] = [
    "/bin",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/local",
    "/usr/share",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/tmp",
];

/// A file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Directory,
    File(Arc<[u8]>),
}

/// The files of one volume, or of the root of one instance of a container, by absolute path.
#[derive(Debug, Default)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
    bytes: usize,
}

/// A tree that several containers use.
pub type SharedTree = Arc<Mutex<Tree>>;

/// Why a file could not be read or written, in the words of the C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileError {
    NotFound,
    IsDirectory,
    NotDirectory,
    NotEmpty,
    Exists,
    ReadOnly,
    Full,
    TooLong,
}

impl std::fmt::Display for FileError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            FileError::NotFound => "No such file or directory",
            FileError::IsDirectory => "Is a directory",
            FileError::NotDirectory => "Not a directory",
            FileError::NotEmpty => "Directory not empty",
            FileError::Exists => "File exists",
            FileError::ReadOnly => "Read-only file system",
            FileError::Full => "No space left on device",
            FileError::TooLong => "File name too long",
        })
    }
}

impl Tree {
    /// The root of a new instance of a container.
    #[must_use]
    pub fn root() -> Self {
        let entries = DIRECTORIES.iter().map(|path| ((*path).to_owned(), Entry::Directory)).collect();
        Self { entries, bytes: 0 }
    }

    fn write(&mut self, path: &str, bytes: Arc<[u8]>) -> Result<(), FileError> {
        let before = match self.entries.get(path) {
            Some(Entry::Directory) => return Err(FileError::IsDirectory),
            Some(Entry::File(bytes)) => bytes.len(),
            None => 0,
        };
        let after = self.bytes - before + bytes.len();
        if after > FILES_BYTES_MAX || self.entries.len() >= FILES_MAX {
            return Err(FileError::Full);
        }
        self.bytes = after;
        self.entries.insert(path.to_owned(), Entry::File(bytes));
        Ok(())
    }

    fn remove(&mut self, path: &str) {
        if let Some(Entry::File(bytes)) = self.entries.remove(path) {
            self.bytes -= bytes.len();
        }
    }
}

/// A volume at a path.
#[derive(Debug, Clone)]
struct Mount {
    path: String,
    tree: SharedTree,
    /// The directory of the volume that is mounted (`subPath`); empty for all of it.
    inside: String,
    read_only: bool,
}

/// The files of one container. Cheap to clone; clones share the files.
#[derive(Debug, Clone)]
pub struct Files {
    root: SharedTree,
    mounts: Vec<Mount>,
}

impl Default for Files {
    fn default() -> Self {
        Self { root: Arc::new(Mutex::new(Tree::root())), mounts: Vec::new() }
    }
}

impl Files {
    /// Mounts a volume. One at a path that is too long is left out.
    pub fn mount(&mut self, path: &str, tree: SharedTree, sub_path: &str, read_only: bool) {
        if short(path).is_err() || short(sub_path).is_err() {
            return;
        }
        let inside = absolute("/", sub_path);
        let inside = if inside == "/" { String::new() } else { inside };
        self.mounts.push(Mount { path: absolute("/", path), tree, inside, read_only });
        self.mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
    }

    /// The tree that a path is in, and the path there.
    fn place(&self, path: &str) -> (&SharedTree, String, bool) {
        let path = absolute("/", path);
        for mount in &self.mounts {
            if path == mount.path || mount.path == "/" || path.starts_with(&format!("{}/", mount.path)) {
                let rest = path.strip_prefix(&mount.path).unwrap_or_default().trim_start_matches('/');
                return (&mount.tree, absolute(&format!("{}/", mount.inside), rest), mount.read_only);
            }
        }
        (&self.root, path, false)
    }

    #[must_use]
    pub fn is_directory(&self, path: &str) -> bool {
        if short(path).is_err() {
            return false;
        }
        let (tree, path, _) = self.place(path);
        path == "/" || matches!(tree.lock().entries.get(&path), Some(Entry::Directory)) || self.is_mount(&path)
    }

    fn is_mount(&self, path: &str) -> bool {
        self.mounts.iter().any(|mount| mount.path == path || mount.path.starts_with(&format!("{path}/")))
    }

    /// The bytes of a file.
    pub fn read(&self, path: &str) -> Result<Arc<[u8]>, FileError> {
        short(path)?;
        if self.is_directory(path) {
            return Err(FileError::IsDirectory);
        }
        let (tree, path, _) = self.place(path);
        match tree.lock().entries.get(&path) {
            Some(Entry::File(bytes)) => Ok(Arc::clone(bytes)),
            _ => Err(FileError::NotFound),
        }
    }

    /// Writes a file, or appends to it. Its directory must exist.
    pub fn write(&self, path: &str, bytes: &[u8], append: bool) -> Result<(), FileError> {
        short(path)?;
        self.writable_parent(path)?;
        if self.is_directory(path) {
            return Err(FileError::IsDirectory);
        }
        let mut all = if append { self.read(path).map(|old| old.to_vec()).unwrap_or_default() } else { Vec::new() };
        all.extend_from_slice(bytes);
        let (tree, path, _) = self.place(path);
        tree.lock().write(&path, all.into())
    }

    fn writable_parent(&self, path: &str) -> Result<(), FileError> {
        let path = absolute("/", path);
        let parent = path.rsplit_once('/').map_or("/", |(parent, _)| if parent.is_empty() { "/" } else { parent });
        if !self.is_directory(parent) {
            return Err(if self.read(parent).is_ok() { FileError::NotDirectory } else { FileError::NotFound });
        }
        if self.place(&path).2 { Err(FileError::ReadOnly) } else { Ok(()) }
    }

    /// Makes a directory; with `parents` also those above it.
    pub fn make_directory(&self, path: &str, parents: bool) -> Result<(), FileError> {
        short(path)?;
        let path = absolute("/", path);
        if self.is_directory(&path) {
            return if parents { Ok(()) } else { Err(FileError::Exists) };
        }
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
        for end in ends.filter(|end| parents || *end == path.len()) {
            let path = path.get(..end).unwrap_or_default();
            if self.is_directory(path) {
                continue;
            }
            if self.read(path).is_ok() {
                return Err(FileError::Exists);
            }
            self.writable_parent(path)?;
            let (tree, path, _) = self.place(path);
            let mut tree = tree.lock();
            if tree.entries.len() >= FILES_MAX {
                return Err(FileError::Full);
            }
            tree.entries.insert(path, Entry::Directory);
        }
        Ok(())
    }

    /// Removes a file; with `recursive` also a directory and what is in it.
    pub fn remove(&self, path: &str, recursive: bool) -> Result<(), FileError> {
        let is_directory = self.is_directory(path);
        if is_directory && !recursive {
            return Err(FileError::IsDirectory);
        }
        if !is_directory && self.read(path).is_err() {
            return Err(FileError::NotFound);
        }
        let (tree, path, read_only) = self.place(path);
        if read_only {
            return Err(FileError::ReadOnly);
        }
        let mut tree = tree.lock();
        let below = format!("{}/", path.trim_end_matches('/'));
        let inside: Vec<String> = tree.entries.keys().filter(|name| name.starts_with(&below)).cloned().collect();
        inside.iter().for_each(|name| tree.remove(name));
        tree.remove(&path);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &str) -> Result<(), FileError> {
        if !self.is_directory(path) {
            return Err(if self.read(path).is_ok() { FileError::NotDirectory } else { FileError::NotFound });
        }
        if self.list(path)?.is_empty() { self.remove(path, true) } else { Err(FileError::NotEmpty) }
    }

    /// The names in a directory.
    pub fn list(&self, path: &str) -> Result<Vec<String>, FileError> {
        if !self.is_directory(path) {
            return Err(FileError::NotFound);
        }
        let whole = absolute("/", path);
        let (tree, path, _) = self.place(path);
        let below = |directory: &str| format!("{}/", directory.trim_end_matches('/'));
        let (below_here, below_whole) = (below(&path), below(&whole));
        let first = |name: &str, below: &str| {
            name.strip_prefix(below).and_then(|rest| rest.split('/').next()).map(str::to_owned)
        };
        let tree = tree.lock();
        let here = tree.entries.keys().filter_map(|name| first(name, &below_here));
        let mounted = self.mounts.iter().filter_map(|mount| first(&mount.path, &below_whole));
        let mut names: Vec<String> = here.chain(mounted).filter(|name| !name.is_empty()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.is_directory(path) || self.read(path).is_ok()
    }
}

/// Refuses a path that is too long.
fn short(path: &str) -> Result<(), FileError> {
    if path.len() > PATH_BYTES_MAX { Err(FileError::TooLong) } else { Ok(()) }
}

/// A path from the root, without `.` and `..`.
#[must_use]
pub fn absolute(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let from = if path.starts_with('/') { "" } else { directory };
    for part in from.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_shared_and_roots_are_not() {
        let volume = SharedTree::default();
        let container = || {
            let mut files = Files::default();
            files.mount("/data", volume.clone(), "", false);
            files.mount("/data/config", volume.clone(), "sub", true);
            files
        };
        let (first, second) = (container(), container());
        first.write("/data/flag", b"1", false).unwrap();
        first.write("/tmp/own", b"1", false).unwrap();
        assert_eq!(&*second.read("/data/../data/flag").unwrap(), b"1");
        assert_eq!(second.read("/tmp/own"), Err(FileError::NotFound));
        first.make_directory("/data/sub", false).unwrap();
        first.write("/data/sub/x", b"2", false).unwrap();
        assert_eq!(&*second.read("/data/config/x").unwrap(), b"2");
        assert_eq!(second.write("/data/config/y", b"", false), Err(FileError::ReadOnly));
        assert_eq!(second.list("/data").unwrap(), ["config", "flag", "sub"]);
        assert_eq!(first.write("/none/x", b"", false), Err(FileError::NotFound));
        first.remove("/data/sub", true).unwrap();
        assert!(!second.exists("/data/config/x"));
    }

    #[test]
    fn paths_are_bounded() {
        let files = Files::default();
        assert_eq!(files.make_directory(&"/a".repeat(500_000), true), Err(FileError::TooLong));
        assert_eq!(files.make_directory(&"/a".repeat(2_000), true), Err(FileError::Full), "many directories");
        assert_eq!(files.write(&format!("/tmp/{}", "x".repeat(5_000)), b"", false), Err(FileError::TooLong));
        let files = Files::default();
        files.make_directory("/x/y/z", true).unwrap();
        assert!(files.is_directory("/x/y"));
        assert_eq!(files.make_directory("/none/y", false), Err(FileError::NotFound));
    }

    #[test]
    fn a_volume_is_bounded() {
        let files = Files::default();
        let big = vec![0; FILES_BYTES_MAX];
        files.write("/tmp/a", &big, false).unwrap();
        assert_eq!(files.write("/tmp/b", b"1", false), Err(FileError::Full));
        files.write("/tmp/a", b"1", false).unwrap();
        for number in 0..FILES_MAX {
            let _ = files.write(&format!("/tmp/{number}"), b"", false);
        }
        assert_eq!(files.write("/tmp/one-more", b"", false), Err(FileError::Full));
    }
}
