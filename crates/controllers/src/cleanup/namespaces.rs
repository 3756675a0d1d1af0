//! The end of a namespace: pods first, then everything else in it, then the namespace itself.
//!
//! Each round works on a live read. It deletes all it can, reports the rest in the conditions of the namespace, and
//! runs again: after half of the longest grace period and a second, after 8 s where finalizers remain, and at once
//! when the last pod is deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use client::controller::{Action, Predicate, Run, RunError};
use client::informer::Event;
use client::retry::{RetrySteps, retry_on_conflict};
use client::workqueue::{ItemExponential, MaxOf, TokenBucket, WorkQueue};
use client::{Error, Key};
use clock::WorldClock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams};
use kube::core::discovery::verbs;
use kube::{Client, ResourceExt as _};

use crate::context::Context;
use crate::discovery::{Resources, Served};
use crate::reconciling;
use crate::requests::Api;

/// The finalizer of a namespace that this controller removes.
const FINALIZER: &str = "kubernetes";
/// Estimated time of finalizers (NS-4).
const FINALIZER_ESTIMATE_SECONDS: i64 = 15;
const WORKERS: usize = 10;

/// Runs the namespace controller until the context's stop.
pub(crate) async fn run(context: Context) {
    let namespaces = context.informers.informer::<Namespace>();
    let pods = context.informers.informer::<Pod>();
    let delay = context.settings.timing.namespace_start;
    let controller = context.controller("namespace").limiter(limiter());
    let queue = controller.queue();
    // Not at once: other servers may still be writing into it, and controllers may be about to clean up themselves.
    let later = queue.clone();
    let controller = controller.on(
        &namespaces,
        Predicate::new(move |event: &Event<Namespace>| {
            if let Some(namespace) = event.object().filter(|namespace| is_ending(namespace))
                && !matches!(event, Event::Deleted { .. })
            {
                later.add_after(Key::of(&**namespace), delay);
            }
            false
        }),
    );
    let (ending, store) = (namespaces.store(), pods.store());
    let controller = controller.on(
        &pods,
        Predicate::new(move |event: &Event<Pod>| {
            wake_after_last_pod(event, &queue, |name| {
                ending.get(&Key::new(None, name)).is_some_and(|namespace| has_conditions(&namespace))
                    && store.snapshot().in_namespace(name).next().is_none()
            });
            false
        }),
    );
    let (client, clock) = (context.client.clone(), context.clock.clone());
    let reconcile = move |run: Run| {
        let (client, clock) = (client.clone(), clock.clone());
        async move { end(client, clock, run.key.name()).await }
    };
    reconciling::run(context, controller, WORKERS, reconcile).await;
}

/// The wait of each namespace after failures: 5 ms, doubled, at most a minute (NS-8).
fn limiter() -> MaxOf<Key> {
    let each = ItemExponential::new(Duration::from_millis(5), Duration::from_secs(60));
    MaxOf::new(vec![Box::new(each), Box::new(TokenBucket::new(10.0, 100))])
}

