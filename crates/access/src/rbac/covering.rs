//! Whether the rules of a user cover rules that it is about to grant, and the text that names what they lack.

use std::collections::{BTreeMap, BTreeSet};

use machinery::go_text::quote;
use machinery::json::Text;

use super::decision::joined;
use super::rule::{Rule, has, has_or_all, is_prefix};
use crate::authorizer::RuleList;
use crate::identity::User;

/// Most comparisons of one piece of a rule with one held rule. A grant that needs more is refused: the pieces of a rule are all
/// combinations of its parts, so a short body can have very many.
const COMPARISONS_MAX: usize = 2_000_000;
/// Most bytes of the pieces that are not held, which the refusal lists.
const MISSING_BYTES_MAX: usize = 1024 * 1024;

/// Checks that a user holds all of these rules. An error is the text of the refusal.
pub fn confirm_held(user: &User, held: &RuleList, wanted: &[Rule]) -> Result<(), String> {
    let missing = missing(&held.rules, wanted).ok_or("the rules have too many combinations to be compared")?;
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = descriptions(missing).into_iter().collect();
    let (name, groups) = (quote(&user.name), list(&user.groups));
    let mut why = format!(
        "user {name} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
        lines.join("\n")
    );
    if !held.errors.is_empty() {
        why.push_str(&format!("; resolution errors: [{}]", joined(&held.errors)));
    }
    Err(why)
}

/// Whether a user holds all of these rules.
#[must_use]
pub fn covers(held: &[Rule], wanted: &[Rule]) -> bool {
    missing(held, wanted).is_some_and(|missing| missing.is_empty())
}

/// The parts of `wanted` that are not held, each as a rule of its own.
#[must_use]
pub fn missing_rules(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let one = |text: &str| vec![Text::new(text)];
    let missing = missing(held, wanted).unwrap_or_default();
    let rule = |piece: Piece<'_>| match piece {
        Piece::Resource { group, resource, verb, name } => Rule {
            verbs: one(verb),
            groups: one(group),
            resources: one(resource),
            names: name.map(one).unwrap_or_default(),
            paths: Vec::new(),
        },
        Piece::Path { path, verb } => Rule { verbs: one(verb), paths: one(path), ..Rule::default() },
    };
    missing.into_iter().map(rule).collect()
}

/// The smallest part of a rule: one verb on one resource or path, with one name or any.
#[derive(Clone, Copy, Debug)]
enum Piece<'r> {
    Resource { group: &'r str, resource: &'r str, verb: &'r str, name: Option<&'r str> },
    Path { path: &'r str, verb: &'r str },
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Piece::Resource { group, resource, verb, name } => {
                group.len() + resource.len() + verb.len() + name.map_or(0, str::len)
            }
            Piece::Path { path, verb } => path.len() + verb.len(),
        }
    }
}

/// The pieces of `wanted` that no single rule of `held` covers; none if there are too many to compare.
fn missing<'r>(held: &[Rule], wanted: &'r [Rule]) -> Option<Vec<Piece<'r>>> {
    let mut missing = Vec::new();
    let (mut comparisons, mut bytes): (usize, usize) = (0, 0);
    for rule in wanted {
        if held.iter().any(|held| covers_whole(held, rule)) {
            continue;
        }
        comparisons = comparisons.saturating_add(piece_count(rule).saturating_mul(held.len().max(1)));
        if comparisons > COMPARISONS_MAX {
            return None;
        }
        for_each_piece(rule, |piece| {
            if bytes <= MISSING_BYTES_MAX && !held.iter().any(|held| covers_piece(held, piece)) {
                bytes = bytes.saturating_add(piece.len());
                missing.push(piece);
            }
        });
    }
    (bytes <= MISSING_BYTES_MAX).then_some(missing)
}

fn piece_count(rule: &Rule) -> usize {
    let resources = [rule.groups.len(), rule.resources.len(), rule.verbs.len(), rule.names.len().max(1)];
    let resources = resources.iter().fold(1_usize, |product, part| product.saturating_mul(*part));
    resources.saturating_add(rule.paths.len().saturating_mul(rule.verbs.len()))
}

fn for_each_piece<'r>(rule: &'r Rule, mut take: impl FnMut(Piece<'r>)) {
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                if rule.names.is_empty() {
                    take(Piece::Resource { group, resource, verb, name: None });
                }
                for name in &rule.names {
                    take(Piece::Resource { group, resource, verb, name: Some(name) });
                }
            }
        }
    }
    for path in &rule.paths {
        for verb in &rule.verbs {
            take(Piece::Path { path, verb });
        }
    }
}

/// Whether one held rule covers all pieces of another: the common case, without taking it apart.
fn covers_whole(held: &Rule, wanted: &Rule) -> bool {
    let all = |parts: &[Text], covered: &dyn Fn(&str) -> bool| parts.iter().all(|part| covered(part));
    all(&wanted.verbs, &|verb| has_or_all(&held.verbs, verb))
        && all(&wanted.groups, &|group| has_or_all(&held.groups, group))
        && all(&wanted.resources, &|resource| covers_resource(held, resource))
        && all(&wanted.paths, &|path| covers_path(held, path))
        && (held.names.is_empty() || (!wanted.names.is_empty() && all(&wanted.names, &|name| has(&held.names, name))))
}

fn covers_piece(held: &Rule, piece: Piece<'_>) -> bool {
    match piece {
        Piece::Resource { group, resource, verb, name } => {
            has_or_all(&held.verbs, verb)
                && has_or_all(&held.groups, group)
                && covers_resource(held, resource)
                && (held.names.is_empty() || name.is_some_and(|name| has(&held.names, name)))
        }
        // A rule with names has no paths.
        Piece::Path { path, verb } => has_or_all(&held.verbs, verb) && covers_path(held, path) && held.names.is_empty(),
    }
}

