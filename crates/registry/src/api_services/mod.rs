//! APIServices: which server serves a group version, this one or another behind a Service.
//!
//! - this file follows the objects in the cache: the table of the group versions that others serve
//! - `local` keeps the objects of the group versions that this server serves
//! - [`priorities`]: the order of groups and versions
//! - `availability` writes the condition of an APIService

pub mod availability;
pub(crate) mod local;
pub mod priorities;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cache::{Collection, Collections, Event, Item, Observer};
use machinery::Revision;
use machinery::json::Value;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::collections::{API_SERVICES, DEFINITIONS, ENDPOINT_SLICES, SERVICES};
use crate::read::view;
use priorities::Priority;

pub(crate) const GROUP: &str = "apiregistration.k8s.io";
/// The group of measured nodes and pods. Where this server has it, an APIService may still name another server for it.
pub const METRICS_GROUP: &str = "metrics.k8s.io";
/// Marks the objects that the server keeps: `onstart` for built-in groups, `true` for those of definitions.
pub(crate) const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Where the server behind an APIService is, in place of its Service's endpoints.
const URL: &str = "dogwatch.dev/url";

/// A group version that another server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteService {
    /// The name of the APIService.
    pub name: String,
    pub uid: String,
    pub group: String,
    pub version: String,
    pub priority: Priority,
    /// The Service in front of the server.
    pub namespace: String,
    pub service: String,
    pub port: u16,
    /// The certificates that the server's must come from, as PEM; empty trusts the roots of the system.
    pub ca_bundle: Bytes,
    /// Accept any certificate.
    pub skip_verification: bool,
    /// The URL of the server, if an annotation names it.
    pub url: Option<String>,
    /// Whether its last check passed.
    pub available: bool,
}

/// An APIService as far as the server has to know it.
#[derive(Clone, Debug)]
struct Entry {
    remote: Option<Arc<RemoteService>>,
    /// The label of objects that the server keeps.
    automanaged: Option<String>,
    uid: String,
    priority: Priority,
    /// Whether the condition is that of a local one.
    is_local: bool,
}

/// The group versions that other servers serve, by group and version.
#[derive(Clone, Debug, Default)]
pub struct RemoteServices(BTreeMap<(String, String), Arc<RemoteService>>);

impl RemoteServices {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn get(&self, group: &str, version: &str) -> Option<&Arc<RemoteService>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(group.to_owned(), version.to_owned()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<RemoteService>> {
        self.0.values()
    }
}

/// Follows the APIServices.
pub struct ApiServices {
    remotes: ArcSwap<RemoteServices>,
    /// Whether there are any remotes: what a request costs on a server without them.
    has_remotes: AtomicBool,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Counts changes of what the server keeps and of definitions.
    local_changes: watch::Sender<u64>,
    /// Counts changes of remote APIServices, their Services and endpoints.
    remote_changes: watch::Sender<u64>,
}

impl Default for ApiServices {
    fn default() -> Self {
        ApiServices {
            remotes: ArcSwap::default(),
            has_remotes: AtomicBool::new(false),
            entries: Mutex::default(),
            local_changes: watch::Sender::new(0),
            remote_changes: watch::Sender::new(0),
        }
    }
}

impl ApiServices {
    /// Whether another server serves any group version.
    #[must_use]
    pub fn has_remotes(&self) -> bool {
        self.has_remotes.load(Ordering::Acquire)
    }

    /// The group versions that other servers serve, as of now.
    #[must_use]
    pub fn remotes(&self) -> arc_swap::Guard<Arc<RemoteServices>> {
        self.remotes.load()
    }

    /// Changes whenever a check of a remote APIService may have another result.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.remote_changes.subscribe()
    }

