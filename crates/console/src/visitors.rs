//! Who may use the page: a printed link has a one-time code, and the page exchanges it for a short-lived token.
//!
//! A token is `dwc.EXPIRY.NONCE.SIGNATURE`: seconds since 1970 in decimal, 16 random bytes and an HMAC-SHA256 in hexadecimal. Tokens
//! are not stored, so any number of them takes no memory and a restarted server accepts those of before.

use std::collections::VecDeque;
use std::fmt::Write as _;

use aws_lc_rs::hmac;
use parking_lot::Mutex;

/// Seconds for which a token is accepted. The page renews it before.
pub(crate) const TOKEN_SECONDS: i64 = 15 * 60;
/// Seconds for which the tokens of one code are renewed.
const VISIT_SECONDS: i64 = 24 * 3600;
/// Seconds for which a code can be exchanged.
const CODE_SECONDS: i64 = 60 * 60;
/// Codes that wait to be exchanged; the oldest is dropped for a new one.
const CODES_MAX: usize = 16;
const PREFIX: &str = "dwc.";

/// Issues codes and tokens.
pub struct Visitors {
    key: hmac::Key,
    /// Codes that were not exchanged yet, and when they expire.
    codes: Mutex<VecDeque<(String, i64)>>,
}

impl std::fmt::Debug for Visitors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visitors")
    }
}

impl Visitors {
    pub(crate) fn new(secret: &[u8]) -> Self {
        // A key of its own, so that a signature of a token says nothing about other uses of the secret.
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"dogwatch console tokens");
        Visitors { key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()), codes: Mutex::default() }
    }

    /// Returns a new one-time code. Times are seconds since 1970.
    pub fn issue_code(&self, now: i64) -> String {
        let code = random_text();
        let mut codes = self.codes.lock();
        if codes.len() >= CODES_MAX {
            codes.pop_front();
        }
        codes.push_back((code.clone(), now.saturating_add(CODE_SECONDS)));
        code
    }

    /// Exchanges a code for a token. A code works once.
    pub fn exchange(&self, code: &str, now: i64) -> Option<String> {
        let mut codes = self.codes.lock();
        codes.retain(|(_, expiry)| *expiry > now);
        let index = codes.iter().position(|(one, _)| is_equal(one, code))?;
        codes.remove(index);
        Some(self.issue_token(now, now))
    }

    /// Exchanges a token for one that expires later.
    pub fn renew(&self, token: &str, now: i64) -> Option<String> {
        let first = self.first_issued(token, now)?;
        Some(self.issue_token(first, now))
    }

    /// Whether a token is one of this server and has not expired.
    pub fn is_valid(&self, token: &str, now: i64) -> bool {
        self.first_issued(token, now).is_some()
    }

    /// When the first token of a visit was issued; none for a token that is not valid.
    fn first_issued(&self, token: &str, now: i64) -> Option<i64> {
        let (signed, signature) = token.strip_prefix(PREFIX)?.rsplit_once('.')?;
        let mut parts = signed.split('.');
        let (issued, first) = (parts.next()?.parse::<i64>().ok()?, parts.next()?.parse::<i64>().ok()?);
        let age = now.checked_sub(issued)?;
        let is_fresh = (0..TOKEN_SECONDS).contains(&age) && now.checked_sub(first)? < VISIT_SECONDS;
        let is_ours = hmac::verify(&self.key, signed.as_bytes(), &from_hex(signature)?).is_ok();
        (is_ours && is_fresh).then_some(first)
    }

    fn issue_token(&self, first: i64, now: i64) -> String {
        let signed = format!("{now}.{first}.{}", random_text());
        let signature = hex(hmac::sign(&self.key, signed.as_bytes()).as_ref());
        format!("{PREFIX}{signed}.{signature}")
    }
}

/// 128 random bits in hexadecimal.
fn random_text() -> String {
    hex(&rand::random::<[u8; 16]>())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.bytes().map(|byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

/// Compares in a time that does not depend on where the texts differ.
fn is_equal(one: &str, other: &str) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_works_once_and_not_for_ever() {
        let visitors = Visitors::new(b"secret");
        let code = visitors.issue_code(1000);
        assert!(visitors.exchange("", 1000).is_none());
        assert!(visitors.exchange("wrong", 1000).is_none());
        let token = visitors.exchange(&code, 1001).unwrap();
        assert!(visitors.is_valid(&token, 1001));
        assert!(visitors.exchange(&code, 1001).is_none());
        let late = visitors.issue_code(1000);
        assert!(visitors.exchange(&late, 1000 + CODE_SECONDS).is_none());
    }

    #[test]
    fn codes_are_bounded() {
        let visitors = Visitors::new(b"secret");
        let codes: Vec<String> = (0..=CODES_MAX).map(|_| visitors.issue_code(0)).collect();
        assert!(visitors.exchange(&codes[0], 1).is_none());
        assert!(visitors.exchange(&codes[1], 1).is_some());
    }

    #[test]
    fn a_token_expires_and_is_renewed() {
        let visitors = Visitors::new(b"secret");
        let token = visitors.issue_token(0, 0);
        assert!(visitors.is_valid(&token, TOKEN_SECONDS - 1));
        assert!(!visitors.is_valid(&token, TOKEN_SECONDS));
        let renewed = visitors.renew(&token, 600).unwrap();
        assert!(visitors.is_valid(&renewed, TOKEN_SECONDS + 1));
        assert!(visitors.renew(&token, TOKEN_SECONDS).is_none());
        assert!(!visitors.is_valid(&token, -1), "a token from the future is refused");
        let (mut now, mut last) = (0, token);
        while let Some(next) = visitors.renew(&last, now) {
            (now, last) = (now + TOKEN_SECONDS - 1, next);
        }
        assert!((VISIT_SECONDS..VISIT_SECONDS + TOKEN_SECONDS).contains(&now), "a visit ends after a day: {now}");
    }

    #[test]
    fn a_token_outlives_a_restart_and_no_other_secret_makes_one() {
        let token = Visitors::new(b"secret").issue_token(0, 0);
        assert!(Visitors::new(b"secret").is_valid(&token, 1));
        assert!(!Visitors::new(b"other").is_valid(&token, 1));
    }

    #[test]
    fn a_changed_token_is_refused() {
        let visitors = Visitors::new(b"secret");
        let token = visitors.issue_token(100, 100);
        let later = token.replacen("100", "101", 1);
        assert_ne!(later, token);
        for wrong in [
            "",
            "dwc.",
            "dwc.1",
            "dwc.1.2",
            "dwc.x.y.z",
            "dwc.1.2.é",
            later.as_str(),
            &token[1..],
            &format!("{token}0"),
        ] {
            assert!(!visitors.is_valid(wrong, 102), "{wrong}");
        }
    }
}
