//! Validation of CustomResourceDefinitions: names, versions, conversion, columns, and their schemas.
//!
//! - this file: everything but schemas
//! - `keywords`: the keywords of a schema
//! - `schema`: checks of the keywords, node by node
//! - `structural`: checks that a schema describes the whole structure of an object
//! - `defaults`: checks that a schema accepts its own defaults
//!
//! Errors name parts that all versions share where the reference keeps them: at the top of the spec.

mod defaults;
mod keywords;
mod schema;
mod structural;

use std::collections::HashSet;

use machinery::field_error::{BadValue, FieldError, Path};
use machinery::json::{Value, json};
use machinery::{go_text, names};

use super::{Errors, admission, rules};
use crate::custom;
use crate::walk::Walk as _;

const SELECTABLE_MAX: usize = 8;
const APPROVED: &str = "api-approved.kubernetes.io";

pub(super) fn validate(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    if old.is_none() {
        name(definition, errors);
    }
    // Held while the definition is checked, so that each pattern is compiled once.
    let mut patterns = Vec::new();
    definition.list("spec.versions").iter().for_each(|version| {
        schema::patterns(version.at("schema.openAPIV3Schema"), &mut patterns);
    });
    spec(definition.at("spec"), errors);
    if let Some(old) = old {
        immutable(definition, old, errors);
    }
    accepted_names(definition, errors);
    stored_versions(definition, errors);
    approval(definition, old, errors);
    if definition.flag("spec.preserveUnknownFields") == Some(true)
        && old.is_none_or(|old| old.flag("spec.preserveUnknownFields") != Some(true))
    {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, why));
    }
}

/// Checks the accepted names of the status.
pub(super) fn accepted_names(definition: &Value, errors: &mut Errors) {
    names_of(definition.at("status.acceptedNames"), &Path::new("status.acceptedNames"), errors);
}

fn name(definition: &Value, errors: &mut Errors) {
    let name = definition.text("metadata.name");
    if name.is_empty() {
        return;
    }
    for why in names::dns1123_subdomain(name) {
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    if name != format!("{}.{}", definition.text("spec.names.plural"), definition.text("spec.group")) {
        errors.push(FieldError::invalid("metadata.name", name, r#"must be spec.names.plural+"."+spec.group"#));
    }
}

/// Most bytes of the names and the conversion of a definition, times its versions. Each version that is served has its own copy of
/// them, also in discovery.
const VERSION_PARTS_BYTES_MAX: usize = 64 << 20;

/// The parts that all versions share.
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    fields: bool,
}

impl Shared {
    fn of(versions: &[Value]) -> Self {
        let same = |part: &str| versions.iter().all(|version| version.at(part) == versions[0].at(part));
        let some = !versions.is_empty();
        Shared {
            schema: some && same("schema"),
            subresources: some && same("subresources"),
            columns: some && same("additionalPrinterColumns"),
            fields: some && same("selectableFields"),
        }
    }
}

fn spec(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let group = spec.text("group");
    let why = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(path.child("group"), ""));
    } else if !why.is_empty() {
        errors.push(FieldError::invalid(path.child("group"), group, why.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(path.child("group"), group, "should be a domain with at least one dot"));
    }
    rules::one_of(errors, &path.child("scope"), spec.text("scope"), &["Cluster", "Namespaced"]);

    let versions = spec.list("versions");
    let shared = Shared::of(versions);
    let list = path.child("versions");
    for (i, version) in versions.iter().enumerate() {
        if !version.has("schema.openAPIV3Schema") {
            errors.push(FieldError::required(list.index(i).child("schema.openAPIV3Schema"), ""));
        }
    }
    let repeated: usize =
        ["names", "conversion"].map(|part| machinery::json::to_string(spec.at(part)).len()).iter().sum();
    let versions_max = VERSION_PARTS_BYTES_MAX / repeated.max(1);
    if versions.len() > versions_max {
        errors.push(FieldError::too_many(list, versions.len(), versions_max));
        return;
    }
    let (mut storage, mut unique) = (0, true);
    let mut named = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        storage += usize::from(version.flag("storage") == Some(true));
        unique &= named.insert(version.text("name"));
        let at = list.index(i);
        let why = names::dns1035_label(version.text("name"));
        if !why.is_empty() {
            errors.push(FieldError::invalid(at.child("name"), version.text("name"), why.join(",")));
        }
        deprecation(version, &at, errors);
        if !shared.schema {
            schema(version, &at.child("schema"), errors);
        }
        if !shared.subresources {
            subresources(version.at("subresources"), &at.child("subresources"), errors);
        }
        if !shared.columns {
            columns(version, &at.child("additionalPrinterColumns"), errors);
        }
        if !shared.fields {
            selectable(version, &at.child("selectableFields"), errors);
        }
    }
    if !unique {
        let why = "must contain unique version names";
        errors.push(FieldError::invalid(list, shown_versions(versions, &shared), why));
    }
    if storage != 1 {
        let why = "must have exactly one version marked as storage version";
        let shown = if spec.has("versions") { shown_versions(versions, &shared) } else { Value::Null };
        errors.push(FieldError::invalid(list, shown, why));
    }
    let names_path = path.child("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        if spec.at("names").text(name).is_empty() {
            errors.push(FieldError::required(names_path.child(name), ""));
        }
    }
    names_of(spec.at("names"), &names_path, errors);
    if let Some(first) = versions.first() {
        // The first version is also the one version of the first form of definitions.
        let why = names::dns1035_label(first.text("name"));
        if !why.is_empty() {
            errors.push(FieldError::invalid(path.child("version"), first.text("name"), why.join(",")));
        }
        if shared.schema {
            schema(first, &path.child("validation"), errors);
        }
        if shared.subresources {
            subresources(first.at("subresources"), &path.child("subresources"), errors);
        }
        if shared.columns {
            columns(first, &path.child("additionalPrinterColumns"), errors);
        }
        if shared.fields {
            selectable(first, &path.child("selectableFields"), errors);
        }
    }
    conversion(spec.at("conversion"), &path.child("conversion"), errors);
}

