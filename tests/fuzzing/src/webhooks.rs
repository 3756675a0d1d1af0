//! Answers of admission webhooks.

use machinery::json::json;
use registry::admission::webhooks::try_answer;

/// The uid of the review that is answered.
pub const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// An answer to a review of each version, by a webhook of each kind.
pub fn answer(data: &[u8]) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}});
    for version in ["v1", "v1beta1"] {
        for mutating in [false, true] {
            match try_answer(data, version, UID, mutating, &object) {
                Ok(changed) => assert!(mutating || changed == object, "a validating webhook changes nothing"),
                Err(status) => assert!(status.http_code() >= 400, "{}", status.http_code()),
            }
        }
    }
}