fn is_ending(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

/// True after a first round that left something.
fn has_conditions(namespace: &Namespace) -> bool {
    let status = namespace.status.as_ref();
    is_ending(namespace) && status.and_then(|status| status.conditions.as_ref()).is_some_and(|all| !all.is_empty())
}

fn wake_after_last_pod(event: &Event<Pod>, queue: &WorkQueue<Key>, waits: impl Fn(&str) -> bool) {
    if let Event::Deleted { object, .. } = event
        && let Some(namespace) = object.metadata.namespace.as_deref()
        && waits(namespace)
    {
        queue.add(Key::new(None, namespace));
    }
}

/// One round.
async fn end(client: Client, clock: WorldClock, name: &str) -> Result<Action, RunError> {
    let api = Api::<Namespace>::all(&client);
    let Some(namespace) = api.get(name).await? else { return Ok(Action::done()) };
    let held = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_some_and(|held| !held.is_empty());
    let Some(deleted_at) = namespace.metadata.deletion_timestamp.as_ref().map(|time| time.0) else {
        return Ok(Action::done());
    };
    if !held {
        return Ok(Action::done());
    }
    let round = Round { client, clock: clock.clone(), namespace: name.to_owned(), deleted_at };
    let left = round.delete_all().await;
    write_conditions(&api, namespace, &left, clock.now()).await?;
    if !left.failures.is_empty() {
        return Err(RunError::retry(left.failures.join(", ")));
    }
    if left.estimate > 0 {
        let seconds = u64::try_from(left.estimate / 2 + 1).unwrap_or_default();
        return Ok(Action::after(Duration::from_secs(seconds)));
    }
    finalize(&api, name).await?;
    Ok(Action::done())
}

/// The objects that are left after a round.
#[derive(Debug, Default)]
struct Left {
    /// Seconds until they may be deleted; zero without a wait.
    estimate: i64,
    /// `pods.` → number of objects.
    by_resource: BTreeMap<String, usize>,
    by_finalizer: BTreeMap<String, usize>,
    /// The error of a failed discovery.
    discovery: Option<String>,
    failures: Vec<String>,
}

struct Round {
    client: Client,
    clock: WorldClock,
    namespace: String,
    deleted_at: Timestamp,
}

impl Round {
    async fn delete_all(&self) -> Left {
        let mut left = Left::default();
        let resources = match Resources::read(&self.client).await {
            Ok(resources) => resources,
            Err(error) => {
                left.discovery = Some(error.to_string());
                left.failures.push(error.to_string());
                return left;
            }
        };
        let is_pods = |served: &&Served| served.resource.plural == "pods" && served.resource.group.is_empty();
        if let Some(pods) = resources.deletable_in_namespaces().find(is_pods) {
            self.delete_one(pods, &mut left).await;
            // Objects that pods need (secrets, network policies) stay until the pods are deleted (NS-4).
            if !left.by_resource.is_empty() {
                return left;
            }
        }
        for served in resources.deletable_in_namespaces().filter(|served| !is_pods(served)) {
            self.delete_one(served, &mut left).await;
        }
        left
    }

    /// Deletes all objects of a resource and counts the remaining ones.
    async fn delete_one(&self, served: &Served, left: &mut Left) {
        match self.try_delete_one(served, left).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() || error.code() == Some(405) => {}
            Err(error) => left.failures.push(error.to_string()),
        }
    }

    async fn try_delete_one(&self, served: &Served, left: &mut Left) -> Result<(), Error> {
        let api = served.api(&self.client, &self.namespace);
        if !served.can(verbs::LIST) {
            return Ok(());
        }
        // Most resources have nothing there: one list instead of three requests.
        let before = api.list_metadata(&ListParams::default()).await?;
        if before.items.is_empty() {
            return Ok(());
        }
        let estimate = self.estimate(served).await?;
        let params = DeleteParams::background();
        if served.can(verbs::DELETE_COLLECTION) {
            api.delete_collection(&params, &ListParams::default()).await?;
        } else {
            for item in &before.items {
                match api.delete(&item.name_any(), &params).await.map_err(Error::from) {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        let after = api.list_metadata(&ListParams::default()).await?.items;
        if after.is_empty() {
            return Ok(());
        }
        let resource = format!("{}.{}", served.resource.plural, served.resource.group);
        left.by_resource.insert(resource, after.len());
        let mut held = false;
        for finalizer in after.iter().flat_map(|item| item.finalizers()) {
            held = true;
            *left.by_finalizer.entry(finalizer.clone()).or_default() += 1;
        }
        if estimate == 0 && !held {
            let ApiVersion { group, version, plural } = ApiVersion::of(served);
            left.failures.push(format!(
                "unexpected items still remain in namespace: {} for gvr: {group}/{version}, Resource={plural}",
                self.namespace
            ));
        }
        left.estimate = left.estimate.max(if estimate > 0 { estimate } else { FINALIZER_ESTIMATE_SECONDS });
        Ok(())
    }

    /// Seconds that the deletion of a resource's objects may take: zero except for pods.
    async fn estimate(&self, served: &Served) -> Result<i64, Error> {
        if served.resource.plural != "pods" || !served.resource.group.is_empty() {
            return Ok(0);
        }
        let pods = Api::<Pod>::namespaced(&self.client, &self.namespace).list().await?;
        Ok(longest_grace(&pods, self.clock.now().as_second() - self.deleted_at.as_second()))
    }
}

struct ApiVersion<'a> {
    group: &'a str,
    version: &'a str,
    plural: &'a str,
}

impl<'a> ApiVersion<'a> {
    fn of(served: &'a Served) -> Self {
        let resource = &served.resource;
        Self { group: &resource.group, version: &resource.version, plural: &resource.plural }
    }
}

/// The longest grace period of the pods that still run; zero once the namespace has been terminating for that long.
fn longest_grace(pods: &[Pod], going_seconds: i64) -> i64 {
    let ended = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let running = pods.iter().filter(|pod| !ended(pod));
    let grace = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let longest = running.filter_map(grace).max().unwrap_or_default().max(0);
    if going_seconds >= longest { 0 } else { longest }
}

/// The conditions of a namespace that is ending: type, the reason and the message when all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// The failures by type of condition: reason and message.
fn troubles(left: &Left) -> BTreeMap<&'static str, (&'static str, String)> {
    let mut troubles = BTreeMap::new();
    let listed = |counts: &BTreeMap<String, usize>, link: &str| {
        let mut each: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {link} {count} resource instances")).collect();
        each.sort();
        each.join(", ")
    };
    if let Some(message) = &left.discovery {
        troubles.insert("NamespaceDeletionDiscoveryFailure", ("DiscoveryFailed", message.clone()));
    } else if !left.failures.is_empty() {
        let mut failures = left.failures.clone();
        failures.sort();
        let (count, failures) = (failures.len(), failures.join(", "));
        let message = format!("Failed to delete all resource types, {count} remaining: {failures}");
        troubles.insert("NamespaceDeletionContentFailure", ("ContentDeletionFailed", message));
    }
    if !left.by_resource.is_empty() {
        let message = format!("Some resources are remaining: {}", listed(&left.by_resource, "has"));
        troubles.insert("NamespaceContentRemaining", ("SomeResourcesRemain", message));
    }
    if !left.by_finalizer.is_empty() {
        let listed = listed(&left.by_finalizer, "in");
        let message = format!("Some content in the namespace has finalizers remaining: {listed}");
        troubles.insert("NamespaceFinalizersRemaining", ("SomeFinalizersRemain", message));
    }
    troubles
}

/// Updates the conditions; true if one changed.
fn update_conditions(conditions: &mut Vec<NamespaceCondition>, left: &Left, now: Timestamp) -> bool {
    let mut troubles = troubles(left);
    let mut changed = false;
    for (kind, ok_reason, ok_message) in CONDITIONS {
        let (status, reason, message) = match troubles.remove(kind) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", ok_reason, ok_message.to_owned()),
        };
        let wanted = NamespaceCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            None => {
                conditions.push(wanted);
                changed = true;
            }
            Some(known) => {
                let since = if known.status == wanted.status { known.last_transition_time.clone() } else { None };
                let wanted = NamespaceCondition {
                    last_transition_time: since.or(wanted.last_transition_time.clone()),
                    ..wanted
                };
                changed |= *known != wanted;
                *known = wanted;
            }
        }
    }
    changed
}

