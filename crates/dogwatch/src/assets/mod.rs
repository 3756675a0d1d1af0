//! The program under the names of other programs: `kube-apiserver`, `etcd` and `kubectl`.
//!
//! Test suites of operators start a control plane from a folder with these three names (`KUBEBUILDER_ASSETS`). `dogwatch
//! assets` prints such a folder, in which each name is a link to this program.
//!
//! - `folder` makes the folder
//! - `flags` reads a command line in the style of those programs
//! - `apiserver` is `dogwatch up` with the flags of kube-apiserver
//! - `etcd` answers health checks; the objects are stored by the API server
//! - `connection` reads the flags of kubectl that name a server
//! - `kubectl` starts the kubectl of the machine, or runs the few commands that this program has
//! - `parent` ends the process with the one that started it

mod apiserver;
mod connection;
mod etcd;
mod flags;
mod folder;
mod kubectl;
mod parent;

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use crate::failure::Failure;

pub use folder::folder;

/// A program whose name and flags this one has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asset {
    ApiServer,
    Etcd,
    Kubectl,
}

impl Asset {
    pub const ALL: [Asset; 3] = [Asset::ApiServer, Asset::Etcd, Asset::Kubectl];

    /// The name of the program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Asset::ApiServer => "kube-apiserver",
            Asset::Etcd => "etcd",
            Asset::Kubectl => "kubectl",
        }
    }

    /// The program that this process was started as, by the first word of its command line.
    #[must_use]
    pub fn of_command_line(first_word: &OsString) -> Option<Asset> {
        let name = Path::new(first_word).file_name()?;
        Asset::ALL.into_iter().find(|asset| asset.name() == name)
    }
}

/// Runs as another program with the words after its name.
pub fn run(asset: Asset, words: Vec<String>) -> Pin<Box<dyn Future<Output = Result<(), Failure>>>> {
    match asset {
        Asset::ApiServer => Box::pin(apiserver::run(words)),
        Asset::Etcd => Box::pin(etcd::run(words)),
        Asset::Kubectl => Box::pin(kubectl::run(words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_known_by_its_file_name() {
        let asset = |word: &str| Asset::of_command_line(&OsString::from(word));
        assert_eq!(asset("/cache/assets/kube-apiserver"), Some(Asset::ApiServer));
        assert_eq!(asset("etcd"), Some(Asset::Etcd));
        assert_eq!(asset("./kubectl"), Some(Asset::Kubectl));
        assert_eq!(asset("/usr/bin/dogwatch"), None);
        assert_eq!(asset("etcdctl"), None);
    }
}
