//! Label selectors: parsing, and matching with an object's labels (spec 01 §3).

use std::collections::BTreeMap;
use std::fmt;

use crate::field_error::{self, FieldError, Path};
use crate::names;

mod grammar;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Equals,
    /// `==`: as [`Operator::Equals`], but printed as it was written.
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, without duplicates.
    values: Vec<String>,
    /// Operand of `>` and `<`; zero for the others.
    bound: i64,
}

impl Requirement {
    /// Creates a requirement; checks key, values and their number. The error is the text that a client sees.
    pub fn new(key: impl Into<String>, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        let key = key.into();
        let mut values = values;
        values.sort_unstable();
        values.dedup();
        let mut errors = Vec::new();
        let objections = names::qualified_name(&key);
        if !objections.is_empty() {
            errors.push(FieldError::invalid("key", &key, objections.join("; ")));
        }
        let path = Path::new("values");
        let wrong_number = match operator {
            Operator::In | Operator::NotIn => {
                values.is_empty().then_some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
                (values.len() != 1).then_some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist => {
                (!values.is_empty()).then_some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan => {
                (values.len() != 1).then_some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
        };
        if let Some(detail) = wrong_number {
            let shown = if values.is_empty() { crate::json::Value::Null } else { values.clone().into() };
            errors.push(FieldError::invalid(path, shown, detail));
        }
        let mut bound = 0;
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (i, value) in values.iter().enumerate() {
                match value.parse() {
                    Ok(number) => bound = number,
                    Err(_) => errors.push(FieldError::invalid(
                        path.index(i),
                        value,
                        "for 'Gt', 'Lt' operators, the value must be an integer",
                    )),
                }
            }
        }
        for (i, value) in values.iter().enumerate() {
            let objections = names::label_value(value);
            if !objections.is_empty() {
                errors.push(FieldError::invalid(path.index(i).key(&key), value, objections.join("; ")));
            }
        }
        if errors.is_empty() {
            Ok(Requirement { key, operator, values, bound })
        } else {
            Err(field_error::join(&errors))
        }
    }

    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    #[must_use]
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns the value that the label must have, if only one is accepted.
    #[must_use]
    pub fn exact(&self) -> Option<&str> {
        match (self.operator, self.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [only]) => Some(only),
            _ => None,
        }
    }

    /// Returns whether a label with this value, or its absence, meets the requirement.
    #[must_use]
    pub fn accepts(&self, label: Option<&str>) -> bool {
        let listed = |label: &str| self.values.binary_search_by(|value| value.as_str().cmp(label)).is_ok();
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => label.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let Some(number) = label.and_then(|label| label.parse::<i64>().ok()) else { return false };
                if self.operator == Operator::GreaterThan { number > self.bound } else { number < self.bound }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A list of requirements that must all be met. The default has none and so selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Sorted by key; equal keys in the order of the text.
    requirements: Vec<Requirement>,
    /// Selects no object: an absent selector where absence means "none".
    nothing: bool,
    /// The requirements in the form in which many of them are matched; absent if they are few.
    merged: Option<Box<MergedRequirements>>,
}

impl Selector {
    #[must_use]
    pub fn everything() -> Self {
        Selector::default()
    }

    #[must_use]
    pub fn nothing() -> Self {
        Selector { nothing: true, ..Selector::default() }
    }

    #[must_use]
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        let merged = (requirements.len() > MERGED_MIN).then(|| Box::new(MergedRequirements::new(&requirements)));
        Selector { requirements, nothing: false, merged }
    }

    /// Parses the text form. The error is the message of the 400 response.
    pub fn parse(text: &str) -> Result<Self, String> {
        grammar::parse(text).map(Selector::new)
    }

    /// Returns whether every object is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Iterates over the labels that must have one fixed value. The cache indexes watchers by them.
    pub fn equalities(&self) -> impl Iterator<Item = (&str, &str)> {
        self.requirements.iter().filter_map(|requirement| Some((requirement.key(), requirement.exact()?)))
    }

    /// Returns whether an object matches; `label` returns its labels by key.
    ///
    /// Takes time proportional to the selector. [`Selector::matches_sorted`] and [`Selector::matches_value`] are faster for a
    /// long selector.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.merged {
            Some(merged) => merged.keys.iter().all(|test| test.accepts(label(&test.key))),
            None => {
                !self.nothing
                    && self.requirements.iter().all(|requirement| requirement.accepts(label(&requirement.key)))
            }
        }
    }

    /// Returns whether labels, as pairs sorted by key, match.
    pub fn matches_sorted<K: AsRef<str>, V: AsRef<str>>(&self, labels: &[(K, V)]) -> bool {
        if let Some(merged) = &self.merged {
            return merged.match_labels(labels.iter().map(|(key, value)| (key.as_ref(), value.as_ref())));
        }
        self.matches(|key| {
            let found = labels.binary_search_by(|(k, _)| k.as_ref().cmp(key)).ok()?;
            Some(labels[found].1.as_ref())
        })
    }

    /// Returns whether labels, as the JSON object `metadata.labels`, match.
    #[must_use]
    pub fn matches_value(&self, labels: &crate::json::Value) -> bool {
        if let Some(merged) = &self.merged {
            let labels = labels.as_object().into_iter().flatten();
            return merged.match_labels(labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))));
        }
        self.matches(|key| labels.get(key)?.as_str())
    }
}

