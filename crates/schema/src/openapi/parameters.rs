//! Parameters of operations: names, types and descriptions.

use serde_json::{Value, json};

use super::definitions::{DELETE_OPTIONS, Definitions};

const LIST: [&str; 11] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
const DELETE: [&str; 5] = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];

/// Query parameters of a verb, except `pretty`.
fn names(verb: &str) -> Vec<&'static str> {
    match verb {
        "list" | "watch" => LIST.to_vec(),
        "create" | "update" => WRITE.to_vec(),
        "read" => vec!["resourceVersion"],
        "patch" => [&WRITE[..], &["force"]].concat(),
        "delete" => DELETE.to_vec(),
        "deletecollection" => {
            let listed = LIST.into_iter().filter(|name| !matches!(*name, "allowWatchBookmarks" | "watch"));
            DELETE.into_iter().chain(listed).collect()
        }
        "log" => vec![
            "container",
            "follow",
            "insecureSkipTLSVerifyBackend",
            "limitBytes",
            "previous",
            "sinceSeconds",
            "stream",
            "tailLines",
            "timestamps",
        ],
        "PodExecOptions" => vec!["command", "container", "stderr", "stdin", "stdout", "tty"],
        "PodAttachOptions" => vec!["container", "stderr", "stdin", "stdout", "tty"],
        "PodPortForwardOptions" => vec!["ports"],
        "PodProxyOptions" | "NodeProxyOptions" | "ServiceProxyOptions" => vec!["path"],
        _ => Vec::new(),
    }
}

/// Returns the query parameters of a verb (or of connect options), by name.
pub(super) fn of_verb(verb: &str, definitions: &Definitions) -> Vec<Value> {
    let mut names = names(verb);
    if !verb.ends_with("Options") {
        names.push("pretty");
    }
    names.sort_unstable();
    names.into_iter().map(|name| query(name, verb, definitions)).collect()
}

fn query(name: &str, verb: &str, definitions: &Definitions) -> Value {
    let kind = match name {
        "allowWatchBookmarks"
        | "watch"
        | "sendInitialEvents"
        | "force"
        | "orphanDependents"
        | "follow"
        | "previous"
        | "timestamps"
        | "insecureSkipTLSVerifyBackend"
        | "stderr"
        | "stdin"
        | "stdout"
        | "tty"
        | "ignoreStoreReadErrorWithClusterBreakingPotential" => "boolean",
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" | "limitBytes" | "sinceSeconds" | "tailLines" | "ports" => {
            "integer"
        }
        _ => "string",
    };
    let text = match DELETE.contains(&name) {
        true => definitions.texts.of_field(DELETE_OPTIONS, name),
        false => Some(text(name, verb).to_owned()),
    };
    json!({
        "description": text.unwrap_or_default(),
        "in": "query",
        "name": name,
        "schema": {"type": kind, "uniqueItems": true},
    })
}

fn text(name: &str, verb: &str) -> &'static str {
    match name {
        "allowWatchBookmarks" => "Whether a watch may send bookmarks: events that say only how far it has come.",
        "command" => "The command to run, one parameter for each of its words. No shell reads it.",
        "container" => "Which container of the pod; may be left out when it has only one.",
        "continue" => "The token of the page before, to get the next one. It expires after a while.",
        "fieldManager" => {
            "Who makes the change, as it will stand in managedFields: at most 128 printable characters. Apply needs it."
        }
        "fieldSelector" => "Only objects whose fields are like this.",
        "fieldValidation" => {
            "What happens to unknown and repeated fields. Ignore drops them, Warn (the default) drops them and warns, Strict refuses the request."
        }
        "follow" => "Whether to go on with what is logged from now on.",
        "force" => "Whether apply takes over fields that others own.",
        "insecureSkipTLSVerifyBackend" => "Whether to accept a node that cannot prove who it is.",
        "labelSelector" => "Only objects whose labels are like this.",
        "limit" => "At most this many objects; the answer's continue leads to the rest.",
        "limitBytes" => "At most this many bytes.",
        "path" => "The path of the request to make.",
        "ports" => "The ports to forward.",
        "pretty" => "Whether to indent the answer: 'true' or 'false'. The default depends on the client.",
        "previous" => "Whether to read the log of the container that ran before.",
        "resourceVersion" if verb == "watch" => "Where to begin.",
        "resourceVersion" => "From which state to answer; see resourceVersionMatch.",
        "resourceVersionMatch" => "Whether the state must be exactly that of resourceVersion, or may be a newer one.",
        "sendInitialEvents" => "Whether a watch begins with what is there, and a bookmark after it.",
        "shardSelector" => "Only objects of a shard. Not supported by default.",
        "sinceSeconds" => "Only what was logged in these last seconds.",
        "stderr" => "Whether to connect the standard error stream.",
        "stdin" => "Whether to connect the standard input stream.",
        "stdout" => "Whether to connect the standard output stream.",
        "stream" => "Which streams of the container to read: All, Stdout or Stderr.",
        "tailLines" => "Only this many lines from the end.",
        "timeoutSeconds" => "How long the call may take, a watch included.",
        "timestamps" => "Whether to put a time before each line.",
        "tty" => "Whether the streams belong to a terminal.",
        "watch" => "Whether to follow changes instead of listing.",
        _ => "",
    }
}

/// Returns a path parameter.
pub(super) fn in_path(name: &str, kind: &str) -> Value {
    let text = match name {
        "namespace" => "object name and auth scope, such as for teams and projects".to_owned(),
        "path" => "path to the resource".to_owned(),
        _ => format!("name of the {kind}"),
    };
    json!({
        "description": text,
        "in": "path",
        "name": name,
        "required": true,
        "schema": {"type": "string", "uniqueItems": true},
    })
}
