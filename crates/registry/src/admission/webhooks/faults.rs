//! Faults of single webhooks, set at run time, so that the failure policy of a real configuration can be tested without a
//! broken server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use machinery::json::{self, Value, json};
use parking_lot::RwLock;

use super::client::CallFailure;

/// Longest delay.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Most webhooks with a fault.
const FAULTS_MAX: usize = 1000;

/// What goes wrong with each call of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call begins later.
    Delay(Duration),
    /// The connection is closed without an answer.
    Drop,
    /// The answer is that of another review.
    BadUid,
    /// The answer has a patch that does not apply.
    BadPatch,
    /// The answer has this code and no review.
    Code(u16),
}

/// The faults of a server, by the names of webhooks.
#[derive(Debug, Default)]
pub struct Faults {
    /// Whether there are any: calls of other webhooks take no lock.
    any: AtomicBool,
    by_name: RwLock<HashMap<String, Fault>>,
}

impl Fault {
    /// Reads a fault: `delay=500` (milliseconds), `drop`, `bad-uid`, `bad-patch` or `code=503`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number, not {value:?}"));
        match name {
            "delay" => Ok(Fault::Delay(Duration::from_millis(number()?).min(DELAY_MAX))),
            "drop" => Ok(Fault::Drop),
            "bad-uid" => Ok(Fault::BadUid),
            "bad-patch" => Ok(Fault::BadPatch),
            "code" => match u16::try_from(number()?) {
                Ok(code @ 300..=599) => Ok(Fault::Code(code)),
                _ => Err(format!("a code is between 300 and 599, not {value}")),
            },
            _ => Err(format!("{name:?} is no fault; there are: delay=MILLISECONDS, drop, bad-uid, bad-patch, code=N")),
        }
    }

    fn text(self) -> String {
        match self {
            Fault::Delay(by) => format!("delay={}", by.as_millis()),
            Fault::Drop => "drop".to_owned(),
            Fault::BadUid => "bad-uid".to_owned(),
            Fault::BadPatch => "bad-patch".to_owned(),
            Fault::Code(code) => format!("code={code}"),
        }
    }

    /// Why a call with this fault has no answer.
    pub(super) fn failure(self) -> Option<CallFailure> {
        match self {
            Fault::Drop => Some(CallFailure::new("EOF")),
            Fault::Code(404) => Some(CallFailure::new("the server could not find the requested resource")),
            Fault::Code(503) => Some(CallFailure::new("the server is currently unable to handle the request")),
            Fault::Code(500..) => {
                Some(CallFailure::new("an error on the server (\"unknown\") has prevented the request from succeeding"))
            }
            Fault::Code(code) => Some(CallFailure::new(format!(
                "the server responded with the status code {code} but did not return more information"
            ))),
            Fault::Delay(_) | Fault::BadUid | Fault::BadPatch => None,
        }
    }

    /// The answer with this fault.
    pub(super) fn spoil(self, answer: Bytes) -> Bytes {
        let change = match self {
            Fault::BadUid => json!({"uid": "00000000-0000-0000-0000-000000000000"}),
            // `[{"op":"remove","path":"/dogwatch/fault"}]`
            Fault::BadPatch => json!({
                "patch": "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2RvZ3dhdGNoL2ZhdWx0In1d", "patchType": "JSONPatch",
            }),
            Fault::Delay(_) | Fault::Drop | Fault::Code(_) => return answer,
        };
        let Ok(mut review) = json::from_slice(&answer) else { return answer };
        review.parse_raw();
        for (member, value) in change.as_object().into_iter().flatten() {
            if review["response"].is_object() {
                review["response"][member.as_str()] = value.clone();
            }
        }
        Bytes::from(json::to_string(&review))
    }
}

impl Faults {
    /// Sets the fault of a webhook.
    pub fn set(&self, webhook: &str, fault: Fault) -> Result<(), String> {
        let mut by_name = self.by_name.write();
        if by_name.len() >= FAULTS_MAX && !by_name.contains_key(webhook) {
            return Err(format!("there are {FAULTS_MAX} webhooks with faults already"));
        }
        by_name.insert(webhook.to_owned(), fault);
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes the fault of a webhook; returns whether it had one.
    pub fn remove(&self, webhook: &str) -> bool {
        let mut by_name = self.by_name.write();
        let removed = by_name.remove(webhook).is_some();
        self.any.store(!by_name.is_empty(), Ordering::Release);
        removed
    }

    /// All faults by webhook.
    #[must_use]
    pub fn list(&self) -> Value {
        let by_name = self.by_name.read();
        let mut pairs: Vec<(&String, &Fault)> = by_name.iter().collect();
        pairs.sort_by_key(|(name, _)| *name);
        let members = pairs.into_iter().map(|(name, fault)| (name.as_str(), json!(fault.text())));
        Value::Object(members.collect())
    }

    pub(super) fn of(&self, webhook: &str) -> Option<Fault> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.by_name.read().get(webhook).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bd_9_faults_are_set_and_removed_by_name() {
        let faults = Faults::default();
        assert_eq!(faults.of("a"), None);
        for text in ["delay=20", "drop", "bad-uid", "bad-patch", "code=503"] {
            faults.set("a", Fault::parse(text).unwrap()).unwrap();
            assert_eq!(faults.list(), json!({"a": text}));
        }
        assert_eq!((faults.of("a"), faults.of("b")), (Some(Fault::Code(503)), None));
        assert!(faults.remove("a") && !faults.remove("a"));
        assert_eq!(faults.of("a"), None);
        for wrong in ["", "delay", "delay=x", "code=200", "code=70000", "explode"] {
            assert!(Fault::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bd_9_answers_are_spoiled() {
        let answer = Bytes::from_static(br#"{"response":{"uid":"u","allowed":true}}"#);
        let spoiled = |fault: Fault| json::from_slice(&fault.spoil(answer.clone())).unwrap();
        assert_ne!(spoiled(Fault::BadUid)["response"]["uid"], "u");
        assert_eq!(spoiled(Fault::BadPatch)["response"]["patchType"], "JSONPatch");
        assert_eq!(Fault::Drop.spoil(answer.clone()), answer);
    }
}
