//! Replays recorded writes offline: decoding, defaults, patches, ownership. Results must equal the recorded ones.
//!
//! After each step the recorded object counts as stored, so that one difference does not cause others.

use std::collections::HashMap;

use machinery::Status;
use machinery::json::Value;
use schema::decode::{self, FieldValidation, MediaType};
use schema::facts::{Type, Types};
use schema::kind::Kind;
use schema::managed::{self, Subject, Writer};
use schema::patch::{self, Target};

use crate::decode::{difference, with_times};
use crate::{scenarios, steps, text};

/// Steps that cannot be replayed here, with the reason.
const EXCEPT: &[(&str, &[usize], &str)] = &[
    ("create: owner references duplicated by a patch", &[1, 2], "the recording hides the uid that is the key"),
    ("strategic: ownerReferences merge by uid", &[1], "the recording hides the uid that is the key"),
    ("strategic: ownerReferences delete by uid", &[1], "the recording hides the uid that is the key"),
    ("merge: ownerReferences replaced, labels added", &[1], "the recording hides the uid that is the key"),
    ("apply lists: ownerReferences by uid", &[0, 1, 2], "the recording hides the uid that is the key"),
    ("json patch: test of resourceVersion, right", &[1], "the recording hides the revision that is tested"),
    ("update: Pod status", &[2], "podIP and podIPs agree after conversion, which is a default's work"),
    ("strategic status: podIPs merge by ip, containerStatuses atomic", &[2], "the same"),
    ("conflict: with the scale subresource", &[2], "the scale before it is not played"),
    ("give up: replicas handed to the scaler", &[2], "the scale before it is not played"),
    ("delete: what may still change while deleting", &[3], "the deletion before it is not played"),
    ("apply: after delete the object is made anew", &[2], "the deletion before it is not played"),
    ("update: events.k8s.io Event may grow a series only", &[1], "the recording hides times"),
    ("managedFields by kind: Lease created by POST and by apply", &[1], "the recording hides times"),
    ("managedFields by kind: Namespace created by POST and by apply", &[1], "what a strategy adds"),
    ("apply: pod image changes, other fields refused", &[0], "what admission adds"),
    ("managedFields by kind: Event created by POST and by apply", &[1], "the recording hides times"),
    ("strategic: template labels and annotations", &[1], "the recording hides times"),
    ("update: CertificateSigningRequest approval and status", &[1], "what a strategy resets"),
    ("update: Namespace finalize", &[1], "what a strategy resets"),
    ("strategic: root $patch replace", &[1], "what a strategy restores"),
    ("json patch: uid removed", &[1], "what a strategy restores"),
    ("managedFields by kind: PersistentVolumeClaim created by POST and by apply", &[1], "what admission adds"),
];

const NOW: &str = "2024-01-02T03:04:05Z";

