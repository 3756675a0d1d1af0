//! Paths and operations of a kind, in the form of OpenAPI 3.

use machinery::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::definitions::{DELETE_OPTIONS, Definitions, PLACE, WATCH_EVENT};
use super::{custom, parameters};
use crate::kind::{Kind, Subresource};

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// `api/v1`, `apis/apps/v1`.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Returns the paths of a kind with their operations.
pub(super) fn paths(kind: &Kind, definitions: &Definitions) -> Vec<(String, Value)> {
    Author { kind, definitions, names: Names::of(&kind.gvk.group, &kind.gvk.version) }.paths()
}

/// Returns a path with information about the server; the response is described by a definition, or not at all.
pub(super) fn plain(id: String, text: &str, tag: &str, media: &[&str], answer: &str) -> Value {
    json!({"get": {
        "description": text,
        "operationId": id,
        "responses": responses(&[("200", "OK", Some(content(media, &reference(answer))))]),
        "tags": [tag],
    }})
}

/// Names of a group version in operations.
pub(super) struct Names {
    /// `AppsV1`
    pub(super) prefix: String,
    /// `apps_v1`
    pub(super) tag: String,
}

impl Names {
    pub(super) fn of(group: &str, version: &str) -> Names {
        let short = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
        let words = short.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let group: String = words.map(capitalized).collect();
        let small = group[..1].to_ascii_lowercase() + &group[1..];
        Names { prefix: group + &capitalized(version), tag: format!("{small}_{version}") }
    }
}

fn capitalized(word: &str) -> String {
    let first = word.chars().next().map(char::len_utf8).unwrap_or_default();
    word[..first].to_ascii_uppercase() + &word[first..]
}

struct Author<'a> {
    kind: &'a Kind,
    definitions: &'a Definitions,
    names: Names,
}

struct Operation<'a> {
    method: &'static str,
    action: &'static str,
    id: String,
    text: String,
    gvk: &'a GroupVersionKind,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: Value,
}

impl<'a> Author<'a> {
    fn paths(&self) -> Vec<(String, Value)> {
        let kind = self.kind;
        let root = root(&kind.gvk.group, &kind.gvk.version);
        let (place, scope) = match kind.namespaced {
            true => ("/namespaces/{namespace}", "Namespaced"),
            false => ("", ""),
        };
        let collection = format!("/{root}{place}/{}", kind.plural);
        let mut paths =
            vec![(collection.clone(), self.collection(scope)), (format!("{collection}/{{name}}"), self.item(scope))];
        if kind.namespaced {
            let all = self.list(format!("{}ForAllNamespaces", kind.gvk.kind));
            paths.push((format!("/{root}/{}", kind.plural), all.into_iter().collect()));
        }
        // Custom resources have no separate watch paths.
        if kind.allows("watch") && !kind.custom {
            let own = &kind.gvk.kind;
            let watched = format!("/{root}/watch{place}/{}", kind.plural);
            paths.push((watched.clone(), vec![self.watch("watchlist", format!("{scope}{own}List"))]));
            paths.push((format!("{watched}/{{name}}"), vec![self.watch("watch", format!("{scope}{own}"))]));
            if kind.namespaced {
                let all = self.watch("watchlist", format!("{own}ListForAllNamespaces"));
                paths.push((format!("/{root}/watch/{}", kind.plural), vec![all]));
            }
        }
        let mut made: Vec<(String, Value)> = Vec::with_capacity(paths.len());
        for (path, operations) in paths {
            made.extend(self.path(path, operations, &kind.gvk.kind));
        }
        for sub in &kind.subresources {
            let path = format!("{collection}/{{name}}/{}", sub.name);
            made.extend(self.path(path.clone(), self.subresource(sub, scope, ""), &sub.gvk.kind));
            if sub.name == "proxy" {
                let with_path = self.subresource(sub, scope, "WithPath");
                made.extend(self.path(format!("{path}/{{path}}"), with_path, &sub.gvk.kind));
            }
        }
        made
    }