/// Formats versions as the reference prints them: its own type, without shared parts.
fn shown_versions(versions: &[Value], shared: &Shared) -> Value {
    let part = |version: &Value, shared: bool, name: &str| if shared { Value::Null } else { version.at(name).clone() };
    versions
        .iter()
        .map(|version| {
            json!({
                "Name": version.at("name"), "Served": version.flag("served").unwrap_or_default(),
                "Storage": version.flag("storage").unwrap_or_default(),
                "Deprecated": version.flag("deprecated").unwrap_or_default(),
                "DeprecationWarning": version.at("deprecationWarning"),
                "Schema": part(version, shared.schema, "schema"),
                "Subresources": part(version, shared.subresources, "subresources"),
                "AdditionalPrinterColumns": part(version, shared.columns, "additionalPrinterColumns"),
                "SelectableFields": part(version, shared.fields, "selectableFields"),
            })
        })
        .collect()
}

fn deprecation(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(warning) = version.at("deprecationWarning").as_str() else { return };
    let path = path.child("deprecationWarning");
    let mut refuse = |why: String| errors.push(FieldError::invalid(path, warning, why));
    if version.flag("deprecated") != Some(true) {
        return refuse("can only be set for deprecated versions".to_owned());
    }
    if warning.len() > 256 {
        refuse("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        refuse("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| !go_text::is_printable(*c)) {
        refuse(format!("must only contain printable UTF-8 characters; non-printable character found at index {at}"));
    }
}

fn schema(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let source = version.at("schema.openAPIV3Schema");
    if !source.is_object() {
        return;
    }
    let has_status = version.has("subresources.status");
    let path = path.child("openAPIV3Schema");
    let before = errors.len();
    if has_status {
        root_with_status(source, &path, errors);
    }
    if source.flag("nullable") == Some(true) {
        errors.push(FieldError::forbidden(path.child("nullable"), "nullable cannot be true at the root"));
    }
    // Errors of keywords and missing structure cannot be distinguished: errors of keywords are reported alone.
    let mut keywords = Errors::new();
    schema::check(source, &path, &mut keywords);
    if !schema::is_unsupported(source) {
        let structural = structural::check(source, &path);
        if structural.is_empty() {
            defaults::check(source, &path, errors);
        } else {
            errors.extend(structural);
        }
    }
    errors.append(&mut keywords);
    if errors.len() == before {
        errors.extend(cel::Validator::schema_errors(source, &path.to_string()));
    }
}

/// Checks the keywords at the root of a schema with a status subresource.
fn root_with_status(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ALLOWED: [&str; 22] = [
        "description",
        "type",
        "format",
        "title",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "required",
        "items",
        "properties",
        "externalDocs",
        "example",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ];
    let Some(members) = source.as_object() else { return };
    if let Some(kind) = source.at("type").as_str().filter(|kind| !kind.is_empty() && *kind != "object") {
        let why =
            r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        errors.push(FieldError::invalid(path.child("type"), kind, why));
    } else if members
        .iter()
        .any(|(name, value)| !ALLOWED.contains(&name.as_str()) && !crate::walk::is_empty(Some(value)))
    {
        let why = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength \
                   Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
                   XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status \
                   subresource is enabled";
        errors.push(FieldError::invalid(path, source, why));
    }
}

fn subresources(subresources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let scale = subresources.at("scale");
    if !scale.is_object() {
        return;
    }
    for (name, roots, why, needed) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec", true),
        ("statusReplicasPath", &[".status."], "should be a json path under .status", true),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status", false),
    ] {
        let (at, text) = (path.child("scale"), scale.text(name));
        let at = at.child(name);
        if text.is_empty() {
            if needed {
                errors.push(FieldError::required(at, ""));
            }
        } else if !is_malformed_path(text, &at, errors) && !roots.iter().any(|root| text.starts_with(root)) {
            errors.push(FieldError::invalid(at, text, why));
        }
    }
}

