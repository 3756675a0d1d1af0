//! Arguments of `dogwatch wait`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::Scope;

#[derive(Debug, Args)]
pub struct Wait {
    /// `pod/a` or `deployment.apps/web`; or a resource, followed by names.
    #[arg(required = true, value_name = "OBJECT")]
    pub objects: Vec<String>,
    /// What to wait for: create, delete, condition=NAME[=VALUE] or jsonpath={.path}[=VALUE].
    #[arg(long = "for", value_name = "STATE")]
    pub state: State,
    /// How long to wait for each object: 30s, 5m, 1h30m; 0 looks once.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub scope: Scope,
}

/// The state of an object that ends a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Created,
    Deleted,
    /// A condition in the status, and its value in lower case.
    Condition {
        name: String,
        value: String,
    },
    /// The members on the way to a value, and that value; without one any value will do.
    Path {
        members: Vec<String>,
        value: Option<String>,
    },
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once('=').unwrap_or((text, ""));
        match kind.to_lowercase().as_str() {
            "create" => Ok(State::Created),
            "delete" => Ok(State::Deleted),
            "condition" if !rest.is_empty() => {
                let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
                Ok(State::Condition { name: name.to_owned(), value: value.to_lowercase() })
            }
            "jsonpath" if !rest.is_empty() => path(rest),
            _ => Err(format!("{text:?} is none of create, delete, condition=NAME[=VALUE], jsonpath={{.path}}[=VALUE]")),
        }
    }
}

/// Reads `{.status.phase}=Running`; the quotes that people leave around it do not matter.
fn path(text: &str) -> Result<State, String> {
    let text = text.trim_matches(|c| c == '\'' || c == '"');
    let wrong = || format!("{text:?} is not a path like {{.status.phase}}=Running");
    let (path, value) = match text.strip_prefix('{') {
        Some(inner) => {
            let (path, rest) = inner.split_once('}').ok_or_else(wrong)?;
            (path, rest.trim_start_matches(['\'', '"']).strip_prefix('='))
        }
        None => text.split_once('=').map_or((text, None), |(path, value)| (path, Some(value))),
    };
    let members: Vec<String> = path
        .strip_prefix('.')
        .unwrap_or(path)
        .replace('[', ".")
        .replace(']', "")
        .split('.')
        .map(str::to_owned)
        .collect();
    if members.iter().any(String::is_empty) {
        return Err(wrong());
    }
    let value = value.map(|value| value.trim_matches(|c| c == '\'' || c == '"').to_owned());
    Ok(State::Path { members, value })
}

/// Reads a duration as Go writes it; a bare number is seconds. A negative one is a week, as with kubectl.
fn duration(text: &str) -> Result<Duration, String> {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    let wrong = || format!("{text:?} is not a duration like 30s or 1m30s");
    if text.starts_with('-') {
        return Ok(WEEK);
    }
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
        let (unit, millis) = units.iter().find(|(unit, _)| rest[digits..].starts_with(unit)).ok_or_else(wrong)?;
        let part = number.checked_mul(*millis).ok_or_else(wrong)?;
        total = total.checked_add(Duration::from_millis(part)).ok_or_else(wrong)?;
        rest = &rest[digits + unit.len()..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_written_as_for_kubectl() {
        let state = |text: &str| text.parse::<State>();
        assert_eq!(state("delete"), Ok(State::Deleted));
        assert_eq!(state("create"), Ok(State::Created));
        let ready = State::Condition { name: "Ready".to_owned(), value: "true".to_owned() };
        assert_eq!(state("condition=Ready"), Ok(ready));
        let down = State::Condition { name: "Ready".to_owned(), value: "false".to_owned() };
        assert_eq!(state("condition=Ready=False"), Ok(down));
        let members = vec!["status".to_owned(), "phase".to_owned()];
        let running = State::Path { members: members.clone(), value: Some("Running".to_owned()) };
        for text in
            ["jsonpath={.status.phase}=Running", "jsonpath='{.status.phase}'=Running", "jsonpath=.status.phase=Running"]
        {
            assert_eq!(state(text).unwrap_or(State::Created), running, "{text}");
        }
        assert_eq!(state("jsonpath={.status.phase}"), Ok(State::Path { members, value: None }));
        for wrong in ["", "ready", "condition", "jsonpath={.a", "jsonpath={..a}"] {
            assert!(state(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_as_go_writes_them() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("-1s"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "s", "5d", "1h2", "99999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
