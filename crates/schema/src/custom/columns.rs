//! Table columns of a custom kind.

use machinery::go_text;
use machinery::json::{Value, json};

use super::jsonpath::JsonPath;
use crate::columns::Row;

/// A column after the name.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    path: JsonPath,
}

impl Column {
    /// Reads a column of a definition; `None` if its path is invalid.
    #[must_use]
    pub fn new(source: &Value) -> Option<Column> {
        let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = text("jsonPath");
        let description = match text("description") {
            none if none.is_empty() => format!("Custom resource definition column (in JSONPath format): {path}"),
            given => given,
        };
        Some(Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: source.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            path: JsonPath::parse(&path).ok()?,
        })
    }

    /// Returns the age column, which kinds without columns of their own have.
    #[must_use]
    pub fn age() -> Column {
        Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            // Set when a table is rendered, which never happens for most kinds.
            description: String::new(),
            priority: 0,
            path: JsonPath::parse(".metadata.creationTimestamp").expect("a path of this file"),
        }
    }
}

/// Returns the entries of `columnDefinitions`.
#[must_use]
pub fn definitions(columns: &[Column]) -> Value {
    let described = crate::columns::description("Name", None);
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": described, "priority": 0});
    let rest = columns.iter().map(|column| {
        let description = match column.description.as_str() {
            "" => crate::columns::description("Age", None),
            given => given.into(),
        };
        json!({"name": column.name, "type": column.kind, "format": column.format, "description": description,
               "priority": column.priority})
    });
    std::iter::once(name).chain(rest).collect()
}

/// Returns the cells of an object; `now` is in seconds since 1970.
#[must_use]
pub fn row(columns: &[Column], object: &Value, now: i64) -> Row {
    let name = object["metadata"]["name"].clone();
    let cells = columns.iter().map(|column| match column.path.find(object).first() {
        None | Some(Value::Null) => Value::Null,
        Some(value) => cell(&column.kind, value, now),
    });
    Row { cells: std::iter::once(name).chain(cells).collect(), conditions: Vec::new() }
}

fn cell(kind: &str, value: &Value, now: i64) -> Value {
    match (kind, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Number(number)) => json!(go_text::number(number)),
        ("string", other) => json!(go_text::json(other)),
        ("integer", Value::Number(number)) if number.is_i64() => json!(number),
        #[expect(clippy::cast_possible_truncation, reason = "the reference cuts off what does not fit too")]
        ("integer", Value::Number(number)) => json!(number.as_f64().unwrap_or_default() as i64),
        ("number", Value::Number(number)) => json!(number),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.parse::<jiff::Timestamp>() {
            Ok(then) => json!(machinery::age::human(jiff::SignedDuration::from_secs(now - then.as_second()))),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}
