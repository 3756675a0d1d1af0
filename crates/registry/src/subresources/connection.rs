//! The options of a connection: parameters of a query, as the object that admission sees and may change.
//!
//! ```text
//!   ?command=ls&command=-l&container=c  ─►  {"kind": "PodExecOptions", "command": ["ls", "-l"], "container": "c"}
//! ```

use machinery::json::{Value, json};
use machinery::query::Query;

use super::node::NodeRequest;

const FLAGS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];

/// The options of a request; `path` is what follows `proxy` in its path.
pub(super) fn options_of(request: &NodeRequest<'_>, path: &str) -> Value {
    let subresource = match request.subresource() {
        "exec" => "Exec",
        "attach" => "Attach",
        "portforward" => "PortForward",
        _ => "Proxy",
    };
    let mut options =
        json!({"kind": format!("{}{subresource}Options", request.target.kind.gvk.kind), "apiVersion": "v1"});
    let query = request.query;
    let texts = |name: &str| query.all(name).map(str::to_owned).collect::<Vec<String>>();
    match request.subresource() {
        "proxy" => {
            if !path.is_empty() {
                options["path"] = json!(path);
            }
        }
        "portforward" => {
            let ports = query.all("ports").flat_map(|list| list.split(',')).filter_map(|port| port.trim().parse().ok());
            let ports: Vec<i32> = ports.collect();
            if !ports.is_empty() {
                options["ports"] = json!(ports);
            }
        }
        subresource => {
            for name in FLAGS {
                if query.truth(name).unwrap_or_default() {
                    options[name] = json!(true);
                }
            }
            if let Some(container) = query.get("container").filter(|container| !container.is_empty()) {
                options["container"] = json!(container);
            }
            if subresource == "exec" && query.get("command").is_some() {
                options["command"] = json!(texts("command"));
            }
        }
    }
    options
}

/// Brings options that were changed into their form: members that they do not have are dropped. The error names one of a
/// wrong type.
pub(crate) fn decode(changed: Value) -> Result<Value, String> {
    let mut options = json!({"kind": changed["kind"], "apiVersion": changed["apiVersion"]});
    let is_text = |value: &Value| value.as_str().is_some();
    let is_list_of =
        |value: &Value, is_item: fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(is_item));
    let Some(members) = changed.as_object() else { return Err("the options are no object".to_owned()) };
    for (name, value) in members {
        let is_right = match name.as_str() {
            name if FLAGS.contains(&name) => value.as_bool().is_some(),
            "container" | "path" => is_text(value),
            "command" => is_list_of(value, |item| item.as_str().is_some()),
            "ports" => is_list_of(value, |item| item.as_i64().is_some_and(|port| i32::try_from(port).is_ok())),
            _ => continue,
        };
        match (is_right, value) {
            (_, Value::Null) => {}
            (true, value) => options[name.as_str()] = value.clone(),
            (false, _) => return Err(format!("{name} of the options has a value of the wrong type")),
        }
    }
    Ok(options)
}

/// The query that says the same as these options. Parameters that are no options stay.
pub(super) fn query_of(options: &Value, query: &Query) -> Query {
    let is_option = |name: &str| FLAGS.contains(&name) || matches!(name, "container" | "command" | "ports");
    let mut pairs: Vec<(String, String)> = query.pairs().iter().filter(|(name, _)| !is_option(name)).cloned().collect();
    let mut add = |name: &str, value: String| pairs.push((name.to_owned(), value));
    for name in FLAGS.into_iter().filter(|name| options[*name] == true) {
        add(name, "true".to_owned());
    }
    if let Some(container) = options["container"].as_str() {
        add("container", container.to_owned());
    }
    for word in options["command"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        add("command", word.to_owned());
    }
    for port in options["ports"].as_array().into_iter().flatten().filter_map(Value::as_i64) {
        add("ports", port.to_string());
    }
    Query::from_pairs(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ad_6_changed_options_are_decoded() {
        let options = json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls"], "tty": true});
        assert_eq!(decode(options.clone()), Ok(options));
        let more = json!({"kind": "PodExecOptions", "apiVersion": "v1", "nope": 1, "container": null});
        assert_eq!(decode(more), Ok(json!({"kind": "PodExecOptions", "apiVersion": "v1"})));
        for wrong in
            [json!({"command": "ls"}), json!({"command": [1]}), json!({"tty": "yes"}), json!({"ports": [1_i64 << 40]})]
        {
            assert!(decode(wrong).unwrap_err().contains("wrong type"));
        }
        assert!(decode(json!([])).is_err());
    }

    #[test]
    fn ad_6_options_become_a_query_again() {
        let query = Query::parse("command=ls&stdin=1&x=y&container=c");
        let options = json!({"kind": "PodExecOptions", "command": ["sh", "-c"], "stdout": true});
        let next = query_of(&options, &query);
        assert_eq!(next, Query::parse("x=y&stdout=true&command=sh&command=-c"));
    }
}
