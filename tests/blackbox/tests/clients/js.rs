//! The official JavaScript client: the programs of tests/js.

use std::process::Command;

use blackbox::{Process, Server, Writer, run, tools};

fn program(server: &Server, name: &str) -> Command {
    let script = tools::tests().join("js/clients.js");
    assert!(script.with_file_name("node_modules").exists(), "run the tests with `cargo xtask test`");
    let mut command = server.command("node");
    command.arg(script).arg(name);
    command
}

#[test]
fn list_then_watch_prints_names_then_events() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let mut js = Process::start(program(&server, "listThenWatch"));
    js.expect(&["one"]);
    // `watch()` resolves with the head of the response, and the first event may arrive with it.
    js.expect(&["watching"]);
    writer.create("two");
    js.expect(&["ADDED : two"]);
    writer.label("one", "app", "web");
    js.expect(&["MODIFIED : one"]);
    writer.delete("two");
    js.expect(&["MODIFIED : two", "DELETED : two"]);
}

#[test]
fn informer_follows() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let mut js = Process::start(program(&server, "informer"));
    js.line_where("the start of the informer", |line| line == "started with 1");
    writer.create("two");
    js.expect(&["ADDED : two"]);
    writer.label("one", "app", "web");
    js.expect(&[r#"MODIFIED : one {"app":"web"}"#]);
    writer.delete("two");
    js.expect(&["MODIFIED : two {}", "DELETED : two, 1 left"]);
}

#[test]
fn client_walks_an_objects_life() {
    let server = Server::start();
    let said = run(program(&server, "write"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "created one Always Pending",
            r#"patched {"app":"web"}"#,
            "second create 409 AlreadyExists",
            "read after delete 404 NotFound",
        ]
    );
}

#[test]
fn sp_5_sp_6_client_streams_commands_and_ports() {
    let server = super::with_web();
    let said = run(program(&server, "streams"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        ["log first second", "exec out err Failure 3", "cat typed Success", "forwarded HTTP/1.1 201 Created"]
    );
}
