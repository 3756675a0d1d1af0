//! Two servers on one etcd: stateless beside each other, so that either can be lost.

use blackbox::{Etcd, Process, Server, Writer};

fn two_servers(etcd: &Etcd) -> (Server, Server) {
    (Server::start_with(&["--etcd", etcd.url()]), Server::start_with(&["--etcd", etcd.url()]))
}

#[test]
fn a_write_through_one_is_seen_by_watchers_of_the_other() {
    let etcd = Etcd::start();
    let (first, second) = two_servers(&etcd);
    let (here, there) = (Writer::new(&first), Writer::new(&second));
    here.create("one");
    assert_eq!(there.names(), ["one"], "a list is fresh, whoever wrote");
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
