//! The creation of a World: answered when the world can be used.

use std::sync::Arc;

use machinery::field_error::FieldError;
use machinery::json::{Value, json};
use machinery::options::CreateOptions;
use machinery::{GroupResource, Revision, Status, names};
use registry::{Body, Outcome, Registry, WriteRequest};
use server::kubeconfig::{Credential, kubeconfig};
use server::worlds::MAIN;
use store::memory::MemoryStore;
use store::{ReadError, Retention, Store};

use super::{Made, Order, WORLDS_MAX, Worlds, stopping};
use crate::kinds::GROUP;
use crate::worlds::objects::{self, Named};

/// What a World begins with.
struct Beginning {
    /// The name of the world it is forked from; none for nothing.
    from: Option<String>,
    origin: Arc<Registry>,
    store: Arc<dyn Store>,
    revision: Revision,
}

impl Worlds {
    pub(super) async fn create_world(
        &self,
        registry: &Arc<Registry>,
        request: WriteRequest<'_, CreateOptions>,
        body: &Body,
    ) -> Result<Outcome, Status> {
        if self.by_name.read().len() >= WORLDS_MAX {
            let why = format!("there are {WORLDS_MAX} worlds already; delete those that are no longer needed");
            return Err(Status::forbidden(&GroupResource::new(GROUP, "worlds"), "", why));
        }
        // Everything that can be wrong with it is found before it exists.
        let trial = CreateOptions { dry_run: true, ..request.options.clone() };
        let trial = WriteRequest { target: request.target, options: &trial, ctx: request.ctx };
        let tried = registry.create(trial, body).await?;
        let object = tried.view.value()?;
        let beginning = self.beginning(&object).await?;
        if request.options.dry_run {
            return Ok(tried);
        }
        let created = registry.create(request, body).await?;
        let object = created.view.value()?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match self.begin(&object, beginning).await {
            Ok(status) => {
                // Fails if the object was deleted meanwhile: then nothing else would end the world.
                let answer = objects::write_status(registry, "worlds", &name, status).await;
                let answer = answer.inspect_err(|_| self.end(&name))?;
                Ok(Outcome::new(created.code, answer.view))
            }
            Err(status) => {
                objects::remove(registry, "worlds", &name).await;
                Err(status)
            }
        }
    }

    /// Checks what the object asks for, and forks the store.
    async fn beginning(&self, object: &Value) -> Result<Beginning, Status> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let of = Named { kind: "World", plural: "worlds", name };
        if name == MAIN || !names::dns1123_label(name).is_empty() {
            let why = format!("must be a DNS label other than {MAIN}, since it is part of the world's address");
            return Err(of.invalid(FieldError::invalid("metadata.name", name.to_owned(), why)));
        }
        let from = &object["spec"]["from"];
        if from.is_null() {
            let blank = self.blank().await?;
            let store = blank.server.registry().store().fork(None).await.map_err(unreadable)?;
            let revision = store.current_revision().await.map_err(unreadable)?;
            return Ok(Beginning { from: None, origin: Arc::clone(blank.server.registry()), store, revision });
        }
        let world = from["world"].as_str().unwrap_or(MAIN);
        let Some(server) = self.server(world) else {
            return Err(of.invalid(FieldError::not_found("spec.from.world", world.to_owned())));
        };
        let at = objects::revision(&from["revision"], &of, "spec.from.revision")?;
        let origin = Arc::clone(server.registry());
        let store = match origin.store().fork(at).await {
            Ok(store) => store,
            Err(ReadError::Compacted { oldest, .. }) => {
                return Err(Status::expired(format!(
                    "the history of world {world} begins at revision {oldest}; fork it there or later, and make a Checkpoint to keep a revision"
                )));
            }
            Err(ReadError::Future { asked, current }) => {
                let why = format!("world {world} is at revision {current}");
                return Err(of.invalid(FieldError::invalid("spec.from.revision", asked.to_string(), why)));
            }
            Err(error) => return Err(unreadable(error)),
        };
        let revision = store.current_revision().await.map_err(unreadable)?;
        Ok(Beginning { from: Some(world.to_owned()), origin, store, revision })
    }

    /// The origin of worlds that are made from nothing.
    async fn blank(&self) -> Result<&Made, Status> {
        let make = || {
            self.maker.make(Order {
                name: "".into(),
                store: Arc::new(MemoryStore::new(Retention::default())),
                origin: None,
                controllers: false,
                lab: None,
                token: token(),
            })
        };
        self.blank.get_or_try_init(make).await.map_err(Status::internal)
    }

    /// Starts the world of an object; returns the object's status.
    async fn begin(&self, object: &Value, beginning: Beginning) -> Result<Value, Status> {
        let Some(name) = object["metadata"]["name"].as_str() else { return Err(stopping()) };
        let Beginning { from, origin, store, revision } = beginning;
        let (name, token): (Arc<str>, String) = (name.into(), token());
        let controllers = object["spec"]["controllers"].as_bool().unwrap_or_default();
        let lab = Some(self.labs.lab_of(&name));
        let order =
            Order { name: Arc::clone(&name), store, origin: Some(origin), controllers, lab, token: token.clone() };
        let made = self.maker.make(order).await.map_err(Status::internal)?;
        self.by_name.write().insert(Arc::clone(&name), made);
        let path = format!("/worlds/{name}");
        let mut status = json!({
            "revision": revision.to_string(),
            "url": path,
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        if let Some(from) = from {
            status["from"] = json!(from);
        }
        if let Some(address) = self.address.get() {
            let url = format!("{}{path}", address.url);
            status["kubeconfig"] = json!(kubeconfig(&url, Some(&address.ca_pem), Credential::Token(&token)));
            status["url"] = json!(url);
        }
        Ok(status)
    }
}

/// A bearer token.
fn token() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

fn unreadable(error: ReadError) -> Status {
    Status::service_unavailable(format!("the world cannot be read: {error}"))
}