/// Adds an error for a path that does not begin with a dot; returns whether there is one.
fn is_malformed_path(text: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    if text.starts_with('.') {
        return false;
    }
    errors.push(FieldError::invalid(path, text, "must be a simple json path starting with ."));
    true
}

fn columns(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    const KINDS: &str = "must be one of boolean,date,integer,number,string";
    const FORMATS: &str = "must be one of byte,date,date-time,double,float,int32,int64,password";
    for (i, column) in version.list("additionalPrinterColumns").iter().enumerate() {
        let path = path.index(i);
        if column.text("name").is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        match column.text("type") {
            "" => errors.push(FieldError::required(path.child("type"), KINDS)),
            "boolean" | "date" | "integer" | "number" | "string" => {}
            other => errors.push(FieldError::invalid(path.child("type"), other, KINDS)),
        }
        match column.text("format") {
            "" | "byte" | "date" | "date-time" | "double" | "float" | "int32" | "int64" | "password" => {}
            other => errors.push(FieldError::invalid(path.child("format"), other, FORMATS)),
        }
        match column.text("jsonPath") {
            "" => errors.push(FieldError::required(path.child("JSONPath"), "")),
            text => {
                is_malformed_path(text, &path.child("JSONPath"), errors);
            }
        }
    }
}

fn selectable(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let source = version.at("schema.openAPIV3Schema");
    let mut seen: HashSet<Vec<String>> = HashSet::new();
    for (i, field) in version.list("selectableFields").iter().enumerate() {
        let item = path.index(i);
        let path = item.child("jsonPath");
        let text = field.text("jsonPath");
        if text.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let (names, found) = match field_path(text, source, false) {
            Ok(found) => found,
            Err(why) => {
                errors.push(FieldError::invalid(path, text, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if names.first().is_some_and(|first| first == "metadata") {
            errors.push(FieldError::invalid(path, text, "must not point to fields in metadata"));
        }
        if !matches!(found.text("type"), "string" | "boolean" | "integer") {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                       formats are allowed.";
            errors.push(FieldError::invalid(path, text, why));
        }
        if !seen.insert(names) {
            errors.push(FieldError::duplicate(path, text));
        }
    }
    if seen.len() > SELECTABLE_MAX {
        errors.push(FieldError::too_many(path, seen.len(), SELECTABLE_MAX));
    }
}

/// Follows a path of fields through a schema; returns the names and the schema at its end.
pub(super) fn field_path<'a>(text: &str, schema: &'a Value, keys: bool) -> Result<(Vec<String>, &'a Value), String> {
    const END: &str = "unexpected end of JSON path";
    let mut at = schema;
    let mut names = Vec::new();
    let mut rest = text;
    let mut step = |name: &str, at: &mut &'a Value| -> Result<(), String> {
        let nowhere = || "does not refer to a valid field".to_owned();
        let properties = at.at("properties").as_object().filter(|properties| !properties.is_empty());
        *at = match properties {
            Some(properties) => properties.get(name).ok_or_else(nowhere)?,
            None if at.at("additionalProperties").is_object() => at.at("additionalProperties"),
            None => return Err(nowhere()),
        };
        names.push(name.to_owned());
        Ok(())
    };
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            if after.is_empty() {
                return Err(END.to_owned());
            }
            let end = match after.find(['.', '[', ']']) {
                // A leading delimiter is a name by itself.
                Some(0) => 1,
                Some(end) => end,
                None => after.len(),
            };
            step(&after[..end], &mut at)?;
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            if !keys {
                return Err("array notation is not allowed".to_owned());
            }
            let Some(inside) = after.strip_prefix('\'') else {
                let end = after.find(['.', '[', ']']).unwrap_or(after.len());
                let found = if after.is_empty() { return Err(END.to_owned()) } else { &after[..end.max(1)] };
                return Err(format!("expected single quoted string but got {found}"));
            };
            let end = inside.find('\'').ok_or_else(|| format!("expected single quoted string but got '{inside}"))?;
            step(&inside[..end], &mut at)?;
            rest = match inside[end + 1..].strip_prefix(']') {
                Some(rest) => rest,
                None if inside[end + 1..].is_empty() => return Err(END.to_owned()),
                None => return Err(format!("expected ] but got {}", &inside[end + 1..])),
            };
        } else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(format!("expected [ or . but got: {}", &rest[..end]));
        }
    }
    Ok((names, at))
}

