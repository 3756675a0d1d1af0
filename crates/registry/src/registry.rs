//! What all verbs share.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use cache::{Cache, CacheError, Collection, FieldSpec, Filter, Item, Spec};
use jiff::Timestamp;
use machinery::options::ListOptions;
use machinery::{Revision, Status, fields};
use schema::kind::{Kind, UnknownField};
use schema::kinds::Kinds;
use store::{Key, Store};

use crate::admission::quota::Turns;
use crate::allocation::Allocation;
use crate::converter::Webhooks;
use crate::definitions::Definitions;
use crate::failure;
use crate::request::Target;
use crate::templates::Templates;

/// How a registry behaves where the design leaves a choice.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cache: cache::Config,
    /// The shortest a watch lives that names no timeout; the longest is twice that.
    pub watch_timeout_min: std::time::Duration,
    /// How long an Event is kept after its last write.
    pub event_ttl: std::time::Duration,
    /// Where services get their addresses from.
    pub service_range: std::net::Ipv4Addr,
    pub service_range_bits: u8,
    pub node_ports: std::ops::RangeInclusive<u16>,
    /// Whether a pod must have a service account, and gets its token. Only where somebody makes the accounts.
    pub service_accounts: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            cache: cache::Config::default(),
            watch_timeout_min: std::time::Duration::from_secs(1800),
            event_ttl: std::time::Duration::from_secs(3600),
            service_range: std::net::Ipv4Addr::new(10, 96, 0, 0),
            service_range_bits: 16,
            node_ports: 30000..=32767,
            service_accounts: false,
        }
    }
}

/// Kinds, their objects, and the verbs on them.
pub struct Registry {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    kinds: ArcSwap<Kinds>,
    pub(crate) allocation: Allocation,
    pub(crate) quota_turns: Turns,
    pub(crate) definitions: Definitions,
    pub(crate) webhooks: OnceLock<Arc<dyn Webhooks>>,
    pub(crate) templates: Templates,
    pub(crate) settings: Settings,
}

impl Registry {
    /// Opens on a store: loads what is there, and adds what every cluster has.
    pub async fn start(store: Arc<dyn Store>, settings: Settings) -> Result<Arc<Self>, CacheError> {
        let kinds = schema::kinds::builtin().clone();
        let cache = Cache::start(Arc::clone(&store), specs(&kinds), settings.cache).await?;
        let allocation = Allocation::new(&settings);
        let registry = Arc::new(Registry {
            store,
            cache: Arc::new(cache),
            kinds: ArcSwap::from_pointee(kinds),
            allocation,
            quota_turns: Turns::default(),
            definitions: Definitions::default(),
            webhooks: OnceLock::new(),
            templates: Templates::default(),
            settings,
        });
        registry.follow_definitions();
        registry.seed().await.map_err(|status| CacheError(status.to_string()))?;
        Ok(registry)
    }

    /// What is served now.
    #[must_use]
    pub fn kinds(&self) -> Arc<Kinds> {
        self.kinds.load_full()
    }

    /// Serves these kinds from now on.
    pub(crate) fn serve(&self, kinds: Kinds) {
        self.kinds.store(Arc::new(kinds));
    }

    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Checks by name that the parts below answer.
    pub async fn ready(&self) -> Vec<(String, Result<(), String>)> {
        let fresh = self.cache.fresh().await.map(|_| ()).map_err(|error| error.to_string());
        vec![("ping".to_owned(), Ok(())), ("store".to_owned(), fresh)]
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    pub(crate) fn collection(&self, kind: &Kind) -> Arc<Collection> {
        self.cache.collection(&kind.collection)
    }

    /// Where the target's object lives; a name that can be no key is simply not there.
    pub(crate) fn key(&self, target: &Target) -> Result<Key, Status> {
        let collection = self.collection(&target.kind);
        let namespace = target.namespace.as_deref().filter(|_| target.kind.namespaced);
        collection.key(namespace, target.name()).ok_or_else(|| Status::not_found(&target.gr(), target.name()))
    }

    /// The object as of now: every write acknowledged before this call is in it.
    pub(crate) async fn current(&self, kind: &Kind, key: &Key) -> Result<Option<Arc<Item>>, Status> {
        self.cache.fresh().await.map_err(failure::fresh)?;
        Ok(self.collection(kind).get(key))
    }

    /// An object of a well-known kind, if it is there.
    pub(crate) async fn lookup(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<Item>>, Status> {
        let kinds = self.kinds();
        let Some(kind) = kinds.get(group, version, plural) else { return Ok(None) };
        let Some(key) = self.collection(kind).key(namespace, name) else { return Ok(None) };
        self.current(kind, &key).await
    }

    /// What a list or watch selects, or the refusal of a field it cannot select by.
    pub(crate) fn filter(&self, target: &Target, options: &ListOptions) -> Result<Filter, Status> {
        let kind = &target.kind;
        let mut fields = options.field_selector.clone();
        for requirement in fields.requirements() {
            if !kind.fields.iter().any(|field| field.label == requirement.field) {
                return Err(Status::bad_request(unknown_field(kind, &requirement.field)));
            }
        }
        if let Some(name) = &target.name {
            let named = fields::Selector::equal("metadata.name", name.as_str());
            if fields.is_everything() {
                fields = named;
            } else if fields.equality("metadata.name") != Some(name) {
                return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
        }
        let spec = self.collection(kind).spec();
        let namespace = target.namespace.as_deref().filter(|_| kind.namespaced);
        Ok(Filter::new(namespace, Some(options.label_selector.clone()), Some(&fields), &spec))
    }

    /// Waits for a revision a client has seen.
    pub(crate) async fn reach(&self, revision: Revision) -> Result<Revision, Status> {
        self.cache.reach(revision).await.map_err(failure::too_far_ahead)
    }
}

fn unknown_field(kind: &Kind, field: &str) -> String {
    match kind.unknown_field {
        UnknownField::NotKnown => {
            format!(r#""{field}" is not a known field selector: only "metadata.name", "metadata.namespace""#)
        }
        UnknownField::NotSupported => format!("field label not supported: {field}"),
        UnknownField::NotSupportedForKind => {
            format!("field label \"{field}\" not supported for {}", kind.gvk.kind)
        }
        UnknownField::NotSupportedForGvk => format!("field label not supported for {}: {field}", kind.gvk),
    }
}

/// The selectable fields of each collection: of all kinds that show its objects.
fn specs(kinds: &Kinds) -> Vec<(String, Spec)> {
    let mut specs: Vec<(String, Vec<FieldSpec>)> = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.stored()) {
        let at = specs.iter().position(|(name, _)| *name == kind.collection).unwrap_or_else(|| {
            specs.push((kind.collection.clone(), Vec::new()));
            specs.len() - 1
        });
        for field in &kind.fields {
            let known = &mut specs[at].1;
            let generic = matches!(field.label.as_str(), "metadata.name" | "metadata.namespace");
            if !generic && !known.iter().any(|spec| spec.label == field.label) {
                known.push(FieldSpec {
                    label: field.label.clone(),
                    paths: field.paths.clone(),
                    absent: field.absent.clone(),
                });
            }
        }
    }
    specs.into_iter().map(|(name, fields)| (name, Spec::new(fields))).collect()
}
