//! The registry: the verbs on kinds, and the parts that serve them.

use std::sync::Arc;

use cache::{Cache, CacheError, Collection, Filter, Observer};
use jiff::Timestamp;
use machinery::json::Value;
use machinery::media::PatchType;
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, ListOptions, PatchOptions, UpdateOptions};
use machinery::query::Query;
use machinery::{Revision, Status, fields};
use schema::kind::Kind;
use schema::kinds::Kinds;
use store::{Key, Store};

use crate::admission::chain::Chain;
use crate::admission::matching::Matcher;
use crate::admission::policies::{self, Policies, type_check};
use crate::admission::versioned::Versions;
use crate::admission::webhooks::{Followed, Webhooks};
use crate::api_services::availability::{self, Availability};
use crate::api_services::{self, ApiServices};
use crate::collections::{self, CLUSTER_ROLES, NAMESPACES};
use crate::computed::{self, Computed};
use crate::conversion_webhook::Converter;
use crate::flows::table::FlowTable;
use crate::flows::{self, Flows};
use crate::interrupted;
use crate::kinds::definitions::{self, Definitions};
use crate::node_graph::NodeGraph;
use crate::read::view::{self, ListView, Outcome, View};
use crate::read::watch_view::WatchView;
use crate::read::{get, list, past, watch};
use crate::request::{Body, Context, PatchBody, Target, WriteRequest};
use crate::reserve::Reservations;
use crate::reserve::addresses::Addresses;
use crate::reserve::quota::Quota;
use crate::roles::{self, Roles};
use crate::seed::{self, seed};
use crate::settings::Settings;
use crate::storage::Storage;
use crate::subresources::node::NodeConnection;
use crate::subresources::token::{TokenGrant, TokenTerms};
use crate::subresources::token_claims::LegacyToken;
use crate::subresources::{binding, eviction, node, scale, token, token_claims};
use crate::unstored;
use crate::write::templates::Templates;
use crate::write::{apply, create, delete, delete_collection, patch, update};

/// Revisions before a fork in which a deletion can have begun that was under way: many more than writes are served at a time.
const UNDER_WAY_MAX: u64 = 1_000;

/// Kinds, their objects, and the verbs on them.
pub struct Registry {
    storage: Storage,
    definitions: Arc<Definitions>,
    roles: Arc<Roles>,
    api_services: Arc<ApiServices>,
    flows: Arc<Flows>,
    admission: Chain,
    reservations: Reservations,
    converter: Arc<Converter>,
    templates: Templates,
    settings: Settings,
}

impl Registry {
    /// Opens a registry on a store: loads what is there, and adds what every cluster has.
    pub async fn start(store: Arc<dyn Store>, settings: Settings) -> Result<Arc<Self>, CacheError> {
        Self::open(store, settings, None).await
    }

    /// Opens a registry on a store that was forked from this registry's. It has what this one had at the revision of the fork, and
    /// shares kinds and objects with it until they change. Of the kinds that this one serves from the start it has those of `settings`.
    pub async fn fork(&self, store: Arc<dyn Store>, settings: Settings) -> Result<Arc<Self>, CacheError> {
        Self::open(store, settings, Some(self)).await
    }