fn conversion(conversion: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !conversion.is_object() {
        return;
    }
    let strategy = conversion.text("strategy");
    rules::one_of(errors, &path.child("strategy"), strategy, &["None", "Webhook"]);
    let (client, versions) = (conversion.at("webhook.clientConfig"), conversion.at("webhook.conversionReviewVersions"));
    let client_path = path.child("webhookClientConfig");
    let versions_path = path.child("conversionReviewVersions");
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_object() {
            errors.push(FieldError::forbidden(client_path, why));
        }
        if versions.as_array().is_some_and(|versions| !versions.is_empty()) {
            errors.push(FieldError::forbidden(versions_path, why));
        }
        return;
    }
    if client.is_object() {
        admission::client(client, &client_path, errors);
    } else {
        errors.push(FieldError::required(client_path, "required when strategy is set to Webhook"));
    }
    let list: Vec<&str> = versions.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if list.is_empty() {
        errors.push(FieldError::required(versions_path, ""));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in list.iter().enumerate() {
        if !seen.insert(*version) {
            errors.push(FieldError::invalid(versions_path.index(i), *version, "duplicate version"));
            continue;
        }
        for why in names::dns1035_label(version) {
            errors.push(FieldError::invalid(versions_path.index(i), *version, why));
        }
    }
    if !list.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        errors.push(FieldError::invalid(versions_path, versions, "must include at least one of v1, v1beta1"));
    }
}

fn names_of(names: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["plural", "singular"] {
        label(names.text(name), &path.child(name), errors);
    }
    for name in ["kind", "listKind"] {
        let text = names.text(name);
        let why = names::dns1035_label(&text.to_lowercase());
        if !text.is_empty() && !why.is_empty() {
            let why = format!("may have mixed case, but should otherwise match: {}", why.join(","));
            errors.push(FieldError::invalid(path.child(name), text, why));
        }
    }
    for (i, short) in names.list("shortNames").iter().enumerate() {
        label_or_empty(short.as_str().unwrap_or_default(), &path.child("shortNames").index(i), errors);
    }
    if !names.text("kind").is_empty() && names.text("kind") == names.text("listKind") {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(path.child("listKind"), names.text("listKind"), why));
    }
    for (i, category) in names.list("categories").iter().enumerate() {
        label_or_empty(category.as_str().unwrap_or_default(), &path.child("categories").index(i), errors);
    }
}

fn label(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if !text.is_empty() {
        label_or_empty(text, path, errors);
    }
}

fn label_or_empty(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let why = names::dns1035_label(text);
    if !why.is_empty() {
        errors.push(FieldError::invalid(path, text, why.join(",")));
    }
}

