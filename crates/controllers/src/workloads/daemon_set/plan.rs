//! What a daemon set does next, decided from nodes and pods. Nothing here writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod, PodTemplateSpec};

use super::eligibility::{REVISION, Verdict, judge, node_of};
use crate::owners::name;
use crate::pods;
use crate::workloads::deployment::arithmetic::{Rounding, resolve};

pub(super) fn min_ready(set: &DaemonSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// The pods of a daemon set by node, and what each node means to it.
pub(super) struct Picture<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) hash: &'a str,
    pub(super) verdicts: BTreeMap<String, Verdict>,
    /// Oldest first, bound ones before others.
    pub(super) pods: BTreeMap<String, Vec<Arc<Pod>>>,
    pub(super) now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Todo {
    /// Nodes that need a pod.
    pub(super) create: Vec<String>,
    /// Names of pods.
    pub(super) delete: Vec<String>,
}

/// The new and the old pod of a node.
type Versions<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

/// What there is to say about a pod that has ended.
pub(super) enum Ended {
    /// It is deleted now.
    Delete,
    /// It failed a short time ago, and so did those before it: look again after this.
    Later(Duration),
}

impl<'a> Picture<'a> {
    pub(super) fn of(
        set: &'a DaemonSet,
        hash: &'a str,
        template: &PodTemplateSpec,
        nodes: impl Iterator<Item = &'a Arc<Node>>,
        owned: &[Arc<Pod>],
        now: Timestamp,
    ) -> Self {
        let verdicts = nodes.map(|node| (name(&**node).to_owned(), judge(template, node))).collect();
        let mut pods: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in owned.iter().filter(|pod| !(pods::is_terminal(pod) && is_leaving(pod))) {
            if let Some(node) = node_of(pod) {
                pods.entry(node.to_owned()).or_default().push(pod.clone());
            }
        }
        for list in pods.values_mut() {
            list.sort_by_key(|pod| {
                let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
                (pods::node(pod).is_none(), created, name(&**pod).to_owned())
            });
        }
        Self { set, hash, verdicts, pods, now }
    }

    fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, min_ready(self.set), self.now)
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        let revision = pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION));
        revision.is_some_and(|revision| revision == self.hash)
    }

    fn wanted(&self) -> usize {
        self.verdicts.values().filter(|verdict| **verdict == Verdict::Run).count()
    }

    /// How many nodes may have two pods, and how many none (DS-5).
    fn budget(&self) -> (usize, usize) {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let wanted = i32::try_from(self.wanted()).unwrap_or(i32::MAX);
        let count = |value: Option<&_>| {
            value.map_or(0, |value| usize::try_from(resolve(value, wanted, Rounding::Up)).unwrap_or(0))
        };
        let surge = count(rolling.and_then(|rolling| rolling.max_surge.as_ref()));
        let unavailable = count(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()));
        if wanted > 0 && surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }

    pub(super) fn is_rolling(&self) -> bool {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    fn surges(&self) -> bool {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
        self.is_rolling() && surge.is_some_and(|surge| resolve(surge, 1, Rounding::Up) > 0)
    }

    /// One pod on every node that should have one, none elsewhere (DS-4). `ended` decides about pods that have.
    pub(super) fn manage(&self, mut ended: impl FnMut(&Pod, &str) -> Ended) -> (Todo, Option<Duration>) {
        let (mut todo, mut later) = (Todo::default(), None::<Duration>);
        for (node, verdict) in &self.verdicts {
            let there = self.on(node);
            if *verdict == Verdict::Never {
                todo.delete.extend(there.iter().filter(|pod| !is_leaving(pod)).map(|pod| name(&**pod).to_owned()));
                continue;
            }
            if *verdict == Verdict::Run && there.is_empty() {
                todo.create.push(node.clone());
                continue;
            }
            let mut running = Vec::new();
            for pod in there.iter().filter(|pod| !is_leaving(pod)) {
                if !pods::is_terminal(pod) {
                    running.push(pod);
                    continue;
                }
                match ended(pod, node) {
                    Ended::Delete => todo.delete.push(name(&**pod).to_owned()),
                    Ended::Later(wait) => later = Some(later.map_or(wait, |known| known.min(wait))),
                }
            }
            if self.surges() {
                self.manage_surge(node, *verdict, &running, &mut todo);
            } else {
                todo.delete.extend(running.iter().skip(1).map(|pod| name(&***pod).to_owned()));
            }
        }
        // Pods that wait for a node that is gone.
        for (_, pods) in self.pods.iter().filter(|(node, _)| !self.verdicts.contains_key(*node)) {
            let lost = pods.iter().filter(|pod| pods::node(pod).is_none() && !is_leaving(pod));
            todo.delete.extend(lost.map(|pod| name(&**pod).to_owned()));
        }
        (todo, later)
    }

    /// Where an old and a new pod may be side by side: the old one goes when the new one is available.
    fn manage_surge(&self, node: &str, verdict: Verdict, running: &[&Arc<Pod>], todo: &mut Todo) {
        if running.is_empty() && verdict == Verdict::Run {
            todo.create.push(node.to_owned());
            return;
        }
        let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = running.iter().partition(|pod| self.is_updated(pod));
        let excess = new.iter().skip(1).chain(old.iter().skip(1));
        todo.delete.extend(excess.map(|pod| name(&***pod).to_owned()));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!pods::is_ready(old) || self.is_available(new))
        {
            todo.delete.push(name(&***old).to_owned());
        }
    }

    /// The next step from the old revision to the new one (DS-5).
    pub(super) fn update(&self) -> Todo {
        let (surge, unavailable) = self.budget();
        if surge == 0 { self.update_in_place(unavailable) } else { self.update_beside(surge) }
    }

    /// The new and the old pod of a node; none if there are several of either.
    fn versions(&self, node: &str) -> Option<Versions<'_>> {
        let (new, old): (Vec<_>, Vec<_>) =
            self.on(node).iter().filter(|pod| !is_leaving(pod)).partition(|pod| self.is_updated(pod));
        (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
    }

    fn nodes(&self) -> impl Iterator<Item = &String> {
        let running = self.verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::Run).map(|(node, _)| node);
        let mut all: Vec<&String> = self.pods.keys().chain(running).collect();
        all.sort();
        all.dedup();
        all.into_iter()
    }

    fn update_in_place(&self, allowed: usize) -> Todo {
        let (mut missing, mut broken, mut healthy) = (0, Vec::new(), Vec::new());
        for node in self.nodes() {
            match self.versions(node) {
                Some((None, Some(old))) if self.is_available(old) => healthy.push(name(&**old).to_owned()),
                Some((None, Some(old))) => {
                    // It serves nobody: it may go in any case.
                    broken.push(name(&**old).to_owned());
                    missing += 1;
                }
                Some((Some(new), None)) if self.is_available(new) => {}
                _ => missing += 1,
            }
        }
        healthy.truncate(allowed.saturating_sub(missing));
        broken.extend(healthy);
        Todo { create: Vec::new(), delete: broken }
    }

    fn update_beside(&self, allowed: usize) -> Todo {
        let mut todo = Todo::default();
        let (mut surging, mut available) = (0, 0);
        let (mut healthy, mut leaving) = (Vec::new(), Vec::new());
        for node in self.nodes() {
            let Some((new, old)) = self.versions(node) else {
                surging += 1;
                continue;
            };
            available += usize::from(old.or(new).is_some_and(|pod| self.is_available(pod)));
            let Some(old) = old else { continue };
            let runs = self.verdicts.get(node) == Some(&Verdict::Run);
            match new {
                Some(new) if self.is_available(new) => todo.delete.push(name(&**old).to_owned()),
                Some(_) => surging += 1,
                None if !self.is_available(old) && runs => todo.create.push(node.clone()),
                None if !self.is_available(old) => todo.delete.push(name(&**old).to_owned()),
                None if runs => healthy.push(node.clone()),
                None => leaving.push(name(&**old).to_owned()),
            }
        }
        leaving.truncate(available.saturating_sub(self.wanted()));
        healthy.truncate(allowed.saturating_sub(surging));
        todo.delete.extend(leaving);
        todo.create.extend(healthy);
        todo
    }

    /// The status that follows (DS-6).
    pub(super) fn status(&self, collisions: i32) -> DaemonSetStatus {
        let before = self.set.status.clone().unwrap_or_default();
        let mut status = DaemonSetStatus {
            observed_generation: self.set.metadata.generation,
            collision_count: (collisions > 0).then_some(collisions),
            conditions: before.conditions,
            ..DaemonSetStatus::default()
        };
        let (mut updated, mut available) = (0, 0);
        for (node, verdict) in &self.verdicts {
            let first = self.on(node).first();
            if *verdict != Verdict::Run {
                status.number_misscheduled += i32::from(first.is_some());
                continue;
            }
            status.desired_number_scheduled += 1;
            let Some(pod) = first else { continue };
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pods::is_ready(pod));
            available += i32::from(self.is_available(pod));
            updated += i32::from(self.is_updated(pod));
        }
        let nonzero = |count: i32| (count != 0).then_some(count);
        status.updated_number_scheduled = nonzero(updated);
        status.number_available = nonzero(available);
        status.number_unavailable = nonzero(status.desired_number_scheduled - available);
        status
    }
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::eligibility::template;
    use super::*;
    use serde_json::{Value, json};

    fn set(strategy: Value) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {"name": "agent", "generation": 4},
            "spec": {"selector": {}, "template": {"spec": {"containers": []}}, "updateStrategy": strategy},
        }))
        .unwrap()
    }

    fn rolling(surge: Value, unavailable: Value) -> DaemonSet {
        set(json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}))
    }

    fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
        let node = |name: &str| {
            let taints = if name.starts_with('x') { json!([{"key": "k", "effect": "NoExecute"}]) } else { json!([]) };
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}})).unwrap()
        };
        names.iter().map(|name| Arc::new(node(name))).collect()
    }

    /// `n1/new/ready`: a node, a revision, a state.
    fn pods(texts: &[&str]) -> Vec<Arc<Pod>> {
        let pod = |(index, text): (usize, &&str)| {
            let [node, revision, state] = text.split('/').collect::<Vec<_>>().try_into().unwrap();
            let mut value = json!({
                "metadata": {"name": format!("p{index}"), "labels": {REVISION: revision}, "creationTimestamp": format!("2026-01-01T00:00:{index:02}Z")},
                "spec": {"containers": [], "nodeName": node},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            match state {
                "ready" => {}
                "unready" => value["status"] = json!({"phase": "Running"}),
                "failed" => value["status"] = json!({"phase": "Failed"}),
                "leaving" => value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                other => panic!("{other}"),
            }
            Arc::new(serde_json::from_value(value).unwrap())
        };
        texts.iter().enumerate().map(pod).collect()
    }

    fn with<R>(set: &DaemonSet, names: &[&str], texts: &[&str], look: impl FnOnce(Picture<'_>) -> R) -> R {
        let nodes = nodes(names);
        look(Picture::of(set, "new", &template(set), nodes.iter(), &pods(texts), Timestamp::now()))
    }

    fn todo(create: &[&str], delete: &[&str]) -> Todo {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Todo { create: owned(create), delete: owned(delete) }
    }

    #[test]
    fn ds_4_one_pod_a_node_and_the_oldest_stays() {
        let plain = rolling(json!(0), json!(1));
        let manage = |names: &[&str], texts: &[&str]| {
            with(&plain, names, texts, |picture| picture.manage(|_, _| Ended::Delete).0)
        };
        assert_eq!(manage(&["n1", "n2", "x1"], &["n1/new/ready"]), todo(&["n2"], &[]));
        assert_eq!(manage(&["n1"], &["n1/new/ready", "n1/new/ready"]), todo(&[], &["p1"]));
        assert_eq!(manage(&["x1"], &["x1/new/ready"]), todo(&[], &["p0"]));
        assert_eq!(manage(&["n1"], &["n1/new/leaving"]), todo(&[], &[]), "it is replaced when it is gone");
        assert_eq!(manage(&["n1"], &["n1/new/failed"]), todo(&[], &["p0"]));
    }

    #[test]
    fn ds_5_in_place_as_many_as_may_be_unavailable() {
        let update =
            |set: &DaemonSet, texts: &[&str]| with(set, &["n1", "n2", "n3"], texts, |picture| picture.update());
        let one = rolling(json!(0), json!(1));
        let all_old = ["n1/old/ready", "n2/old/ready", "n3/old/ready"];
        assert_eq!(update(&one, &all_old), todo(&[], &["p0"]));
        assert_eq!(update(&one, &["n1/new/unready", "n2/old/ready", "n3/old/ready"]), todo(&[], &[]));
        assert_eq!(update(&one, &["n2/old/ready", "n3/old/ready"]), todo(&[], &[]), "one node has none");
        assert_eq!(update(&one, &["n1/new/ready", "n2/old/unready", "n3/old/ready"]), todo(&[], &["p1"]));
        let half = rolling(json!(0), json!("50%"));
        assert_eq!(update(&half, &all_old), todo(&[], &["p0", "p1"]), "a percentage rounds up");
    }

    #[test]
    fn ds_5_with_surge_the_new_pod_comes_first() {
        let surge = rolling(json!(1), json!(0));
        let update = |texts: &[&str]| with(&surge, &["n1", "n2"], texts, |picture| picture.update());
        assert_eq!(update(&["n1/old/ready", "n2/old/ready"]), todo(&["n1"], &[]));
        assert_eq!(update(&["n1/old/ready", "n1/new/unready", "n2/old/ready"]), todo(&[], &[]));
        assert_eq!(update(&["n1/old/ready", "n1/new/ready", "n2/old/ready"]), todo(&["n2"], &["p0"]));
        let manage = |texts: &[&str]| with(&surge, &["n1"], texts, |picture| picture.manage(|_, _| Ended::Delete).0);
        assert_eq!(manage(&["n1/old/ready", "n1/new/unready"]), todo(&[], &[]));
        assert_eq!(manage(&["n1/old/ready", "n1/new/ready"]), todo(&[], &["p0"]));
        assert_eq!(manage(&["n1/old/leaving"]), todo(&["n1"], &[]));
    }

    #[test]
    fn ds_6_the_numbers() {
        let plain = rolling(json!(0), json!(1));
        let texts = ["n1/new/ready", "n2/old/ready", "n3/new/unready", "x1/new/ready"];
        let status = with(&plain, &["n1", "n2", "n3", "n4", "x1", "x2"], &texts, |picture| picture.status(0));
        let numbers = [
            status.desired_number_scheduled,
            status.current_number_scheduled,
            status.number_misscheduled,
            status.number_ready,
            status.updated_number_scheduled.unwrap(),
            status.number_available.unwrap(),
            status.number_unavailable.unwrap(),
        ];
        assert_eq!((numbers, status.observed_generation), ([4, 3, 1, 2, 2, 2, 2], Some(4)));
    }
}