    async fn open(
        store: Arc<dyn Store>,
        settings: Settings,
        origin: Option<&Registry>,
    ) -> Result<Arc<Self>, CacheError> {
        let definitions = Arc::new(match origin {
            Some(origin) => origin.definitions.fork(&settings.kinds),
            None => Definitions::new(settings.kinds.clone()),
        });
        let addresses = Arc::new(Addresses::new(&settings));
        let roles = Arc::new(match origin {
            Some(origin) => origin.roles.fork(Arc::clone(&settings.roles)),
            None => Roles::new(Arc::clone(&settings.roles)),
        });
        let mut observers: Vec<Arc<dyn Observer>> =
            vec![Arc::clone(&definitions) as _, Arc::clone(&addresses) as _, Arc::clone(&roles) as _];
        let api_services = Arc::<ApiServices>::default();
        observers.push(Arc::clone(&api_services) as _);
        let flows = Arc::<Flows>::default();
        observers.push(Arc::clone(&flows) as _);
        let followed = Followed::default();
        observers.push(Arc::clone(&followed.mutating) as _);
        observers.push(Arc::clone(&followed.validating) as _);
        let policies = policies::Followed::default();
        observers.push(Arc::clone(&policies.mutating) as _);
        observers.push(Arc::clone(&policies.validating) as _);
        if let Some(graph) = &settings.node_graph {
            observers.push(Arc::new(NodeGraph(Arc::clone(graph))));
        }
        observers.extend(settings.observers.iter().cloned());
        let cache = match origin {
            Some(origin) => origin.cache().fork(Arc::clone(&store), observers).await?,
            None => {
                let specs = collections::specs(&settings.kinds);
                Cache::start(Arc::clone(&store), specs, settings.cache, observers).await?
            }
        };
        let storage = Storage::new(store, Arc::new(cache));
        let converter = Arc::new(Converter::new(settings.webhooks.clone()));
        let matcher = Matcher::new(storage.clone(), Arc::clone(&definitions));
        let versions = Versions::new(Arc::clone(&converter));
        let policies = Policies::new(policies, &storage, matcher.clone(), versions.clone(), &settings);
        let webhooks = Webhooks::new(followed, matcher, versions, &settings);
        let registry = Arc::new(Registry {
            admission: Chain::new(&storage, &settings, policies, webhooks, &definitions),
            reservations: Reservations::new(addresses, storage.clone()),
            converter,
            templates: Templates::default(),
            storage,
            definitions,
            roles,
            api_services,
            flows,
            settings,
        });
        tokio::spawn(definitions::follow_up(Arc::downgrade(&registry)));
        // The origin of a fork has looked at its older objects: only deletions that were under way can be interrupted.
        let after = origin.map_or(0, |_| registry.cache().revision().0.saturating_sub(UNDER_WAY_MAX));
        tokio::spawn(interrupted::finish_deletions(Arc::downgrade(&registry), Revision(after)));
        if registry.settings.is_bare {
            return Ok(registry);
        }
        if origin.is_some() {
            registry.roles.set_restored();
        } else {
            seed(&registry).await.map_err(|status| CacheError(status.to_string()))?;
            tokio::join!(
                roles::restore(&registry),
                flows::bootstrap::restore(&registry),
                api_services::local::restore(&registry)
            );
        }
        tokio::spawn(flows::bootstrap::follow(Arc::downgrade(&registry)));
        tokio::spawn(roles::follow(Arc::downgrade(&registry)));
        tokio::spawn(api_services::local::follow(Arc::downgrade(&registry)));
        Ok(registry)
    }

    /// The kinds that are served now.
    #[must_use]
    pub fn kinds(&self) -> Arc<Kinds> {
        self.definitions.kinds()
    }

    /// Which server serves a group version.
    #[must_use]
    pub fn api_services(&self) -> &ApiServices {
        &self.api_services
    }

    /// Writes whether the server behind an APIService can be used; nothing if that is written already.
    pub async fn write_availability(&self, name: &str, uid: &str, availability: &Availability) -> Result<(), Status> {
        availability::write(self, name, Some(uid), availability).await
    }

    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        self.storage.cache()
    }

    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.storage.store()
    }

    /// The flows of requests, as new as their objects.
    #[must_use]
    pub fn flow_table(&self) -> impl std::ops::Deref<Target = Arc<FlowTable>> {
        self.flows.table()
    }

    /// Readiness checks by name.
    pub async fn ready(&self) -> Vec<(String, Result<(), String>)> {
        let fresh = self.cache().fresh().await.map(|_| ()).map_err(|error| error.to_string());
        let roles = ("poststarthook/rbac/bootstrap-roles".to_owned(), self.roles.ready());
        vec![("ping".to_owned(), Ok(())), ("store".to_owned(), fresh), roles]
    }
}

impl Registry {
    /// Objects that cannot be read, one sentence each. Everything else is served, so they are no reason not to be ready.
    #[must_use]
    pub fn damage(&self) -> Vec<String> {
        let damaged = self.cache().damaged();
        damaged.iter().map(crate::failure::damage).collect()
    }
}

/// Verbs on objects.
impl Registry {
    pub async fn get(&self, target: &Target, options: &GetOptions) -> Result<View, Status> {
        if let Some(computed) = self.computed(target) {
            return computed::get(computed, target);
        }
        get::get(self, target, options).await
    }

    pub async fn list(&self, target: &Target, options: &ListOptions) -> Result<ListView, Status> {
        if let Some(computed) = self.computed(target) {
            return computed::list(self, computed, target, options);
        }
        list::list(self, target, options).await
    }

