//! The life cycle of the server process: output of `up`, stop, restart, refused starts.

use std::process::Command;

use blackbox::{Process, Server, Writer, run, tools};

#[test]
fn up_says_where_things_are_and_stops_cleanly() {
    let server = Server::start();
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    assert!(server.kubeconfig().is_file());
    let writer = Writer::new(&server);
    writer.create("one");
    server.stop();
}

#[test]
fn a_killed_server_has_everything_it_acknowledged() {
    let mut server = Server::start();
    let writer = Writer::new(&server);
    for number in 0..20 {
        writer.create(&format!("pod-{number:02}"));
    }
    server.kill_and_restart();
    let again = Writer::new(&server);
    assert_eq!(again.names().len(), 20);
    again.delete("pod-00");
    server.kill_and_restart();
    assert_eq!(Writer::new(&server).names().len(), 19);
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let server = Server::start();
    let mut second = Command::new(tools::dogwatch());
    second.args(["up", "--no-controllers", "--listen", "127.0.0.1:0", "--data-dir"]).arg(server.folder().join("data"));
    let refused = run(second, "").refused();
    assert!(!refused.trim().is_empty(), "it says why");
}

#[test]
fn a_taken_port_is_named() {
    let server = Server::start();
    let address = server.url().trim_start_matches("https://").to_owned();
    let mut second = Command::new(tools::dogwatch());
    second
        .args(["up", "--memory", "--no-controllers", "--listen", &address, "--data-dir"])
        .arg(server.folder().join("other"));
    let refused = run(second, "").refused();
    assert!(refused.contains(&address), "{refused}");
}

#[test]
fn a_backup_of_a_running_server_becomes_another_server() {
    let server = Server::start();
    let writer = Writer::new(&server);
    writer.create("kept");
    run(server.dogwatch_command("backup copy.db --data-dir data"), "").ok();
    writer.create("later");
    let again = run(server.dogwatch_command("backup copy.db --data-dir data"), "").refused();
    assert!(again.contains("exists already"), "{again}");

    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let mut restore = Command::new(tools::dogwatch());
    restore.arg("restore").arg(server.folder().join("copy.db")).arg("--data-dir").arg(folder.path().join("data"));
    run(restore, "").ok();
    let other = Server::start_in(folder, &[]);
    assert_eq!(Writer::new(&other).names(), ["kept"]);
    assert_eq!(writer.names(), ["kept", "later"]);
}

#[test]
fn the_small_client_gets_applies_watches_through_a_restart_and_deletes() {
    let mut server = Server::start();
    let manifest = server.folder().join("pod.yaml");
    std::fs::write(
        &manifest,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: app, image: app}]}\n",
    )
    .expect("the folder can be written");
    let mut watch = Process::start(server.dogwatch_command("watch pods"));
    run(server.dogwatch_command("apply -f pod.yaml"), "").ok();
    let listed = run(server.dogwatch_command("get pods"), "").ok();
    assert!(listed.contains("one"), "{listed}");
    watch.line_where("the event of the new pod", |line| line.contains("one"));
    server.kill_and_restart();
    run(server.dogwatch_command("delete pods one"), "").ok();
    watch.line_where("the event of its end", |line| line.contains("DELETED") && line.contains("one"));
    assert!(Writer::new(&server).names().is_empty());
}
