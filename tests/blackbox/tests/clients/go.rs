//! client-go: the programs of tests/go, with the unmodified library and a log of their requests.

use std::process::Command;

use blackbox::{Process, Server, Writer, run, tools};

fn program(server: &Server, name: &str) -> Command {
    let mut command = server.command(tools::installed("bin/go-clients"));
    command.arg(name);
    command
}

#[test]
fn list_watch_prints_names_then_events() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    writer.create("two");
    let mut go = Process::start(program(&server, "listwatch"));
    go.expect(&["one", "two", "watching"]);
    writer.create("three");
    go.expect(&["ADDED : three"]);
    writer.label("one", "app", "web");
    go.expect(&["MODIFIED : one"]);
    writer.delete("two");
    go.expect(&["MODIFIED : two", "DELETED : two"]);
    let (status, rest) = go.terminate();
    assert!(status.success() && rest.is_empty(), "{status} {rest:?}");
}

/// The events of an informer's cache, independent of how it was filled.
fn informer_follows(server: &Server, go: &mut Process) {
    let writer = Writer::new(server);
    writer.create("three");
    go.expect(&["ADDED : three"]);
    writer.label("one", "app", "web");
    go.expect(&["MODIFIED : one app=web"]);
    writer.delete("two");
    go.expect(&["MODIFIED : two ", "DELETED : two, 2 left, <nil>"]);
}

fn informer_starts(server: &Server, watch_list: bool) -> Process {
    let writer = Writer::new(server);
    writer.create("one");
    writer.create("two");
    let mut command = program(server, "informer");
    command.env("KUBE_FEATURE_WatchListClient", watch_list.to_string());
    let mut go = Process::start(command);
    // The lines of the two handlers and the synced line are from different goroutines, so in any order.
    let mut first = [go.line(), go.line(), go.line()];
    first.sort();
    assert_eq!(first, ["INITIAL : one", "INITIAL : two", "synced with 2"]);
    go
}

fn requests(go: &mut Process) -> Vec<String> {
    go.stderr_lines().iter().filter(|line| line.starts_with("request ")).cloned().collect()
}

#[test]
fn shared_informer_with_watch_list() {
    let server = Server::start();
    let mut go = informer_starts(&server, true);
    informer_follows(&server, &mut go);
    let asked = requests(&mut go);
    assert_eq!(asked.len(), 1, "one watch, no list, no falling back: {asked:?}");
    assert!(asked[0].contains("sendInitialEvents=true") && asked[0].ends_with(": 200"), "{asked:?}");
}

#[test]
fn shared_informer_with_list_and_watch() {
    let server = Server::start();
    let mut go = informer_starts(&server, false);
    informer_follows(&server, &mut go);
    let asked = requests(&mut go);
    assert_eq!(asked.len(), 2, "one list, one watch: {asked:?}");
    assert!(!asked[0].contains("watch=true") && asked[1].contains("watch=true"), "{asked:?}");
}

#[test]
fn shared_informer_resumes_after_the_server_was_killed() {
    let mut server = Server::start();
    let mut go = informer_starts(&server, true);
    // client-go treats a watch that ended before its first event as broken, and starts over.
    Writer::new(&server).label("one", "app", "db");
    go.expect(&["MODIFIED : one app=db"]);
    server.kill_and_restart();
    informer_follows(&server, &mut go);
    let fills = requests(&mut go).iter().filter(|line| line.contains("sendInitialEvents")).count();
    assert_eq!(fills, 1, "it goes on from where it was, with no second filling: {:?}", requests(&mut go));
}

#[test]
fn typed_client_walks_an_objects_life() {
    walks_an_objects_life("typed");
}

#[test]
fn typed_client_walks_an_objects_life_in_json() {
    walks_an_objects_life("typedjson");
}

fn walks_an_objects_life(name: &str) {
    let server = Server::start();
    let said = run(program(&server, name), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "created true true red",
            "updated green true",
            "stale update is a conflict true",
            "patched green big",
            "second create already exists true",
            "bad name is invalid true",
            "listed 1",
            "saw MODIFIED green ",
            "saw MODIFIED green big",
            "saw DELETED green big",
            "deleted is not found true",
            "server 1.36",
        ]
    );
}

#[test]
fn dynamic_client_discovers_pages_and_reads_metadata() {
    let server = Server::start();
    let said = run(program(&server, "dynamic"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "mapped to apps/v1, Resource=deployments",
            "item ConfigMap a",
            "item ConfigMap b",
            "page of 2",
            "item ConfigMap c",
            "page of 1",
            "metadata of 3, first a",
        ]
    );
}

#[test]
fn typed_client_applies_and_patches_strategically() {
    let server = Server::start();
    let said = run(program(&server, "apply"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "applied 2 app=app,side=side [owner:Apply]",
            "the same again writes nothing true",
            "another's field is a conflict true [.spec.replicas conflict with \"owner\"]",
            "forced 5 app=app,side=side [scaler:Apply]",
            "extracted replicas false containers 2",
            "left out 5 app=app",
            "strategic app=newer,log=log port [80]",
            "strategic delete app=newer",
            "status 3 spec 5",
        ]
    );
}

/// The libraries of clients can read every document, and its protobuf form equals the reference's own conversion of its
/// JSON form.
#[test]
fn openapi_documents_in_both_forms() {
    let server = Server::start();
    let lines = run(program(&server, "openapi"), "").ok();
    let lines: Vec<&str> = lines.lines().collect();
    let [second, third] = lines[..] else { panic!("{lines:?}") };
    assert!(second.starts_with("version 2: 586 models, ") && second.ends_with(" paths, true"), "{second}");
    assert!(third.starts_with("version 3: 46 documents, 23 group versions, 586 schemas, "), "{third}");
}

#[test]
fn sp_1_sp_4_sp_6_sp_8_client_go_streams_over_spdy_and_websocket() {
    let server = super::with_web();
    let said = run(program(&server, "streams"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "log first second",
            "spdy out err 3",
            "spdy cat typed",
            "websocket out err 3",
            "websocket cat typed",
            "spdy forwarded HTTP/1.1 201 Created",
            "websocket forwarded HTTP/1.1 201 Created",
        ]
    );
}

#[test]
fn wld_7_informers_of_client_go_are_never_wrong_after_a_rewind() {
    let server = Server::start_with(&["--memory", "--lab"]);
    let mut go = Process::start(program(&server, "rewinds"));
    go.expect(&["100 rewinds, never wrong"]);
    assert!(go.end().0.success());
}