/// A parsed request.
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
    fn parse(step: &'a Value) -> Option<Request<'a>> {
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
        match self.parameter("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }
}

/// Returns our result for a request; `None` if it is not replayed.
fn play(request: &Request<'_>, step: &Value, live: Option<&Value>) -> Option<Result<Value, Status>> {
    let manager = request.manager(step);
    let writer = Writer { manager: &manager, subresource: request.subresource, time: NOW };
    let subject = Subject::new(request.kind, &request.ty);
    match request.method {
        "POST" | "PUT" => {
            let media = if request.content == "application/yaml" { MediaType::Yaml } else { MediaType::Json };
            let decoded =
                decode::decode(&request.ty, &request.kind.gvk, &request.body, media, request.validation(), None);
            let mut object = match decoded {
                Ok(decoded) => decoded.value,
                Err(error) => return Some(Err(error.to_status(&request.kind.gvk.kind, &request.body))),
            };
            schema::defaults::apply(request.kind, &mut object, None);
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
        "PATCH" if request.content == "application/apply-patch+yaml" => {
            let force = !matches!(request.parameter("force"), "" | "0" | "false");
            let made = managed::read(&request.body).and_then(|config| {
                let mut object = managed::apply(&subject, live, &config.value, &writer, force)?;
                config.warnings(request.validation())?;
                schema::defaults::apply(request.kind, &mut object, None);
                if let Some(live) = live {
                    managed::keep_times_if_unchanged(live, &mut object);
                }
                Ok(object)
            });
            Some(made.map_err(|error| error.to_status()))
        }
        "PATCH" => {
            let live = live?;
            let target = Target {
                ty: &request.ty,
                gvk: &request.kind.gvk,
                custom: false,
                version: None,
                validation: request.validation(),
            };
            let patched = match request.content {
                "application/json-patch+json" => patch::json::apply(&target, live, &request.body),
                "application/merge-patch+json" => patch::merge::apply(&target, live, &request.body),
                "application/strategic-merge-patch+json" => patch::strategic::apply(&target, live, &request.body),
                _ => return None,
            };
            let mut object = match patched {
                Ok(patched) => patched.value,
                Err(error) => return Some(Err(error.to_status())),
            };
            schema::defaults::apply(request.kind, &mut object, None);
            managed::track_update(&subject, Some(live), &mut object, &writer);
            Some(Ok(object))
        }
        _ => None,
    }
}

/// Returns managed fields without times, sorted: the recorded order depends on the clock.
fn owners(object: &Value) -> Value {
    let mut list = object.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    for entry in &mut list {
        if let Value::Object(entry) = entry {
            entry.shift_remove("time");
            entry.sort_keys();
        }
    }
    list.sort_by_key(ToString::to_string);
    Value::Array(list.into())
}

fn replay(failures: bool, compare: impl Fn(&Request<'_>, &Result<Value, Status>, &Value) -> Option<String>) {
    let mut compared = 0;
    let mut differences = Vec::new();
    for file in ["wire.json", "kinds.json", "patches.json"] {
        for scenario in scenarios(file) {
            let name = text(&scenario, "name");
            let mut stored: HashMap<String, Value> = HashMap::new();
            for (at, step) in steps(&scenario).iter().enumerate() {
                let Some(request) = Request::parse(step) else { continue };
                let mut answer = step["answer"]["body"].clone();
                with_times(&mut answer);
                let key = request.key(&answer);
                let live = key.as_ref().and_then(|key| stored.get(key));
                let is_good = step["answer"]["status"].as_u64().is_some_and(|status| status < 300);
                if is_good != failures
                    && !EXCEPT.iter().any(|(excepted, steps, _)| *excepted == name && steps.contains(&at))
                    && let Some(made) = play(&request, step, live)
                {
                    compared += 1;
                    if let Some(found) = compare(&request, &made, &answer) {
                        differences.push(format!("{file}: {name} [{at}] {} {found}", request.method));
                    }
                }
                let is_dry = request.parameter("dryRun") == "All";
                let is_object = text(&answer, "kind") == &*request.kind.gvk.kind;
                if let Some(key) = key.filter(|_| is_good && is_object && !is_dry) {
                    // The recording is sorted; stored objects are in wire order.
                    let _ = decode::normalise(&request.ty, &mut answer, None);
                    stored.insert(key, answer);
                }
            }
        }
    }
    assert!(differences.is_empty(), "{} of {compared}:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn ownership_after_writes() {
    replay(false, |_, made, answer| match made {
        Err(status) => Some(format!("refused: {}", status.message)),
        Ok(made) => {
            let (ours, theirs) = (owners(made), owners(answer));
            (ours != theirs).then(|| difference(&theirs, &ours))
        }
    });
}

/// Removes what the server adds after the patch: admission, strategies, storage.
#[test]
fn contents_after_patches() {
    replay(false, |request, made, answer| {
        let Ok(made) = made else { return None };
        // The registry allocates addresses and ports.
        let is_service = request.kind.gvk.kind == "Service";
        if request.method != "PATCH" || !request.subresource.is_empty() || is_service {
            return None;
        }
        let trim = |object: &Value| {
            let mut object = object.clone();
            if let Value::Object(map) = &mut object {
                map.shift_remove("status");
                map.shift_remove("stringData");
                if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
                    for key in [
                        "managedFields",
                        "resourceVersion",
                        "generation",
                        "selfLink",
                        "creationTimestamp",
                        "uid",
                        "namespace",
                    ] {
                        metadata.shift_remove(key);
                    }
                }
            }
            object
        };
        let (ours, theirs) = (trim(made), trim(answer));
        (ours != theirs).then(|| difference(&theirs, &ours))
    });
}

/// Errors of the patch have the recorded text; a refused patch is not accepted.
#[test]
fn refused_patches() {
    replay(true, |request, made, answer| {
        if request.method != "PATCH" {
            return None;
        }
        let message = text(answer, "message");
        match made {
            Ok(_) => {
                let is_ours = message.contains("patch: Invalid value")
                    || message.starts_with("error decoding")
                    || message.starts_with("the server rejected our request due to")
                    || message.starts_with("failed to create typed")
                    || message.contains("conflict with");
                is_ours.then(|| format!("accepted, not: {message}"))
            }
            Err(status) => {
                let ours = status.message.replace(NOW, "$TIME");
                let theirs = message.replace(NOW, "$TIME");
                (ours != theirs || answer["code"] != status.code).then(|| format!("\n  {theirs}\n  {ours}"))
            }
        }
    });
}
