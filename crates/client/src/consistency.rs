//! Compares a store with the server, as client-go does in its own CI after every streaming list (RF-13).

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use thiserror::Error as ThisError;

use crate::list_watch::ListerWatcher;
use crate::pager::{PAGE_LIMIT, list_all};
use crate::store::Snapshot;
use crate::wire::{Params, VersionMatch};
use crate::{Error, Object, RawObject};

/// A difference between a store and the server.
#[derive(Debug, Clone, ThisError)]
pub enum Inconsistency {
    /// The list of the server failed.
    #[error("cannot check the store: {0}")]
    Unknown(#[from] Error),
    /// The sets differ.
    #[error(
        "at version {version} the store differs from the server: missing {missing:?}, superfluous {superfluous:?}, different {different:?}"
    )]
    Differs {
        /// The point in history that was compared.
        version: String,
        /// On the server and not in the store.
        missing: Vec<String>,
        /// In the store and not on the server.
        superfluous: Vec<String>,
        /// In both, in different states.
        different: Vec<String>,
    },
}

/// Time without data after which the check fails.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// Lists the server at exactly the version of a snapshot, and compares UID and version of each object.
pub async fn check<K: Object>(source: &dyn ListerWatcher, snapshot: &Snapshot<K>) -> Result<(), Inconsistency> {
    let params = Params {
        version: Some(snapshot.version().clone()),
        version_match: Some(VersionMatch::Exact),
        limit: Some(PAGE_LIMIT),
        ..Params::default()
    };
    let mut listed: Vec<RawObject> = Vec::new();
    list_all(source, params, IDLE_LIMIT, &mut listed).await?;
    let mut server: BTreeMap<String, (String, String)> =
        listed.into_iter().map(|raw| (raw.key.to_string(), (raw.uid, raw.version.to_string()))).collect();
    let (mut superfluous, mut different) = (Vec::new(), Vec::new());
    for (key, object) in snapshot.keys().zip(snapshot.iter()) {
        let stored = (object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default());
        match server.remove(key.as_str()) {
            None => superfluous.push(key.to_string()),
            Some(state) if state != stored => different.push(key.to_string()),
            Some(_) => {}
        }
    }
    let missing: Vec<String> = server.into_keys().collect();
    if missing.is_empty() && superfluous.is_empty() && different.is_empty() {
        return Ok(());
    }
    Err(Inconsistency::Differs { version: snapshot.version().to_string(), missing, superfluous, different })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use crate::queue::{Delta, Replacement, Staged};
    use crate::scripted::{ScriptedSource, items, object};
    use crate::store::{Scope, Store};
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::sync::Arc;

    #[tokio::test]
    async fn rf_13_a_store_is_compared_at_exactly_its_version() {
        let (store, writer) = Store::<ConfigMap>::new();
        let stored = ["a@1", "b@2", "c@3"].map(|text| Arc::new(ConfigMap::from_raw(&object(text)).unwrap()));
        let items_of = stored.map(|o| (Key::of(&*o), Staged::Object(o)));
        let set = Replacement { items: items_of.into(), version: "9".into(), history_reset: false };
        writer.apply(&Scope::All, vec![Delta::ReplacedAll(set)]);
        let source = ScriptedSource::new();
        source.on_list(Ok((items(&["a@1", "b@2", "c@3"]), "9", None)));
        check(&source, &store.snapshot()).await.unwrap();
        let asked = source.requests().remove(0);
        assert_eq!((asked.version, asked.version_match), (Some("9".into()), Some(VersionMatch::Exact)));
        source.on_list(Ok((items(&["a@1", "b@7", "d@3"]), "9", None)));
        match check(&source, &store.snapshot()).await {
            Err(Inconsistency::Differs { missing, superfluous, different, .. }) => {
                assert_eq!((missing, superfluous, different), (vec!["d".into()], vec!["c".into()], vec!["b".into()]));
            }
            other => panic!("{other:?}"),
        }
    }
}
