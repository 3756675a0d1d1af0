//! The functions of templates: those of Go, those that KWOK adds, and the ones of sprig that stages use.

use serde_json::{Map, Value, json};

use super::query::weight;

/// What templates learn about the cluster.
pub(in crate::nodes) trait Facts {
    /// The present time, as RFC 3339.
    fn now(&self) -> String;
    fn node_name(&self) -> String;
    /// The address of a node.
    fn node_ip(&self, node: &str) -> String;
    /// The address of the pod that the template is about.
    fn pod_ip(&self) -> String;
}

/// The port of a node's agent.
const NODE_PORT: u16 = 10250;
/// Texts that functions repeat or pad are at most this long.
const TEXT_MAX: usize = 64 * 1024;
/// Largest result of a function, as [`weight`] counts it, and how deep it may be nested.
const RESULT_BYTES_MAX: usize = 1024 * 1024;
const RESULT_DEPTH_MAX: usize = 64;

const NAMES: [&str; 63] = [
    "and",
    "or",
    "not",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "index",
    "len",
    "print",
    "printf",
    "println",
    "Quote",
    "Now",
    "StartTime",
    "YAML",
    "Version",
    "NodeConditions",
    "NodeIP",
    "NodeIPs",
    "NodeName",
    "NodePort",
    "NodeIPWith",
    "NodeIPsWith",
    "PodIP",
    "PodIPs",
    "PodIPWith",
    "PodIPsWith",
    "default",
    "dict",
    "list",
    "quote",
    "squote",
    "upper",
    "lower",
    "trim",
    "trimPrefix",
    "trimSuffix",
    "replace",
    "contains",
    "hasPrefix",
    "hasSuffix",
    "toString",
    "toJson",
    "int",
    "add",
    "sub",
    "mul",
    "div",
    "mod",
    "ternary",
    "coalesce",
    "empty",
    "join",
    "hasKey",
    "get",
    "trunc",
    "indent",
    "nindent",
    "now",
    "toYaml",
];

pub(super) fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

/// As Go decides: zero, empty and missing values are false.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// As Go prints it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let mut members: Vec<String> =
                members.iter().map(|(name, value)| format!("{name}:{}", shown(value))).collect();
            members.sort();
            format!("map[{}]", members.join(" "))
        }
        other => other.to_string(),
    }
}

/// Calls a function. Results are bounded, since variables can be given to functions again and again.
pub(super) fn call(name: &str, arguments: Vec<Value>, facts: &dyn Facts) -> Result<Value, String> {
    let result = evaluate(name, arguments, facts)?;
    if !is_within(&result, RESULT_DEPTH_MAX) || weight(&result) > RESULT_BYTES_MAX {
        return Err(format!("error calling {name}: the result is too large"));
    }
    Ok(result)
}

/// Whether a value is not nested deeper.
fn is_within(value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| is_within(item, depth)),
        Value::Object(members) => members.values().all(|member| is_within(member, depth)),
        _ => true,
    }
}