    /// Returns a path with its operations and the parameters that they share.
    fn path(&self, path: String, operations: Vec<Operation<'_>>, named: &str) -> Option<(String, Value)> {
        let first = operations.first()?;
        let mut common: Vec<Value> = first.parameters.clone();
        common.retain(|parameter| operations.iter().all(|operation| operation.parameters.contains(parameter)));
        let mut item = Map::new();
        for operation in operations {
            let mut parameters = operation.parameters;
            parameters.retain(|parameter| !common.contains(parameter));
            let mut shown = Map::new();
            shown.insert("description".to_owned(), operation.text.into());
            shown.insert("operationId".to_owned(), operation.id.into());
            if !parameters.is_empty() {
                shown.insert("parameters".to_owned(), parameters.into());
            }
            if let Some(body) = operation.body {
                shown.insert("requestBody".to_owned(), body);
            }
            shown.insert("responses".to_owned(), operation.responses);
            shown.insert("tags".to_owned(), json!([self.names.tag]));
            shown.insert("x-kubernetes-action".to_owned(), operation.action.into());
            let gvk = operation.gvk;
            let gvk = json!({"group": gvk.group, "kind": gvk.kind, "version": gvk.version});
            shown.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
            item.insert(operation.method.to_owned(), shown.into());
        }
        for name in ["name", "namespace", "path"] {
            if path.contains(&format!("{{{name}}}")) {
                common.push(parameters::in_path(name, named));
            }
        }
        common.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        if !common.is_empty() {
            item.insert("parameters".to_owned(), common.into());
        }
        item.sort_keys();
        Some((path, item.into()))
    }

