//! The lab of a test server, and the same of a world: faults, settlements, the clock, timelines.
//!
//! ```
//! # tokio_test::block_on(async {
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use kube::api::PostParams;
//! use serde_json::json;
//!
//! let server = dogwatch::testing::Server::start().await;
//! let world = server.fork().await;
//! let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
//! let mut wanted = ConfigMap::default();
//! wanted.metadata.name = Some("a".into());
//!
//! // The first create fails in this world, and in no other.
//! world.fault("once", json!({"match": {"verbs": ["create"]}, "when": {"times": 1}, "effect": {"error": {"code": 500}}})).await;
//! assert!(maps.create(&PostParams::default(), &wanted).await.is_err());
//! maps.create(&PostParams::default(), &wanted).await.unwrap();
//!
//! // An hour passes at once, in this world.
//! let clock = world.clock();
//! clock.stop().await;
//! let before = clock.now().await;
//! clock.advance(Duration::from_secs(3600)).await;
//! assert_eq!(clock.now().await.as_second() - before.as_second(), 3600);
//!
//! // Nothing is written any more; this is what was.
//! world.settle().await;
//! assert_eq!(world.timeline("ConfigMap", "a").await.0.len(), 1);
//! # });
//! ```

use std::time::Duration;

use http::{Method, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Server, World};
use crate::timeline::Timeline;

pub(super) const API: &str = "/apis/lab.dogwatch.dev/v1";

/// What a settlement found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The revision at which nothing more was written.
    pub revision: u64,
    /// Changes since the settlement was asked for.
    pub changes: u64,
}

impl Server {
    /// Makes a fault with this `spec`, which hits requests to this server.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn fault(&self, name: &str, spec: Value) {
        create(&self.client(), "faults", "Fault", name, spec).await;
    }

    /// Removes a fault.
    ///
    /// # Panics
    /// If there is none by this name.
    pub async fn remove_fault(&self, name: &str) {
        remove(&self.client(), "faults", name).await;
    }

    /// Waits until nothing was written for 200 ms and every watch was sent what concerns it.
    ///
    /// # Panics
    /// If that is not so after 30 seconds; the message names who is busy.
    pub async fn settle(&self) -> Settlement {
        settled(&self.client()).await
    }

    /// The status of a settlement with this `spec`, whether or not it is settled.
    ///
    /// # Panics
    /// If the `spec` is refused.
    pub async fn settlement(&self, spec: Value) -> Value {
        settlement(&self.client(), spec).await
    }

    /// The time that this server believes in.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(self.client())
    }

    /// The recorded writes of the objects of this kind and name, and of all that they own.
    ///
    /// # Panics
    /// If the changes cannot be read.
    pub async fn timeline(&self, kind: &str, name: &str) -> Timeline {
        timeline(&self.client(), kind, name).await
    }
}

impl World {
    /// Makes a fault with this `spec`, which hits requests to this world only.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn fault(&self, name: &str, spec: Value) {
        create(&self.client(), "faults", "Fault", name, spec).await;
    }

    /// As [`Server::remove_fault`].
    ///
    /// # Panics
    /// If there is none by this name.
    pub async fn remove_fault(&self, name: &str) {
        remove(&self.client(), "faults", name).await;
    }

    /// As [`Server::settle`].
    ///
    /// # Panics
    /// If that is not so after 30 seconds; the message names who is busy.
    pub async fn settle(&self) -> Settlement {
        settled(&self.client()).await
    }

    /// As [`Server::settlement`].
    ///
    /// # Panics
    /// If the `spec` is refused.
    pub async fn settlement(&self, spec: Value) -> Value {
        settlement(&self.client(), spec).await
    }

    /// The time that this world believes in.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(self.client())
    }

    /// As [`Server::timeline`].
    ///
    /// # Panics
    /// If the changes cannot be read.
    pub async fn timeline(&self, kind: &str, name: &str) -> Timeline {
        timeline(&self.client(), kind, name).await
    }
}

/// The clock of a server or world. Its time never goes back.
#[derive(Clone)]
pub struct Clock(kube::Client);

impl Clock {
    /// The time that it shows.
    ///
    /// # Panics
    /// If it cannot be read.
    pub async fn now(&self) -> Timestamp {
        shown(&self.patched(json!({})).await)
    }

