//! The criteria of one webhook, policy or binding, read once when it is stored.

use machinery::json::Value;
use machinery::labels::Selector;

use super::rule::Rule;

/// What a request must be like.
#[derive(Clone, Debug)]
pub(crate) struct Criteria {
    /// None matches every resource: a binding without rules.
    pub(super) rules: Option<Vec<Rule>>,
    pub(super) excluded: Vec<Rule>,
    pub(super) namespaces: Selector,
    pub(super) objects: Selector,
    /// Only the resource as asked for, no other version of it.
    pub(super) exact: bool,
}

impl Criteria {
    /// The criteria of a webhook. Without rules it is never called.
    pub(crate) fn of_webhook(webhook: &Value) -> Result<Self, String> {
        let rules = Some(rules(&webhook["rules"]));
        Ok(Criteria { rules, excluded: Vec::new(), ..Criteria::selectors(webhook)? })
    }

    /// `matchConstraints` of a policy, or `matchResources` of a binding; absent or without rules it matches every resource.
    pub(crate) fn of_match_resources(resources: &Value) -> Result<Self, String> {
        let named = Some(rules(&resources["resourceRules"])).filter(|rules| !rules.is_empty());
        Ok(Criteria {
            rules: named,
            excluded: rules(&resources["excludeResourceRules"]),
            ..Criteria::selectors(resources)?
        })
    }

    fn selectors(from: &Value) -> Result<Self, String> {
        Ok(Criteria {
            rules: None,
            excluded: Vec::new(),
            namespaces: selector(&from["namespaceSelector"])?,
            objects: selector(&from["objectSelector"])?,
            exact: from["matchPolicy"] == "Exact",
        })
    }
}

fn rules(list: &Value) -> Vec<Rule> {
    list.as_array().into_iter().flatten().map(Rule::read).collect()
}

/// An absent selector selects everything, as its default does.
fn selector(value: &Value) -> Result<Selector, String> {
    if value.is_null() { Ok(Selector::everything()) } else { Selector::from_label_selector(value) }
}
