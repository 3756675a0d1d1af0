//! Results of mutations: messages that an expression created, as JSON.

use machinery::json::{Map as JsonMap, Value};

use crate::checker::JSON_PATCH;
use crate::library::{Implementation, string_arg};
use crate::value::{Key, List, Map, Message, Val};

/// Levels of a created value; deeper ones are refused.
const DEPTH_MAX: usize = 100;
/// Bytes that a mutation creates, in all its operations: no larger object can be stored.
const BYTES_MAX: usize = 3 * 1024 * 1024;
/// Operations of a created JSON patch: no patch may have more.
const OPERATIONS_MAX: u64 = 10_000;
/// Values of one mutation whose types are compared with their paths. Values are shared, so that a short expression can name very many.
const NAMES_MAX: usize = 1_000_000;
/// Wrong types that are reported.
const WRONG_MAX: usize = 64;

/// Functions that only mutations have.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    match name {
        "jsonpatch.escapeKey" => Some(|args, meter| {
            let text = string_arg(args)?;
            meter.bytes(text.len())?;
            Ok(Val::string(text.replace('~', "~0").replace('/', "~1")))
        }),
        _ => None,
    }
}

/// Converts the apply configuration that an expression returned.
pub(crate) fn apply_configuration(value: &Val<'_>) -> Result<Value, String> {
    let Val::Message(message) = value else {
        return Err(format!("unsupported return type from ApplyConfiguration expression: {}", value.type_name()));
    };
    check_names(message, &mut { NAMES_MAX })?;
    to_json(value)
}

/// Converts the list of JSON patch operations that an expression returned.
pub(crate) fn json_patch(value: &Val<'_>) -> Result<Vec<Value>, String> {
    let Val::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    if list.len() > OPERATIONS_MAX {
        return Err(format!("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}", list.len()));
    }
    // All operations share one budget, since each of them can name the whole object.
    let (mut budget, mut names) = (Budget(BYTES_MAX), NAMES_MAX);
    let mut operations = Vec::new();
    for element in list.iter() {
        match element {
            Ok(Val::Message(message)) if &*message.name == JSON_PATCH => {
                operations.push(operation(&message, &mut budget, &mut names)?);
            }
            _ => return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned()),
        }
    }
    Ok(operations)
}

fn operation(message: &Message<'_>, budget: &mut Budget, names: &mut usize) -> Result<Value, String> {
    let mut members = JsonMap::new();
    // The members are sent with these names whether they are set or not, except `from` and `value`.
    for name in ["op", "path", "from"] {
        let text = match message.fields.get(name) {
            Some(Val::String(text)) => {
                budget.take(name.len() + text.len())?;
                text.to_string()
            }
            None => String::new(),
            Some(other) => {
                return Err(format!("unexpected type {} for JSONPatchType '{name}' field", other.type_name()));
            }
        };
        if name != "from" || !text.is_empty() {
            members.insert(name, text.into());
        }
    }
    if let Some(value) = message.fields.get("value") {
        if let Val::Message(inner) = value {
            check_names(inner, names)?;
        }
        let value = convert(value, budget, 0).map_err(|why| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
        })?;
        members.insert("value", value);
    }
    Ok(members.into())
}

/// Checks that the types of nested messages are named by their paths. `left` is how many values may still be visited.
fn check_names(message: &Message<'_>, left: &mut usize) -> Result<(), String> {
    let mut search = Search { path: message.name.to_string(), wrong: Vec::new(), left };
    search.message(message, 0);
    if *search.left == 0 {
        return Err(format!("value has more than {NAMES_MAX} parts"));
    }
    if search.wrong.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", search.wrong.join("\n"))) }
}

/// The search for messages whose type is not named by their path.
struct Search<'s> {
    path: String,
    wrong: Vec<String>,
    left: &'s mut usize,
}

