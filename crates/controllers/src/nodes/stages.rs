//! The file of `--stages`: the properties of simulated nodes and the durations of the stages of pods.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::behaviour::{Behaviour, Rule};
use super::kwok::{API_VERSION, Kwok};

/// The steps of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// As a kubelet does it: accepted, containers created, running; stopped, then removed.
    #[default]
    Kubelet,
    /// As few writes as possible: running, and removed.
    Fast,
}

/// The behaviour of simulated nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Stages {
    pub profile: Profile,
    /// The same seed gives a pod of the same name the same delays.
    pub seed: Option<u64>,
    /// From the binding until the node has taken notice.
    pub accept: Delay,
    /// Each init container.
    pub init: Delay,
    /// From then on until the containers run.
    pub run: Delay,
    /// The run time of the containers of a Job's pod.
    pub complete: Delay,
    /// From the deletion until the containers have ended, never longer than the pod's grace.
    pub stop: Delay,
    /// From then on until the pod is removed.
    pub remove: Delay,
    /// The wait before the second restart of a container; it doubles from there to thirty times this.
    #[serde(deserialize_with = "duration")]
    pub restart: Duration,
    /// True if nodes record Events for their steps.
    pub events: bool,
    pub nodes: NodeShape,
    /// Rules for some pods: the first that matches a pod applies, and the annotations of the pod override it.
    pub rules: Vec<Rule>,
    /// The objects of KWOK's kinds in the file.
    #[serde(skip)]
    pub kwok: Kwok,
}

impl Default for Stages {
    fn default() -> Self {
        let between = |from: u64, to: u64| Delay::between(Duration::from_millis(from), Duration::from_millis(to));
        Self {
            profile: Profile::Kubelet,
            seed: None,
            accept: between(10, 60),
            init: between(50, 250),
            run: between(100, 500),
            complete: between(500, 1500),
            stop: between(50, 300),
            remove: between(0, 50),
            restart: Duration::from_secs(10),
            events: true,
            nodes: NodeShape::default(),
            rules: Vec::new(),
            kwok: Kwok::default(),
        }
    }
}

/// The properties of a new node.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeShape {
    /// Both `capacity` and `allocatable`.
    pub capacity: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// Nodes are dealt out to these in turn (`topology.kubernetes.io/zone`).
    pub zones: Vec<String>,
}

impl Default for NodeShape {
    fn default() -> Self {
        let capacity = [("cpu", "32"), ("memory", "256Gi"), ("ephemeral-storage", "1Ti"), ("pods", "110")];
        Self {
            capacity: capacity.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into(),
            labels: BTreeMap::new(),
            zones: Vec::new(),
        }
    }
}

impl Stages {
    /// Parses a file of one or more YAML documents: at most one with settings, and any number of objects of KWOK's kinds.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let (mut stages, mut kwok) = (None, Kwok::default());
        for document in documents(text) {
            let document = machinery::yaml::read(document.as_bytes())?;
            let value = serde_json::to_value(&document.value).map_err(|error| error.to_string())?;
            match value["apiVersion"].as_str() {
                _ if value.is_null() => {}
                Some(API_VERSION) => kwok.add(&value)?,
                Some(other) => {
                    let kind = value["kind"].as_str().unwrap_or_default();
                    return Err(format!("{kind} of {other} is not one of the settings, and not one of {API_VERSION}"));
                }
                None if stages.is_some() => return Err("there are two documents with settings".to_owned()),
                None => stages = Some(Self::from_value(value)?),
            }
        }
        Ok(Self { kwok, ..stages.unwrap_or_default() })
    }

    /// Parses the settings, converted to JSON.
    pub fn from_value(value: Value) -> Result<Self, String> {
        let stages: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        for rule in &stages.rules {
            rule.check()?;
        }
        Ok(stages)
    }

    /// No delays: for tests that want the end and not the way.
    #[must_use]
    pub fn immediate() -> Self {
        let none = Delay::between(Duration::ZERO, Duration::ZERO);
        Self {
            accept: none,
            init: none,
            run: none,
            complete: none,
            stop: none,
            remove: none,
            restart: Duration::from_millis(100),
            ..Self::default()
        }
    }

    /// The behaviour of a pod that differs from the default.
    pub(super) fn behaviour(&self, pod: &k8s_openapi::api::core::v1::Pod) -> Behaviour {
        let mut behaviour = Behaviour::default();
        let key = client::Key::of(pod);
        if let Some(rule) = self.rules.iter().find(|rule| rule.matches(pod, self.fraction(key.as_str(), "rule"))) {
            behaviour.follow(&rule.then);
        }
        behaviour.heed(pod);
        behaviour
    }

    /// A number in 0..1 that depends on the seed and these words only.
    pub(super) fn fraction(&self, key: &str, step: &str) -> f64 {
        // FNV-1a, then mixed: it must not change between versions, as recorded runs depend on it.
        let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ self.seed.unwrap_or_default();
        for byte in key.bytes().chain([0]).chain(step.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 33;
        (hash >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The documents of a file, which lines of `---` separate.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        let separates =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if separates {
            documents.push(line.strip_prefix("---").unwrap_or_default().to_owned());
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
        }
    }
    documents
}

/// A duration: `delay`, or a random one from `delay` to `jitter`; a `jitter` below `delay` replaces it.
///
/// ```yaml
/// run: 2s                            # always two seconds
/// run: {delay: 200ms, jitter: 1s}    # 200 ms to one second
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    from: Duration,
    to: Duration,
}

