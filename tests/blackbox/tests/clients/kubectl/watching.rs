//! kubectl get -w, wait and proxy: each line appears when the change happens.

use blackbox::{Process, Server, Writer};

use super::{cells, create_pods};

#[test]
fn get_watch_prints_each_change() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let mut watch = Process::start(server.kubectl_command("get pods -w --output-watch-events"));
    assert_eq!(cells(&watch.line()), ["EVENT", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    let mut next = |wanted: [&str; 4]| {
        let line = watch.line();
        assert_eq!(cells(&line)[..4], wanted, "{line}");
    };
    next(["ADDED", "one", "0/1", "Pending"]);
    writer.create("two");
    next(["ADDED", "two", "0/1", "Pending"]);
    writer.label("one", "app", "web");
    next(["MODIFIED", "one", "0/1", "Pending"]);
    writer.delete("one");
    next(["MODIFIED", "one", "0/1", "Terminating"]);
    next(["DELETED", "one", "0/1", "Terminating"]);
}

#[test]
fn get_watch_of_an_empty_place_starts_with_its_first_object() {
    let server = Server::start();
    let writer = Writer::new(&server);
    // The first pod appears once, with the list or with the watch.
    let mut watch = Process::start(server.kubectl_command("get pods -A -w -o name"));
    writer.create("one");
    assert_eq!(watch.line(), "pod/one");
    writer.create("two");
    assert_eq!(watch.line(), "pod/two");
}

#[test]
fn get_watch_with_a_selector_sees_objects_come_and_go() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    writer.create("two");
    writer.label("two", "app", "web");
    let mut watch = Process::start(server.kubectl_command("get pods -w -l app=web --output-watch-events --no-headers"));
    let mut next = |wanted: [&str; 2]| {
        let line = watch.line();
        assert_eq!(cells(&line)[..2], wanted, "{line}");
    };
    next(["ADDED", "two"]);
    writer.label("one", "app", "web");
    next(["ADDED", "one"]);
    writer.label("two", "app", "db");
    next(["DELETED", "two"]);
    writer.delete("one");
    next(["MODIFIED", "one"]);
    next(["DELETED", "one"]);
}

#[test]
fn get_watch_as_json_and_of_one_object() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let mut watch = Process::start(server.kubectl_command("get pod one -w -o 'jsonpath={.metadata.labels}{\"\\n\"}'"));
    assert_eq!(watch.line(), "");
    writer.create("two");
    writer.label("one", "app", "web");
    assert_eq!(watch.line(), r#"{"app":"web"}"#);
}

#[test]
fn wait_for_delete_and_for_a_field() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let mut waiting = Process::start(server.kubectl_command("wait --for=delete pod/one --timeout=60s -v=6"));
    // It has to wait before the pod is deleted; otherwise there is nothing to wait for.
    waiting.stderr_line_where("the watch of wait", |line| line.contains("watch=true") && line.contains("200"));
    writer.delete("one");
    assert_eq!(waiting.line(), "pod/one condition met");
    assert!(waiting.end().0.success());

    writer.create("two");
    let field = "wait pod/two --for='jsonpath={.metadata.labels.app}=web' --timeout=60s -v=6";
    let mut waiting = Process::start(server.kubectl_command(field));
    waiting.stderr_line_where("the watch of wait", |line| line.contains("watch=true") && line.contains("200"));
    writer.label("two", "app", "web");
    assert_eq!(waiting.line(), "pod/two condition met");

    let late = server.kubectl("wait --for=delete pod/two --timeout=1s").refused();
    assert!(late.contains("timed out waiting for the condition on pods/two"), "{late}");
}

#[test]
fn delete_waits_until_the_object_is_gone() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    server.kubectl(r#"patch pod one --type=merge -p '{"metadata":{"finalizers":["test/hold"]}}'"#).ok();
    let mut deleting = Process::start(server.kubectl_command("delete pod one"));
    let said = deleting.line();
    assert!(said.starts_with(r#"pod "one" deleted"#), "{said}");
    let marked = server.kubectl("get pod one -o 'jsonpath={.metadata.deletionTimestamp}'").ok();
    assert!(!marked.is_empty(), "a pod with a finalizer is only marked");
    server.kubectl(r#"patch pod one --type=merge -p '{"metadata":{"finalizers":null}}'"#).ok();
    assert!(deleting.end().0.success());
    server.kubectl("get pod one").refused();
}

#[test]
fn proxy_serves_the_api_in_the_clear() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    let mut proxy = Process::start(server.kubectl_command("proxy --port=0"));
    let line = proxy.line();
    let address = line.strip_prefix("Starting to serve on ").expect("the line has the address");
    let list = server.kubectl(&format!("--server=http://{address} get pods -o name")).ok();
    assert_eq!(list, "pod/one\n");
}