    /// Stops it where it is.
    ///
    /// # Panics
    /// If that is refused.
    pub async fn stop(&self) {
        self.patched(json!({"mode": "Stopped", "rate": null})).await;
    }

    /// Lets it run at this rate: at 60 an hour takes a minute.
    ///
    /// # Panics
    /// If that is refused.
    pub async fn scale(&self, rate: f64) {
        self.patched(json!({"mode": "Scaled", "rate": rate})).await;
    }

    /// Moves a stopped clock, and returns when everything that became due has been started.
    ///
    /// # Panics
    /// If that is refused.
    pub async fn advance(&self, by: Duration) {
        let target = self.now().await.checked_add(by).unwrap_or(Timestamp::MAX);
        // A move ends early if what became due takes long.
        loop {
            let left = Duration::try_from(target.duration_since(self.now().await)).unwrap_or_default();
            if left.is_zero() {
                return;
            }
            self.patched(json!({"advance": format!("{}.{:09}s", left.as_secs(), left.subsec_nanos())})).await;
        }
    }

    /// Moves a stopped clock to the next moment at which something is due; returns who waited for it, none if nothing is due.
    ///
    /// # Panics
    /// If that is refused.
    pub async fn advance_to_next(&self) -> Vec<String> {
        let status = self.patched(json!({"advanceToNext": true})).await;
        let due = status["advanced"]["due"].as_array().cloned().unwrap_or_default();
        due.iter().filter_map(|moment| moment["who"].as_str()).map(str::to_owned).collect()
    }

    /// Changes the `spec`; returns the status.
    async fn patched(&self, spec: Value) -> Value {
        let path = format!("{API}/clocks/world");
        let body = json!({"spec": spec}).to_string().into_bytes();
        let request = Request::patch(path).header("content-type", "application/merge-patch+json").body(body);
        let answer = self.0.request::<Value>(request.expect("a request")).await;
        answer.unwrap_or_else(|error| panic!("the clock was not set to {spec}: {error}"))["status"].clone()
    }
}

fn shown(status: &Value) -> Timestamp {
    status["now"].as_str().and_then(|now| now.parse().ok()).expect("a clock shows a time")
}

async fn settled(client: &kube::Client) -> Settlement {
    let status = settlement(client, json!({})).await;
    assert!(status["settled"] == true, "not settled after {}: {}", status["waited"], status["busy"]);
    let number = |member: &str| status[member].as_u64().unwrap_or_default();
    Settlement { revision: number("revision"), changes: number("changes") }
}

async fn settlement(client: &kube::Client, spec: Value) -> Value {
    let object = json!({"apiVersion": "lab.dogwatch.dev/v1", "kind": "Settlement", "spec": spec});
    let answer = request(client, Method::POST, &format!("{API}/settlements"), &object).await;
    answer.unwrap_or_else(|error| panic!("the settlement was refused: {error}"))["status"].clone()
}

async fn timeline(client: &kube::Client, kind: &str, name: &str) -> Timeline {
    let listed = request(client, Method::GET, &format!("{API}/changes"), &Value::Null).await;
    let listed = listed.unwrap_or_else(|error| panic!("the changes cannot be read: {error}"));
    let changes: Vec<machinery::json::Value> = listed["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|change| machinery::json::from_slice(change["status"].to_string().as_bytes()).ok())
        .collect();
    let changes: Vec<&machinery::json::Value> = changes.iter().collect();
    Timeline::of(&changes, |change| change["kind"] == kind && change["name"] == name)
}

/// Creates an object of the lab.
pub(super) async fn create(client: &kube::Client, plural: &str, kind: &str, name: &str, spec: Value) -> Value {
    let object = json!({"apiVersion": "lab.dogwatch.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let made = request(client, Method::POST, &format!("{API}/{plural}"), &object).await;
    made.unwrap_or_else(|error| panic!("{kind} {name} was not made: {error}"))
}

async fn remove(client: &kube::Client, plural: &str, name: &str) {
    let removed = request(client, Method::DELETE, &format!("{API}/{plural}/{name}"), &json!({})).await;
    removed.unwrap_or_else(|error| panic!("{plural} {name} was not removed: {error}"));
}

pub(super) async fn request(client: &kube::Client, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    client.request(request.body(bytes).map_err(kube::Error::HttpError)?).await
}
