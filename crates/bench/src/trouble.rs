//! Why a measurement ended early, as one sentence for the person who ran it.

use std::fmt::Display;

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("the kubeconfig {path} cannot be used: {why}")]
    Kubeconfig { path: String, why: String },
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    #[error("the server went away: {0}")]
    Gone(String),
    #[error("the server refused to {what}: {message}")]
    Refused { what: String, message: String },
    /// Nothing is wrong with the server; this cannot be measured here.
    #[error("{0}")]
    Impossible(String),
}

impl Trouble {
    pub(crate) fn gone(why: impl Display) -> Self {
        Trouble::Gone(why.to_string())
    }

    pub(crate) fn impossible(why: impl Display) -> Self {
        Trouble::Impossible(why.to_string())
    }

    /// An answer that is not the one a request needs, in the server's own words where it has some.
    pub(crate) fn refused(what: impl Display, status: u16, body: &[u8]) -> Self {
        let said = serde_json::from_slice::<serde_json::Value>(body).ok();
        let said = said.and_then(|status| status["message"].as_str().map(str::to_owned));
        let message = said.unwrap_or_else(|| format!("status {status}"));
        Trouble::Refused { what: what.to_string(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::Trouble;

    #[test]
    fn a_refusal_has_the_servers_own_words() {
        let body = br#"{"kind":"Status","message":"pods \"a\" already exists"}"#;
        let sentence = Trouble::refused("create a pod", 409, body).to_string();
        assert_eq!(sentence, "the server refused to create a pod: pods \"a\" already exists");
        assert!(Trouble::refused("list", 500, b"<html>").to_string().ends_with("status 500"));
    }
}