    pub async fn watch(&self, target: &Target, options: &ListOptions) -> Result<WatchView, Status> {
        watch::watch(self, target, options, None).await
    }

    /// As [`Registry::get`], of an earlier revision.
    pub async fn get_at(&self, target: &Target, options: &GetOptions, at: Revision) -> Result<View, Status> {
        past::get(self, target, options, at).await
    }

    /// As [`Registry::list`], of an earlier revision.
    pub async fn list_at(&self, target: &Target, options: &ListOptions, at: Revision) -> Result<ListView, Status> {
        past::list(self, target, options, at).await
    }

    /// As [`Registry::watch`]; what is there at the beginning is that of an earlier revision.
    pub async fn watch_at(&self, target: &Target, options: &ListOptions, at: Revision) -> Result<WatchView, Status> {
        watch::watch(self, target, options, Some(at)).await
    }

    pub async fn create(&self, request: WriteRequest<'_, CreateOptions>, body: &Body) -> Result<Outcome, Status> {
        if let Some(computed) = self.computed(request.target) {
            return Box::pin(computed::create(computed, request, body)).await;
        }
        let written = self.settle(request.target, create::create(self, request, body).await).await?;
        self.check_types(&request, &written).await;
        self.complete_namespace(request.target, &written).await;
        Ok(written)
    }

    pub async fn update(&self, request: WriteRequest<'_, UpdateOptions>, body: &Body) -> Result<Outcome, Status> {
        let written = self.settle(request.target, update::update(self, request, body).await).await?;
        self.check_types(&request, &written).await;
        Ok(written)
    }

    pub async fn patch(&self, request: WriteRequest<'_, PatchOptions>, body: &PatchBody) -> Result<Outcome, Status> {
        let patched = match body.kind {
            PatchType::Apply => apply::apply(self, request, body).await,
            PatchType::Json | PatchType::Merge | PatchType::Strategic => patch::patch(self, request, body).await,
        };
        let written = self.settle(request.target, patched).await?;
        self.check_types(&request, &written).await;
        self.complete_namespace(request.target, &written).await;
        Ok(written)
    }

    pub async fn delete(&self, request: WriteRequest<'_, DeleteOptions>) -> Result<Outcome, Status> {
        if let Some(computed) = self.computed(request.target) {
            return computed::delete(computed, request);
        }
        self.settle(request.target, delete::delete(self, request).await).await
    }

    /// Deletes the objects that `selection` selects, one by one; returns them as they were listed.
    pub async fn delete_collection(
        &self,
        request: WriteRequest<'_, DeleteOptions>,
        selection: &ListOptions,
    ) -> Result<ListView, Status> {
        let deleted = delete_collection::delete_collection(self, request, selection).await;
        self.settle(request.target, deleted).await
    }
}

/// Verbs on subresources that have a kind of their own, and on kinds that are not stored.
impl Registry {
    pub async fn get_scale(&self, target: &Target, options: &GetOptions) -> Result<View, Status> {
        scale::get(self, target, options).await
    }

    pub async fn update_scale(&self, request: WriteRequest<'_, UpdateOptions>, body: &Body) -> Result<Outcome, Status> {
        scale::update(self, request, body).await
    }

    pub async fn patch_scale(
        &self,
        request: WriteRequest<'_, PatchOptions>,
        body: &PatchBody,
    ) -> Result<Outcome, Status> {
        match body.kind {
            PatchType::Apply => scale::apply(self, request, body).await,
            PatchType::Json | PatchType::Merge | PatchType::Strategic => scale::patch(self, request, body).await,
        }
    }

    /// Assigns a pod to a node.
    pub async fn bind(&self, request: WriteRequest<'_, CreateOptions>, body: &Body) -> Result<Outcome, Status> {
        binding::bind(self, request, body).await
    }

    /// Deletes a pod if its disruption budget allows it.
    pub async fn evict(&self, request: WriteRequest<'_, CreateOptions>, body: &Body) -> Result<Outcome, Status> {
        eviction::evict(self, request, body).await
    }

    /// Checks a request for a token of a service account; the caller signs it.
    pub async fn request_token(
        &self,
        request: WriteRequest<'_, CreateOptions>,
        body: &Body,
        terms: TokenTerms<'_>,
    ) -> Result<TokenGrant, Status> {
        token::request(self, request, body, terms).await
    }