impl Delay {
    #[must_use]
    pub fn between(delay: Duration, jitter: Duration) -> Self {
        Self { from: delay.min(jitter), to: jitter }
    }

    pub(super) fn at(self, fraction: f64) -> Duration {
        self.from + (self.to - self.from).mul_f64(fraction)
    }
}

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = Value::deserialize(deserializer)?;
        let read = |value: &Value| read_duration(value).map_err(D::Error::custom);
        let Value::Object(members) = &value else {
            let fixed = read(&value)?;
            return Ok(Delay { from: fixed, to: fixed });
        };
        if let Some(unknown) = members.keys().find(|name| !matches!(name.as_str(), "delay" | "jitter")) {
            return Err(D::Error::custom(format!("unknown field `{unknown}`, expected `delay` or `jitter`")));
        }
        let delay = members.get("delay").map(read).transpose()?.unwrap_or_default();
        let jitter = members.get("jitter").map(read).transpose()?.unwrap_or(delay);
        Ok(Delay::between(delay, jitter))
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    read_duration(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn read_duration(value: &Value) -> Result<Duration, String> {
    match value {
        Value::String(text) => parse_duration(text),
        Value::Number(number) if number.as_u64() == Some(0) => Ok(Duration::ZERO),
        other => Err(format!("{other} is no duration; write 500ms, 2s or 1m30s")),
    }
}

/// The longest duration: ten years. Times that are computed with it stay within the range of clocks.
const DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// `500ms`, `2s`, `1.5s`, `1m30s`, `2h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write 500ms, 2s or 1m30s");
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest == "0" {
        return Ok(total);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        let more = Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())?;
        total = total.checked_add(more).filter(|total| *total <= DURATION_MAX).ok_or_else(wrong)?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_as_go_writes_them() {
        for (text, ms) in [("500ms", 500), ("2s", 2000), ("1.5s", 1500), ("1m30s", 90_000), ("0", 0), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "5", "s", "5x", "1s2", "-1s", "99999999999999999999h", "100000h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn delays_are_drawn_between_their_ends() {
        let delay = |value: Value| serde_json::from_value::<Delay>(value).unwrap();
        assert_eq!(delay(json!("2s")).at(0.7), Duration::from_secs(2));
        let drawn = delay(json!({"delay": "1s", "jitter": "3s"}));
        assert_eq!((drawn.at(0.0), drawn.at(0.5)), (Duration::from_secs(1), Duration::from_secs(2)));
        assert_eq!(delay(json!({"delay": "5s", "jitter": "1s"})).at(0.9), Duration::from_secs(1), "it stands for it");
    }

    #[test]
    fn a_file_is_read_and_what_it_cannot_mean_is_named() {
        let stages = Stages::from_value(json!({
            "profile": "fast", "seed": 7, "run": {"delay": "1s"},
            "nodes": {"capacity": {"cpu": "1k", "pods": "1000"}, "zones": ["a", "b"]},
            "rules": [{"match": {"labels": {"app": "flaky"}}, "then": {"exit-after": "2s", "exit-code": 1}}],
        }));
        let stages = stages.unwrap();
        assert_eq!((stages.profile, stages.seed), (Profile::Fast, Some(7)));
        assert_eq!(stages.nodes.capacity["pods"], "1000");
        for (bad, word) in [
            (json!({"profil": "fast"}), "profil"),
            (json!({"profile": "slow"}), "slow"),
            (json!({"run": "soon"}), "soon"),
            (json!({"run": {"dely": "1s"}}), "dely"),
            (json!({"rules": [{"then": {"exit-afte": "1s"}}]}), "exit-afte"),
            (json!({"rules": [{"then": {"exit-after": "x"}}]}), "\"x\""),
        ] {
            let error = Stages::from_value(bad.clone()).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let of = |seed| Stages { seed: Some(seed), ..Stages::default() };
        assert_eq!(of(1).fraction("d/p", "run"), of(1).fraction("d/p", "run"));
        assert_ne!(of(1).fraction("d/p", "run"), of(2).fraction("d/p", "run"));
        assert_ne!(of(1).fraction("d/p", "run"), of(1).fraction("d/p", "stop"));
        let mean = (0..1000).map(|n| of(1).fraction(&format!("d/p{n}"), "run")).sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
