//! What the command of a container means: a script, a server that runs on, or something that is not simulated.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::environment;
use crate::nodes::shell::{Script, is_shell};

/// What a container does once it runs.
#[derive(Debug, Clone)]
pub(in crate::nodes) enum Program {
    Script(Box<Script>),
    /// Runs until it is stopped, also in a pod of a Job.
    Server,
    /// The command of its image: in a pod of a Job it completes, in others it runs.
    OfImage,
    /// The command is not understood, for this reason. The container does what [`Program::OfImage`] does.
    NotSimulated(String),
}

/// Programs that are servers and nothing else.
const SERVERS: [&str; 16] = [
    "nginx",
    "httpd",
    "httpd-foreground",
    "redis-server",
    "memcached",
    "postgres",
    "mysqld",
    "mongod",
    "etcd",
    "caddy",
    "haproxy",
    "envoy",
    "traefik",
    "coredns",
    "prometheus",
    "agnhost",
];

/// Subcommands of `agnhost` that end.
const AGNHOST_ENDS: [&str; 8] = [
    "entrypoint-tester",
    "connect",
    "help",
    "inclusterclient",
    "mounttest",
    "fake-gitserver",
    "dns-suffix",
    "etc-hosts",
];

impl Program {
    pub(in crate::nodes) fn of(pod: &Pod, container: &Container) -> Self {
        let command = environment::expanded(pod, container, container.command.as_deref().unwrap_or_default());
        let args = environment::expanded(pod, container, container.args.as_deref().unwrap_or_default());
        let image = image_name(container);
        let first = command.first().or(args.first()).map(String::as_str).unwrap_or_default();
        if image == "agnhost" || base(first) == "agnhost" {
            return agnhost(if command.is_empty() { &args } else { command.get(1..).unwrap_or(&args) });
        }
        if command.is_empty() && args.is_empty() {
            return if image == "pause" { Program::Server } else { Program::OfImage };
        }
        let words: Vec<String> = command.iter().chain(&args).cloned().collect();
        if SERVERS.contains(&base(first)) {
            return Program::Server;
        }
        // A shell that waits for what is typed.
        let interactive = container.stdin == Some(true) || container.tty == Some(true);
        if interactive && is_shell(first) && !words.iter().any(|word| word.starts_with('-') && word.ends_with('c')) {
            return Program::Server;
        }
        match Script::of(&words) {
            Ok(script) => Program::Script(Box::new(script)),
            // The words of an image's own command, such as flags of a server.
            Err(_) if command.is_empty() && !is_shell(first) => Program::OfImage,
            Err(why) => Program::NotSimulated(why),
        }
    }

