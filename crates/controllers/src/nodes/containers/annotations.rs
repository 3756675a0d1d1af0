//! The rules in the annotations of a pod: `logs`, `exec` and `port-forward`, in YAML.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::Value;

use super::rules::{CommandPattern, ExecResult, ExecRule, ForwardRule, LogContent, LogRule, PodRules, PortAnswer};
use crate::nodes::behaviour::PREFIX;

/// Names of the annotations, without their prefix.
pub(in crate::nodes) const LOGS: &str = "logs";
pub(in crate::nodes) const EXEC: &str = "exec";
pub(in crate::nodes) const PORT_FORWARD: &str = "port-forward";

impl PodRules {
    /// The rules in the annotations of a pod. One that cannot be read applies to everything that it could be about, and
    /// fails with the reason, so that its author sees it.
    #[must_use]
    pub fn of_annotations(pod: &Pod) -> Self {
        let mut rules = PodRules::default();
        let annotation = |name: &str| pod.metadata.annotations.as_ref()?.get(&format!("{PREFIX}{name}"));
        if let Some(text) = annotation(LOGS) {
            let rule = LogRule { containers: Vec::new(), log: LogContent::Text(text.clone()), follows: false };
            rules.attaches.push(rule.clone());
            rules.logs.push(rule);
        }
        if let Some(text) = annotation(EXEC) {
            rules.execs = read_execs(text).unwrap_or_else(|why| {
                let result = ExecResult::Refused(format!("annotation {PREFIX}{EXEC}: {why}"));
                vec![ExecRule { result, ..ExecRule::default() }]
            });
        }
        if let Some(text) = annotation(PORT_FORWARD) {
            rules.forwards = read_forwards(text).unwrap_or_else(|why| {
                let answer = PortAnswer::Refused(format!("annotation {PREFIX}{PORT_FORWARD}: {why}"));
                vec![ForwardRule { ports: Vec::new(), answer }]
            });
        }
        rules
    }
}

fn yaml(text: &str) -> Result<Value, String> {
    let document = machinery::yaml::read(text.as_bytes()).map_err(|error| error.to_string())?;
    serde_json::to_value(&document.value).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecEntry {
    #[serde(default)]
    container: Option<String>,
    #[serde(default)]
    command: Option<CommandEntry>,
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
    #[serde(default)]
    exit: i32,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CommandEntry {
    Words(Vec<String>),
    Text(String),
}

/// Reads `[{command: …, stdout: …, stderr: …, exit: 0}]`.
pub(in crate::nodes) fn read_execs(text: &str) -> Result<Vec<ExecRule>, String> {
    let entries: Vec<ExecEntry> = serde_json::from_value(yaml(text)?).map_err(|error| error.to_string())?;
    let rule = |entry: ExecEntry| {
        if !(0..=255).contains(&entry.exit) {
            return Err(format!("exit: {} should be 0 to 255", entry.exit));
        }
        Ok(ExecRule {
            containers: entry.container.into_iter().collect(),
            command: entry.command.map(|command| match command {
                CommandEntry::Words(words) => CommandPattern::Words(words),
                CommandEntry::Text(text) => CommandPattern::Text(text),
            }),
            result: ExecResult::Fixed { stdout: entry.stdout, stderr: entry.stderr, exit: entry.exit },
        })
    };
    entries.into_iter().map(rule).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardEntry {
    #[serde(default)]
    target: Option<String>,
    #[serde(default)]
    http: Option<HttpEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpEntry {
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
}

const fn ok() -> u16 {
    200
}

/// Reads `{80: {target: 127.0.0.1:9000}, 8080: {http: {status: 200, body: …}}}`.
pub(in crate::nodes) fn read_forwards(text: &str) -> Result<Vec<ForwardRule>, String> {
    let entries: BTreeMap<String, ForwardEntry> =
        serde_json::from_value(yaml(text)?).map_err(|error| error.to_string())?;
    let rule = |(port, entry): (String, ForwardEntry)| {
        let ports = match port.as_str() {
            "*" => Vec::new(),
            port => vec![port.parse().map_err(|_| format!("{port:?} is not a port"))?],
        };
        let answer = match (entry.target, entry.http) {
            (Some(target), None) => PortAnswer::Target(loopback(&target)?),
            (None, Some(http)) if (100..=599).contains(&http.status) => {
                PortAnswer::Http { status: http.status, headers: http.headers, body: http.body }
            }
            (None, Some(http)) => return Err(format!("{} is not a status of HTTP", http.status)),
            _ => return Err(format!("port {port} needs either `target` or `http`")),
        };
        Ok(ForwardRule { ports, answer })
    };
    // The rule for all ports is the last.
    let mut rules: Vec<ForwardRule> = entries.into_iter().map(rule).collect::<Result<_, String>>()?;
    rules.sort_by_key(|rule| rule.ports.is_empty());
    Ok(rules)
}

/// An address that only programs of this host can listen on.
pub(in crate::nodes) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let address: SocketAddr = address.parse().map_err(|_| format!("{text:?} is not an address and a port"))?;
    if address.ip().is_loopback() && address.port() > 0 {
        Ok(address)
    } else {
        Err(format!("{text} is not an address of the loopback interface"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cs_2_commands_are_prescribed_by_an_annotation() {
        let rules =
            read_execs("[{command: [cat, /etc/motd], stdout: hi}, {command: 'ls *', exit: 2, container: c}]").unwrap();
        assert_eq!(rules[0].command, Some(CommandPattern::Words(vec!["cat".to_owned(), "/etc/motd".to_owned()])));
        assert_eq!(
            (rules[1].containers.len(), rules[1].command.clone()),
            (1, Some(CommandPattern::Text("ls *".to_owned())))
        );
        assert!(
            read_execs("[{exit: 256}]").is_err() && read_execs("[{status: 1}]").is_err() && read_execs("7").is_err()
        );
    }

    #[test]
    fn pf_1_only_targets_on_the_loopback_interface_are_allowed() {
        let rules =
            read_forwards("{'*': {http: {body: x}}, 80: {target: 127.0.0.1:9000}, 81: {target: 'localhost:1'}}")
                .unwrap();
        assert_eq!(
            rules[0],
            ForwardRule { ports: vec![80], answer: PortAnswer::Target("127.0.0.1:9000".parse().unwrap()) }
        );
        assert!(rules[2].ports.is_empty());
        for (text, why) in [
            ("{80: {target: 10.0.0.1:80}}", "10.0.0.1:80 is not an address of the loopback interface"),
            ("{80: {target: example.com:80}}", "\"example.com:80\" is not an address and a port"),
            ("{80: {}}", "port 80 needs either `target` or `http`"),
            ("{80: {http: {status: 7}}}", "7 is not a status of HTTP"),
            ("{x: {http: {}}}", "\"x\" is not a port"),
        ] {
            assert_eq!(read_forwards(text), Err(why.to_owned()));
        }
    }

    #[test]
    fn annotations_that_cannot_be_read_are_seen_when_they_are_used() {
        let annotations = json!({"nodes.dogwatch/exec": "[", "nodes.dogwatch/port-forward": "{80: {}}"});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
        let rules = PodRules::of_annotations(&pod);
        let ExecResult::Refused(why) = &rules.execs[0].result else { panic!("it runs") };
        assert!(why.starts_with("annotation nodes.dogwatch/exec: "), "{why}");
        assert!(matches!(&rules.forwards[0].answer, PortAnswer::Refused(why) if why.contains("port 80 needs")));
        assert_eq!(PodRules::of_annotations(&Pod::default()), PodRules::default());
    }
}
