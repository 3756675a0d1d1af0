//! What pods prescribe about their containers: results of commands, logs, answers at ports.
//!
//! ```yaml
//! metadata:
//!   annotations:
//!     nodes.dogwatch/logs: |
//!       first line
//!       second line
//!     nodes.dogwatch/exec: |
//!       [{command: [cat, /etc/motd], stdout: "hello\n"}, {command: "test *", stderr: "no\n", exit: 1}]
//!     nodes.dogwatch/port-forward: |
//!       {80: {http: {status: 200, body: hello}}, 5432: {target: 127.0.0.1:5432}}
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use machinery::glob;

/// Where rules other than annotations come from, such as files and custom resources.
pub trait RuleSource: Send + Sync {
    /// The rules of a pod, in their order.
    fn rules_of(&self, pod: &Pod) -> PodRules;
}

/// The rules of one pod. Of each list the first that matches applies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRules {
    pub logs: Vec<LogRule>,
    pub execs: Vec<ExecRule>,
    pub attaches: Vec<LogRule>,
    pub forwards: Vec<ForwardRule>,
}

/// What a container has written, for `logs` and `attach`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRule {
    /// The containers it is about; empty for all.
    pub containers: Vec<String>,
    pub log: LogContent,
    /// Whether later lines of a file are followed although the request does not say so.
    pub follows: bool,
}

/// A prescribed log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogContent {
    Text(String),
    /// A file of the host: current and previous instance.
    File {
        current: PathBuf,
        previous: Option<PathBuf>,
    },
}

/// The result of a command in a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecRule {
    /// The containers it is about; empty for all.
    pub containers: Vec<String>,
    /// The command; none for every command.
    pub command: Option<CommandPattern>,
    pub result: ExecResult,
}

/// The commands of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandPattern {
    /// These words and no others.
    Words(Vec<String>),
    /// A pattern of the command line, in which `*` stands for any characters.
    Text(String),
}

/// What happens when a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecResult {
    /// Says this and exits.
    Fixed { stdout: String, stderr: String, exit: i32 },
    /// Fails before it runs, with this reason.
    Refused(String),
}

impl Default for ExecResult {
    fn default() -> Self {
        ExecResult::Fixed { stdout: String::new(), stderr: String::new(), exit: 0 }
    }
}

/// What answers at ports of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardRule {
    /// Empty for all ports.
    pub ports: Vec<u16>,
    pub answer: PortAnswer,
}

/// What answers at a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortAnswer {
    /// A listener on the loopback interface of this host.
    Target(SocketAddr),
    /// The same response to every HTTP request.
    Http { status: u16, headers: BTreeMap<String, String>, body: String },
    /// Nothing: the connection fails with this reason.
    Refused(String),
}

impl PodRules {
    /// Appends rules that apply where these do not.
    pub fn extend(&mut self, later: PodRules) {
        self.logs.extend(later.logs);
        self.execs.extend(later.execs);
        self.attaches.extend(later.attaches);
        self.forwards.extend(later.forwards);
    }
}

impl CommandPattern {
    /// Whether a command is meant.
    #[must_use]
    pub fn matches(&self, command: &[String]) -> bool {
        match self {
            CommandPattern::Words(words) => words == command,
            CommandPattern::Text(text) => glob::fits(text, &command.join(" ")),
        }
    }
}

/// The first rule of a list that is about a container.
pub(super) fn rule_for<'r>(rules: &'r [LogRule], container: &str) -> Option<&'r LogRule> {
    rules.iter().find(|rule| is_about(&rule.containers, container))
}

/// Whether a rule with these containers is about this one.
pub(super) fn is_about(containers: &[String], container: &str) -> bool {
    containers.is_empty() || containers.iter().any(|known| known == container)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_commands() {
        for (pattern, text, expected) in [
            ("ls", "ls", true),
            ("ls", "ls -l", false),
            ("ls *", "ls -l", true),
            ("ls*", "ls", true),
            ("*", "anything", true),
            ("*b*c", "abxc", true),
            ("*b*c", "abx", false),
            ("a*a", "a", false),
            ("a**c", "abc", true),
        ] {
            assert_eq!(glob::fits(pattern, text), expected, "{pattern} {text}");
        }
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(CommandPattern::Words(words("cat a")).matches(&words("cat a")));
        assert!(!CommandPattern::Words(words("cat a")).matches(&words("cat")));
    }
}
