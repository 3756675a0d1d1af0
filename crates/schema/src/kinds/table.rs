//! Parses the table of built-in kinds. The head of `builtin.tsv` describes its columns.

use machinery::{GroupVersion, GroupVersionKind};

use crate::kind::{Kind, NameRule, Propagation, Rules, SelectableField, Subresource, UnknownField};

pub(super) const BUILTIN: &str = include_str!("builtin.tsv");

const ALL_VERBS: &str = "create,delete,deletecollection,get,list,patch,update,watch";
const WRITE_VERBS: &str = "get,patch,update";

/// Parses the kinds of a table that ships with the binary. A malformed line is skipped; a test checks that there is none.
pub(super) fn read(table: &str) -> impl Iterator<Item = Kind> {
    table.lines().filter(|line| !line.starts_with('#')).filter_map(kind)
}

fn kind(line: &str) -> Option<Kind> {
    let columns: Vec<&str> = line.split('\t').map(|column| if column == "-" { "" } else { column }).collect();
    let [gv, kind, plural, scope, short, categories, verbs, subresources, rules, fields] = columns[..] else {
        return None;
    };
    let gv = GroupVersion::parse(gv)?;
    let gvk = GroupVersionKind::new(&*gv.group, &*gv.version, kind);
    let group = if gv.group.is_empty() { "core" } else { &gv.group };
    let mut kind = Kind {
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_ascii_lowercase(),
        short_names: words(short, ','),
        categories: words(categories, ','),
        namespaced: scope == "ns",
        verbs: words(if verbs == "*" { ALL_VERBS } else { verbs }, ','),
        subresources: subresources.split(';').filter_map(|text| subresource(text, &gvk)).collect(),
        collection: format!("{group}/{plural}"),
        storage: gv,
        storage_hash: None,
        custom: false,
        fields: Vec::new(),
        unknown_field: UnknownField::NotKnown,
        rules: Rules::PLAIN,
        definition: None,
        gvk,
    };
    for rule in rules.split(' ').filter(|rule| !rule.is_empty()) {
        apply_rule(&mut kind, rule)?;
    }
    let mut fields = fields.split(' ').filter(|field| !field.is_empty());
    match fields.next() {
        None => kind.fields = ["metadata.name", "metadata.namespace"].map(SelectableField::plain).into(),
        Some(wording) => {
            kind.unknown_field = match wording {
                "supported" => UnknownField::NotSupported,
                "kind" => UnknownField::NotSupportedForKind,
                "gvk" => UnknownField::NotSupportedForGvk,
                _ => return None,
            };
            kind.fields = fields.map(field).collect();
        }
    }
    Some(kind)
}

fn apply_rule(kind: &mut Kind, rule: &str) -> Option<()> {
    let rules = &mut kind.rules;
    match rule.split_once('=').unwrap_or((rule, "")) {
        ("gen", _) => rules.generation = true,
        ("status", _) => rules.status = true,
        ("cond", _) => rules.unconditional_update = false,
        ("upsert", _) => rules.create_on_update = true,
        ("obj", _) => rules.delete_returns_object = true,
        ("graceful", _) => rules.graceful = true,
        ("orphan", _) => rules.propagation = Propagation::Orphan,
        ("nogc", _) => rules.propagation = Propagation::Unsupported,
        ("name", "label") => rules.name = NameRule::Dns1123Label,
        ("name", "segment") => rules.name = NameRule::PathSegment,
        ("name", "cronjob") => rules.name = NameRule::CronJob,
        ("name", "own") => rules.name = NameRule::Own,
        ("store", place) => {
            let (collection, version) = place.split_once('@')?;
            kind.collection = collection.to_owned();
            kind.storage = GroupVersion::parse(version)?;
        }
        ("hash", version) => kind.storage_hash = Some(GroupVersion::parse(version)?),
        _ => return None,
    }
    Some(())
}

/// Parses `status`, `scale=autoscaling/v1 Scale`, `binding=v1 Binding:create`.
fn subresource(text: &str, parent: &GroupVersionKind) -> Option<Subresource> {
    let (text, verbs) = text.split_once(':').unwrap_or((text, WRITE_VERBS));
    let (name, gvk) = match text.split_once('=') {
        None => (text, parent.clone()),
        Some((name, kind)) => {
            let (gv, kind) = kind.split_once(' ')?;
            let gv = GroupVersion::parse(gv)?;
            (name, GroupVersionKind::new(gv.group, gv.version, kind))
        }
    };
    (!name.is_empty()).then(|| Subresource { name: name.to_owned(), gvk, verbs: words(verbs, ',') })
}

/// Parses `spec.nodeName`, `source=source.component|reportingComponent`, `spec.hostNetwork?false`.
fn field(text: &str) -> SelectableField {
    let (text, absent) = text.split_once('?').unwrap_or((text, ""));
    let (label, paths) = text.split_once('=').unwrap_or((text, text));
    let paths = words(paths, '|').iter().map(|path| words(path, '.')).collect();
    SelectableField { label: label.to_owned(), paths, absent: absent.to_owned() }
}

fn words(text: &str, separator: char) -> Vec<String> {
    text.split(separator).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_kind() {
        for line in BUILTIN.lines().filter(|line| !line.starts_with('#')) {
            assert!(kind(line).is_some(), "{line}");
        }
    }

    #[test]
    fn lines_with_unknown_words_are_not_kinds() {
        assert!(kind("v1\tThing\tthings\tns\t-\t-\t*\t-\tfast\t-").is_none());
        assert!(kind("v1\tThing\tthings\tns").is_none());
    }
}