fn covers_resource(held: &Rule, resource: &str) -> bool {
    let of_any = resource.split_once('/').map(|(_, subresource)| subresource);
    held.resources
        .iter()
        .any(|listed| listed == resource || listed == "*" || (of_any.is_some() && listed.strip_prefix("*/") == of_any))
}

fn covers_path(held: &Rule, path: &str) -> bool {
    held.paths.iter().any(|listed| listed == path || is_prefix(listed, path))
}

/// One line for each resource (and name) with its verbs, and for each path with its verb.
fn descriptions(missing: Vec<Piece<'_>>) -> BTreeSet<String> {
    let mut verbs_of: BTreeMap<(&str, &str, Option<&str>), Vec<&str>> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for piece in missing {
        match piece {
            Piece::Resource { group, resource, verb, name } => {
                verbs_of.entry((group, resource, name)).or_default().push(verb);
            }
            Piece::Path { path, verb } => {
                lines.insert(format!("{{NonResourceURLs:[{}], Verbs:[{}]}}", quote(path), quote(verb)));
            }
        }
    }
    for ((group, resource, name), verbs) in verbs_of {
        let name = name.map(|name| format!(", ResourceNames:[{}]", quote(name))).unwrap_or_default();
        let (group, resource) = (quote(group), quote(resource));
        lines.insert(format!("{{APIGroups:[{group}], Resources:[{resource}]{name}, Verbs:{}}}", list(&verbs)));
    }
    lines
}

/// A list of strings as Go prints it: `["a" "b"]`.
fn list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use machinery::json::{Value, json};

    use super::*;

    fn rules(value: Value) -> Vec<Rule> {
        value.as_array().unwrap().iter().map(Rule::from_value).collect()
    }

    fn check(held: Value, wanted: Value) -> Result<(), String> {
        let user = User { name: "alice".to_owned(), groups: vec!["devs".to_owned()], ..User::default() };
        let held = RuleList { rules: rules(held), ..RuleList::default() };
        let result = confirm_held(&user, &held, &rules(wanted));
        let head = "user \"alice\" (groups=[\"devs\"]) is attempting to grant RBAC permissions not currently held:\n";
        result.map_err(|why| why.strip_prefix(head).expect("the first line").to_owned())
    }

    #[test]
    fn az_126_each_piece_is_inside_one_held_rule() {
        let reader = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/log"]}]);
        assert_eq!(check(reader.clone(), reader.clone()), Ok(()));
        let one = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
        assert_eq!(check(reader.clone(), one.clone()), Ok(()));
        let log = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}]);
        assert_eq!(check(reader, log), Ok(()));
        let all = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(
            check(one, all.clone()).unwrap_err(),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#,
            "a rule for all names is not covered by one with names"
        );
        let two = json!([
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        let both = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(check(two, both), Ok(()), "by two rules, piece by piece");
        let star = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(check(all, star).unwrap_err(), r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#);
        let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}]);
        assert_eq!(
            check(paths.clone(), json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz/a", "/healthz/b*"]}])),
            Ok(())
        );
        assert_eq!(
            check(paths, json!([{"verbs": ["get", "put"], "nonResourceURLs": ["/healthz"]}])).unwrap_err(),
            "{NonResourceURLs:[\"/healthz\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/healthz\"], Verbs:[\"put\"]}"
        );
    }

    #[test]
    fn az_127_missing_pieces_are_joined_by_resource_and_sorted() {
        let wanted = json!([
            {"verbs": ["get", "list"], "apiGroups": ["apps", ""], "resources": ["pods", "deployments"]},
            {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"]},
            {"verbs": ["watch"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        let expected = [
            r#"{APIGroups:[""], Resources:["deployments"], Verbs:["get" "list"]}"#,
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["delete"]}"#,
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["delete"]}"#,
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list" "watch"]}"#,
            r#"{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}"#,
            r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}"#,
        ];
        assert_eq!(check(json!([]), wanted).unwrap_err(), expected.join("\n"));
        let errors = vec!["a".to_owned(), "b".to_owned()];
        let held = RuleList { errors, ..RuleList::default() };
        let wanted = rules(json!([{"verbs": ["get"], "nonResourceURLs": ["/"]}]));
        assert_eq!(
            confirm_held(&User::default(), &held, &wanted).unwrap_err(),
            "user \"\" (groups=[]) is attempting to grant RBAC permissions not currently \
             held:\n{NonResourceURLs:[\"/\"], Verbs:[\"get\"]}; resolution errors: [[a, b]]"
        );
    }

    #[test]
    fn rules_of_very_many_pieces_are_refused() {
        let many: Vec<String> = (0..1000).map(|n| format!("x{n}")).collect();
        let wanted = json!([{"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many}]);
        let held = RuleList::default();
        let why = confirm_held(&User::default(), &held, &rules(wanted.clone())).unwrap_err();
        assert!(why.contains("too many combinations"), "{why}");
        let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
        assert_eq!(check(everything, wanted), Ok(()), "covered as a whole");
        let long = "x".repeat(100_000);
        let verbs: Vec<String> = (0..20).map(|n| format!("v{n}")).collect();
        let wanted = json!([{"verbs": verbs, "apiGroups": [""], "resources": [long]}]);
        let why = confirm_held(&User::default(), &held, &rules(wanted)).unwrap_err();
        assert!(why.contains("too many combinations"), "{} bytes", why.len());
    }
}
