//! Victims, and the best of the possible nodes.

use serde_json::{Value, json};

use super::*;
use crate::scheduler::amounts::request_of;
use crate::scheduler::decision::decide;

/// A node with 4 CPUs.
fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/foo": "5"}}})
}

fn pod(name: &str, priority: i32, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"app": name}},
        "spec": {"priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn since(mut pod: Value, minute: u32) -> Value {
    pod["status"]["startTime"] = json!(format!("2026-01-01T00:{minute:02}:00Z"));
    pod
}

fn read(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}

fn cluster(nodes: &[&str], pods: Vec<(&str, Value)>) -> Cluster {
    let mut cluster = Cluster::default();
    for name in nodes {
        cluster.put_node(Arc::new(serde_json::from_value(node(name)).unwrap()));
    }
    for (node, pod) in pods {
        let pod = read(pod);
        let request = request_of(&pod);
        cluster.put_pod(&Key::of(&pod), Arc::new(pod), node, || request);
    }
    cluster
}

fn budget(app: &str, allowed: i32) -> Arc<PodDisruptionBudget> {
    let budget = json!({"metadata": {"name": app, "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    Arc::new(serde_json::from_value(budget).unwrap())
}

/// The node of a pod that fits, else the outcome and the message.
fn attempt(
    pod: &Pod,
    cluster: &mut Cluster,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<String, (Outcome, String)> {
    let (namespaces, _writer) = Store::new();
    let request = request_of(pod);
    decide(pod, &request, cluster, &namespaces, &mut 0).map_err(|refusal| {
        let outcome = search(pod, &request, &refusal, cluster, &namespaces, budgets);
        let message = message(&refusal, &outcome);
        (outcome, message)
    })
}

/// The node and the names of the victims of a pod that wants this much CPU, with priority 100.
fn victims_of(cpu: &str, cluster: &mut Cluster, budgets: &[Arc<PodDisruptionBudget>]) -> (String, Vec<String>) {
    let before = picture(cluster);
    let found = attempt(&read(pod("p", 100, cpu)), cluster, budgets).unwrap_err();
    assert_eq!(picture(cluster), before, "a search changes nothing");
    let (Outcome::Found(candidate), _) = found else { panic!("{found:?}") };
    let names = candidate.victims.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
    (candidate.node.to_string(), names)
}

fn picture(cluster: &Cluster) -> Vec<(String, i64, Vec<String>)> {
    let node = |node: &crate::scheduler::cluster::NodeInfo| {
        (node.name.to_string(), node.taken.cpu, node.pods.iter().map(ToString::to_string).collect())
    };
    cluster.nodes().iter().map(node).collect()
}

#[test]
fn sc_14_pods_of_the_same_priority_are_no_victims() {
    let mut cluster = cluster(&["a"], vec![("a", pod("same", 100, "3"))]);
    let (_, message) = attempt(&read(pod("p", 100, "2")), &mut cluster, &[]).unwrap_err();
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
         0/1 nodes are available: 1 No preemption victims found for incoming pod."
    );
}

#[test]
fn sc_14_preemption_policy_never() {
    let mut cluster = cluster(&["a"], vec![("a", pod("low", 1, "3"))]);
    let mut polite = pod("p", 100, "2");
    polite["spec"]["preemptionPolicy"] = json!("Never");
    let (outcome, message) = attempt(&read(polite), &mut cluster, &[]).unwrap_err();
    assert_eq!(outcome, Outcome::NotEligible(NEVER));
    assert!(message.ends_with("preemption: not eligible due to preemptionPolicy=Never."), "{message}");
}

#[test]
fn sc_14_a_pod_waits_for_the_victims_on_its_node() {
    let low = || pod("low", 1, "3");
    let wants = read(pod("p", 100, "2"));
    let waits = |low: Value, preempted: bool| {
        let mut cluster = cluster(&["a"], vec![("a", low)]);
        cluster.nominations.set(&Key::of(&wants), Arc::new(wants.clone()), "a");
        cluster.set_preempted(&Key::new(Some("d"), "low"), preempted);
        let (outcome, message) = attempt(&wants, &mut cluster, &[]).unwrap_err();
        assert_eq!(message.ends_with(TERMINATING), outcome == Outcome::NotEligible(TERMINATING), "{message}");
        outcome == Outcome::NotEligible(TERMINATING)
    };
    assert!(!waits(low(), false), "nothing is under way");
    assert!(waits(low(), true), "it has just been started");
    let mut leaving = low();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(!waits(leaving.clone(), false), "deleted by another client");
    leaving["status"]["conditions"] =
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
    assert!(waits(leaving, false));
}

#[test]
fn sc_15_the_most_important_pods_stay() {
    let pods = vec![("a", pod("low", 1, "1")), ("a", pod("middle", 10, "1")), ("a", pod("high", 20, "2"))];
    let mut crowded = cluster(&["a"], pods);
    assert_eq!(victims_of("1", &mut crowded, &[]), ("a".into(), vec!["low".into()]));
    assert_eq!(victims_of("2", &mut crowded, &[]), ("a".into(), vec!["middle".into(), "low".into()]));
    let pods = vec![("a", since(pod("young", 1, "2"), 9)), ("a", since(pod("old", 1, "2"), 3))];
    let mut crowded = cluster(&["a"], pods);
    assert_eq!(victims_of("2", &mut crowded, &[]), ("a".into(), vec!["young".into()]), "of equals the younger one");
}

#[test]
fn sc_15_extended_resources_and_ports_count_too() {
    let holds = |name: &str, priority: i32, resource: Value, port: Value| {
        let mut pod = pod(name, priority, "0");
        pod["spec"]["containers"][0]["resources"]["requests"] = resource;
        pod["spec"]["containers"][0]["ports"] = port;
        pod
    };
    let foo = |name: &str, priority| holds(name, priority, json!({"example.com/foo": "2"}), json!([]));
    let mut crowded = cluster(
        &["a", "b"],
        vec![("a", foo("low", 1)), ("a", foo("a2", 10)), ("b", foo("b1", 10)), ("b", foo("b2", 10))],
    );
    let (outcome, message) = attempt(&read(foo("p", 100)), &mut crowded, &[]).unwrap_err();
    let Outcome::Found(found) = outcome else { panic!("{outcome:?}") };
    assert_eq!((&*found.node, found.victims.len()), ("a", 1));
    assert_eq!(found.victims[0].metadata.name.as_deref(), Some("low"));
    assert_eq!(message, "0/2 nodes are available: 2 Insufficient example.com/foo.", "a preemption adds nothing");
    let port = |name: &str, priority| holds(name, priority, json!({}), json!([{"containerPort": 80, "hostPort": 80}]));
    let mut crowded = cluster(&["a"], vec![("a", port("low", 1)), ("a", pod("other", 1, "1"))]);
    let (outcome, _) = attempt(&read(port("p", 100)), &mut crowded, &[]).unwrap_err();
    let Outcome::Found(found) = outcome else { panic!("{outcome:?}") };
    assert_eq!(found.victims.len(), 1, "only the one with the port");
}

#[test]
fn sc_15_budgets_protect_pods_of_higher_importance_last() {
    let pods = || vec![("a", pod("guarded", 1, "2")), ("a", pod("free", 10, "2"))];
    let mut crowded = cluster(&["a"], pods());
    assert_eq!(victims_of("2", &mut crowded, &[]), ("a".into(), vec!["guarded".into()]));
    assert_eq!(victims_of("2", &mut crowded, &[budget("guarded", 0)]), ("a".into(), vec!["free".into()]));
    assert_eq!(victims_of("2", &mut crowded, &[budget("guarded", 1)]), ("a".into(), vec!["guarded".into()]));
    let both = vec!["free".into(), "guarded".into()];
    assert_eq!(victims_of("4", &mut crowded, &[budget("guarded", 0)]), ("a".into(), both), "a budget is no guarantee");
    let mut disrupted = (*budget("guarded", 0)).clone();
    let now = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    disrupted.status.as_mut().unwrap().disrupted_pods = Some([("guarded".to_owned(), now)].into());
    let found = victims_of("2", &mut crowded, &[Arc::new(disrupted)]);
    assert_eq!(found, ("a".into(), vec!["guarded".into()]), "it was counted before");
}

#[test]
fn sc_15_a_node_that_stays_too_full_says_why() {
    let mut crowded =
        cluster(&["a", "b"], vec![("a", pod("high", 200, "3")), ("a", pod("low", 1, "1")), ("b", pod("h", 200, "3"))]);
    let (outcome, message) = attempt(&read(pod("p", 100, "2")), &mut crowded, &[]).unwrap_err();
    assert!(matches!(outcome, Outcome::NoCandidate(_)), "{outcome:?}");
    assert_eq!(
        message,
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: \
         0/2 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod."
    );
}

#[test]
fn sc_16_the_best_node_costs_least() {
    let two = &["a", "b"];
    let best = |pods: Vec<(&str, Value)>, budgets: &[Arc<PodDisruptionBudget>]| {
        let mut crowded = cluster(two, pods);
        let found: Vec<String> = (0..8).map(|_| victims_of("4", &mut crowded, budgets).0).collect();
        assert!(found.iter().all(|node| *node == found[0]), "{found:?}");
        found[0].clone()
    };
    let guarded = [budget("x", 0)];
    assert_eq!(best(vec![("a", pod("x", 1, "4")), ("b", pod("y", 50, "4"))], &guarded), "b", "fewest violations");
    assert_eq!(
        best(vec![("a", pod("x", 9, "4")), ("b", pod("y", 5, "2")), ("b", pod("z", 5, "2"))], &[]),
        "b",
        "lowest highest priority"
    );
    assert_eq!(
        best(
            vec![("a", pod("w", 9, "2")), ("a", pod("x", 3, "2")), ("b", pod("y", 9, "2")), ("b", pod("z", 2, "2"))],
            &[]
        ),
        "b",
        "lowest sum"
    );
    assert_eq!(
        best(vec![("a", pod("w", -9, "2")), ("a", pod("x", -9, "2")), ("b", pod("y", -9, "4"))], &[]),
        "b",
        "fewest victims"
    );
    assert_eq!(
        best(vec![("a", since(pod("x", 1, "4"), 1)), ("b", since(pod("y", 1, "4"), 2))], &[]),
        "b",
        "the youngest"
    );
}

#[test]
fn sc_16_anti_affinity_of_a_victim_is_resolved() {
    let mut shy = pod("shy", 1, "1");
    shy["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "p"}}}]}});
    let mut crowded = cluster(&["a"], vec![("a", shy), ("a", pod("other", 1, "1"))]);
    assert_eq!(victims_of("1", &mut crowded, &[]), ("a".into(), vec!["shy".into()]));
}

#[test]
fn sc_18_the_nominated_node_is_tried_first() {
    let wants = read(pod("p", 100, "1"));
    let mut cluster = cluster(&["a", "b", "c"], vec![("b", pod("other", 1, "3"))]);
    cluster.nominations.set(&Key::of(&wants), Arc::new(wants.clone()), "b");
    for _ in 0..8 {
        assert_eq!(attempt(&wants, &mut cluster, &[]).as_deref().ok(), Some("b"), "though the others are emptier");
    }
    cluster.remove_node("b");
    assert!(attempt(&wants, &mut cluster, &[]).is_ok(), "a node that is gone holds no pod back");
}

#[test]
fn sc_18_the_status_of_a_pod_is_followed() {
    let (key, mut said) = (Key::new(Some("d"), "p"), pod("p", 1, "1"));
    let mut nominations = crate::scheduler::nominations::Nominations::default();
    let mut read_status = |node: Value, set: Option<&str>| {
        said["status"]["nominatedNodeName"] = node;
        let pod = Arc::new(read(said.clone()));
        if let Some(set) = set {
            nominations.set(&key, pod.clone(), set);
        }
        let released = nominations.read(&key, &pod);
        (released, nominations.node_of(&key).map(|node| node.to_string()))
    };
    assert_eq!(read_status(json!(null), Some("a")), (false, Some("a".into())), "decided, and not written yet");
    assert_eq!(read_status(json!("a"), None), (false, Some("a".into())));
    assert_eq!(read_status(json!("b"), None), (true, Some("b".into())), "another one wrote it");
    assert_eq!(read_status(json!(null), None), (true, None), "cleared");
}

#[test]
fn sc_19_room_of_nominated_pods_is_kept_from_pods_that_are_not_more_important() {
    let holder = read(pod("holder", 50, "3"));
    let mut cluster = cluster(&["a"], vec![]);
    cluster.nominations.set(&Key::of(&holder), Arc::new(holder.clone()), "a");
    for (priority, fits) in [(49, false), (50, false), (51, true)] {
        let found = attempt(&read(pod("p", priority, "2")), &mut cluster, &[]);
        assert_eq!(found.is_ok(), fits, "{priority}: {found:?}");
    }
    assert!(attempt(&read(pod("p", 1, "1")), &mut cluster, &[]).is_ok(), "there is room beside it");
    assert!(attempt(&holder, &mut cluster, &[]).is_ok(), "it does not stand in its own way");
    assert_eq!(cluster.node("a").unwrap().taken.cpu, 0);
    let lower = cluster.nominations.below("a", 51);
    assert_eq!(lower.len(), 1);
    assert!(cluster.nominations.below("a", 50).is_empty());
}
