//! KWOK's `Logs`, `Exec`, `Attach` and `PortForward`, and their cluster-wide forms, as rules about containers.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::nodes::containers::rules::{ForwardRule, LogContent, LogRule, PodRules, PortAnswer};

/// The pods that an object is about: the one of its own name, or those of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    Pod {
        namespace: String,
        name: String,
    },
    /// Empty lists mean all.
    Pods {
        namespaces: Vec<String>,
        names: Vec<String>,
    },
}

impl Reach {
    pub(super) fn of(object: &Value) -> Result<Self, String> {
        let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
        if !object["kind"].as_str().unwrap_or_default().starts_with("Cluster") {
            let namespace = text("namespace").unwrap_or_else(|| "default".to_owned());
            return Ok(Reach::Pod { namespace, name: text("name").unwrap_or_default() });
        }
        let selector = &object["spec"]["selector"];
        no_other(selector, &["matchNamespaces", "matchNames"])?;
        let names = |name: &str| -> Vec<String> {
            selector[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Ok(Reach::Pods { namespaces: names("matchNamespaces"), names: names("matchNames") })
    }

    /// True if the pod is one of them.
    #[must_use]
    pub fn includes(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match self {
            Reach::Pod { namespace: own, name: of } => own == namespace && of == name,
            Reach::Pods { namespaces, names } => {
                let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|known| known == name);
                has(namespaces, namespace) && has(names, name)
            }
        }
    }
}

/// What an object prescribes for its pods.
#[derive(Debug, Clone)]
pub(super) struct Prescribed {
    pub(super) reach: Reach,
    pub(super) rules: PodRules,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Log {
    #[serde(default)]
    containers: Vec<String>,
    logs_file: Option<String>,
    previous_logs_file: Option<String>,
    #[serde(default)]
    follow: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Forward {
    #[serde(default)]
    ports: Vec<u16>,
    target: Option<Target>,
    #[serde(default)]
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    port: u16,
    address: String,
}

impl Prescribed {
    /// Reads an object of one of these kinds. The error says what is not simulated.
    pub(super) fn of(object: &Value) -> Result<Self, String> {
        let reach = Reach::of(object)?;
        let kind = object["kind"].as_str().unwrap_or_default();
        let mut rules = PodRules::default();
        match kind.trim_start_matches("Cluster") {
            "Logs" => rules.logs = logs(object, "logs")?,
            "Attach" => rules.attaches = logs(object, "attaches")?,
            "PortForward" => {
                no_other(&object["spec"], &["forwards", "selector"])?;
                let forwards: Vec<Forward> = list(object, "forwards")?;
                rules.forwards = forwards.into_iter().map(forward).collect::<Result<_, _>>()?;
            }
            _ => {
                return Err("commands of the host are not run; prescribe results with the annotation \
                     nodes.dogwatch/exec, or leave them to the simulated shell"
                    .to_owned());
            }
        }
        Ok(Prescribed { reach, rules })
    }
}

fn logs(object: &Value, field: &str) -> Result<Vec<LogRule>, String> {
    no_other(&object["spec"], &[field, "selector"])?;
    let read: Vec<Log> = list(object, field)?;
    let rule = |log: Log| {
        let current = log.logs_file.ok_or("an entry without `logsFile`")?.into();
        let log_content = LogContent::File { current, previous: log.previous_logs_file.map(Into::into) };
        Ok(LogRule { containers: log.containers, log: log_content, follows: log.follow.unwrap_or_default() })
    };
    read.into_iter().map(rule).collect()
}

fn forward(forward: Forward) -> Result<ForwardRule, String> {
    if !forward.command.is_empty() {
        return Err("`command` would run a command of the host, which is not done; use `target`".to_owned());
    }
    let target = forward.target.ok_or("an entry without `target`")?;
    let address = if target.address == "localhost" { Ok(IpAddr::from([127, 0, 0, 1])) } else { target.address.parse() };
    match address {
        Ok(address) if address.is_loopback() => {
            let answer = PortAnswer::Target(SocketAddr::new(address, target.port));
            Ok(ForwardRule { ports: forward.ports, answer })
        }
        _ => Err(format!("the target {:?} is not on the loopback interface of this host", target.address)),
    }
}

/// A list of the spec.
pub(super) fn list<T: DeserializeOwned>(object: &Value, field: &str) -> Result<Vec<T>, String> {
    let value = object["spec"].get(field).cloned().unwrap_or_else(|| Value::Array(Vec::new()));
    serde_json::from_value(value).map_err(|error| format!("{field}: {error}"))
}

/// Refuses fields that have no meaning.
pub(super) fn no_other(value: &Value, known: &[&str]) -> Result<(), String> {
    let mut names = value.as_object().into_iter().flat_map(|members| members.keys());
    match names.find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("unknown field `{name}`, expected one of {}", known.join(", "))),
        None => Ok(()),
    }
}
