//! Checkpoints: states of worlds that are kept, and the way back to them.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use machinery::field_error::FieldError;
use machinery::json::json;
use machinery::options::CreateOptions;
use machinery::{GroupResource, Revision, Status};
use parking_lot::RwLock;
use registry::{Body, Outcome, Registry, WriteRequest};
use server::Server;
use server::worlds::{MAIN, WeakServer};
use store::{ListQuery, ReadError, Restored, Store};

use crate::kinds::GROUP;
use crate::worlds::Worlds;
use crate::worlds::objects::{self, Named};

/// Checkpoints at most.
pub const CHECKPOINTS_MAX: usize = 10_000;

/// The states that are kept.
#[derive(Default)]
pub(crate) struct Checkpoints(RwLock<HashMap<String, Arc<Checkpoint>>>);

struct Checkpoint {
    /// The world itself and not its name: another one may have the name later.
    world: WeakServer,
    revision: Revision,
    /// A fork at that revision, which nothing writes to.
    state: Arc<dyn Store>,
}

impl Checkpoints {
    /// Keeps the history of a world from its oldest checkpoint on.
    fn hold(&self, server: &Server) {
        let checkpoints = self.0.read();
        let own = checkpoints.values().filter(|checkpoint| checkpoint.world.is(server));
        server.registry().store().hold(own.map(|checkpoint| checkpoint.revision).min());
    }
}

impl Worlds {
    pub(crate) async fn create_checkpoint(
        &self,
        registry: &Arc<Registry>,
        request: WriteRequest<'_, CreateOptions>,
        body: &Body,
    ) -> Result<Outcome, Status> {
        if self.checkpoints().0.read().len() >= CHECKPOINTS_MAX {
            let why =
                format!("there are {CHECKPOINTS_MAX} checkpoints already; delete those that are no longer needed");
            return Err(Status::forbidden(&GroupResource::new(GROUP, "checkpoints"), "", why));
        }
        let trial = CreateOptions { dry_run: true, ..request.options.clone() };
        let trial = WriteRequest { target: request.target, options: &trial, ctx: request.ctx };
        let tried = registry.create(trial, body).await?;
        let object = tried.view.value()?;
        let of = Named {
            kind: "Checkpoint",
            plural: "checkpoints",
            name: object["metadata"]["name"].as_str().unwrap_or_default(),
        };
        let world = object["spec"]["world"].as_str().unwrap_or(MAIN);
        let Some(server) = self.server(world) else {
            return Err(of.invalid(FieldError::not_found("spec.world", world.to_owned())));
        };
        let at = objects::revision(&object["spec"]["revision"], &of, "spec.revision")?;
        let state = match server.registry().store().fork(at).await {
            Ok(state) => state,
            Err(ReadError::Compacted { oldest, .. }) => {
                return Err(Status::expired(format!(
                    "the history of world {world} begins at revision {oldest}; keep that one or a later one"
                )));
            }
            Err(ReadError::Future { asked, current }) => {
                let why = format!("world {world} is at revision {current}");
                return Err(of.invalid(FieldError::invalid("spec.revision", asked.to_string(), why)));
            }
            Err(error) => return Err(Status::service_unavailable(error.to_string())),
        };
        if request.options.dry_run {
            return Ok(tried);
        }
        let stats = state.stats().await.map_err(|error| Status::service_unavailable(error.to_string()))?;
        let created = registry.create(request, body).await?;
        let object = created.view.value()?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let checkpoint = Checkpoint { world: server.downgrade(), revision: stats.revision, state };
        self.checkpoints().0.write().insert(name.to_owned(), Arc::new(checkpoint));
        self.checkpoints().hold(&server);
        let status = json!({
            "revision": stats.revision.to_string(),
            "objects": stats.objects,
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        // It may have been deleted already.
        let written = objects::write_status(registry, "checkpoints", name, status).await;
        let mut answer = written.inspect_err(|_| self.release(name))?;
        answer.code = created.code;
        Ok(answer)
    }

    /// Forgets the state of a checkpoint that was deleted.
    pub(crate) fn release(&self, name: &str) {
        let released = self.checkpoints().0.write().remove(name);
        if let Some(server) = released.and_then(|checkpoint| checkpoint.world.upgrade()) {
            self.checkpoints().hold(&server);
        }
    }

    pub(crate) async fn rewind(
        &self,
        registry: &Arc<Registry>,
        request: WriteRequest<'_, CreateOptions>,
    ) -> Result<Outcome, Status> {
        let name = request.target.name.as_deref().unwrap_or_default();
        let checkpoint = self.checkpoints().0.read().get(name).cloned();
        let Some(checkpoint) = checkpoint else {
            return Err(Status::not_found(&GroupResource::new(GROUP, "checkpoints"), name));
        };
        let of = Named { kind: "Checkpoint", plural: "checkpoints", name };
        let server = checkpoint.world.upgrade().filter(|server| self.server(server.world()).is_some());
        let Some(server) = server else {
            return Err(of.conflict("its world is gone; delete it, and make one of a world that exists"));
        };
        if request.options.dry_run {
            return Err(Status::bad_request("a rewind has no dry run; `dogwatch lab diff` shows what it would change"));
        }
        let rewound = restore(server.registry(), &*checkpoint.state).await;
        let rewound = rewound.map_err(|error| of.conflict(format_args!("the world could not be rewound: {error}")))?;
        if !rewound.is_unchanged() {
            server.note_rewind();
        }
        let status = json!({"lastRewind": {
            "revision": rewound.revision.to_string(),
            "deleted": rewound.deleted,
            "modified": rewound.modified,
            "added": rewound.added,
        }});
        let mut answer = objects::write_status(registry, "checkpoints", name, status).await?;
        answer.code = 201;
        Ok(answer)
    }
}

/// Makes the objects of a world equal to a state; returns when its cache has them.
async fn restore(registry: &Registry, state: &dyn Store) -> Result<Restored, Box<dyn Error + Send + Sync>> {
    let wanted = state.list(ListQuery::default()).await?;
    let restored = registry.store().restore(wanted.entries).await?;
    while let Err(late) = registry.cache().reach(restored.revision).await {
        tracing::warn!(%late, "the cache does not keep up with a rewind");
    }
    Ok(restored)
}
