//! Errors of starting a server.

use std::io;
use std::path::{Path, PathBuf};

/// Certificates could not be generated, read or written.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("certificate: {0}")]
    Generate(#[from] rcgen::Error),
    #[error("certificate: {0}")]
    Unreadable(String),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl CertError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        CertError::File { path: path.to_owned(), source }
    }
}

/// A token file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path}, line {line}: {why}")]
    Line { path: PathBuf, line: usize, why: &'static str },
}
