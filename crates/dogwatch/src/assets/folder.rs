//! `dogwatch assets`: a folder in which this program is called kube-apiserver, etcd and kubectl.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::Asset;
use crate::failure::Failure;

/// Returns the folder, made on first use. Processes that make it at the same time all get the same one, complete.
pub fn folder() -> Result<PathBuf, Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::new(format!("this program has no path: {error}")))?;
    let cache = cache()?;
    make(&cache, &program).map_err(|error| {
        Failure::new(format!("the folder below {} cannot be made: {error}", cache.display()))
            .hint("set XDG_CACHE_HOME to a folder that can be written")
    })
}

/// Where programs of this user keep what can be made again.
fn cache() -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or_else(|| Failure::new("neither XDG_CACHE_HOME nor HOME names a folder"))?;
    Ok(cache.join("dogwatch"))
}

fn make(cache: &Path, program: &Path) -> io::Result<PathBuf> {
    // Another build of the program is another file, and gets another folder.
    let file = program.metadata()?;
    let folder = cache.join(format!("assets-{:x}-{:x}-{:x}", file.dev(), file.ino(), file.mtime_nsec() ^ file.mtime()));
    if is_complete(&folder, program) {
        return Ok(folder);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(cache)?;
    let partial = cache.join(format!("partial-{}-{:x}", std::process::id(), rand::random::<u64>()));
    fs::DirBuilder::new().mode(0o700).create(&partial)?;
    let made = Asset::ALL.into_iter().try_for_each(|asset| symlink(program, partial.join(asset.name())));
    // A folder is renamed whole, so that another process sees all names or none.
    let published = made.and_then(|()| fs::rename(&partial, &folder));
    if published.is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    // Another process may have been first; an incomplete folder was changed by a person, and is completed.
    if !is_complete(&folder, program) {
        published?;
        for asset in Asset::ALL {
            let _ = fs::remove_file(folder.join(asset.name()));
            symlink(program, folder.join(asset.name()))?;
        }
    }
    Ok(folder)
}

fn is_complete(folder: &Path, program: &Path) -> bool {
    Asset::ALL.into_iter().all(|asset| fs::read_link(folder.join(asset.name())).is_ok_and(|to| to == program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_processes_at_once_get_the_same_complete_folder() {
        let cache = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let folders: Vec<PathBuf> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..16).map(|_| scope.spawn(|| make(cache.path(), &program).unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(folders.iter().all(|folder| *folder == folders[0] && is_complete(folder, &program)));
        let left = fs::read_dir(cache.path()).unwrap().count();
        assert_eq!(left, 1, "no partial folder stays");
    }
}
