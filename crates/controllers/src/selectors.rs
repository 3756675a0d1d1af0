//! Label selectors of objects, ready to match labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

/// A label selector. One that is absent or cannot be read matches nothing.
#[derive(Debug, Clone)]
pub(crate) struct Selects(Option<Selector>);

impl Selects {
    /// A selector that matches everything if it has no terms.
    pub(crate) fn new(selector: Option<&LabelSelector>) -> Self {
        Self(selector.and_then(|selector| Selector::try_from(selector.clone()).ok()))
    }

    /// The selector of a workload. Without terms it matches nothing: no workload may own everything.
    pub(crate) fn of_workload(selector: Option<&LabelSelector>) -> Self {
        Self::new(selector).unless_empty()
    }

    /// The selector of a workload that lists labels.
    pub(crate) fn of_labels(labels: Option<&BTreeMap<String, String>>) -> Self {
        let labels = labels.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
        Self(Some(labels.collect())).unless_empty()
    }

    fn unless_empty(self) -> Self {
        Self(self.0.filter(|selector| !selector.selects_all()))
    }

    /// True if it can match nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let Some(selector) = &self.0 else { return false };
        match labels {
            Some(labels) => selector.matches(labels),
            None => selector.matches(&BTreeMap::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_without_terms_selects_nothing() {
        let any = [("a".to_owned(), "b".to_owned())].into();
        assert!(!Selects::of_workload(Some(&LabelSelector::default())).matches(Some(&any)));
        assert!(!Selects::of_workload(None).matches(Some(&any)));
        assert!(!Selects::of_labels(None).matches(None));
        assert!(Selects::of_labels(Some(&any)).matches(Some(&any)));
    }

    #[test]
    fn selectors_of_labels() {
        let labels: BTreeMap<String, String> = [("a".to_owned(), "1".to_owned())].into();
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}), true),
            (json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), false),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(Selects::new(Some(&parsed)).matches(Some(&labels)), expected, "{selector}");
        }
        assert!(!Selects::new(None).matches(Some(&labels)));
    }
}
