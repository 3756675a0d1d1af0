//! Continue tokens, which lead from one page of a list to the next (spec 01 §6).
//!
//! It is base64url without padding of `{"v":"meta.k8s.io/v1","rv":5,"start":"ns/name\u0000","left":1500}`: the revision all
//! pages share, and the first key of the next page, relative to the collection. Revision −1 means the latest; a client whose
//! revision is compacted gets a token with it to continue.
//!
//! `left` is an addition of this server; the reference does not write it and ignores it. All pages show one revision, so the
//! objects left after a page are those left before it less the page, and no page has to count them. `listed` is another: the second
//! at which the first page was read. Pages end with a 410 some minutes after it, as they do in the reference, which forgets
//! old revisions at such intervals.

use crate::json::{Value, json};
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::go_json::json_kind;
use crate::{Revision, Status, go_json, go_text};

const VERSION: &str = "meta.k8s.io/v1";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// Revision to read at; `None` is the latest.
    pub revision: Option<Revision>,
    /// First key of the page, inclusive. A token made by [`ContinueToken::after`] ends in a NUL, so that the last key of the
    /// previous page is excluded.
    pub start: String,
    /// Number of objects from `start` on, if known. Only reported back to the client, so a forged number misleads only its sender.
    pub left: Option<u64>,
    /// Second of the first page since 1970; a token of another server has none.
    pub listed: Option<i64>,
}

impl ContinueToken {
    /// Creates the token that continues after `last`, the key of the last item returned, relative to the collection.
    #[must_use]
    pub fn after(last: &str, revision: Revision) -> Self {
        ContinueToken { revision: Some(revision), start: format!("{last}\0"), left: None, listed: None }
    }

    /// Sets the number of objects left.
    #[must_use]
    pub fn with_left(self, left: Option<u64>) -> Self {
        ContinueToken { left, ..self }
    }

    /// Sets the second of the first page.
    #[must_use]
    pub fn with_listed(self, listed: i64) -> Self {
        ContinueToken { listed: Some(listed), ..self }
    }

    /// Returns a token for the same key at the latest revision.
    #[must_use]
    pub fn at_latest(&self) -> Self {
        ContinueToken { revision: None, start: self.start.clone(), left: None, listed: None }
    }

    #[must_use]
    pub fn encode(&self) -> String {
        let revision = match self.revision {
            // Signed, as etcd's revisions are.
            Some(Revision(n)) => i64::try_from(n).unwrap_or(i64::MAX),
            None => -1,
        };
        let mut token = json!({"v": VERSION, "rv": revision, "start": self.start});
        if let Some(left) = self.left {
            token["left"] = json!(left);
        }
        if let Some(listed) = self.listed {
            token["listed"] = json!(listed);
        }
        BASE64.encode(go_text::json(&token))
    }

    /// Decodes a token; the error is the 400 response.
    pub fn decode(text: &str) -> Result<Self, Status> {
        Self::parse(text).map_err(|why| Status::bad_request(format!("invalid continue token: {why}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let invalid = |why: String| format!("continue key is not valid: {why}");
        let decoded = BASE64.decode(text).map_err(|e| invalid(base64_error(&e, text.len())))?;
        if let Some(why) = go_json::syntax_error(&decoded) {
            return Err(invalid(why));
        }
        let token: Value = serde_json::from_slice(&decoded).map_err(|e| invalid(e.to_string()))?;
        if !token.is_object() && !token.is_null() {
            let kind = json_kind(&token);
            return Err(invalid(format!("json: cannot unmarshal {kind} into Go value of type storage.continueToken")));
        }
        let wrong = |name: &str, value: &Value, ty: &str| {
            let kind = json_kind(value);
            invalid(format!("json: cannot unmarshal {kind} into Go struct field continueToken.{name} of type {ty}"))
        };
        let text = |name: &str| match token.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.to_string()),
            Some(other) => Err(wrong(name, other, "string")),
        };
        let version = text("v")?;
        let revision = match token.get("rv") {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_i64().ok_or_else(|| wrong("rv", value, "int64"))?,
        };
        let start = text("start")?;
        if version != VERSION {
            return Err(format!("continue key is not valid: server does not recognize this encoded version {version}"));
        }
        if revision == 0 {
            return Err(invalid(format!("incorrect encoded start resourceVersion (version {VERSION})")));
        }
        if start.is_empty() {
            return Err(invalid(format!("encoded start key empty (version {VERSION})")));
        }
        // A key with `..` would leave the collection and expose other objects.
        let relative = start.strip_prefix('/').unwrap_or(&start);
        let is_clean = relative.is_empty() || relative.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
        if !is_clean {
            return Err(invalid(start));
        }
        let revision = u64::try_from(revision).ok().map(Revision);
        let left = token.get("left").and_then(Value::as_u64).filter(|_| revision.is_some());
        let listed = token.get("listed").and_then(Value::as_i64).filter(|_| revision.is_some());
        Ok(ContinueToken { revision, start: relative.to_owned(), left, listed })
    }
}

fn base64_error(error: &base64::DecodeError, len: usize) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => len.saturating_sub(1),
    };
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let token = ContinueToken::after("ns/a<b", Revision(7));
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token.clone()));
        let counted = token.with_left(Some(1500)).with_listed(1_700_000_000);
        assert_eq!(ContinueToken::decode(&counted.encode()), Ok(counted.clone()));
        let latest = counted.at_latest();
        assert_eq!(latest.left, None, "what is left later is not known");
        assert_eq!(ContinueToken::decode(&latest.encode()), Ok(latest));
    }

    #[test]
    fn has_the_reference_form() {
        let token = ContinueToken { revision: None, start: "a\0".to_owned(), left: None, listed: None };
        assert_eq!(token.encode(), "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9");
    }

    #[test]
    fn garbage_and_tokens_that_decode_but_are_wrong() {
        for (text, want) in [
            ("garbage", "invalid character '\\x81' looking for beginning of value"),
            ("e30", "server does not recognize this encoded version "),
            ("{}", "illegal base64 data at input byte 0"),
            ("eyJ2IjoidjkiLCJydiI6NSwic3RhcnQiOiJhIn0", "server does not recognize this encoded version v9"),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIifQ",
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
            ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzIn0", "../../secrets"),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhIiwiZXh0cmEiO",
                "illegal base64 data at input byte 64",
            ),
        ] {
            let message = ContinueToken::decode(text).map_err(|status| status.message);
            assert_eq!(message, Err(format!("invalid continue token: continue key is not valid: {want}")));
        }
    }
}
