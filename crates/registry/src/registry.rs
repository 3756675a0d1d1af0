//! What all verbs share.

use std::sync::Arc;

use cache::{Cache, CacheError, Collection, Filter, Item, Observer};
use jiff::Timestamp;
use machinery::options::ListOptions;
use machinery::{Clock, Revision, Status, fields};
use schema::kind::Kind;
use schema::kinds::Kinds;
use store::{Key, Store};

use crate::collections;
use crate::conversion_webhook::{Converter, Webhooks};
use crate::definitions::{self, Definitions};
use crate::request::Target;
use crate::reserve::Reservations;
use crate::reserve::addresses::Addresses;
use crate::reserve::quota::Quota;
use crate::storage::Storage;
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
    /// Whether a pod must have a service account, and gets its token. Only where a controller creates the accounts.
    pub service_accounts: bool,
    /// Calls the webhooks that convert custom resources; none refuses requests that need one.
    pub webhooks: Option<Arc<dyn Webhooks>>,
    pub clock: Clock,
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
            webhooks: None,
            clock: Clock::system(),
        }
    }
}

/// Kinds, their objects, and the verbs on them.
pub struct Registry {
    storage: Storage,
    definitions: Arc<Definitions>,
    reservations: Reservations,
    converter: Arc<Converter>,
    templates: Templates,
    settings: Settings,
}

impl Registry {
    /// Opens on a store: loads what is there, and adds what every cluster has.
    pub async fn start(store: Arc<dyn Store>, settings: Settings) -> Result<Arc<Self>, CacheError> {
        let kinds = schema::kinds::builtin().clone();
        let specs = collections::specs(&kinds);
        let definitions = Arc::new(Definitions::new(kinds));
        let addresses = Arc::new(Addresses::new(&settings));
        let observers: Vec<Arc<dyn Observer>> = vec![Arc::clone(&definitions) as _, Arc::clone(&addresses) as _];
        let cache = Cache::start(Arc::clone(&store), specs, settings.cache, observers).await?;
        let storage = Storage::new(store, Arc::new(cache));
        let registry = Arc::new(Registry {
            reservations: Reservations::new(addresses, storage.clone()),
            converter: Arc::new(Converter::new(settings.webhooks.clone())),
            templates: Templates::default(),
            storage,
            definitions,
            settings,
        });
        tokio::spawn(definitions::follow_up(Arc::downgrade(&registry)));
        registry.seed().await.map_err(|status| CacheError(status.to_string()))?;
        Ok(registry)
    }

    /// The kinds that are served now.
    #[must_use]
    pub fn kinds(&self) -> Arc<Kinds> {
        self.definitions.kinds()
    }

    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        self.storage.cache()
    }

    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.storage.store()
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    pub(crate) fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    pub(crate) fn quota(&self) -> &Quota {
        self.reservations.quota()
    }

    pub(crate) fn converter(&self) -> &Arc<Converter> {
        &self.converter
    }

    pub(crate) fn templates(&self) -> &Templates {
        &self.templates
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Checks by name that the parts below answer.
    pub async fn ready(&self) -> Vec<(String, Result<(), String>)> {
        let fresh = self.cache().fresh().await.map(|_| ()).map_err(|error| error.to_string());
        vec![("ping".to_owned(), Ok(())), ("store".to_owned(), fresh)]
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.settings.clock.now()
    }

    pub(crate) fn collection(&self, kind: &Kind) -> Arc<Collection> {
        self.cache().collection(&kind.collection)
    }

    /// Where the target's object lives; a name that can be no key is simply not there.
    pub(crate) fn key(&self, target: &Target) -> Result<Key, Status> {
        let collection = self.collection(&target.kind);
        let namespace = target.namespace.as_deref().filter(|_| target.kind.namespaced);
        collection.key(namespace, target.name()).ok_or_else(|| Status::not_found(&target.gr(), target.name()))
    }

    /// The object as of now: every write acknowledged before this call is in it.
    pub(crate) async fn current(&self, key: &Key) -> Result<Option<Arc<Item>>, Status> {
        self.storage.current(key).await
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
        self.storage.current_named(&kind.collection, namespace, name).await
    }

    /// What a list or watch selects, or the refusal of a field it cannot select by.
    pub(crate) fn filter(&self, target: &Target, options: &ListOptions) -> Result<Filter, Status> {
        let kind = &target.kind;
        let mut fields = options.field_selector.clone();
        for requirement in fields.requirements() {
            if !kind.fields.iter().any(|field| field.label == requirement.field) {
                return Err(Status::bad_request(kind.unknown_field_message(&requirement.field)));
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
        self.storage.reach(revision).await
    }
}
