//! The behaviour of a pod that differs from the default, by its annotations or a rule of the stages file.
//!
//! ```yaml
//! metadata:
//!   annotations:
//!     nodes.dogwatch/start-delay: 5s      # its containers take so much longer to start
//!     nodes.dogwatch/ready-after: 10s     # they run, and are ready later
//!     nodes.dogwatch/ready: never         # or never
//!     nodes.dogwatch/exit-after: 30s      # they end after that
//!     nodes.dogwatch/exit-code: "1"       # with this code; restarted as spec.restartPolicy says
//!     nodes.dogwatch/image-pull: fail     # their images cannot be had
//!     nodes.dogwatch/stop-delay: 20s      # they take so long to end when the pod is deleted
//!     nodes.dogwatch/stop: never          # the node never notices that the pod is deleted
//!     nodes.dogwatch/readiness: fails after 30s   # the results of its readiness probe; liveness and startup likewise
//!     nodes.dogwatch/cpu: sine(100m,900m,10m)     # what each container uses; memory likewise, cpu.NAME for one container
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::Value;

use super::processes::course::Course;
use super::stages::parse_duration;
use super::usage::RESOURCES;
use super::usage::curve::Curve;

/// The prefix of the annotations of pods and nodes.
pub(super) const PREFIX: &str = "nodes.dogwatch/";

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Behaviour {
    pub(super) start_delay: Duration,
    pub(super) ready_after: Duration,
    pub(super) never_ready: bool,
    pub(super) exit_after: Option<Duration>,
    pub(super) exit_code: i32,
    pub(super) pull_fails: bool,
    pub(super) stop_delay: Option<Duration>,
    pub(super) never_stops: bool,
    pub(super) startup: Option<Course>,
    pub(super) readiness: Option<Course>,
    pub(super) liveness: Option<Course>,
    /// What containers use, by `cpu`, `memory`, `cpu.CONTAINER` or `memory.CONTAINER`.
    pub(super) usage: BTreeMap<String, Curve>,
}

/// Annotations with this prefix that other modules read.
const OTHERS: [&str; 5] = ["logs", "exec", "port-forward", "attach", "heartbeat"];

impl Behaviour {
    /// Applies one setting, or returns the reason that it is invalid.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let one_of = |word: &str| {
            if value == word { Ok(true) } else { Err(format!("{name}: {value:?} should be {word:?}")) }
        };
        let duration = || parse_duration(value).map_err(|why| format!("{name}: {why}"));
        let course = || Course::parse(value).map_err(|why| format!("{name}: {why}"));
        match name {
            "start-delay" => self.start_delay = duration()?,
            "ready-after" => self.ready_after = duration()?,
            "ready" => self.never_ready = one_of("never")?,
            "exit-after" => self.exit_after = Some(duration()?),
            "exit-code" => {
                let code = value.parse().ok().filter(|code| (0..=255).contains(code));
                self.exit_code = code.ok_or_else(|| format!("{name}: {value:?} should be 0 to 255"))?;
                self.exit_after.get_or_insert(Duration::from_secs(1));
            }
            "image-pull" => self.pull_fails = one_of("fail")?,
            "stop-delay" => self.stop_delay = Some(duration()?),
            "stop" => self.never_stops = one_of("never")?,
            "startup" => self.startup = Some(course()?),
            "readiness" => self.readiness = Some(course()?),
            "liveness" => self.liveness = Some(course()?),
            _ if RESOURCES.contains(&name.split_once('.').map_or(name, |(resource, _)| resource)) => {
                let curve = Curve::parse(value).map_err(|why| format!("{name}: {why}"))?;
                self.usage.insert(name.to_owned(), curve);
            }
            _ => {
                return Err(format!(
                    "unknown field `{name}`, expected one of `start-delay`, `ready-after`, `ready`, `exit-after`, \
                     `exit-code`, `image-pull`, `stop-delay`, `stop`, `startup`, `readiness`, `liveness`, `cpu`, `memory`"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn follow(&mut self, said: &BTreeMap<String, Value>) {
        for (name, value) in said {
            let _ = self.set(name, &annotation_text(value));
        }
    }

    /// Applies the annotations of a pod. Invalid ones are ignored; [`problems`] names them.
    pub(super) fn heed(&mut self, pod: &Pod) {
        for (name, value) in own_annotations(pod) {
            let _ = self.set(name, value);
        }
    }
}

/// The annotations of a pod that cannot be read, with the reasons.
pub(super) fn problems(pod: &Pod) -> Vec<String> {
    let mut scratch = Behaviour::default();
    own_annotations(pod).filter_map(|(name, value)| scratch.set(name, value).err()).collect()
}

fn own_annotations(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    let all = pod.metadata.annotations.iter().flatten();
    all.filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value.as_str())))
        .filter(|(name, _)| !OTHERS.contains(name))
}

