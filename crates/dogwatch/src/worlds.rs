//! How the control plane of a world is put together: its own registry, authorizers and controllers on a fork of a store, behind the
//! listeners of the server.

use std::sync::{Arc, OnceLock};

use access::identity::{MASTERS, User};
use clock::WorldClock;
use lab::StartingBeside;
use lab::worlds::{Made, Maker, MakerFuture, Order};
use registry::Registry;
use server::authorization::Inspection;
use server::webhooks::HttpsWebhooks;
use server::worlds::{WeakServer, WorldParts};
use tokio::task::JoinSet;

use crate::background::Controllers;
use crate::cluster::Access;

/// Makes worlds that have the settings of a server.
pub(crate) struct WorldMaker {
    pub(crate) main: WeakServer,
    pub(crate) access: Access,
    /// Those of the server, with the kinds of a world's lab.
    pub(crate) settings: registry::Settings,
    pub(crate) controllers: Arc<OnceLock<controllers::Settings>>,
}

/// The background work of a world. Dropping it ends the work.
struct Background {
    _controllers: Option<Controllers>,
    _tasks: JoinSet<()>,
}

impl Maker for WorldMaker {
    fn make(&self, order: Order) -> MakerFuture<'_> {
        Box::pin(self.make_world(order))
    }
}

impl WorldMaker {
    async fn make_world(&self, order: Order) -> Result<Made, String> {
        let main = self.main.upgrade().ok_or("the server is stopping")?;
        let webhooks = HttpsWebhooks::new(main.limits(), main.metrics(), self.access.webhooks.clone());
        let (mut authorization, mut plugins) = (self.access.authorization.clone(), self.settings.plugins.clone());
        if order.controllers && self.controllers().nodes > 0 {
            // As `up` does: the server itself may have no nodes.
            authorization = authorization.with_nodes();
            plugins = plugins.with("NodeRestriction");
        }
        let authorization = authorization.build().map_err(|failure| failure.to_string())?;
        // Its own, so that nothing that is done to the time of one world shows in another.
        let clock = WorldClock::adjustable();
        let settings = registry::Settings {
            clock: clock.reading(),
            authorizer: Arc::clone(&authorization.authorizer),
            roles: Arc::clone(&authorization.roles),
            node_graph: authorization.graph.clone(),
            webhooks: Some(Arc::new(webhooks.clone())),
            hooks: Some(Arc::new(webhooks.clone())),
            observers: self
                .settings
                .observers
                .iter()
                .cloned()
                .chain(order.lab.iter().map(StartingBeside::observer))
                .collect(),
            plugins,
            service_accounts: order.controllers && self.controllers().keeps_service_accounts(),
            ..self.settings.clone()
        };
        let registry = match &order.origin {
            Some(origin) => origin.fork(order.store, settings).await,
            None => Registry::start(order.store, settings).await,
        };
        let registry = registry.map_err(|error| error.to_string())?;
        webhooks.read_services_from(&registry);
        let owner = User { name: format!("world:{}", order.name), groups: vec![MASTERS.to_owned()], ..User::default() };
        let authenticator = main.authenticator().beside(&registry, &order.name, &order.token, owner);
        let lab = order.lab.map(|lab| lab.start(&registry, clock.clone()));
        let server = main.beside(WorldParts {
            name: order.name,
            clock: clock.reading(),
            lab,
            authenticator,
            authorizer: authorization.authorizer,
            inspection: Inspection {
                roles: Some(authorization.roles),
                recorder: Some(Arc::default()),
                ..main.inspection().clone()
            },
            registry: Arc::clone(&registry),
        });
        webhooks.reach_own(&server);
        let mut tasks = JoinSet::new();
        let (stopping, world) = (main.stopping(), server.downgrade());
        tasks.spawn(async move {
            stopping.await;
            if let Some(world) = world.upgrade() {
                world.end_watches();
            }
        });
        tasks.spawn(registry::expiry::expire_events(Arc::clone(&registry), clock.named("events")));
        if let Some(reloading) = authorization.reloading {
            tasks.spawn(reloading.follow());
        }
        let controllers = order.controllers.then(|| {
            tasks.spawn(registry::reserve::quota::recount::keep_counts(Arc::clone(&registry)));
            Controllers::start(&server, &clock, self.controllers())
        });
        Ok(Made { server, tasks: Box::new(Background { _controllers: controllers, _tasks: tasks }) })
    }

    /// The settings of a world's controllers: those of the server's, with containers of their own. They sign no certificates:
    /// `main` would accept them.
    fn controllers(&self) -> controllers::Settings {
        let given = self.controllers.get().cloned().unwrap_or_default();
        controllers::Settings {
            containers: Arc::default(),
            usages: Arc::default(),
            token_signer: None,
            signer: None,
            approve_all: false,
            elect: false,
            queues: controllers::Queues::default(),
            ..given
        }
    }
}
