//! `Trouble`: the failure of a measurement, as one sentence for its user.

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
    /// This cannot be measured here, through no fault of the server.
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

    /// An unsuccessful response; with the message of its Status if it has one.
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
