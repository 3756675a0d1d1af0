//! kubectl with what containers say: logs, exec, attach, cp, port-forward, over WebSocket and over SPDY.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use blackbox::process::DEADLINE;
use blackbox::{Process, Server, run};

/// A server with a running pod `web`, whose container `app` declares port 80.
fn with_web(annotations: &str) -> Server {
    let server = Server::with_controllers(&["--memory"]);
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations: {{{annotations}}}\nspec:\n  \
         containers: [{{name: app, image: nginx, ports: [{{containerPort: 80}}]}}]\n"
    );
    server.kubectl_with("create -f -", &pod).ok();
    server.kubectl("wait --for=condition=Ready pod/web --timeout=60s").ok();
    server
}

/// A kubectl that speaks SPDY, as older ones do.
fn over_spdy(server: &Server, line: &str) -> Command {
    let mut command = server.kubectl_command(line);
    command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false").env("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false");
    command
}

#[test]
fn lg_1_lg_2_logs_are_selected() {
    let server = with_web("");
    let all = server.kubectl("logs web").ok();
    assert!(all.starts_with("container app of pod web started"), "{all}");
    assert!(all.contains("listening on port 80\n"), "{all}");
    assert_eq!(server.kubectl("logs web --tail=1 --limit-bytes=3").ok().len(), 3);
    let stamped = server.kubectl("logs web --timestamps --all-containers --since=1h --tail=1").ok();
    assert!(stamped.starts_with("20") && stamped.contains(".000000000Z "), "{stamped}");
    assert_eq!(server.kubectl("logs web --since-time=2999-01-01T00:00:00Z").ok(), "");
    let refused = server.kubectl("logs web --previous").refused();
    assert!(refused.contains("previous terminated container \"app\" in pod \"web\" not found"), "{refused}");
    let refused = server.kubectl("logs web -c other").refused();
    assert!(refused.contains("container other is not valid for pod web"), "{refused}");
}

#[test]
fn lg_5_lg_6_prescribed_logs_are_followed_until_the_pod_is_deleted() {
    let server = with_web("nodes.dogwatch/logs: \"first\\nsecond\\n\"");
    let mut following = Process::start(server.kubectl_command("logs -f web"));
    following.expect(&["first", "second"]);
    server.kubectl("delete pod web --now").ok();
    let (status, rest) = following.end();
    assert!(status.success() && rest.is_empty(), "{status} {rest:?}");
}

