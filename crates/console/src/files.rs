//! The files of the page.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;

/// One file of the page.
#[derive(Debug)]
pub(crate) struct File {
    /// Path below `/console/`.
    pub(crate) path: &'static str,
    pub(crate) media: &'static str,
    pub(crate) etag: &'static str,
    pub(crate) gzip: &'static [u8],
}

static FILES: &[File] = &include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Finds a file by its path below `/console/`.
pub(crate) fn find(path: &str) -> Option<&'static File> {
    let path = if path.is_empty() { "index.html" } else { path };
    FILES.iter().find(|file| file.path == path)
}

impl File {
    /// The content for a client that does not accept gzip.
    pub(crate) fn plain(&self) -> Bytes {
        let mut content = Vec::new();
        // The bytes were compressed by the build.
        let _ = GzDecoder::new(self.gzip).read_to_end(&mut content);
        content.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_page_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.gzip.len()).sum();
        assert!(find("").is_some() && bytes > 0);
        assert!(bytes <= 150 * 1024, "{bytes} bytes compressed");
    }

    #[test]
    fn only_what_a_browser_needs_is_served() {
        assert!(find("README.md").is_none());
        assert!(find("../crates/console/src/lib.rs").is_none());
    }

    #[test]
    fn no_file_refers_to_another_host() {
        for file in FILES {
            let text = String::from_utf8(file.plain().to_vec()).unwrap();
            for line in text.lines().filter(|line| line.contains("http://") || line.contains("https://")) {
                assert!(line.contains("http://www.w3.org/"), "{}: {line}", file.path);
            }
        }
    }
}