    fn collection(&self, scope: &str) -> Vec<Operation<'a>> {
        let own = &self.kind.gvk.kind;
        let mut operations: Vec<Operation<'a>> = self.list(format!("{scope}{own}")).into_iter().collect();
        if self.kind.allows("create") {
            let text = format!("create {}{own}", article(own));
            operations.push(self.create(format!("{scope}{own}"), text, &self.kind.gvk));
        }
        if self.kind.allows("deletecollection") {
            operations.push(Operation {
                method: "delete",
                action: "deletecollection",
                id: format!("delete{}Collection{scope}{own}", self.names.prefix),
                text: format!("delete collection of {own}"),
                gvk: &self.kind.gvk,
                parameters: parameters::of_verb("deletecollection", self.definitions),
                body: Some(self.body(&reference(DELETE_OPTIONS), false)),
                responses: responses(&[("200", "OK", Some(self.content(&reference(STATUS))))]),
            });
        }
        operations
    }

    fn item(&self, scope: &str) -> Vec<Operation<'a>> {
        let own = &self.kind.gvk.kind;
        let verbs = ["get", "update", "patch"];
        let allowed = verbs.into_iter().filter(|verb| self.kind.allows(verb));
        let mut operations: Vec<Operation<'a>> =
            allowed.map(|verb| self.access(verb, format!("{scope}{own}"), "", &self.kind.gvk)).collect();
        if self.kind.allows("delete") {
            // DELETE of a namespace returns the namespace while it terminates; the document describes the final status.
            let ends = self.kind.rules.delete_returns_object && own != "Namespace";
            let gone = match ends {
                true => self.reference(&self.kind.gvk),
                false => reference(STATUS),
            };
            operations.push(Operation {
                method: "delete",
                action: "delete",
                id: format!("delete{}{scope}{own}", self.names.prefix),
                text: format!("delete {}{own}", article(own)),
                gvk: &self.kind.gvk,
                parameters: parameters::of_verb("delete", self.definitions),
                body: Some(self.body(&reference(DELETE_OPTIONS), false)),
                responses: responses(&[
                    ("200", "OK", Some(self.content(&gone))),
                    ("202", "Accepted", Some(self.content(&gone))),
                ]),
            });
        }
        operations
    }

    fn list(&self, of: String) -> Option<Operation<'a>> {
        let kind = self.kind;
        if !kind.allows("list") {
            return None;
        }
        let watch = if kind.allows("watch") && !kind.custom { "list or watch" } else { "list" };
        let gvk = GroupVersionKind::new(&*kind.gvk.group, &*kind.gvk.version, &*kind.list_kind);
        let name = match kind.custom {
            true => custom::name(kind, &kind.list_kind),
            false => self.definitions.name(&gvk).unwrap_or_default().to_owned(),
        };
        let mut media = self.media();
        media.extend(self.streams());
        Some(Operation {
            method: "get",
            action: "list",
            id: format!("list{}{of}", self.names.prefix),
            text: format!("{watch} objects of kind {}", kind.gvk.kind),
            gvk: &kind.gvk,
            parameters: parameters::of_verb("list", self.definitions),
            body: None,
            responses: responses(&[("200", "OK", Some(content(&media, &reference(&name))))]),
        })
    }

    fn watch(&self, action: &'static str, of: String) -> Operation<'a> {
        let own = &self.kind.gvk.kind;
        let what = match action {
            "watchlist" => format!(
                "watch individual changes to a list of {own}. deprecated: use the 'watch' parameter with a list operation instead."
            ),
            _ => format!(
                "watch changes to an object of kind {own}. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
            ),
        };
        let mut media = self.media();
        media.extend(self.streams());
        Operation {
            method: "get",
            action,
            id: format!("watch{}{of}", self.names.prefix),
            text: what,
            gvk: &self.kind.gvk,
            parameters: parameters::of_verb("list", self.definitions),
            body: None,
            responses: responses(&[("200", "OK", Some(content(&media, &reference(WATCH_EVENT))))]),
        }
    }

    fn create(&self, of: String, text: String, gvk: &'a GroupVersionKind) -> Operation<'a> {
        let object = self.reference(gvk);
        let shown = || Some(self.content(&object));
        Operation {
            method: "post",
            action: "post",
            id: format!("create{}{of}", self.names.prefix),
            text,
            gvk,
            parameters: parameters::of_verb("create", self.definitions),
            body: Some(self.body(&object, true)),
            responses: responses(&[("200", "OK", shown()), ("201", "Created", shown()), ("202", "Accepted", shown())]),
        }
    }

    /// Reading, replacing or patching an object or a subresource.
    fn access(&self, verb: &str, of: String, part: &str, gvk: &'a GroupVersionKind) -> Operation<'a> {
        let (method, done, text) = match verb {
            "update" => ("put", "replace", "replace"),
            "patch" => ("patch", "patch", "partially update"),
            _ => ("get", "read", "read"),
        };
        let object = self.reference(gvk);
        let shown = || Some(self.content(&object));
        let answers = match verb {
            "get" => responses(&[("200", "OK", shown())]),
            "patch" if self.kind.custom => responses(&[("200", "OK", shown())]),
            _ => responses(&[("200", "OK", shown()), ("201", "Created", shown())]),
        };
        let patch = reference(PATCH);
        let body = match verb {
            "update" => Some(self.body(&object, true)),
            "patch" => {
                let mut media = vec![
                    ("application/apply-patch+yaml", &patch),
                    ("application/json-patch+json", &patch),
                    ("application/merge-patch+json", &patch),
                ];
                if !self.kind.custom {
                    media.push(("application/strategic-merge-patch+json", &patch));
                }
                Some(body(&media, true))
            }
            _ => None,
        };
        // The revision of a read is documented for custom resources only.
        let listed = if verb == "get" && self.kind.custom { "read" } else { verb };
        // Operations on subresources of custom objects have the kind of the object.
        let gvk = if self.kind.custom { &self.kind.gvk } else { gvk };
        let part = if part.is_empty() { String::new() } else { format!("{part} of ") };
        Operation {
            method,
            action: method,
            id: format!("{done}{}{of}", self.names.prefix),
            text: format!("{text} {part}the specified {}", self.kind.gvk.kind),
            gvk,
            parameters: parameters::of_verb(listed, self.definitions),
            body,
            responses: answers,
        }
    }

    fn subresource(&self, sub: &'a Subresource, scope: &str, suffix: &str) -> Vec<Operation<'a>> {
        let own = &self.kind.gvk.kind;
        let of = format!("{scope}{own}{}{suffix}", capitalized(&sub.name));
        if sub.gvk.kind.ends_with("Options") {
            return self.connect(sub, &of);
        }
        if sub.name == "log" {
            let text = json!({"type": "string"});
            let media = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml", "text/plain"];
            let mut read = self.access("get", of, &sub.name, &sub.gvk);
            read.parameters = parameters::of_verb("log", self.definitions);
            read.responses = responses(&[("200", "OK", Some(content(&media, &text)))]);
            return vec![read];
        }
        let has = |verb: &str| sub.verbs.iter().any(|held| held == verb);
        let verbs = ["get", "update", "patch"].into_iter().filter(|verb| has(verb));
        let mut operations: Vec<Operation<'a>> =
            verbs.map(|verb| self.access(verb, of.clone(), &sub.name, &sub.gvk)).collect();
        if has("create") {
            let text = format!("create {} of {}{own}", sub.name, article(own));
            operations.push(self.create(of, text, &sub.gvk));
        }
        operations
    }

    /// Methods that are proxied to a node.
    fn connect(&self, sub: &'a Subresource, of: &str) -> Vec<Operation<'a>> {
        let methods: &[&'static str] = match sub.name.as_str() {
            "proxy" => &["delete", "get", "head", "options", "patch", "post", "put"],
            _ => &["get", "post"],
        };
        let answer = json!({"type": "string"});
        let connect = |method: &&'static str| Operation {
            method,
            action: "connect",
            id: format!("connect{}{}{of}", self.names.prefix, capitalized(method)),
            text: format!("connect {} requests to {} of {}", method.to_ascii_uppercase(), sub.name, self.kind.gvk.kind),
            gvk: &sub.gvk,
            parameters: parameters::of_verb(&sub.gvk.kind, self.definitions),
            body: None,
            responses: responses(&[("200", "OK", Some(content(&["*/*"], &answer)))]),
        };
        methods.iter().map(connect).collect()
    }

    /// Returns the reference to a kind: by its own definition for a custom kind, by its type for a built-in one.
    fn reference(&self, gvk: &GroupVersionKind) -> Value {
        match self.kind.custom && *gvk == self.kind.gvk {
            true => reference(&custom::name(self.kind, &gvk.kind)),
            false => reference(self.definitions.name(gvk).unwrap_or_default()),
        }
    }

    /// Returns the media types of responses.
    fn media(&self) -> Vec<&'static str> {
        match self.kind.custom {
            true => vec!["application/json", "application/yaml"],
            false => vec!["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"],
        }
    }

    fn streams(&self) -> &'static [&'static str] {
        match self.kind.custom {
            true => &[],
            false => &["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"],
        }
    }

    fn content(&self, schema: &Value) -> Value {
        content(&self.media(), schema)
    }

    /// Returns the request body; built-in kinds accept any media type.
    fn body(&self, schema: &Value, required: bool) -> Value {
        match self.kind.custom {
            true => body(&self.media().into_iter().map(|media| (media, schema)).collect::<Vec<_>>(), required),
            false => body(&[("*/*", schema)], required),
        }
    }
}

pub(super) fn reference(definition: &str) -> Value {
    json!({"$ref": format!("{PLACE}{definition}")})
}

fn content(media: &[&str], schema: &Value) -> Value {
    let mut media = media.to_vec();
    media.sort_unstable();
    media.into_iter().map(|media| (media.to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}

fn body(media: &[(&str, &Value)], required: bool) -> Value {
    let content: Map<String, Value> =
        media.iter().map(|(media, schema)| ((*media).to_owned(), json!({"schema": schema}))).collect();
    match required {
        true => json!({"content": content, "required": true}),
        false => json!({"content": content}),
    }
}

/// Adds the 401 response that every operation has.
fn responses(answers: &[(&str, &str, Option<Value>)]) -> Value {
    let mut map = Map::new();
    for (code, text, content) in answers.iter().chain(&[("401", "Unauthorized", None)]) {
        let mut answer = json!({});
        if let Some(content) = content {
            answer["content"] = content.clone();
        }
        answer["description"] = (*text).into();
        map.insert((*code).to_owned(), answer);
    }
    map.into()
}

/// Returns the article of a kind with a space; plural names have none.
fn article(kind: &str) -> &'static str {
    let plural = kind.ends_with('s') && !kind.ends_with("ss");
    match kind.chars().next() {
        _ if plural => "",
        Some('A' | 'E' | 'I' | 'O' | 'U' | 'a' | 'e' | 'i' | 'o' | 'u') => "an ",
        _ => "a ",
    }
}
