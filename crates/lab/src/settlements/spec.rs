//! The question of a settlement.

use std::time::Duration;

use machinery::glob;
use machinery::json::Value;

use crate::durations::parse_duration;
use crate::recorder::Change;

/// Longest wait: a request of any kind ends after a minute.
const TIMEOUT_MAX: Duration = Duration::from_secs(50);

/// The `spec` of a Settlement.
pub(super) struct Spec {
    pub(super) quiet: Duration,
    pub(super) timeout: Duration,
    ignored_resources: Vec<String>,
    ignored_agents: Vec<String>,
    clients: Vec<String>,
}

impl Spec {
    /// Reads a spec; an error is a field, its value, and what is wrong with it.
    pub(super) fn read(spec: &Value) -> Result<Self, (&'static str, String, String)> {
        let duration = |field: &'static str, text: &Value, default: Duration| match text.as_str() {
            None => Ok(default),
            Some(text) => parse_duration(text)
                .ok_or_else(|| (field, text.to_owned(), "must be a duration such as 200ms or 5s".to_owned())),
        };
        let quiet = duration("spec.quiet", &spec["quiet"], Duration::from_millis(200))?;
        let timeout = duration("spec.timeout", &spec["timeout"], Duration::from_secs(30))?;
        if timeout > TIMEOUT_MAX {
            let text = spec["timeout"].as_str().unwrap_or_default().to_owned();
            return Err(("spec.timeout", text, "must be at most 50s; ask again if it is not settled".to_owned()));
        }
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let ignored_resources = match &spec["ignore"] {
            Value::Null => vec!["leases.coordination.k8s.io".to_owned(), "events".to_owned()],
            ignore => texts(&ignore["resources"]),
        };
        let ignored_agents = texts(&spec["ignore"]["userAgents"]);
        Ok(Spec { quiet, timeout, ignored_resources, ignored_agents, clients: texts(&spec["clients"]) })
    }

    /// Whether a change may happen meanwhile.
    pub(super) fn ignores(&self, change: &Change) -> bool {
        let (group, resource) = change.resource();
        let agent = change.agent();
        let is_resource = |named: &String| match named.split_once('.') {
            Some((named, of)) => named == resource && of == group,
            None => named == resource,
        };
        self.ignored_resources.iter().any(is_resource)
            || (!agent.is_empty() && self.ignored_agents.iter().any(|pattern| glob::fits(pattern, agent)))
    }

    /// Whether the watches of a client are waited for.
    pub(super) fn waits_for(&self, agent: &str) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|pattern| glob::fits(pattern, agent))
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn set_1_a_spec_has_defaults_and_bounds() {
        let spec = Spec::read(&Value::Null).unwrap();
        assert_eq!((spec.quiet, spec.timeout), (Duration::from_millis(200), Duration::from_secs(30)));
        assert!(spec.waits_for("anyone"));
        let spec = Spec::read(&json!({"clients": ["my-*"], "quiet": "1s"})).unwrap();
        assert!(spec.waits_for("my-operator/1") && !spec.waits_for("kubectl"));
        for (wrong, field) in [(json!({"timeout": "10m"}), "spec.timeout"), (json!({"quiet": "soon"}), "spec.quiet")] {
            assert_eq!(Spec::read(&wrong).err().unwrap().0, field);
        }
    }
}
