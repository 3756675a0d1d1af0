//! A Fault as it was written.

use std::time::Duration;

use machinery::json::Value;
use serde::Deserialize;

use crate::durations::parse_duration;

/// The `spec` of a Fault.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    #[serde(rename = "match")]
    pub(crate) matches: Match,
    pub(crate) when: When,
    pub(crate) effect: Effect,
    pub(crate) expect: Option<Expectation>,
}

/// Which requests are hit. An empty list matches everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Match {
    pub(crate) verbs: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) namespaces: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) user_agents: Vec<String>,
    pub(crate) users: Vec<String>,
    /// Unlike the others, its own world alone if it is empty: worlds do not share what happens to them.
    pub(crate) worlds: Vec<String>,
}

/// Which of those that match are hit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct When {
    pub(crate) skip: u64,
    pub(crate) times: Option<u64>,
    pub(crate) every: Option<u64>,
    pub(crate) probability: Option<f64>,
    pub(crate) seed: i64,
    pub(crate) events: Option<Events>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Events {
    pub(crate) types: Vec<String>,
    pub(crate) names: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Expectation {
    pub(crate) hits: Option<u64>,
}

/// What happens; one member is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Effect {
    pub(crate) error: Option<ErrorEffect>,
    pub(crate) delay: Option<String>,
    pub(crate) lose_answer: Option<Value>,
    pub(crate) cut: Option<Cut>,
    pub(crate) silence: Option<Value>,
    pub(crate) expire: Option<Expire>,
    pub(crate) withhold_bookmarks: Option<Value>,
    pub(crate) skip_intermediate: Option<bool>,
    pub(crate) drop_events: Option<Events>,
    pub(crate) conflict_once: Option<ConflictOnce>,
    pub(crate) stale: Option<Stale>,
    pub(crate) slow: Option<Slow>,
    pub(crate) refuse_connections: Option<RefuseConnections>,
}

/// New connections are refused. Of each list that is given, one entry must match.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RefuseConnections {
    pub(crate) sources: Vec<String>,
    pub(crate) server_names: Vec<String>,
    pub(crate) cut_existing: bool,
}

/// Reads are answered from the past.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stale {
    pub(crate) by: Option<Behind>,
    pub(crate) hold: bool,
}

/// How far in the past.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Behind {
    pub(crate) revisions: Option<u64>,
    pub(crate) duration: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Slow {
    pub(crate) bytes_per_second: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ErrorEffect {
    pub(crate) code: Option<u16>,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) retry_after_seconds: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cut {
    pub(crate) abruptly: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Expire {
    pub(crate) form: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConflictOnce {
    pub(crate) per_object: bool,
}

impl Default for ConflictOnce {
    fn default() -> Self {
        ConflictOnce { per_object: true }
    }
}

impl Spec {
    pub(crate) fn read(object: &Value) -> Result<Spec, serde_json::Error> {
        serde_json::from_str(&object["spec"].to_string())
    }
}

impl Effect {
    /// The effect in one word, as tables show it.
    pub(crate) fn word(&self) -> &'static str {
        let given = [
            (self.error.is_some(), "error"),
            (self.delay.is_some(), "delay"),
            (self.lose_answer.is_some(), "loseAnswer"),
            (self.cut.is_some(), "cut"),
            (self.silence.is_some(), "silence"),
            (self.expire.is_some(), "expire"),
            (self.withhold_bookmarks.is_some(), "withholdBookmarks"),
            (self.skip_intermediate.is_some(), "skipIntermediate"),
            (self.drop_events.is_some(), "dropEvents"),
            (self.conflict_once.is_some(), "conflictOnce"),
            (self.stale.is_some(), "stale"),
            (self.slow.is_some(), "slow"),
            (self.refuse_connections.is_some(), "refuseConnections"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map_or("", |(_, word)| word)
    }

    pub(crate) fn delay(&self) -> Option<Duration> {
        // The schema has checked the text.
        self.delay.as_deref().and_then(parse_duration)
    }
}
