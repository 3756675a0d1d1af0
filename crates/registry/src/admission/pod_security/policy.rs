//! Levels and versions of a namespace's policy, as its labels give them.

use std::fmt;

use machinery::json::{Value, json};

pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The minor version whose checks apply; `Latest` is after all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Minor(u32),
    Latest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standard {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl Standard {
    pub(super) const OPEN: Standard = Standard { level: Level::Privileged, version: Version::Latest };
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged:",
            Level::Baseline => "baseline:",
            Level::Restricted => "restricted:",
        })?;
        match self.version {
            Version::Minor(minor) => write!(f, "v1.{minor}"),
            Version::Latest => f.write_str("latest"),
        }
    }
}

/// The standards of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: Standard,
    pub(super) audit: Standard,
    pub(super) warn: Standard,
}

/// Nothing is restricted.
impl Default for Policy {
    fn default() -> Self {
        Policy { enforce: Standard::OPEN, audit: Standard::OPEN, warn: Standard::OPEN }
    }
}

/// A label, its value, and the reason why it is invalid.
pub(super) type LabelError = (String, Value, String);

impl Policy {
    pub(super) fn is_open(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|standard| standard.level == Level::Privileged)
    }

    /// Whether another policy allows the same pods.
    pub(super) fn is_equivalent(&self, other: &Policy) -> bool {
        let same = |a: Standard, b: Standard| a == b || a.level == Level::Privileged && b.level == Level::Privileged;
        same(self.enforce, other.enforce) && same(self.audit, other.audit) && same(self.warn, other.warn)
    }

    /// Reads labels over the standards of namespaces without any; a value that cannot be read is the strictest level to
    /// enforce and the most open otherwise.
    pub(super) fn from_labels<'a>(
        label: impl Fn(&str) -> Option<&'a str>,
        defaults: &Policy,
    ) -> (Policy, Vec<LabelError>) {
        let mut errors = Vec::new();
        let mut standard = |mode: &str, default: Standard, otherwise: Level| {
            let (level, version) = (format!("{PREFIX}{mode}"), format!("{PREFIX}{mode}-version"));
            let mut read = default;
            let (stated_level, stated_version) = (label(&level), label(&version));
            let mut sound = false;
            if let Some(stated) = stated_level {
                sound = parse_level(stated).is_some();
                read.level = parse_level(stated).unwrap_or(otherwise);
                if !sound {
                    errors.push((level, json!(stated), LEVELS.to_owned()));
                }
            }
            if let Some(stated) = stated_version {
                read.version = parse_version(stated).unwrap_or(Version::Latest);
                if parse_version(stated).is_none() {
                    errors.push((version, json!(stated), VERSIONS.to_owned()));
                }
            }
            (read, sound, stated_level.is_some(), stated_version.is_some())
        };
        let (enforce, enforce_sound, ..) = standard("enforce", defaults.enforce, Level::Restricted);
        let (audit, ..) = standard("audit", defaults.audit, Level::Privileged);
        let (mut warn, _, warn_level, warn_version) = standard("warn", defaults.warn, Level::Privileged);
        if !warn_level && enforce_sound && enforce.level > warn.level {
            warn.level = enforce.level;
            if !warn_version {
                warn.version = enforce.version;
            }
        }
        (Policy { enforce, audit, warn }, errors)
    }
}

const LEVELS: &str = "must be one of privileged, baseline, restricted";
const VERSIONS: &str = "must be \"latest\" or \"v1.x\"";

impl Standard {
    /// Reads a standard of a configuration file; an absent part is the most open one.
    pub(super) fn read(level: &str, version: &str) -> Result<Self, &'static str> {
        let level = if level.is_empty() { Level::Privileged } else { parse_level(level).ok_or(LEVELS)? };
        let version = if version.is_empty() { Version::Latest } else { parse_version(version).ok_or(VERSIONS)? };
        Ok(Standard { level, version })
    }
}

fn parse_level(text: &str) -> Option<Level> {
    Some(match text {
        "privileged" => Level::Privileged,
        "baseline" => Level::Baseline,
        "restricted" => Level::Restricted,
        _ => return None,
    })
}

fn parse_version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(Version::Latest);
    }
    let minor = text.strip_prefix("v1.")?;
    let plain = minor.bytes().all(|byte| byte.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
    plain.then(|| minor.parse().ok()).flatten().map(Version::Minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(labels: &[(&'static str, &'static str)]) -> (Policy, usize) {
        let labels: Vec<(String, &str)> =
            labels.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value)).collect();
        let (policy, errors) = Policy::from_labels(
            |name| labels.iter().find(|(known, _)| known == name).map(|(_, value)| *value),
            &Policy::default(),
        );
        (policy, errors.len())
    }

    #[test]
    fn what_is_enforced_is_warned_about() {
        let (read, errors) = policy(&[("enforce", "restricted"), ("enforce-version", "v1.30")]);
        assert_eq!(
            (read.enforce.to_string(), read.warn.to_string()),
            ("restricted:v1.30".into(), "restricted:v1.30".into())
        );
        assert_eq!(errors, 0);
        let (read, _) = policy(&[("enforce", "baseline"), ("warn", "privileged")]);
        assert_eq!(read.warn.level, Level::Privileged);
        let (read, _) = policy(&[("warn", "baseline")]);
        assert_eq!((read.enforce, read.warn.to_string()), (Standard::OPEN, "baseline:latest".into()));
    }

    #[test]
    fn labels_that_cannot_be_read() {
        let (read, errors) =
            policy(&[("enforce", "strict"), ("warn", "x"), ("audit-version", "1.2"), ("warn-version", "v1.02")]);
        assert_eq!(errors, 4);
        assert_eq!((read.enforce.level, read.warn.level), (Level::Restricted, Level::Privileged));
    }
}
