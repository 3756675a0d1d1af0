//! Joins the server, which knows the protocols of logs and connections, to the simulated nodes, which know their containers.

use std::sync::Arc;

use bytes::Bytes;
use clock::WorldClock;
use controllers::nodes::containers::exec::Streams;
use controllers::nodes::containers::log::{CurrentPod, LogWanted};
use controllers::nodes::containers::{Containers as Simulated, is_simulated, state};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use machinery::json::Value;
use server::streams::containers::{
    CommandResult, ContainerRef, Containers, LogOptions, Reader, Refusal, Session, Writer,
};

/// The containers of the simulated nodes, as the server asks for them.
pub(crate) struct SimulatedContainers {
    pub(crate) containers: Arc<Simulated>,
    pub(crate) clock: WorldClock,
}

fn parse(pod: &Bytes) -> Result<Pod, Refusal> {
    serde_json::from_slice(pod).map_err(|error| Refusal::Internal(format!("the pod cannot be read: {error}")))
}

fn current(of: &ContainerRef) -> CurrentPod {
    let current = Arc::clone(&of.current);
    Arc::new(move || serde_json::from_slice(&current()?).ok())
}

fn refusal(refusal: state::Refusal) -> Refusal {
    match refusal {
        state::Refusal::NotYet(why) => Refusal::BadRequest(why),
        state::Refusal::NotRunning(why) => Refusal::Internal(why),
    }
}

fn streams(session: Session) -> Streams {
    let Session { stdin, stdout, stderr, is_terminal, resizes } = session;
    Streams { stdin, stdout, stderr, is_terminal, resizes }
}

/// The reason of a refusal, for what was checked already.
fn reason(refusal: Refusal) -> String {
    match refusal {
        Refusal::BadRequest(why) | Refusal::Internal(why) => why,
    }
}

impl Containers for SimulatedContainers {
    fn runs(&self, node: &Value) -> bool {
        let labels = &node["metadata"]["labels"];
        is_simulated(|label| labels[label].as_str().map(str::to_owned))
    }

    fn log(&self, of: ContainerRef, options: LogOptions, to: Writer) -> Result<BoxFuture<'static, ()>, Refusal> {
        let pod = parse(&of.pod)?;
        let instance = state::instance(&pod, &of.container, options.previous).map_err(refusal)?;
        let LogOptions { follow, previous, timestamps, since, tail_lines, limit_bytes } = options;
        let wanted = LogWanted { follow, previous, timestamps, since, tail_lines, limit_bytes };
        let containers = Arc::clone(&self.containers);
        Ok(async move {
            // An error is that of a client that has disconnected.
            let _ = containers.write_log(&pod, &of.container, instance, wanted, current(&of), to).await;
        }
        .boxed())
    }

    fn check_command(&self, of: &ContainerRef, is_attach: bool) -> Result<(), Refusal> {
        state::check_running(&parse(&of.pod)?, &of.container, is_attach).map_err(refusal)
    }

    fn exec(&self, of: ContainerRef, command: Vec<String>, session: Session) -> BoxFuture<'static, CommandResult> {
        let (containers, clock) = (Arc::clone(&self.containers), self.clock.clone());
        async move {
            let pod = parse(&of.pod).map_err(reason)?;
            containers.exec(&pod, &of.container, &command, streams(session), clock).await
        }
        .boxed()
    }

    fn attach(&self, of: ContainerRef, session: Session) -> BoxFuture<'static, CommandResult> {
        let containers = Arc::clone(&self.containers);
        async move {
            let pod = parse(&of.pod).map_err(reason)?;
            containers.attach(&pod, &of.container, streams(session), current(&of)).await
        }
        .boxed()
    }

    fn check_forward(&self, of: &ContainerRef) -> Result<(), Refusal> {
        state::check_reachable(&parse(&of.pod)?).map_err(refusal)
    }

    fn forward(&self, of: ContainerRef, port: u16, from: Reader, to: Writer) -> BoxFuture<'static, Result<(), String>> {
        let containers = Arc::clone(&self.containers);
        async move {
            let pod = parse(&of.pod).map_err(reason)?;
            containers.forward(&pod, port, from, to).await
        }
        .boxed()
    }
}