#[test]
fn lg_4_the_previous_instance_has_its_own_log() {
    let server = Server::with_controllers(&["--memory"]);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: crash\n  annotations: {nodes.dogwatch/exit-after: 100ms, \
               nodes.dogwatch/exit-code: \"3\"}\nspec:\n  containers: [{name: app, image: nginx}]\n";
    server.kubectl_with("create -f -", pod).ok();
    let restarted = "wait --for=jsonpath={.status.containerStatuses[0].restartCount}=1 pod/crash --timeout=60s";
    server.kubectl(restarted).ok();
    let before = server.kubectl("logs crash --previous").ok();
    assert!(before.ends_with("exited with code 3\n"), "{before}");
}

#[test]
fn lg_3_a_pod_that_cannot_start_has_no_log() {
    let server = Server::with_controllers(&["--memory"]);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: stuck\n  annotations: {nodes.dogwatch/image-pull: fail}\n\
               spec:\n  containers: [{name: app, image: nginx}]\n";
    server.kubectl_with("create -f -", pod).ok();
    let waiting = "wait --for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ImagePullBackOff pod/stuck --timeout=60s";
    server.kubectl(waiting).ok();
    let refused = server.kubectl("logs stuck").refused();
    let why = "container \"app\" in pod \"stuck\" is waiting to start: trying and failing to pull image";
    assert!(refused.contains("(BadRequest)") && refused.contains(why), "{refused}");
    let refused = server.kubectl("exec stuck -- true").refused();
    assert!(refused.contains("container not found (\"app\")"), "{refused}");
}

#[test]
fn cs_2_cs_3_sp_5_sp_6_commands_run_over_websocket() {
    let server = with_web("nodes.dogwatch/exec: \"[{command: [nginx, -v], stderr: nginx/1.27, exit: 0}]\"");
    assert_eq!(server.kubectl("exec web -- echo hello").ok(), "hello\n");
    assert_eq!(run(server.kubectl_command("exec web -- nginx -v"), "").stderr, "nginx/1.27");
    let mut failing = server.kubectl_command("exec web --");
    failing.args(["sh", "-c", "echo out; echo err >&2; exit 7"]);
    let failed = run(failing, "");
    assert_eq!((failed.stdout.as_str(), failed.code), ("out\n", Some(7)));
    assert!(failed.stderr.contains("err\n") && failed.stderr.contains("command terminated with exit code 7"));
    // The end of the input reaches the command.
    assert_eq!(server.kubectl_with("exec -i web -- cat", "from here\n").ok(), "from here\n");
    assert_eq!(server.kubectl_with("exec -i web -- sh", "cd /tmp\npwd\nexit 0\n").ok(), "/tmp\n");
    let refused = server.kubectl("exec web -c other -- true").refused();
    assert!(refused.contains("container other is not valid for pod web"), "{refused}");
}

#[test]
fn sp_1_sp_3_sp_4_commands_run_over_spdy() {
    let server = with_web("");
    assert_eq!(run(over_spdy(&server, "exec web -- echo hello"), "").ok(), "hello\n");
    assert_eq!(run(over_spdy(&server, "exec -i web -- cat"), "from here\n").ok(), "from here\n");
    let mut failing = over_spdy(&server, "exec web --");
    failing.args(["sh", "-c", "exit 7"]);
    let failed = run(failing, "");
    assert_eq!(failed.code, Some(7));
    assert!(failed.stderr.contains("command terminated with exit code 7"), "{}", failed.stderr);
}

#[test]
fn at_1_attached_clients_see_the_log_and_the_end() {
    let server = with_web("nodes.dogwatch/logs: \"first\\nsecond\\n\"");
    for command in [server.kubectl_command("attach web"), over_spdy(&server, "attach web")] {
        let mut attached = Process::start(command);
        attached.expect(&["first", "second"]);
        attached.kill();
    }
    let mut attached = Process::start(server.kubectl_command("attach web"));
    attached.expect(&["first", "second"]);
    server.kubectl("delete pod web --now").ok();
    assert!(attached.end().0.success());
}

#[test]
fn cp_1_files_are_copied_in_and_out() {
    let server = with_web("");
    let folder = server.folder().join("files");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.txt"), "hello\n").unwrap();
    let local = folder.display();
    server.kubectl(&format!("cp {local}/a.txt web:/tmp/b.txt")).ok();
    assert_eq!(server.kubectl("exec web -- cat /tmp/b.txt").ok(), "hello\n");
    server.kubectl(&format!("cp {local} web:/tmp/all")).ok();
    assert_eq!(server.kubectl("exec web -- ls /tmp/all").ok(), "a.txt\n");
    server.kubectl(&format!("cp web:/tmp/b.txt {local}/c.txt")).ok();
    assert_eq!(fs::read_to_string(folder.join("c.txt")).unwrap(), "hello\n");
    let missing = server.kubectl(&format!("cp web:/tmp/missing {local}/d.txt"));
    // kubectl shows what tar complains of as its own output.
    let shown = format!("{}{}", missing.stdout, missing.stderr);
    assert!(!missing.success && shown.contains("No such file or directory"), "{shown}");
}

/// Sends a request through a forwarded port, and returns the response.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// The local port of the line that kubectl prints.
fn forwarded(forwarding: &mut Process) -> u16 {
    let line = forwarding.line_where("the forwarded port", |line| line.starts_with("Forwarding from 127.0.0.1:"));
    let port = line.trim_start_matches("Forwarding from 127.0.0.1:").split(' ').next().unwrap();
    port.parse().unwrap()
}

#[test]
fn pf_2_pf_3_pf_4_sp_7_sp_8_ports_are_forwarded() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 5];
            let _ = stream.read_exact(&mut request);
            let _ = stream.write_all(b"a program of this host");
        }
    });
    let rules = format!(
        "nodes.dogwatch/port-forward: \"{{8080: {{http: {{status: 201, body: made}}}}, 5432: {{target: '{target}'}}}}\""
    );
    let server = with_web(&rules);
    let lines = |port: u16| {
        [
            server.kubectl_command(&format!("port-forward web :{port}")),
            over_spdy(&server, &format!("port-forward web :{port}")),
        ]
    };
    for command in lines(8080) {
        let mut forwarding = Process::start(command);
        let port = forwarded(&mut forwarding);
        for _ in 0..3 {
            let response = get(port, "/");
            assert!(response.starts_with("HTTP/1.1 201 Created\r\n") && response.ends_with("made"), "{response}");
        }
        forwarding.kill();
    }
    for command in lines(5432) {
        let mut forwarding = Process::start(command);
        let port = forwarded(&mut forwarding);
        assert_eq!(get(port, "/"), "a program of this host");
        forwarding.kill();
    }
    let mut forwarding = Process::start(server.kubectl_command("port-forward web :80"));
    let port = forwarded(&mut forwarding);
    assert!(get(port, "/").contains("pod web, port 80 (simulated"));
    forwarding.kill();
    let mut forwarding = Process::start(server.kubectl_command("port-forward web :81"));
    let port = forwarded(&mut forwarding);
    let _ = TcpStream::connect(("127.0.0.1", port)).unwrap();
    forwarding.stderr_line_where("the refused port", |line| line.contains("connection refused"));
    forwarding.kill();
}

#[test]
fn pf_1_targets_outside_this_host_are_refused() {
    let server = with_web("nodes.dogwatch/port-forward: \"{80: {target: '192.0.2.1:80'}}\"");
    let mut forwarding = Process::start(server.kubectl_command("port-forward web :80"));
    let port = forwarded(&mut forwarding);
    let _ = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let why = "192.0.2.1:80 is not an address of the loopback interface";
    forwarding.stderr_line_where("the refused target", |line| line.contains(why));
    forwarding.kill();
}
