//! The official Python client: the programs of tests/python.

use std::process::Command;

use blackbox::{Process, Server, Writer, run, tools};

fn program(server: &Server, name: &str) -> Command {
    let mut command = server.command(tools::installed("python/bin/python"));
    command.arg(tools::tests().join("python/clients.py")).arg(name);
    command
}

#[test]
fn watch_stream_prints_events() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let mut python = Process::start(program(&server, "watch"));
    python.expect(&["ADDED : one"]);
    writer.create("two");
    python.expect(&["ADDED : two"]);
    writer.label("one", "app", "web");
    python.expect(&["MODIFIED : one"]);
    writer.delete("one");
    python.expect(&["MODIFIED : one", "DELETED : one"]);
}

#[test]
fn list_then_watch_with_a_selector() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("one");
    let mut python = Process::start(program(&server, "list_then_watch"));
    python.expect(&["one", "watching"]);
    writer.create("two");
    writer.label("two", "app", "web");
    python.expect(&["ADDED : two"]);
    writer.label("two", "app", "db");
    python.expect(&["DELETED : two"]);
}

#[test]
fn timed_watch_ends_by_itself() {
    let server = Server::start();
    assert_eq!(run(program(&server, "timed"), "").ok(), "True True\n");
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
            "patched {'app': 'web'}",
            "second create 409 Conflict",
            "read after delete 404 Not Found",
            "server 36",
        ]
    );
}

#[test]
fn client_patches_in_every_way() {
    let server = Server::start();
    let said = run(program(&server, "patch"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "strategic ['app=app', 'side=newer']",
            "merge ['side=newer']",
            "json ['side=newest']",
            "scale 4 4",
            "status 4",
            "failed test 422",
        ]
    );
}

#[test]
fn client_applies_on_the_server() {
    let server = Server::start();
    let said = run(program(&server, "apply"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "one {'colour': 'red', 'size': 'big'} ['one']",
            "two {'colour': 'red', 'shape': 'round', 'size': 'big'} ['one', 'two']",
            "conflict 409 ['.data.colour']",
            "two {'colour': 'green', 'size': 'big'} ['one', 'two']",
            "one {'colour': 'green'} ['one', 'two']",
        ]
    );
}

#[test]
fn sp_5_sp_9_client_streams_logs_commands_and_ports() {
    let server = super::with_web();
    let said = run(program(&server, "streams"), "").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "log second",
            "followed first",
            "exec out err 3",
            "shell typed",
            "shell ended 0",
            "forwarded HTTP/1.1 201 Created made None",
            "refused 0",
        ]
    );
}