    /// True if it runs on in a pod of a Job.
    pub(in crate::nodes) fn runs_on(&self) -> bool {
        matches!(self, Program::Server | Program::Script(_))
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `registry.k8s.io/e2e-test-images/agnhost:2.53` is `agnhost`.
pub(in crate::nodes) fn image_name(container: &Container) -> &str {
    let image = container.image.as_deref().unwrap_or_default();
    base(image.split('@').next().unwrap_or_default()).split(':').next().unwrap_or_default()
}

/// Words that people give to an image of which they want to see that it cannot be pulled.
const NO_IMAGE: [&str; 4] = ["non-existent", "nonexistent", "does-not-exist", "doesnotexist"];

/// False for an image whose name or tag says that it does not exist.
pub(in crate::nodes) fn image_exists(container: &Container) -> bool {
    let image = container.image.as_deref().unwrap_or_default();
    !base(image).split([':', '@']).any(|part| NO_IMAGE.contains(&part))
}

fn agnhost(words: &[String]) -> Program {
    let Some(subcommand) = words.first() else { return Program::Server };
    let script = match subcommand.as_str() {
        "entrypoint-tester" => {
            let mut echo: Vec<String> = ["echo", "[/agnhost"].map(str::to_owned).to_vec();
            echo.extend_from_slice(words);
            if let Some(last) = echo.last_mut() {
                last.push(']');
            }
            echo
        }
        "logs-generator" => logs_generator(words),
        _ => Vec::new(),
    };
    if !script.is_empty() {
        return Script::of(&script).map_or(Program::Server, |script| Program::Script(Box::new(script)));
    }
    if AGNHOST_ENDS.contains(&subcommand.as_str()) {
        return Program::NotSimulated(format!("`agnhost {subcommand}`"));
    }
    Program::Server
}

/// Writes so many lines in a time, at an even pace.
fn logs_generator(words: &[String]) -> Vec<String> {
    let value = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1);
    let lines = value("--log-lines-total").and_then(|lines| lines.parse::<u32>().ok()).unwrap_or(0);
    let seconds = value("--run-duration").and_then(|time| time.strip_suffix('s')?.parse::<f64>().ok()).unwrap_or(0.0);
    let pause = if lines == 0 { 0.0 } else { seconds / f64::from(lines) };
    let line = "GET /api/v1/namespaces/kube-system/pods/generated";
    let text =
        format!("i=0; while [ $i -lt {lines} ]; do sleep {pause:.3}; echo \"$i {line}-$i 200\"; i=$((i+1)); done");
    ["sh", "-c", &text].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(container: Value) -> &'static str {
        let container: Container = serde_json::from_value(container).unwrap();
        match Program::of(&Pod::default(), &container) {
            Program::Script(_) => "script",
            Program::Server => "server",
            Program::OfImage => "image",
            Program::NotSimulated(_) => "not simulated",
        }
    }

    #[test]
    fn images_that_say_so_do_not_exist() {
        let exists = |image: &str| image_exists(&serde_json::from_value(json!({"name": "c", "image": image})).unwrap());
        assert!(!exists("foo:non-existent") && !exists("registry.example/team/does-not-exist@sha256:1"));
        assert!(exists("nginx") && exists("non-existent/nginx:1") && exists("finds-nonexistent-things:2"));
    }

    #[test]
    fn cmd_6_images_of_the_conformance_tests_are_known() {
        for (container, expected) in [
            (json!({"name": "c", "image": "registry.k8s.io/pause:3.10"}), "server"),
            (json!({"name": "c", "image": "registry.k8s.io/e2e-test-images/agnhost:2.53"}), "server"),
            (json!({"name": "c", "image": "r/agnhost:2", "args": ["netexec", "--http-port=80"]}), "server"),
            (json!({"name": "c", "image": "r/agnhost:2", "command": ["/agnhost", "serve-hostname"]}), "server"),
            (json!({"name": "c", "image": "r/agnhost:2", "args": ["entrypoint-tester", "a"]}), "script"),
            (
                json!({"name": "c", "image": "r/agnhost:2", "args": ["logs-generator", "--log-lines-total", "3"]}),
                "script",
            ),
            (json!({"name": "c", "image": "nginx"}), "image"),
            (json!({"name": "c", "image": "nginx", "command": ["nginx", "-g", "daemon off;"]}), "server"),
            (json!({"name": "c", "image": "busybox", "args": ["sleep", "5"]}), "script"),
            (json!({"name": "c", "image": "busybox", "command": ["sh", "-c"], "args": ["exit 1"]}), "script"),
            (json!({"name": "c", "image": "busybox", "args": ["sh"], "stdin": true}), "server"),
            (json!({"name": "c", "image": "busybox", "args": ["sh"]}), "script"),
            (json!({"name": "c", "image": "prom/prometheus", "args": ["--config.file=x"]}), "image"),
            (json!({"name": "c", "image": "perl", "command": ["perl", "-e", "1"]}), "not simulated"),
            (json!({"name": "c", "image": "app", "command": ["sh", "-c", "node server.js"]}), "not simulated"),
        ] {
            assert_eq!(of(container.clone()), expected, "{container}");
        }
    }
}