/// More requirements than this are merged by key, so that an object is matched in time proportional to its labels.
const MERGED_MIN: usize = 16;

/// The requirements of a long selector, those of one key in one test.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MergedRequirements {
    /// Sorted by key.
    keys: Vec<KeyTest>,
    /// The number of keys that must be present.
    present: usize,
}

/// All requirements on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeyTest {
    key: String,
    must_be_present: bool,
    must_be_absent: bool,
    /// Sorted, like `denied`. `None` accepts all values that are not denied.
    allowed: Option<Vec<String>>,
    denied: Vec<String>,
    /// Both bounds exclude the number itself.
    above: Option<i64>,
    below: Option<i64>,
}

impl MergedRequirements {
    /// Merges requirements that are sorted by key.
    fn new(requirements: &[Requirement]) -> Self {
        let keys: Vec<KeyTest> = requirements.chunk_by(|a, b| a.key == b.key).map(KeyTest::new).collect();
        let present = keys.iter().filter(|test| test.must_be_present).count();
        MergedRequirements { keys, present }
    }

    /// Matches labels whose keys differ.
    fn match_labels<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
        let mut present = 0;
        for (key, value) in labels {
            let Ok(at) = self.keys.binary_search_by(|test| test.key.as_str().cmp(key)) else { continue };
            let test = &self.keys[at];
            if !test.accepts(Some(value)) {
                return false;
            }
            present += usize::from(test.must_be_present);
        }
        present == self.present
    }
}

impl KeyTest {
    fn new(requirements: &[Requirement]) -> Self {
        let mut test = KeyTest {
            key: requirements.first().map(|first| first.key.clone()).unwrap_or_default(),
            must_be_present: false,
            must_be_absent: false,
            allowed: None,
            denied: Vec::new(),
            above: None,
            below: None,
        };
        // How many requirements allow each value: it has to be all of them.
        let mut allowed: BTreeMap<&str, usize> = BTreeMap::new();
        let mut allowing = 0;
        for requirement in requirements {
            let values = &requirement.values;
            test.must_be_present |=
                !matches!(requirement.operator, Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist);
            match requirement.operator {
                Operator::Equals | Operator::DoubleEquals | Operator::In => {
                    allowing += 1;
                    values.iter().for_each(|value| *allowed.entry(value).or_default() += 1);
                }
                Operator::NotEquals | Operator::NotIn => test.denied.extend_from_slice(values),
                Operator::Exists => {}
                Operator::DoesNotExist => test.must_be_absent = true,
                Operator::GreaterThan => test.above = test.above.max(Some(requirement.bound)),
                Operator::LessThan => {
                    test.below = Some(test.below.map_or(requirement.bound, |below| below.min(requirement.bound)));
                }
            }
        }
        if allowing > 0 {
            let by_all = allowed.into_iter().filter(|(_, count)| *count == allowing);
            test.allowed = Some(by_all.map(|(value, _)| value.to_owned()).collect());
        }
        test.denied.sort_unstable();
        test.denied.dedup();
        test
    }

    fn accepts(&self, label: Option<&str>) -> bool {
        let Some(label) = label else { return !self.must_be_present };
        let listed = |values: &[String]| values.binary_search_by(|value| value.as_str().cmp(label)).is_ok();
        let number = || label.parse::<i64>().ok();
        !self.must_be_absent
            && self.allowed.as_deref().is_none_or(listed)
            && !listed(&self.denied)
            && self.above.is_none_or(|above| number().is_some_and(|number| number > above))
            && self.below.is_none_or(|below| number().is_some_and(|number| number < below))
    }
}

