//! Versions of custom resources that a webhook converts, and the checks of what it returns.
//!
//! Readers want bytes at once, so an object is converted before it is shown and the result kept with the item, like every
//! other form of it. An object that is written is converted the other way before it is stored.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use cache::Item;
use machinery::Status;
use machinery::encoded::{Encoded, to_stored};
use machinery::json::{self, Value, json};
use schema::custom::{Conversion, Definition};
use schema::kind::Kind;

use crate::admission::webhooks::client::CallFailure;
use crate::meta;
use crate::read::view::{self, View};
use crate::versions;

/// Calls webhooks. The registry itself knows no HTTP.
pub trait Webhooks: fmt::Debug + Send + Sync {
    /// Posts a review to the address in a `clientConfig`. Returns the body of the answer, or why there is none.
    fn post(&self, client: &Value, review: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, CallFailure>> + Send>>;
}

/// The definition of a kind that a webhook converts.
pub(crate) fn webhook(kind: &Kind) -> Option<&Arc<Definition>> {
    kind.definition.as_ref().filter(|definition| matches!(definition.conversion, Conversion::Webhook { .. }))
}

/// Converts objects through webhooks. Without a caller, requests that need one are refused.
#[derive(Debug)]
pub(crate) struct Converter {
    webhooks: Option<Arc<dyn Webhooks>>,
}

impl Converter {
    pub(crate) fn new(webhooks: Option<Arc<dyn Webhooks>>) -> Self {
        Converter { webhooks }
    }

