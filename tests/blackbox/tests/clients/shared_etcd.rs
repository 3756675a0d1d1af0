//! Two servers on one etcd: both are stateless, so that either can be lost.

use std::collections::BTreeSet;
use std::time::Duration;

use blackbox::{Etcd, Process, Server, Wire, Writer};
use serde_json::json;

fn two_servers(etcd: &Etcd) -> (Server, Server) {
    (Server::start_with(&["--etcd", etcd.url()]), Server::start_with(&["--etcd", etcd.url()]))
}

#[test]
fn a_write_through_one_is_seen_by_watchers_of_the_other() {
    let etcd = Etcd::start();
    let (first, second) = two_servers(&etcd);
    let (here, there) = (Writer::new(&first), Writer::new(&second));
    here.create("one");
    assert_eq!(there.names(), ["one"], "a list is fresh, whichever server took the write");
    let mut watch = Process::start(second.kubectl_command("get pods -w -o name"));
    watch.expect(&["pod/one"]);
    here.create("two");
    watch.expect(&["pod/two"]);
    there.create("three");
    watch.expect(&["pod/three"]);
    here.label("three", "app", "web");
    watch.expect(&["pod/three"]);
    assert_eq!(here.names(), ["one", "three", "two"]);
}

#[test]
fn a_new_server_continues_where_a_killed_one_was() {
    let etcd = Etcd::start();
    let (first, second) = two_servers(&etcd);
    let writer = Writer::new(&first);
    for number in 0..10 {
        writer.create(&format!("pod-{number}"));
    }
    drop(first);
    assert_eq!(Writer::new(&second).names().len(), 10);
    let third = Server::start_with(&["--etcd", etcd.url()]);
    assert_eq!(Writer::new(&third).names().len(), 10);
}

/// A fixed address and port are free again on every server as soon as their service is deleted, through whichever server.
#[tokio::test]
async fn an_address_that_one_server_releases_can_be_assigned_by_the_other() {
    let etcd = Etcd::start();
    let (first, second) = two_servers(&etcd);
    let (a, b) = (Wire::to(&first), Wire::to(&second));
    let services = "/api/v1/namespaces/default/services";
    let ports = json!([{"port": 80, "nodePort": 30123}]);
    let service = |name: &str| {
        json!({"metadata": {"name": name},
            "spec": {"type": "NodePort", "clusterIP": "10.96.10.10", "ports": ports}})
    };
    // A list without a revision waits until the server has seen every write of the other one.
    let catch_up = async |wire: &Wire| drop(wire.get(services).send().await.expect(200));
    for round in 0..3 {
        let created = a.post(services, &service("fixed")).send().await.expect(201);
        let assigned = (&created["spec"]["clusterIP"], &created["spec"]["ports"][0]["nodePort"]);
        assert_eq!(assigned, (&json!("10.96.10.10"), &json!(30123)), "round {round}");

        catch_up(&b).await;
        let status = b.post(services, &service("another")).send().await.refused(422, "Invalid");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains("provided IP is already allocated"), "round {round}: {status}");
        b.delete(format!("{services}/fixed")).send().await.expect(200);
        catch_up(&a).await;
    }
    b.post(services, &service("another")).send().await.expect(201);
}

/// The holder of the leader lease, when it acquired the lease, and when it last renewed it.
fn leader(server: &Server) -> (String, String, String) {
    let what = "get lease -n kube-system kube-controller-manager -o \
                'jsonpath={.spec.holderIdentity} {.spec.acquireTime} {.spec.renewTime}'";
    let printed = server.kubectl(what).ok();
    let mut words = printed.split_whitespace().map(str::to_owned);
    let mut next = || words.next().unwrap_or_default();
    (next(), next(), next())
}

#[test]
fn when_the_server_that_runs_the_controllers_is_killed_the_other_takes_over_and_repeats_nothing() {
    let etcd = Etcd::start();
    let flags = ["--etcd", etcd.url(), "--nodes", "2"];
    let first = Server::with_controllers(&flags);
    first.kubectl("wait --for=create node/node-1 node/node-2 --timeout=60s").ok();
    first.kubectl("wait --for=condition=Ready node/node-1 node/node-2 --timeout=60s").ok();
    let second = Server::with_controllers(&flags);
    second.kubectl("create deployment web --image=nginx --replicas=3").ok();
    second.kubectl("rollout status deployment/web --timeout=60s").ok();
    let names = |server: &Server| -> BTreeSet<String> {
        let printed = server.kubectl("get pods -o name").ok();
        printed.split_whitespace().map(str::to_owned).collect()
    };
    let before = names(&second);
    assert_eq!(before.len(), 3);
    let (killed, _, last_renewal) = leader(&second);
    drop(first);
    second.kubectl("scale deployment/web --replicas=5").ok();
    second.kubectl("rollout status deployment/web --timeout=90s").ok();
    let (leads, since, _) = leader(&second);
    assert_ne!(leads, killed);
    let time = |text: &str| text.parse::<jiff::Timestamp>().expect("a time");
    // The killed one may have renewed the lease once more after it was read.
    let gap = time(&since).duration_since(time(&last_renewal));
    assert!(gap.unsigned_abs() <= Duration::from_secs(20), "{last_renewal} to {since}");

    let after = names(&second);
    assert!(after.is_superset(&before), "the running pods keep running: {before:?} {after:?}");
    assert_eq!(after.len(), 5, "exactly five");
    assert_eq!(second.kubectl("get replicasets -o name").ok().lines().count(), 1);
    let made = "get events --field-selector reason=SuccessfulCreate -o 'jsonpath={.items[*].message}'";
    let printed = second.kubectl(made).ok();
    let created: Vec<&str> = printed.split("Created pod: ").map(str::trim).filter(|name| !name.is_empty()).collect();
    let distinct: BTreeSet<&str> = created.iter().copied().collect();
    assert_eq!((created.len(), distinct.len()), (5, 5), "each pod was created once: {created:?}");
    second.stop();
}
