//! Custom resources whose versions somebody else converts: a webhook is asked, and what it says is held against its word.
//!
//! Readers want bytes at once, so an object is converted before it is shown and the result kept with the item, like every
//! other form of it. An object that is written goes the other way before it is stored.

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

use crate::conversion;
use crate::meta;
use crate::registry::Registry;
use crate::view::{self, View};

/// How webhooks are reached. The registry knows no HTTP.
pub trait Webhooks: Send + Sync {
    /// Posts a review to whoever a `clientConfig` names, and gives the body of the answer or why there is none.
    fn post(&self, client: &Value, review: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;
}

/// The webhook that converts a kind, if one does.
pub(crate) fn webhook(kind: &Kind) -> Option<&Arc<Definition>> {
    kind.definition.as_ref().filter(|definition| matches!(definition.conversion, Conversion::Webhook { .. }))
}

impl Registry {
    /// Says how webhooks are reached; without, those who need one are refused.
    pub fn call_webhooks_with(&self, webhooks: Arc<dyn Webhooks>) {
        if self.webhooks.set(webhooks).is_err() {
            tracing::error!("webhooks are reached already");
        }
    }

    /// Sees to it that items can be shown as objects of a kind. All are converted or none.
    pub(crate) async fn ready_to_show(&self, kind: &Kind, items: &[Arc<Item>]) -> Result<(), Status> {
        let Some(definition) = webhook(kind) else { return Ok(()) };
        let is_ready = |item: &Item| {
            conversion::is_shown_as_stored(kind, item.revision())
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
            let members = object.as_object().ok_or_else(|| Status::internal("an object is not an object"))?;
            let encoded = Encoded::from_stored(&to_stored(members), item.revision()).map_err(Status::internal)?;
            item.form(definition.form, || Ok::<_, Status>(encoded.whole().clone()))?;
        }
        Ok(())
    }

    /// A view that can be rendered.
    pub(crate) async fn shown(&self, view: View) -> Result<View, Status> {
        if let View::Stored { kind, item } = &view {
            self.ready_to_show(kind, std::slice::from_ref(item)).await?;
        }
        Ok(view)
    }

    /// The object of an item in the version of its kind, where a webhook has to say what that is.
    pub(crate) async fn converted(&self, kind: &Kind, item: &Arc<Item>) -> Result<Option<Value>, Status> {
        if webhook(kind).is_none() {
            return Ok(None);
        }
        self.ready_to_show(kind, std::slice::from_ref(item)).await?;
        view::value(kind, item).map(Some)
    }

    /// An object as it is stored; only a webhook can say what that is, elsewhere it is so already.
    pub(crate) async fn to_be_stored(&self, kind: &Kind, object: Value) -> Result<Value, Status> {
        let Some(definition) = webhook(kind).filter(|_| kind.storage != kind.group_version()) else {
            return Ok(object);
        };
        let mut stored = self.convert(kind, definition, vec![object], &kind.storage.to_string()).await?;
        let mut stored = stored.pop().unwrap_or_default();
        schema::custom::decode::from_storage(definition.stored_version(), &mut stored);
        Ok(stored)
    }

    /// Asks the webhook for objects in a version; those that are in it already it is not asked for.
    async fn convert(
        &self,
        kind: &Kind,
        definition: &Definition,
        mut objects: Vec<Value>,
        wanted: &str,
    ) -> Result<Vec<Value>, Status> {
        let Conversion::Webhook { client, versions } = &definition.conversion else { return Ok(objects) };
        let places: Vec<usize> = (0..objects.len()).filter(|at| objects[*at]["apiVersion"] != wanted).collect();
        if places.is_empty() {
            return Ok(objects);
        }
        let from = objects[places[0]]["apiVersion"].as_str().unwrap_or_default().to_owned();
        let failed = |why: String| {
            Status::unmapped(format!("conversion webhook for {from}, Kind={} failed: {why}", kind.gvk.kind))
        };
        let Some(review_version) = versions.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1")) else {
            return Err(Status::unmapped("no supported conversion review versions"));
        };
        let Some(webhooks) = self.webhooks.get() else { return Err(failed("webhooks cannot be reached".to_owned())) };
        let uid = uuid::Uuid::new_v4().to_string();
        let api_version = format!("apiextensions.k8s.io/{review_version}");
        let review = {
            let sent: Value = places.iter().map(|at| objects[*at].clone()).collect();
            json!({
                "kind": "ConversionReview", "apiVersion": api_version,
                "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": sent},
            })
        };
        let answer = webhooks.post(client, Bytes::from(json::to_string(&review))).await.map_err(&failed)?;
        let converted = answered(&answer, &api_version, &uid).map_err(&failed)?;
        if converted.len() != places.len() {
            return Err(Status::unmapped(format!(
                "conversion webhook for {from}, Kind={} returned {} objects, expected {}",
                kind.gvk.kind,
                converted.len(),
                places.len()
            )));
        }
        for (index, (at, mut object)) in places.into_iter().zip(converted).enumerate() {
            accept(&objects[at], &mut object, wanted).map_err(|why| {
                Status::unmapped(format!(
                    "conversion webhook for {from}, Kind={} returned invalid converted object at index {index}: {why}",
                    kind.gvk.kind
                ))
            })?;
            if let Some(version) = wanted.rsplit('/').next().and_then(|version| definition.version_named(version)) {
                schema::custom::decode::converted(version, &mut object);
            }
            objects[at] = object;
        }
        Ok(objects)
    }
}

/// A stored object read by the schema of its own version.
fn read_as_stored(definition: &Definition, object: &mut Value) {
    let version = object["apiVersion"].as_str().and_then(|version| version.rsplit('/').next()).map(str::to_owned);
    if let Some(version) = version.and_then(|version| definition.version_named(&version)) {
        schema::custom::decode::from_storage(version, object);
    }
}

/// The objects of an answer, or why there are none.
fn answered(answer: &[u8], api_version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let review = json::from_slice(answer).map_err(|error| format!("the answer is no JSON: {error}"))?;
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

/// Holds a converted object against the one that was sent; of its metadata only labels and annotations may differ.
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
    let Some(said) = converted["metadata"].as_object().cloned() else {
        return Err("missing metadata in converted object".to_owned());
    };
    let mut metadata = sent["metadata"].as_object().cloned().unwrap_or_default();
    for member in ["labels", "annotations"] {
        match said.get(member) {
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
    fn an_answer_must_be_to_the_question() {
        let answer = |review: Value| answered(json::to_string(&review).as_bytes(), "apiextensions.k8s.io/v1", "u");
        let review = |response: Value| json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response});
        assert_eq!(
            answered(b"<html>", "apiextensions.k8s.io/v1", "u").unwrap_err().split(':').next(),
            Some("the answer is no JSON")
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
