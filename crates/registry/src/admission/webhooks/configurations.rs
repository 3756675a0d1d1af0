//! The webhooks of all configurations of one kind, in the order in which they are called.
//!
//! They follow the cache from inside its feed: a configuration acts for every request that begins after its write was
//! answered, and no longer after its delete was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use cache::{Collection, Collections, Event, Item, Observer};
use machinery::Revision;
use machinery::json::Value;
use parking_lot::Mutex;

use super::super::conditions::CompiledConditions;
use super::super::matching::{Criteria, Index};
use super::client::HookClient;
use crate::read::view;

/// Timeout of a webhook that names none.
const TIMEOUT_DEFAULT: u64 = 10;

/// One webhook of a configuration.
#[derive(Debug)]
pub(crate) struct Hook {
    /// Unique among all webhooks of its kind: configuration, name, and the number of the name in it.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) configuration: String,
    pub(super) client: HookClient,
    pub(super) ignores_failure: bool,
    pub(super) timeout: Duration,
    pub(super) side_effects: SideEffects,
    /// The first review version that both sides know.
    pub(super) review_version: Option<&'static str>,
    pub(super) runs_again: bool,
    pub(super) criteria: Criteria,
    pub(super) conditions: CompiledConditions,
}

/// Whether a webhook may be called for a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    None,
    Some,
    Unknown,
}

/// The webhooks of all configurations of one kind.
pub(crate) struct Configurations {
    collection: &'static str,
    index: ArcSwap<Index<Hook>>,
    known: Mutex<Known>,
}

/// The webhooks of each configuration by its name, with the revision they were read at.
type Known = BTreeMap<String, (Revision, Vec<Arc<Hook>>)>;

impl Configurations {
    pub(crate) fn new(collection: &'static str) -> Self {
        Configurations { collection, index: ArcSwap::default(), known: Mutex::default() }
    }

    pub(super) fn index(&self) -> Guard<Arc<Index<Hook>>> {
        self.index.load()
    }

    /// Reads the configurations that changed, and makes a new index if any did.
    fn sync(&self, collection: &Collection) {
        let objects = collection.objects();
        let mut known = self.known.lock();
        let mut found = Known::new();
        for item in objects.scan(self.collection, None, None) {
            let entry = match known.remove(item.name()) {
                Some(entry) if entry.0 == item.revision() => entry,
                _ => (item.revision(), read(item)),
            };
            found.insert(item.name().to_owned(), entry);
        }
        // The map is in byte order of the names, which is the order of the configurations.
        let hooks = found.values().flat_map(|(_, hooks)| hooks.iter().cloned()).collect();
        *known = found;
        self.index.store(Arc::new(Index::new(hooks, |hook| &hook.criteria)));
    }
}

impl Observer for Configurations {
    fn observes(&self, collection: &str) -> bool {
        collection == self.collection
    }

    fn loaded(&self, _: &Collections, collection: &Collection, _: Revision) {
        self.sync(collection);
    }

    fn changed(&self, collections: &Collections, _: &[Arc<Event>]) {
        self.sync(&collections.get(self.collection));
    }
}

fn read(item: &Arc<Item>) -> Vec<Arc<Hook>> {
    let configuration = match view::parse(item) {
        Ok(configuration) => configuration,
        Err(error) => {
            tracing::error!(name = item.name(), %error, "a webhook configuration cannot be read and is not used");
            return Vec::new();
        }
    };
    let mut hooks: Vec<Arc<Hook>> = Vec::new();
    for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
        let name = webhook["name"].as_str().unwrap_or_default();
        let number = hooks.iter().filter(|hook| hook.name == name).count();
        match Hook::read(item.name(), name, number, webhook) {
            Ok(hook) => hooks.push(Arc::new(hook)),
            Err(error) => tracing::error!(configuration = item.name(), name, %error, "a webhook cannot be used"),
        }
    }
    hooks
}

impl Hook {
    pub(super) fn read(configuration: &str, name: &str, number: usize, webhook: &Value) -> Result<Self, String> {
        let versions = webhook["admissionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut known = versions.filter_map(|version| ["v1", "v1beta1"].into_iter().find(|known| *known == version));
        Ok(Hook {
            id: format!("{configuration}/{name}/{number}"),
            name: name.to_owned(),
            configuration: configuration.to_owned(),
            client: HookClient::new(&webhook["clientConfig"]),
            ignores_failure: webhook["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_DEFAULT)),
            side_effects: match webhook["sideEffects"].as_str() {
                Some("None" | "NoneOnDryRun") => SideEffects::None,
                Some(_) => SideEffects::Some,
                None => SideEffects::Unknown,
            },
            review_version: known.next(),
            runs_again: webhook["reinvocationPolicy"] == "IfNeeded",
            criteria: Criteria::of_webhook(webhook)?,
            conditions: CompiledConditions::of_webhook(&webhook["matchConditions"]),
        })
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn wh_3_the_first_known_review_version_is_used() {
        let version = |versions: &[&str]| {
            let hook = Hook::read("c", "n", 0, &json!({"admissionReviewVersions": versions})).unwrap();
            hook.review_version
        };
        assert_eq!(version(&["v3", "v1beta1", "v1"]), Some("v1beta1"));
        assert_eq!(version(&["v1", "v1beta1"]), Some("v1"));
        assert_eq!(version(&["v2"]), None);
    }

    #[test]
    fn hooks_have_defaults() {
        let hook = Hook::read("c", "n", 0, &json!({})).unwrap();
        assert!(!hook.ignores_failure && !hook.runs_again);
        assert_eq!((hook.timeout, hook.side_effects), (Duration::from_secs(10), SideEffects::Unknown));
        let hook = Hook::read(
            "c",
            "n",
            1,
            &json!({"failurePolicy": "Ignore", "timeoutSeconds": 3, "sideEffects": "Some", "reinvocationPolicy": "IfNeeded"}),
        );
        let hook = hook.unwrap();
        assert!(hook.ignores_failure && hook.runs_again && hook.id == "c/n/1");
        assert_eq!((hook.timeout, hook.side_effects), (Duration::from_secs(3), SideEffects::Some));
    }
}
