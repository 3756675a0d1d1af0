//! Which objects belong to an owner: those it controls and selects; orphans it selects are adopted, what it controls and no
//! longer selects is released (DP-2, RS-2).

use std::collections::BTreeMap;
use std::sync::Arc;

use client::store::Store;
use client::{Error, Key, Object};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Client;
use kube::core::{Selector, SelectorExt};
use serde_json::{Value, json};

use crate::owners::{controller_of, name, namespace, reference, uid};
use crate::requests::{Api, Form};
use crate::writer::Namespaced;

/// The selector of a workload. One without terms selects nothing here: no workload may own everything.
#[derive(Debug, Clone)]
pub(crate) struct Selects(Option<Selector>);

impl Selects {
    /// Of a label selector; one that cannot be read selects nothing.
    pub(crate) fn of(selector: Option<&LabelSelector>) -> Self {
        let selector = selector.and_then(|selector| Selector::try_from(selector.clone()).ok());
        Self(selector.filter(|selector| !selector.selects_all()))
    }

    /// Of plain labels.
    pub(crate) fn of_labels(labels: Option<&BTreeMap<String, String>>) -> Self {
        let labels = labels.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
        let selector: Selector = labels.collect();
        Self(Some(selector).filter(|selector| !selector.selects_all()))
    }

    /// Whether there is anything it could select.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether these labels are selected.
    pub(crate) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let Some(selector) = &self.0 else { return false };
        match labels {
            Some(labels) => selector.matches(labels),
            None => selector.matches(&BTreeMap::new()),
        }
    }
}

/// What an owner has to do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Keep,
    Adopt,
    Release,
    Ignore,
}

fn decide(owner: &ObjectMeta, selected: bool, object: &ObjectMeta) -> Claim {
    let owner_stays = owner.deletion_timestamp.is_none();
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if selected => Claim::Keep,
        Some(_) if owner_stays => Claim::Release,
        Some(_) => Claim::Ignore,
        None if selected && owner_stays && object.deletion_timestamp.is_none() => Claim::Adopt,
        None => Claim::Ignore,
    }
}

/// How an owner claims.
pub(crate) struct Claims<'a, O> {
    pub(crate) client: &'a Client,
    pub(crate) owner: &'a O,
    pub(crate) selects: &'a Selects,
    /// A finalizer that comes with adoption and goes with release.
    pub(crate) finalizer: Option<&'a str>,
}

/// The keys of the owners that would adopt an object; none if it has a controller.
pub(crate) fn adopters<O: Object>(owners: &Store<O>, orphan: &ObjectMeta, selects: impl Fn(&O) -> Selects) -> Vec<Key> {
    if controller_of(orphan).is_some() {
        return Vec::new();
    }
    let namespace = orphan.namespace.as_deref().unwrap_or_default();
    let snapshot = owners.snapshot();
    let adopting = snapshot.in_namespace(namespace).filter(|owner| selects(owner).matches(orphan.labels.as_ref()));
    adopting.map(|owner| owner.object_key()).collect()
}

impl<O: Namespaced> Claims<'_, O> {
    /// The objects that belong to the owner once what has to be adopted and released is. One that cannot be written fails
    /// the whole, after all others had their turn.
    pub(crate) async fn claim<K: Namespaced>(&self, candidates: Vec<Arc<K>>) -> Result<Vec<Arc<K>>, Error> {
        let mut owned = Vec::with_capacity(candidates.len());
        let mut failure = None;
        let mut may_adopt = None;
        for object in candidates {
            let selected = self.selects.matches(object.meta().labels.as_ref());
            match decide(self.owner.meta(), selected, object.meta()) {
                Claim::Keep => owned.push(object),
                Claim::Ignore => {}
                Claim::Release => {
                    if let Err(error) = self.release(&*object).await {
                        failure = Some(error);
                    }
                }
                Claim::Adopt => {
                    if may_adopt.is_none() {
                        may_adopt = Some(self.owner_is_alive().await?);
                    }
                    if may_adopt == Some(false) {
                        continue;
                    }
                    match self.adopt(&*object).await {
                        Ok(Some(adopted)) => owned.push(Arc::new(adopted)),
                        Ok(None) => {}
                        Err(error) => failure = Some(error),
                    }
                }
            }
        }
        failure.map_or(Ok(owned), Err)
    }

    /// The owner as the server has it now is still the one we know and is not being deleted. The cache is not enough: a
    /// deleted owner that adopts leaves orphans behind that the garbage collector then collects.
    async fn owner_is_alive(&self) -> Result<bool, Error> {
        let live = Api::<O>::namespaced(self.client, namespace(self.owner)).get(name(self.owner)).await?;
        Ok(live.is_some_and(|live| uid(&live) == uid(self.owner) && live.meta().deletion_timestamp.is_none()))
    }

    async fn adopt<K: Namespaced>(&self, object: &K) -> Result<Option<K>, Error> {
        let mut metadata = json!({ "uid": uid(object), "ownerReferences": [reference(self.owner)] });
        if let Some(finalizer) = self.finalizer {
            metadata["finalizers"] = json!([finalizer]);
        }
        match self.patch(object, metadata).await {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Releases; an object that is gone, or another one under the same name, is released already.
    async fn release<K: Namespaced>(&self, object: &K) -> Result<(), Error> {
        let gone = json!([{ "$patch": "delete", "uid": uid(self.owner) }]);
        let mut metadata = json!({ "uid": uid(object), "ownerReferences": gone });
        if let Some(finalizer) = self.finalizer {
            metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
        }
        match self.patch(object, metadata).await {
            Err(error) if error.is_not_found() || error.code() == Some(422) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    async fn patch<K: Namespaced>(&self, object: &K, metadata: Value) -> Result<K, Error> {
        let api = Api::<K>::namespaced(self.client, namespace(object));
        api.patch(name(object), Form::Strategic, &json!({ "metadata": metadata })).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

    fn meta(uid: &str, controller: Option<&str>, deleting: bool) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.into()),
            owner_references: controller.map(|uid| {
                vec![OwnerReference { uid: uid.into(), controller: Some(true), ..OwnerReference::default() }]
            }),
            deletion_timestamp: deleting.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn rs_2_keep_adopt_release_or_ignore() {
        let rows = [
            // owner deleting, controller of the object, selected, object deleting
            (false, Some("o"), true, false, Claim::Keep),
            (true, Some("o"), true, true, Claim::Keep),
            (false, Some("o"), false, false, Claim::Release),
            (true, Some("o"), false, false, Claim::Ignore),
            (false, Some("x"), true, false, Claim::Ignore),
            (false, None, true, false, Claim::Adopt),
            (false, None, true, true, Claim::Ignore),
            (true, None, true, false, Claim::Ignore),
            (false, None, false, false, Claim::Ignore),
        ];
        for (owner_deleting, controller, selected, deleting, expected) in rows {
            let (owner, object) = (meta("o", None, owner_deleting), meta("p", controller, deleting));
            assert_eq!(
                decide(&owner, selected, &object),
                expected,
                "{owner_deleting} {controller:?} {selected} {deleting}"
            );
        }
    }

    #[test]
    fn a_selector_without_terms_selects_nothing() {
        let any = [("a".to_owned(), "b".to_owned())].into();
        assert!(!Selects::of(Some(&LabelSelector::default())).matches(Some(&any)));
        assert!(!Selects::of(None).matches(Some(&any)));
        assert!(!Selects::of_labels(None).matches(None));
        assert!(Selects::of_labels(Some(&any)).matches(Some(&any)));
    }
}