    fn set(&self, items: &mut dyn Iterator<Item = (&str, Option<&Arc<Item>>)>) {
        let mut entries = self.entries.lock();
        let mut remote_changed = false;
        for (name, item) in items {
            let entry = item.and_then(|item| read(item));
            let before = match &entry {
                Some(entry) => entries.insert(name.to_owned(), entry.clone()),
                None => entries.remove(name),
            };
            let remote = |entry: &Option<Entry>| entry.as_ref().and_then(|entry| entry.remote.clone());
            remote_changed |= remote(&before) != remote(&entry);
        }
        if remote_changed {
            let remotes = entries.values().filter_map(|entry| entry.remote.clone());
            let remotes = remotes.map(|remote| ((remote.group.clone(), remote.version.clone()), remote));
            let remotes = RemoteServices(remotes.collect());
            let has_remotes = !remotes.is_empty();
            self.remotes.store(Arc::new(remotes));
            self.has_remotes.store(has_remotes, Ordering::Release);
            self.remote_changes.send_modify(|count| *count += 1);
        }
        self.local_changes.send_modify(|count| *count += 1);
    }
}

impl Observer for ApiServices {
    fn observes(&self, collection: &str) -> bool {
        matches!(collection, API_SERVICES | DEFINITIONS | SERVICES | ENDPOINT_SLICES)
    }

    fn loaded(&self, _: &Collections, collection: &Collection, _: Revision) {
        if collection.name() == API_SERVICES {
            let objects = collection.objects();
            let items: Vec<&Arc<Item>> = objects.scan(API_SERVICES, None, None).collect();
            let gone: Vec<String> = self.entries.lock().keys().cloned().collect();
            let gone = gone.iter().map(|name| (name.as_str(), None));
            self.set(&mut gone.chain(items.iter().map(|item| (item.name(), Some(*item)))));
        }
    }

    fn changed(&self, _: &Collections, changes: &[Arc<Event>]) {
        let of = |collection: &'static str| changes.iter().filter(move |event| event.key().collection() == collection);
        let mut services = of(API_SERVICES)
            .filter_map(|event| {
                let item = event.current().or(event.previous())?;
                Some((item.name(), event.current()))
            })
            .peekable();
        if services.peek().is_some() {
            self.set(&mut services);
        }
        if of(DEFINITIONS).next().is_some() {
            self.local_changes.send_modify(|count| *count += 1);
        }
        let endpoints_changed = of(SERVICES).next().is_some() || of(ENDPOINT_SLICES).next().is_some();
        if endpoints_changed && self.has_remotes() {
            self.remote_changes.send_modify(|count| *count += 1);
        }
    }
}

/// An object that cannot be read serves nothing.
fn read(item: &Item) -> Option<Entry> {
    let object = view::parse(item).inspect_err(|error| tracing::error!(%error, "an APIService is not used")).ok()?;
    Some(entry(&object))
}

fn entry(object: &Value) -> Entry {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = object["status"]["conditions"].as_array();
    let condition = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "Available"));
    let service = &spec["service"];
    let priority = Priority {
        group: spec["groupPriorityMinimum"].as_i64().unwrap_or_default(),
        version: spec["versionPriority"].as_i64().unwrap_or_default(),
    };
    let remote = service.is_object().then(|| {
        Arc::new(RemoteService {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            group: text(&spec["group"]),
            version: text(&spec["version"]),
            priority,
            namespace: text(&service["namespace"]),
            service: text(&service["name"]),
            port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            ca_bundle: STANDARD.decode(text(&spec["caBundle"])).unwrap_or_default().into(),
            skip_verification: spec["insecureSkipTLSVerify"] == true,
            url: metadata["annotations"][URL].as_str().map(str::to_owned),
            available: condition.is_some_and(|condition| condition["status"] == "True"),
        })
    });
    Entry {
        remote,
        automanaged: metadata["labels"][AUTOMANAGED].as_str().map(str::to_owned),
        uid: text(&metadata["uid"]),
        priority,
        is_local: condition.is_some_and(|condition| condition["reason"] == "Local" && condition["status"] == "True"),
    }
}
