//! What the server serves, as it says itself: every resource with its verbs, and which resource a kind belongs to.

use std::collections::HashMap;

use kube::core::DynamicObject;
use kube::core::discovery::{Scope, verbs};
use kube::discovery::{ApiCapabilities, ApiResource, Discovery};
use kube::{Api, Client};

/// One resource of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    verbs: Vec<String>,
}

impl Served {
    fn new((resource, capabilities): (ApiResource, ApiCapabilities)) -> Self {
        let namespaced = capabilities.scope == Scope::Namespaced;
        Self { resource, namespaced, verbs: capabilities.operations }
    }

    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// The objects of this resource; those of a namespace, if the resource has namespaces.
    pub(crate) fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }
}

/// All of them at one instant.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    /// Each resource once, in the version the server prefers.
    preferred: Vec<Served>,
    /// By `apiVersion` and kind, in every version: references name whichever they were written with.
    by_kind: HashMap<(String, String), Served>,
}

impl Resources {
    pub(crate) async fn read(client: &Client) -> Result<Self, client::Error> {
        let discovery = Discovery::new(client.clone()).run_aggregated().await?;
        let mut resources = Self::default();
        for group in discovery.groups() {
            resources.preferred.extend(group.resources_by_stability().into_iter().map(Served::new));
            for version in group.versions().map(str::to_owned).collect::<Vec<_>>() {
                for served in group.versioned_resources(&version).into_iter().map(Served::new) {
                    let kind = (served.resource.api_version.clone(), served.resource.kind.clone());
                    resources.by_kind.insert(kind, served);
                }
            }
        }
        Ok(resources)
    }

    /// The resource of a kind.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Served> {
        self.by_kind.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// What can be listed, watched and deleted, less events: nothing depends on them and they depend on nothing (GC-1).
    pub(crate) fn collectable(&self) -> impl Iterator<Item = &Served> {
        let wanted = [verbs::DELETE, verbs::LIST, verbs::WATCH];
        self.preferred
            .iter()
            .filter(move |served| wanted.iter().all(|verb| served.can(verb)))
            .filter(|served| served.resource.plural != "events" || !is_event_group(&served.resource.group))
    }

    /// What can be deleted and is in namespaces (NS-5).
    pub(crate) fn deletable_in_namespaces(&self) -> impl Iterator<Item = &Served> {
        self.preferred.iter().filter(|served| served.namespaced && served.can(verbs::DELETE))
    }
}

fn is_event_group(group: &str) -> bool {
    matches!(group, "" | "events.k8s.io")
}