async fn write_conditions(
    api: &Api<Namespace>,
    mut namespace: Namespace,
    left: &Left,
    now: Timestamp,
) -> Result<(), Error> {
    let status = namespace.status.get_or_insert_default();
    if !update_conditions(status.conditions.get_or_insert_default(), left, now) {
        return Ok(());
    }
    match api.replace_status(&namespace).await {
        // Written by another client meanwhile; the next round writes it.
        Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Removes our finalizer. The server removes the namespace with the last one (NS-7).
async fn finalize(api: &Api<Namespace>, name: &str) -> Result<(), Error> {
    let attempt = || async {
        let Some(mut namespace) = api.get(name).await? else { return Ok(()) };
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        match api.replace_subresource("finalize", &namespace).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    };
    retry_on_conflict(RetrySteps::DEFAULT, attempt).await
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
mod tests {
    use super::*;
    use client::workqueue::RateLimiter as _;
    use serde_json::json;

    fn pod(grace: i64, phase: &str) -> Pod {
        let pod =
            json!({"spec": {"containers": [], "terminationGracePeriodSeconds": grace}, "status": {"phase": phase}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn ns_4_the_longest_grace_of_running_pods_is_waited_for() {
        let pods = [pod(30, "Running"), pod(5, "Pending"), pod(300, "Succeeded")];
        assert_eq!(longest_grace(&pods, 5), 30);
        assert_eq!(longest_grace(&pods, 30), 0, "they had their time");
        assert_eq!(longest_grace(&[], 0), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn ns_8_each_namespace_waits_for_itself_and_never_longer_than_a_minute() {
        let (limiter, failing, other) = (limiter(), Key::new(None, "failing"), Key::new(None, "other"));
        let mut waits = Vec::new();
        for _ in 0..20 {
            let wait = limiter.when(&failing, tokio::time::Instant::now());
            waits.push(wait.as_millis());
            tokio::time::advance(wait).await;
        }
        let expected = [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960, 60000, 60000];
        assert_eq!(waits[..16], expected);
        assert!(waits[16..].iter().all(|wait| *wait == 60_000));
        assert_eq!(limiter.when(&other, tokio::time::Instant::now()).as_millis(), 5);
    }

    #[test]
    fn ns_6_conditions_say_what_is_left_and_when_all_is_well() {
        let mut left = Left::default();
        left.by_resource.insert("pods.".into(), 2);
        left.by_resource.insert("widgets.example.com".into(), 1);
        left.by_finalizer.insert("x.io/never".into(), 3);
        let mut conditions = Vec::new();
        let (early, late) = (Timestamp::from_second(1).unwrap(), Timestamp::from_second(9).unwrap());
        assert!(update_conditions(&mut conditions, &left, early));
        let said = |conditions: &[NamespaceCondition]| -> Vec<String> {
            let one = |c: &NamespaceCondition| {
                let (reason, message) = (c.reason.as_deref().unwrap_or(""), c.message.as_deref().unwrap_or(""));
                format!("{}={} {reason}: {message}", c.type_, c.status)
            };
            conditions.iter().map(one).collect()
        };
        assert_eq!(
            said(&conditions),
            [
                "NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered",
                "NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed",
                "NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization",
                "NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: pods. has 2 resource instances, widgets.example.com has 1 resource instances",
                "NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: x.io/never in 3 resource instances",
            ]
        );
        assert!(!update_conditions(&mut conditions, &left, late), "nothing changed, nothing is written");
        assert!(update_conditions(&mut conditions, &Left::default(), late));
        assert_eq!(conditions[3].status, "False");
        assert_eq!(conditions[3].last_transition_time, Some(Time(late)));
        assert_eq!(conditions[0].last_transition_time, Some(Time(early)));
    }
}