    /// Converts items to the version of a kind, so that they can be shown. All are converted or none.
    pub(crate) async fn prepare(&self, kind: &Kind, items: &[Arc<Item>]) -> Result<(), Status> {
        let Some(definition) = webhook(kind) else { return Ok(()) };
        let is_ready = |item: &Item| {
            versions::is_shown_as_stored(kind, item.revision())
                || item.form(definition.form, || Err::<Bytes, ()>(())).is_ok()
        };
        let waiting: Vec<&Arc<Item>> = items.iter().filter(|item| !is_ready(item)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let mut objects = Vec::with_capacity(waiting.len());
        for item in &waiting {
            let mut object = view::parse(item)?;
            read_as_stored(definition, &mut object);
            objects.push(object);
        }
        let converted = self.convert(kind, definition, objects, &kind.group_version().to_string()).await?;
        for (item, object) in waiting.into_iter().zip(converted) {
            let members = object.as_object().ok_or_else(|| Status::internal("expected a JSON object"))?;
            let encoded = Encoded::from_stored(&to_stored(members), item.revision()).map_err(Status::internal)?;
            item.form(definition.form, || Ok::<_, Status>(encoded.whole().clone()))?;
        }
        Ok(())
    }

    /// Makes a view ready to be rendered.
    pub(crate) async fn prepare_view(&self, view: View) -> Result<View, Status> {
        if let View::Stored { kind, item } = &view {
            self.prepare(kind, std::slice::from_ref(item)).await?;
        }
        Ok(view)
    }

    /// The object of an item in the version of its kind; none where no webhook is needed for that.
    pub(crate) async fn converted(&self, kind: &Kind, item: &Arc<Item>) -> Result<Option<Value>, Status> {
        if webhook(kind).is_none() {
            return Ok(None);
        }
        self.prepare(kind, std::slice::from_ref(item)).await?;
        view::value(kind, item).map(Some)
    }

    /// Converts an object to its stored version if a webhook does that; elsewhere it is in that version already.
    pub(crate) async fn to_storage(&self, kind: &Kind, object: Value) -> Result<Value, Status> {
        let Some(definition) = webhook(kind).filter(|_| kind.storage != kind.group_version()) else {
            return Ok(object);
        };
        let mut stored = self.convert(kind, definition, vec![object], &kind.storage.to_string()).await?;
        let mut stored = stored.pop().unwrap_or_default();
        schema::custom::decode::from_storage(definition.stored_version(), &mut stored);
        Ok(stored)
    }

    /// Converts an object to the version of a kind, if a webhook does that.
    pub(crate) async fn between(&self, to: &Kind, object: Value) -> Result<Value, Status> {
        let Some(definition) = webhook(to) else { return Ok(object) };
        let mut converted = self.convert(to, definition, vec![object], &to.group_version().to_string()).await?;
        Ok(converted.pop().unwrap_or_default())
    }

    /// Converts those objects that are not in the wanted version.
    async fn convert(
        &self,
        kind: &Kind,
        definition: &Definition,
        mut objects: Vec<Value>,
        wanted: &str,
    ) -> Result<Vec<Value>, Status> {
        let Conversion::Webhook { client, versions } = &definition.conversion else { return Ok(objects) };
        let outdated: Vec<usize> = (0..objects.len()).filter(|at| objects[*at]["apiVersion"] != wanted).collect();
        if outdated.is_empty() {
            return Ok(objects);
        }
        let from = objects[outdated[0]]["apiVersion"].as_str().unwrap_or_default().to_owned();
        let failed = |why: String| {
            Status::unmapped(format!("conversion webhook for {from}, Kind={} failed: {why}", kind.gvk.kind))
        };
        let Some(review_version) = versions.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1")) else {
            return Err(Status::unmapped("no supported conversion review versions"));
        };
        let Some(webhooks) = &self.webhooks else { return Err(failed("webhooks cannot be reached".to_owned())) };
        let uid = uuid::Uuid::new_v4().to_string();
        let api_version = format!("apiextensions.k8s.io/{review_version}");
        let review = {
            let sent: Value = outdated.iter().map(|at| objects[*at].clone()).collect();
            json!({
                "kind": "ConversionReview", "apiVersion": api_version,
                "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": sent},
            })
        };
        let answer = match webhooks.post(client, Bytes::from(json::to_string(&review))).await {
            Ok(answer) => answer,
            // As with the strategy `None`: only the version changes.
            Err(CallFailure { skip: true, .. }) => {
                for at in outdated {
                    objects[at]["apiVersion"] = wanted.into();
                    finish(definition, wanted, &mut objects[at]);
                }
                return Ok(objects);
            }
            Err(CallFailure { text, .. }) => return Err(failed(text)),
        };
        let converted = parse_answer(&answer, &api_version, &uid).map_err(&failed)?;
        if converted.len() != outdated.len() {
            return Err(Status::unmapped(format!(
                "conversion webhook for {from}, Kind={} returned {} objects, expected {}",
                kind.gvk.kind,
                converted.len(),
                outdated.len()
            )));
        }
        for (index, (at, mut object)) in outdated.into_iter().zip(converted).enumerate() {
            accept(&objects[at], &mut object, wanted).map_err(|why| {
                Status::unmapped(format!(
                    "conversion webhook for {from}, Kind={} returned invalid converted object at index {index}: {why}",
                    kind.gvk.kind
                ))
            })?;
            finish(definition, wanted, &mut object);
            objects[at] = object;
        }
        Ok(objects)
    }
}

/// Prunes and defaults a converted object by the schema of its new version.
fn finish(definition: &Definition, wanted: &str, object: &mut Value) {
    if let Some(version) = wanted.rsplit('/').next().and_then(|version| definition.version_named(version)) {
        schema::custom::decode::converted(version, object);
    }
}

/// Prunes and defaults a stored object by the schema of its own version.
fn read_as_stored(definition: &Definition, object: &mut Value) {
    let version = object["apiVersion"].as_str().and_then(|version| version.rsplit('/').next()).map(str::to_owned);
    if let Some(version) = version.and_then(|version| definition.version_named(&version)) {
        schema::custom::decode::from_storage(version, object);
    }
}

