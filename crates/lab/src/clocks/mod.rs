//! The Clock: the object by which the time of the cluster is stopped, scaled and moved.
//!
//! - `spec`: reads and checks what a write asks for
//! - `quiet`: knows when what a moved clock set off has ended

mod quiet;
mod spec;

use std::sync::Arc;
use std::time::Duration;

use clock::{Advance, Stop, WorldClock};
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, PatchOptions};
use registry::orders::Order;
use registry::{Body, Context, PatchBody, Registry, Target, WriteRequest};
use tokio::sync::Mutex;

pub(crate) use quiet::Quiet;

use crate::kinds::GROUP;

/// The name of the one clock.
pub(crate) const NAME: &str = "world";
/// Moments that the status names at most.
const NAMED_MAX: usize = 50;

/// The clock of a cluster, and who moves it.
pub(crate) struct Clocks {
    clock: WorldClock,
    quiet: Quiet,
    /// Held while the clock is moved: one move ends before the next begins.
    moving: Mutex<()>,
}

impl Clocks {
    pub(crate) fn new(clock: WorldClock, quiet: Quiet) -> Arc<Self> {
        Arc::new(Clocks { clock, quiet, moving: Mutex::new(()) })
    }

    /// Makes the object by which the clock is seen and set.
    pub(crate) async fn make(&self, registry: &Registry) -> Result<(), Status> {
        let kinds = registry.kinds();
        let kind = kinds.get(GROUP, "v1", "clocks").ok_or_else(|| Status::internal("there is no kind Clock"))?;
        let mut target = Target { kind: Arc::clone(kind), namespace: None, name: None, subresource: None };
        let ctx = Context { user_agent: "dogwatch".to_owned(), ..Context::default() };
        let metadata = json!({"name": NAME});
        let object = json!({"apiVersion": "lab.dogwatch.dev/v1", "kind": "Clock", "metadata": metadata, "spec": {"mode": "Real"}});
        let body = Body { bytes: object.to_string().into(), media: MediaType::Json };
        let options = CreateOptions::default();
        registry.create(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await?;
        target.name = Some(NAME.to_owned());
        target.subresource = Some("status".to_owned());
        let status = json!({"status": self.status(None)});
        let body = PatchBody { bytes: status.to_string().into(), kind: PatchType::Merge };
        let options = PatchOptions::default();
        registry.patch(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await.map(|_| ())
    }

    fn status(&self, advance: Option<&Advance>) -> Value {
        let mut status = json!({"now": self.clock.now().to_string()});
        if let Some(next) = self.clock.next_due() {
            status["next"] = shown(&next);
        }
        if let Some(advance) = advance {
            let last = advance.stops.len().saturating_sub(NAMED_MAX);
            let due: Vec<Value> = advance.stops.iter().skip(last).map(shown).collect();
            status["advanced"] =
                json!({"moments": advance.stops.len(), "due": due, "complete": advance.all_begun && advance.arrived});
        }
        status
    }

    /// What a write of the clock asks for.
    pub(crate) fn take(self: &Arc<Self>, old: &Value, new: &mut Value) -> Result<Option<Order>, Status> {
        let Some(wanted) = spec::take(old, new, &self.clock)? else { return Ok(None) };
        let clocks = Arc::clone(self);
        let order: Order = Box::new(move || Box::pin(async move { clocks.carry_out(wanted).await }));
        Ok(Some(order))
    }

    async fn carry_out(&self, wanted: spec::Wanted) -> Value {
        let _moving = self.moving.lock().await;
        if let Some((mode, now)) = wanted.set
            && let Err(error) = self.clock.set(mode, now)
        {
            // Checked when the write was taken; another one has moved the clock since.
            tracing::warn!(%error, "the clock was not set");
        }
        let advance = match wanted.advance {
            spec::Move::None => return self.status(None),
            spec::Move::By(duration) => duration,
            spec::Move::ToNext => self.clock.until_next().unwrap_or(Duration::ZERO),
        };
        let advance = self.clock.advance(advance, &self.quiet).await;
        self.status(Some(&advance))
    }
}

fn shown(stop: &Stop) -> Value {
    json!({"at": stop.at.to_string(), "who": &*stop.who})
}