/// The canonical text: sorted by key, values sorted.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(text: &str, labels: &[(&str, &str)]) -> bool {
        Selector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).matches_sorted(labels)
    }

    #[test]
    fn each_form_and_an_absent_key() {
        for (text, labels, want) in [
            ("k=v", &[("k", "v")][..], true),
            ("k=v", &[("k", "w")], false),
            ("k=v", &[], false),
            ("k==v", &[("k", "v")], true),
            ("k!=v", &[("k", "v")], false),
            ("k!=v", &[("k", "w")], true),
            ("k!=v", &[], true),
            ("k in (a,b)", &[("k", "b")], true),
            ("k in (a,b)", &[], false),
            ("k notin (a,b)", &[("k", "b")], false),
            ("k notin (a,b)", &[], true),
            ("k", &[("k", "")], true),
            ("k", &[], false),
            ("!k", &[], true),
            ("!k", &[("k", "")], false),
            ("k>5", &[("k", "6")], true),
            ("k>5", &[("k", "5")], false),
            ("k<5", &[("k", "4")], true),
            ("k<5", &[("k", "x")], false),
            ("k<5", &[], false),
            ("", &[], true),
            (" \t\r\n", &[], true),
            ("k=", &[("k", "")], true),
            ("k=", &[], false),
            ("k in ()", &[("k", "")], true),
            ("k in (a,)", &[("k", "")], true),
            ("k in (,a)", &[("k", "")], true),
            ("k in (a,,b)", &[("k", "")], true),
            ("in=notin", &[("in", "notin")], true),
            ("notin in (in)", &[("notin", "in")], true),
            ("in", &[("in", "")], true),
            ("!notin", &[("notin", "")], false),
            ("a=1,b!=2 , c", &[("a", "1"), ("c", "")], true),
            ("a=1,a!=1", &[("a", "1")], false),
            ("example.com/x=y", &[("example.com/x", "y")], true),
        ] {
            assert_eq!(selects(text, labels), want, "{text} on {labels:?}");
        }
    }

    #[test]
    fn canonical_text_sorts_keys_and_values() {
        for (text, want) in [
            ("b=2,a==1", "a==1,b=2"),
            ("x notin (c,a,b) , !y,z", "x notin (a,b,c),!y,z"),
            ("a in (b , b)", "a in (b)"),
            ("k>1,k<9", "k>1,k<9"),
            ("", ""),
        ] {
            let selector = Selector::parse(text).unwrap_or_default();
            assert_eq!(selector.to_string(), want);
            assert_eq!(Selector::parse(want), Ok(selector), "reading the canonical text gives the same");
        }
    }

    #[test]
    fn equalities_are_what_one_value_must_have() {
        let selector = Selector::parse("a=1,b in (2),c in (3,4),d!=5,e").unwrap_or_default();
        assert_eq!(selector.equalities().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    }

    #[test]
    fn a_long_selector_selects_what_its_terms_select() {
        let terms = [
            "a",
            "!b",
            "a=1",
            "a!=2",
            "a in (1,2,3)",
            "a notin (4)",
            "c",
            "!c",
            "c=1",
            "c>1",
            "c<9",
            "c>3",
            "c!=5",
            "d!=1",
        ];
        let objects: &[&[(&str, &str)]] = &[
            &[],
            &[("a", "1")],
            &[("a", "2"), ("b", "")],
            &[("a", "1"), ("c", "4")],
            &[("a", "1"), ("c", "5"), ("d", "1")],
            &[("c", "x")],
        ];
        for mask in (1..1u32 << terms.len()).step_by(13) {
            let chosen: Vec<&str> =
                terms.iter().enumerate().filter(|(at, _)| mask & 1 << at != 0).map(|(_, term)| *term).collect();
            let short = Selector::parse(&chosen.join(",")).unwrap();
            // Each term as often as it takes.
            let long = Selector::parse(&vec![chosen.join(","); MERGED_MIN + 1].join(",")).unwrap();
            assert!(long.merged.is_some());
            for labels in objects {
                let value: crate::json::Map = labels.iter().map(|(key, value)| (*key, *value)).collect();
                let value = crate::json::Value::Object(value);
                let want = short.requirements.iter().all(|requirement| {
                    let label = labels.iter().find(|(key, _)| *key == requirement.key).map(|(_, value)| *value);
                    requirement.accepts(label)
                });
                assert_eq!(long.matches_sorted(labels), want, "{short} on {labels:?}");
                assert_eq!(long.matches_value(&value), want);
                assert_eq!(long.matches(|key| value.get(key)?.as_str()), want);
                assert_eq!(short.matches_sorted(labels), want);
            }
        }
    }

    #[test]
    fn nothing_selects_nothing() {
        assert!(!Selector::nothing().matches(|_| None));
        assert!(!Selector::nothing().is_everything());
    }
}
