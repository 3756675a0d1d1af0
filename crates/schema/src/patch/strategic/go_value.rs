//! Values as Go's `%v` prints them: `map[a:1 b:[x y]]`, as in messages of strategic merge.

use machinery::go_text;
use machinery::json::Value;

pub(crate) fn go_value(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&go_text::number(number)),
        Value::String(text) => out.push_str(text),
        Value::Raw(_) => write(&value.parsed(), out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            for (at, (key, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write(value, out);
            }
            out.push(']');
        }
    }
}