/// YAML has numbers where annotations have texts.
fn annotation_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Something that happens to some pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    #[serde(default, rename = "match")]
    which: Which,
    pub(super) then: BTreeMap<String, Value>,
}

/// The pods of a rule: all given criteria must match.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Which {
    namespace: Option<String>,
    labels: BTreeMap<String, String>,
    /// The kind of the controller that owns the pod.
    owner: Option<String>,
    node: Option<String>,
    /// The share of those pods, from 0 to 1.
    share: Option<f64>,
}

impl Rule {
    pub(super) fn check(&self) -> Result<(), String> {
        let mut behaviour = Behaviour::default();
        self.then.iter().try_for_each(|(name, value)| behaviour.set(name, &annotation_text(value)))
    }

    /// True if the rule matches this pod, whose random number is in 0..1.
    pub(super) fn matches(&self, pod: &Pod, drawn: f64) -> bool {
        let Which { namespace, labels, owner, node, share } = &self.which;
        let has = |key: &String, value: &String| {
            pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value)
        };
        namespace.as_ref().is_none_or(|name| pod.metadata.namespace.as_ref() == Some(name))
            && labels.iter().all(|(key, value)| has(key, value))
            && owner.as_ref().is_none_or(|kind| controller_kind(pod) == Some(kind))
            && node.as_ref().is_none_or(|node| pod.spec.as_ref().and_then(|s| s.node_name.as_ref()) == Some(node))
            && share.is_none_or(|share| drawn < share)
    }
}

/// The kind of the controller that owns a pod.
pub(super) fn controller_kind(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(annotations: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "d", "annotations": annotations,
            "labels": {"app": "a"}}}))
        .unwrap()
    }

    #[test]
    fn annotations_are_heeded() {
        let mut behaviour = Behaviour::default();
        behaviour.heed(&pod(json!({
            "nodes.dogwatch/start-delay": "5s", "nodes.dogwatch/exit-code": "3", "nodes.dogwatch/ready": "never",
            "nodes.dogwatch/stop": "never", "nodes.dogwatch/exit-after": "nonsense", "other/exit-after": "1s",
        })));
        assert_eq!(behaviour.start_delay, Duration::from_secs(5));
        assert_eq!((behaviour.exit_code, behaviour.exit_after), (3, Some(Duration::from_secs(1))));
        assert!(behaviour.never_ready && behaviour.never_stops && !behaviour.pull_fails);
    }

    #[test]
    fn rules_mean_the_pods_they_describe() {
        let rule = |which: Value| -> Rule { serde_json::from_value(json!({"match": which, "then": {}})).unwrap() };
        let pod = pod(json!({}));
        for (which, expected) in [
            (json!({}), true),
            (json!({"namespace": "d"}), true),
            (json!({"namespace": "e"}), false),
            (json!({"labels": {"app": "a"}}), true),
            (json!({"labels": {"app": "b"}}), false),
            (json!({"owner": "Job"}), false),
            (json!({"share": 0.5}), false),
            (json!({"share": 0.7}), true),
        ] {
            assert_eq!(rule(which.clone()).matches(&pod, 0.6), expected, "{which}");
        }
    }
}