/// The objects of an answer, or why there are none.
fn parse_answer(answer: &[u8], api_version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let review =
        json::from_slice(answer).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    let is_v1 = api_version.ends_with("/v1");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if is_v1 && (review["kind"] != "ConversionReview" || review["apiVersion"] != api_version) {
        return Err(format!(
            "expected webhook response of {api_version}, Kind=ConversionReview, got {}, Kind={}",
            text(&review["apiVersion"]),
            text(&review["kind"])
        ));
    }
    let response = &review["response"];
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    if is_v1 && response["uid"] != uid {
        let found = machinery::go_text::quote(&text(&response["uid"]));
        return Err(format!("expected response.uid={}, got {found}", machinery::go_text::quote(uid)));
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        return Err(match text(&result["message"]) {
            none if none.is_empty() => {
                format!("response.result.status was '{}', not 'Success'", text(&result["status"]))
            }
            message => message,
        });
    }
    Ok(response["convertedObjects"].as_array().cloned().unwrap_or_default())
}

/// Checks a converted object against the one that was sent; of its metadata only labels and annotations may differ.
fn accept(sent: &Value, converted: &mut Value, wanted: &str) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if converted["apiVersion"] != wanted {
        let found = text(&converted["apiVersion"]);
        return Err(format!("invalid groupVersion (expected {wanted}, received {found})"));
    }
    if converted["kind"] != sent["kind"] {
        let (expected, found) = (text(&sent["kind"]), text(&converted["kind"]));
        return Err(format!("invalid kind (expected {expected}, received {found})"));
    }
    for (member, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (meta::text(sent, member), meta::text(converted, member));
        if before != after {
            return Err(format!("must have the same {word}: {before} != {after}"));
        }
    }
    let Some(returned) = converted["metadata"].as_object().cloned() else {
        return Err("missing metadata in converted object".to_owned());
    };
    let mut metadata = sent["metadata"].as_object().cloned().unwrap_or_default();
    for member in ["labels", "annotations"] {
        match returned.get(member) {
            None | Some(Value::Null) => {
                metadata.shift_remove(member);
            }
            Some(Value::Object(map)) if map.values().all(Value::is_string) => {
                metadata.insert(member, Value::Object(map.clone()));
            }
            Some(_) => return Err(format!("invalid metadata.{member} in converted object")),
        }
    }
    converted["metadata"] = Value::Object(metadata);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_must_match_its_review() {
        let answer = |review: Value| parse_answer(json::to_string(&review).as_bytes(), "apiextensions.k8s.io/v1", "u");
        let review = |response: Value| json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response});
        assert_eq!(
            parse_answer(b"<html>", "apiextensions.k8s.io/v1", "u").unwrap_err().split(':').next(),
            Some("couldn't get version/kind; json parse error")
        );
        assert_eq!(answer(review(Value::Null)).unwrap_err(), "no response provided");
        assert_eq!(answer(review(json!({"uid": "x"}))).unwrap_err(), r#"expected response.uid="u", got "x""#);
        let failed = json!({"uid": "u", "result": {"status": "Failure", "message": "no way"}});
        assert_eq!(answer(review(failed)).unwrap_err(), "no way");
        let fine = json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{"a": 1}]});
        assert_eq!(answer(review(fine)).unwrap(), [json!({"a": 1})]);
    }

    #[test]
    fn a_converter_may_change_labels_and_nothing_else_of_the_metadata() {
        let sent = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x", "uid": "1", "generation": 3, "labels": {"a": "b"}}});
        let mut back = json!({"apiVersion": "g/v2", "kind": "K", "metadata": {"name": "x", "uid": "1", "generation": 9, "annotations": {"c": "d"}}});
        accept(&sent, &mut back, "g/v2").unwrap();
        assert_eq!(back["metadata"], json!({"name": "x", "uid": "1", "generation": 3, "annotations": {"c": "d"}}));
        let mut other = json!({"apiVersion": "g/v2", "kind": "K", "metadata": {"name": "y", "uid": "1"}});
        assert_eq!(accept(&sent, &mut other, "g/v2").unwrap_err(), "must have the same name: x != y");
        assert!(accept(&sent, &mut json!({"apiVersion": "g/v1"}), "g/v2").is_err());
    }
}
