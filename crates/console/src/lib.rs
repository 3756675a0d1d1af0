//! The console: a web page that shows a control plane, on the public API only. Its sources are in `console/` at the root of
//! the repository, and this crate serves them.
//!
//! - `files`: the files, compressed when the crate was built
//! - `visitors`: the one-time code of a printed link, and the tokens that it is exchanged for
//! - `answer`: a request to a response, with the checks that keep other pages out

mod answer;
mod files;
mod visitors;

pub use answer::{PATH, TOKEN_REQUEST_BYTES_MAX, is_own_path, is_same_origin};
pub use visitors::Visitors;

/// The page of one server.
#[derive(Debug)]
pub struct Console {
    visitors: Visitors,
    /// Names of this server beside `localhost` and addresses.
    names: Vec<String>,
}

impl Console {
    /// `secret` signs the tokens: with the same one, tokens outlive a restart. `names` are the DNS names of the server.
    #[must_use]
    pub fn new(secret: &[u8], names: Vec<String>) -> Self {
        Console { visitors: Visitors::new(secret), names }
    }

    #[must_use]
    pub fn visitors(&self) -> &Visitors {
        &self.visitors
    }
}