fn immutable(new: &Value, old: &Value, errors: &mut Errors) {
    let conditions = old.list("status.conditions");
    let established = conditions.iter().any(|c| c.text("type") == "Established" && c.text("status") == "True");
    let mut fields = vec!["spec.group", "spec.names.plural"];
    if established {
        fields.splice(0..0, ["spec.scope", "spec.names.kind"]);
    }
    for field in fields {
        if new.at(field) != old.at(field) {
            errors.push(FieldError::invalid(field, new.at(field), "field is immutable"));
        }
    }
}

fn stored_versions(definition: &Value, errors: &mut Errors) {
    const PATH: &str = "status.storedVersions";
    let stored = definition.list(PATH);
    if stored.is_empty() {
        let shown = if definition.at(PATH).is_array() { json!([]) } else { Value::Null };
        let shown =
            if definition.at(PATH).as_array().is_some_and(|list| list.is_empty()) { Value::Null } else { shown };
        errors.push(FieldError::invalid(PATH, shown, "must have at least one stored version"));
        return;
    }
    let versions = definition.list("spec.versions");
    let known: HashSet<&Value> = stored.iter().collect();
    let named: HashSet<&Value> = versions.iter().map(|version| version.at("name")).collect();
    for version in versions.iter().filter(|version| version.flag("storage") == Some(true)) {
        if !known.contains(version.at("name")) {
            let why = format!("must have the storage version {}", version.text("name"));
            errors.push(FieldError::invalid(PATH, definition.at(PATH), why));
        }
    }
    for (i, name) in stored.iter().enumerate() {
        if !named.contains(name) {
            let text = name.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {text} was previously a storage version, and must remain in spec.versions until \
                 a storage migration ensures no data remains persisted in {text} and removes {text} from status.storedVersions"
            );
            errors.push(FieldError::invalid(Path::new(PATH).index(i), name, why));
        }
    }
}

/// Checks the approval annotation of groups of the Kubernetes project.
fn approval(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = new.text("spec.group");
    if !(["k8s.io", "kubernetes.io"].contains(&group)
        || group.ends_with(".k8s.io")
        || group.ends_with(".kubernetes.io"))
    {
        return;
    }
    let said = |definition: &Value| {
        let annotations = definition.at("metadata.annotations").as_object();
        let text = annotations.and_then(|all| all.get(APPROVED)).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    let state = |said: &Option<String>| match said.as_deref() {
        None | Some("") => 0,
        Some(text) if text.starts_with("unapproved") => 1,
        Some(text) if is_url(text) => 2,
        Some(_) => 3,
    };
    let now = said(new);
    if old.is_some_and(|old| state(&said(old)) == state(&now)) {
        return;
    }
    let metadata = Path::new("metadata.annotations");
    match state(&now) {
        0 => {
            let why = format!("protected groups must have approval annotation {APPROVED:?}, {SEE}");
            errors.push(FieldError::required(metadata.key(APPROVED), why));
        }
        3 => {
            let why = format!(
                "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \
                 \"unapproved\", {SEE}"
            );
            let value: BadValue = now.unwrap_or_default().into();
            errors.push(FieldError::invalid(metadata.key(APPROVED), value, why));
        }
        _ => {}
    }
}

fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty()
            && scheme.chars().all(|c| c.is_ascii_alphanumeric())
            && !rest.split('/').next().unwrap_or_default().is_empty()
            && !text.contains(' ')
    })
}

/// Returns a warning for each unknown format; on an update only for new ones.
pub(crate) fn unknown_formats(definition: &Value, old: Option<&Value>) -> Vec<String> {
    let formats = |definition: &Value| {
        let mut found = Vec::new();
        for version in definition.list("spec.versions") {
            schema::formats(version.at("schema.openAPIV3Schema"), &mut found);
        }
        found
    };
    let before: HashSet<String> = old.map(formats).unwrap_or_default().into_iter().collect();
    let new = formats(definition).into_iter().filter(|format| !before.contains(format));
    new.map(|format| format!("unrecognized format {}", go_text::quote(&format))).collect()
}

/// Returns whether a format is checked for a type.
fn known_format(kind: &str, format: &str) -> bool {
    custom::is_known_format(kind, format)
}

#[cfg(test)]
mod tests;
