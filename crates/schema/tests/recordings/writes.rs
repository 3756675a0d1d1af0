//! Plays recorded writes offline: decoding, defaults, patches, ownership. What a genuine server answered, ours must have made.
//!
//! After each step the recorded object is taken as stored, so that one difference does not cause others.

use std::collections::HashMap;

use machinery::Status;
use schema::decode::{self, FieldValidation, Media};
use schema::facts::{Type, Types};
use schema::kind::Kind;
use schema::managed::{self, Subject, Writer};
use serde_json::Value;

use crate::decode::{difference, with_times};
use crate::{scenarios, steps, text};

const NOW: &str = "2024-01-02T03:04:05Z";

/// One request, taken apart.
struct Request<'a> {
    kind: &'a Kind,
    ty: Type,
    name: Option<&'a str>,
    subresource: &'a str,
    query: &'a str,
    method: &'a str,
    content: &'a str,
    body: Vec<u8>,
}

impl<'a> Request<'a> {
    fn of(step: &'a Value) -> Option<Request<'a>> {
        let (path, query) = text(step, "path").split_once('?').unwrap_or((text(step, "path"), ""));
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let rest = match rest {
            ["namespaces", _, plural, ..] if !matches!(*plural, "status" | "finalize") => &rest[2..],
            rest => rest,
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, ""),
            [plural, name] => (*plural, Some(*name), ""),
            [plural, name, subresource] => (*plural, Some(*name), *subresource),
            _ => return None,
        };
        let kind = schema::kinds::builtin().get(group, version, plural)?;
        let gvk = match subresource {
            "" => &kind.gvk,
            name => &kind.subresource(name)?.gvk,
        };
        if *gvk != kind.gvk {
            return None;
        }
        let body = match step["body"].get("$raw") {
            Some(raw) => raw.as_str()?.as_bytes().to_vec(),
            None if step["body"].is_null() => Vec::new(),
            None => {
                let mut body = step["body"].clone();
                with_times(&mut body);
                body.to_string().into_bytes()
            }
        };
        Some(Request {
            ty: Types::get().kind(gvk)?,
            kind,
            name,
            subresource,
            query,
            method: text(step, "method"),
            content: text(&step["headers"], "Content-Type"),
            body,
        })
    }

    fn parameter(&self, name: &str) -> &str {
        let pair = self.query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name));
        pair.map_or("", |(_, value)| value)
    }

    fn key(&self, answer: &Value) -> Option<String> {
        let name = self.name.or_else(|| answer.pointer("/metadata/name").and_then(Value::as_str))?;
        Some(format!("{}/{name}", self.kind.collection))
    }

    fn manager(&self, step: &Value) -> String {
        let agent = step["headers"].get("User-Agent").and_then(Value::as_str).unwrap_or("oracle");
        managed::manager(self.parameter("fieldManager"), agent)
    }

    fn validation(&self) -> FieldValidation {
        FieldValidation::parse(self.parameter("fieldValidation")).unwrap_or_default()
    }
}

/// What we make of a request; none if it is of a sort that is not played.
fn play(request: &Request<'_>, step: &Value, live: Option<&Value>) -> Option<Result<Value, Status>> {
    let manager = request.manager(step);
    let writer = Writer { manager: &manager, subresource: request.subresource, time: NOW };
    let subject = Subject::new(request.kind, &request.ty);
    match request.method {
        "POST" | "PUT" => {
            let media = if request.content == "application/yaml" { Media::Yaml } else { Media::Json };
            let decoded = decode::decode(&request.ty, &request.kind.gvk, &request.body, media, request.validation());
            let mut object = match decoded {
                Ok(decoded) => decoded.value,
                Err(error) => return Some(Err(error.to_status(&request.kind.gvk.kind, &request.body))),
            };
            schema::defaults::apply(request.kind, &mut object);
            let live = live.filter(|_| request.method == "PUT");
            if let (None, Some(Value::Object(metadata))) = (live, object.get_mut("metadata")) {
                for wiped in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]
                {
                    metadata.shift_remove(wiped);
                }
            }
            managed::track_update(&subject, live, &mut object, &writer);
            Some(Ok(object))
        }
        _ => None,
    }
}

/// Ownership without times, in an order of our own: the recorded order depends on when the seconds passed.
fn owners(object: &Value) -> Value {
    let mut list = object.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    for entry in &mut list {
        if let Value::Object(entry) = entry {
            entry.shift_remove("time");
            entry.sort_keys();
        }
    }
    list.sort_by_key(ToString::to_string);
    Value::Array(list)
}

fn replay(wanted: impl Fn(&str) -> bool, compare: impl Fn(&Request<'_>, &Value, &Value) -> Option<String>) {
    let mut compared = 0;
    let mut differences = Vec::new();
    for file in ["wire.json", "kinds.json", "patches.json"] {
        for scenario in scenarios(file) {
            let name = text(&scenario, "name");
            let mut stored: HashMap<String, Value> = HashMap::new();
            for (at, step) in steps(&scenario).iter().enumerate() {
                let Some(request) = Request::of(step) else { continue };
                let mut answer = step["answer"]["body"].clone();
                with_times(&mut answer);
                let key = request.key(&answer);
                let live = key.as_ref().and_then(|key| stored.get(key));
                let is_good = step["answer"]["status"].as_u64().is_some_and(|status| status < 300);
                if wanted(name)
                    && is_good
                    && let Some(made) = play(&request, step, live)
                {
                    compared += 1;
                    let found = match &made {
                        Ok(made) => compare(&request, made, &answer),
                        Err(status) => Some(format!("refused: {}", status.message)),
                    };
                    if let Some(found) = found {
                        differences.push(format!("{file}: {name} [{at}] {} {found}", request.method));
                    }
                }
                let is_dry = request.parameter("dryRun") == "All";
                let is_object = text(&answer, "kind") == &*request.kind.gvk.kind;
                if let Some(key) = key.filter(|_| is_good && is_object && !is_dry) {
                    stored.insert(key, answer);
                }
            }
        }
    }
    assert!(differences.is_empty(), "{} of {compared}:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn ownership_after_writes() {
    replay(
        |_| true,
        |_, made, answer| {
            let (ours, theirs) = (owners(made), owners(answer));
            (ours != theirs).then(|| difference(&theirs, &ours))
        },
    );
}