fn evaluate(name: &str, arguments: Vec<Value>, facts: &dyn Facts) -> Result<Value, String> {
    let wrong = |why: &str| format!("error calling {name}: {why}");
    let at = |at: usize| arguments.get(at).cloned().unwrap_or_default();
    let text = |number: usize| arguments.get(number).filter(|value| !value.is_null()).map(shown).unwrap_or_default();
    let number = |number: usize| match arguments.get(number) {
        Some(Value::Number(value)) => {
            value.as_i64().or_else(|| value.as_f64().map(|value| value as i64)).unwrap_or_default()
        }
        Some(Value::String(text)) => text.trim().parse().unwrap_or_default(),
        Some(Value::Bool(true)) => 1,
        _ => 0,
    };
    // For functions that repeat a text: before the result is made.
    let repeats = |text: &str, times: usize| match text.len().checked_mul(times) {
        Some(bytes) if bytes <= RESULT_BYTES_MAX => Ok(()),
        _ => Err(wrong("the result is too large")),
    };
    let last = || arguments.last().cloned().unwrap_or_default();
    Ok(match name {
        "and" => arguments.iter().find(|value| !is_true(value)).cloned().unwrap_or_else(last),
        "or" => arguments.iter().find(|value| is_true(value)).cloned().unwrap_or_else(last),
        "not" => (!is_true(&at(0))).into(),
        "eq" => arguments.iter().skip(1).any(|other| same(&arguments[0], other)).into(),
        "ne" => (!same(&at(0), &at(1))).into(),
        "lt" | "le" | "gt" | "ge" => {
            ordered(name, &at(0), &at(1)).ok_or_else(|| wrong("incompatible types for comparison"))?.into()
        }
        "index" => index(&arguments),
        "len" => match at(0) {
            Value::String(text) => text.len().into(),
            Value::Array(items) => items.len().into(),
            Value::Object(members) => members.len().into(),
            _ => return Err(wrong("len of nil pointer")),
        },
        "print" => arguments.iter().map(shown).collect::<String>().into(),
        "println" => format!("{}\n", arguments.iter().map(shown).collect::<Vec<_>>().join(" ")).into(),
        "printf" => printf(&arguments).into(),
        "Quote" => quoted(&at(0)).into(),
        "quote" => json!(shown(&at(0))).to_string().into(),
        "squote" => format!("'{}'", text(0)).into(),
        "Now" | "StartTime" | "now" => facts.now().into(),
        "YAML" => yaml(&at(0), number(1)).into(),
        "toYaml" | "toJson" => at(0).to_string().into(),
        "Version" => concat!("dogwatch-", env!("CARGO_PKG_VERSION")).into(),
        "NodeConditions" => node_conditions(),
        "NodeIP" => facts.node_ip(&facts.node_name()).into(),
        "NodeIPs" => json!([facts.node_ip(&facts.node_name())]),
        "NodeName" => facts.node_name().into(),
        "NodePort" => NODE_PORT.into(),
        "NodeIPWith" => facts.node_ip(&text(0)).into(),
        "NodeIPsWith" => json!([facts.node_ip(&text(0))]),
        "PodIP" | "PodIPWith" => facts.pod_ip().into(),
        "PodIPs" | "PodIPsWith" => json!([facts.pod_ip()]),
        "default" => {
            if is_true(&at(1)) {
                at(1)
            } else {
                at(0)
            }
        }
        "coalesce" => arguments.iter().find(|value| is_true(value)).cloned().unwrap_or_default(),
        "empty" => (!is_true(&at(0))).into(),
        "ternary" => {
            if is_true(&at(2)) {
                at(0)
            } else {
                at(1)
            }
        }
        "dict" => {
            let pairs = arguments.chunks_exact(2).map(|pair| (shown(&pair[0]), pair[1].clone()));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        "list" => Value::Array(arguments),
        "hasKey" => at(0).get(text(1)).is_some().into(),
        "get" => at(0).get(text(1)).cloned().unwrap_or_else(|| "".into()),
        "upper" => text(0).to_uppercase().into(),
        "lower" => text(0).to_lowercase().into(),
        "trim" => text(0).trim().into(),
        "trimPrefix" => text(1).strip_prefix(&text(0)).map_or_else(|| text(1), str::to_owned).into(),
        "trimSuffix" => text(1).strip_suffix(&text(0)).map_or_else(|| text(1), str::to_owned).into(),
        "replace" => {
            let (old, new, whole) = (text(0), text(1), text(2));
            repeats(&new, whole.matches(old.as_str()).count())?;
            bounded(whole.replace(&old, &new)).into()
        }
        "contains" => text(1).contains(&text(0)).into(),
        "hasPrefix" => text(1).starts_with(&text(0)).into(),
        "hasSuffix" => text(1).ends_with(&text(0)).into(),
        "toString" => text(0).into(),
        "int" => number(0).into(),
        "add" => (0..arguments.len()).map(number).fold(0i64, i64::wrapping_add).into(),
        "sub" => number(0).wrapping_sub(number(1)).into(),
        "mul" => (0..arguments.len()).map(number).fold(1i64, i64::wrapping_mul).into(),
        "div" => number(0).checked_div(number(1)).ok_or_else(|| wrong("division by zero"))?.into(),
        "mod" => number(0).checked_rem(number(1)).ok_or_else(|| wrong("division by zero"))?.into(),
        "join" => match at(1) {
            Value::Array(items) => {
                let between = text(0);
                repeats(&between, items.len())?;
                items.iter().map(shown).collect::<Vec<_>>().join(&between).into()
            }
            other => shown(&other).into(),
        },
        "trunc" => text(1).chars().take(usize::try_from(number(0)).unwrap_or_default()).collect::<String>().into(),
        "indent" | "nindent" => {
            let (text, pad) = (text(1), padding(number(0)));
            repeats(&pad, text.lines().count())?;
            let before = if name == "nindent" { "\n" } else { "" };
            format!("{before}{}", indented(&text, &pad)).into()
        }
        _ => return Err(format!("function {name:?} not defined")),
    })
}

fn bounded(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
    }
    text
}

fn padding(by: i64) -> String {
    " ".repeat(usize::try_from(by).unwrap_or_default().min(64))
}

fn indented(text: &str, pad: &str) -> String {
    text.lines().map(|line| format!("{pad}{line}")).collect::<Vec<_>>().join("\n")
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

fn ordered(name: &str, left: &Value, right: &Value) -> Option<bool> {
    let order = match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64())?,
        (Value::String(left), Value::String(right)) => left.cmp(right),
        _ => return None,
    };
    Some(match name {
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    })
}

fn index(arguments: &[Value]) -> Value {
    let Some((first, keys)) = arguments.split_first() else { return Value::Null };
    let found = keys.iter().try_fold(first, |value, key| match key {
        Value::String(name) => value.get(name),
        Value::Number(at) => value.get(usize::try_from(at.as_u64()?).ok()?),
        _ => None,
    });
    found.cloned().unwrap_or_default()
}

/// A JSON text; other values become a text of their JSON.
fn quoted(value: &Value) -> String {
    match value {
        Value::String(_) => value.to_string(),
        other => Value::String(other.to_string()).to_string(),
    }
}

/// JSON is YAML too; it starts on a line of its own if it is indented.
fn yaml(value: &Value, indent: i64) -> String {
    let pad = "  ".repeat(usize::try_from(indent).unwrap_or_default().min(32));
    if pad.is_empty() { format!("{value}\n") } else { format!("\n{pad}{value}\n") }
}

fn printf(arguments: &[Value]) -> String {
    let mut values = arguments.iter();
    let format = values.next().map(shown).unwrap_or_default();
    let (mut out, mut letters) = (String::new(), format.chars());
    while let Some(c) = letters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match letters.next() {
            Some('%') => out.push('%'),
            Some('q') => out.push_str(&json!(values.next().map(shown).unwrap_or_default()).to_string()),
            Some(_) => out.push_str(&values.next().map(shown).unwrap_or_default()),
            None => out.push('%'),
        }
    }
    bounded(out)
}

fn node_conditions() -> Value {
    let conditions = [
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    ];
    let condition = |(kind, status, reason, message): (&str, &str, &str, &str)| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": null, "lastTransitionTime": null})
    };
    conditions.into_iter().map(condition).collect()
}