    /// Checks that the account of a token, and what it is bound to, are still there; an error names what is not.
    pub fn check_token_claims(&self, claims: &Value) -> Result<(), String> {
        token_claims::check_claims(self, claims)
    }

    /// As [`Registry::check_token_claims`], for a token that a secret holds. `encoded` is the token in base64.
    pub fn check_legacy_token(&self, claims: &Value, encoded: &str) -> Result<LegacyToken, String> {
        token_claims::check_legacy(self, claims, encoded)
    }

    /// An object as the cache has it: as new as every write that was answered.
    #[must_use]
    pub fn cached_object(&self, collection: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let item = self.storage.cached(collection, namespace, name)?;
        view::parse(&item).ok()
    }

    /// Faults of admission webhooks, for tests of their failure policies.
    #[must_use]
    pub fn webhook_faults(&self) -> &crate::admission::webhooks::faults::Faults {
        &self.settings.webhook_faults
    }

    /// Checks a request to the node of an object; `path` is what follows `proxy` in the path. None is an empty log.
    pub async fn connect(
        &self,
        target: &Target,
        query: &Query,
        path: &str,
        ctx: &Context,
    ) -> Result<Option<NodeConnection>, Status> {
        node::connect(self, target, query, path, ctx).await
    }

    /// Decodes and admits the object of a POST to a kind that is not stored. `check` validates it between the phases.
    pub async fn admit_unstored(
        &self,
        request: WriteRequest<'_, CreateOptions>,
        body: &Body,
        check: impl FnOnce(&Value) -> Result<(), Status>,
    ) -> Result<Value, Status> {
        unstored::admit(self, request, body, check).await
    }
}

/// Parts, for the verbs.
impl Registry {
    /// Whether the objects of a kind are computed, and not stored.
    #[must_use]
    pub fn is_computed(&self, target: &Target) -> bool {
        self.computed(target).is_some()
    }

    /// What computes the objects of a kind that are not stored.
    pub(crate) fn computed(&self, target: &Target) -> Option<&dyn Computed> {
        self.settings.computed.as_deref().filter(|computed| computed.has(&target.kind.collection))
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    pub(crate) fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    pub(crate) fn flows(&self) -> &Flows {
        &self.flows
    }

    pub(crate) fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Gives a new namespace what its pods need, where pods need it.
    async fn complete_namespace(&self, target: &Target, written: &Outcome) {
        if target.kind.collection == NAMESPACES && self.settings.service_accounts {
            Box::pin(seed::complete_namespace(self, written)).await;
        }
    }

    /// Waits for what follows from a write, so that it is there when the write is answered.
    async fn settle<T>(&self, target: &Target, written: Result<T, Status>) -> Result<T, Status> {
        if target.kind.collection == CLUSTER_ROLES && written.is_ok() {
            roles::settle(self).await;
        }
        if flows::status::concerns(target) && written.is_ok() {
            Box::pin(flows::status::publish(self)).await;
        }
        written
    }

    /// Compiles an admission policy and checks its types before its write is answered.
    async fn check_types<O>(&self, request: &WriteRequest<'_, O>, written: &Outcome) {
        self.admission.compile_policy(request.target, written);
        if type_check::concerns(request.target) && self.settings.policy_types {
            Box::pin(type_check::publish(self, request.target, written, request.ctx)).await;
        }
    }

    pub(crate) fn admission(&self) -> &Chain {
        &self.admission
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

    pub(crate) fn now(&self) -> Timestamp {
        self.settings.clock.now()
    }

    pub(crate) fn collection(&self, kind: &Kind) -> Arc<Collection> {
        self.cache().collection(&kind.collection)
    }

    /// The key of the target's object; a name that cannot be a key is not found.
    pub(crate) fn key(&self, target: &Target) -> Result<Key, Status> {
        let namespace = target.namespace.as_deref().filter(|_| target.kind.namespaced);
        let key = self.collection(&target.kind).key(namespace, target.name());
        key.ok_or_else(|| Status::not_found(&target.gr(), target.name()))
    }

    /// The filter of a list or watch; refuses fields that cannot be selected by.
    pub(crate) fn filter(&self, target: &Target, options: &ListOptions) -> Result<Filter, Status> {
        let kind = &target.kind;
        let mut fields = options.field_selector.clone();
        for requirement in fields.requirements() {
            if kind.selectable(&requirement.field).is_none() {
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
}