impl Search<'_> {
    fn message(&mut self, message: &Message<'_>, depth: usize) {
        if *message.name != *self.path && self.wrong.len() < WRONG_MAX {
            self.wrong.push(format!(
                "unexpected type name \"{}\", expected \"{}\", which matches field name path from root Object type",
                message.name, self.path
            ));
        }
        for (name, value) in &message.fields {
            let length = self.path.len();
            self.path.push('.');
            self.path.push_str(name);
            self.value(value, depth + 1);
            self.path.truncate(length);
        }
    }

    fn value(&mut self, value: &Val<'_>, depth: usize) {
        *self.left = self.left.saturating_sub(1);
        // Deeper values are refused when they are converted.
        if depth > DEPTH_MAX || *self.left == 0 {
            return;
        }
        match value {
            Val::Message(message) => self.message(message, depth),
            Val::List(List::Values(values)) => values.iter().for_each(|value| self.value(value, depth + 1)),
            Val::Map(Map::Values(values)) => values.values().for_each(|value| self.value(value, depth + 1)),
            _ => {}
        }
    }
}

/// Bytes of JSON that one mutation may still create. Values from the object are shared, so a short expression can name more
/// than could ever be stored.
struct Budget(usize);

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| format!("value is larger than {BYTES_MAX} bytes"))?;
        Ok(())
    }

    /// Charges for a part of the object.
    fn take_json(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::Object(members) => members.iter().try_for_each(|(name, value)| {
                self.take(name.len() + 4)?;
                self.take_json(value)
            }),
            Value::Array(items) => items.iter().try_for_each(|item| {
                self.take(1)?;
                self.take_json(item)
            }),
            Value::String(text) => self.take(text.len() + 2),
            Value::Raw(text) => self.take(text.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) => self.take(5),
        }
    }
}

/// Converts a value to JSON.
pub(crate) fn to_json(value: &Val<'_>) -> Result<Value, String> {
    convert(value, &mut Budget(BYTES_MAX), 0)
}

fn convert(value: &Val<'_>, budget: &mut Budget, depth: usize) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err("value is nested too deeply".to_owned());
    }
    budget.take(2)?;
    let below = |value: &Val<'_>, budget: &mut Budget| convert(value, budget, depth + 1);
    Ok(match value {
        Val::Null | Val::Optional(None) => Value::Null,
        Val::Bool(value) => (*value).into(),
        Val::Int(value) => (*value).into(),
        Val::Uint(value) => (*value).into(),
        Val::Double(value) => (*value).into(),
        Val::String(text) => {
            budget.take(text.len())?;
            (&**text).into()
        }
        Val::Bytes(bytes) => {
            budget.take(bytes.len() * 4 / 3)?;
            crate::formats::to_base64(bytes).into()
        }
        Val::Duration(span) => span.to_text().into(),
        Val::Timestamp(time) => time.to_text().into(),
        Val::Optional(Some(value)) => below(value, budget)?,
        Val::Preserved(value) => {
            budget.take_json(value)?;
            (*value).clone()
        }
        Val::List(List::Json { items, .. }) => {
            items.iter().try_for_each(|item| budget.take_json(item))?;
            Value::Array(items.iter().cloned().collect())
        }
        Val::List(list) => {
            let mut values = Vec::new();
            for element in list.iter() {
                values.push(below(&element.map_err(|fault| fault.to_string())?, budget)?);
            }
            Value::Array(values.into_iter().collect())
        }
        Val::Map(Map::Json { entries, .. }) => {
            let value = Value::Object((*entries).clone());
            budget.take_json(&value)?;
            value
        }
        Val::Map(Map::Values(values)) => {
            let mut members = JsonMap::new();
            for (key, value) in values.iter() {
                let Key::Text(name) = key else {
                    return Err(format!("map key {} is not a string", Val::from(key.clone())));
                };
                budget.take(name.len())?;
                members.insert(&**name, below(value, budget)?);
            }
            members.into()
        }
        Val::Message(message) => {
            let mut members = JsonMap::new();
            for (name, value) in &message.fields {
                budget.take(name.len())?;
                members.insert(&**name, below(value, budget)?);
            }
            members.into()
        }
        other => return Err(format!("unsupported type {}", other.type_name())),
    })
}
