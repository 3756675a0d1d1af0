//! Reads objects from files: YAML with several documents, JSON, lists.

use std::io::Read;
use std::path::Path;

use machinery::json::Value;

use crate::failure::Failure;

/// Reads all objects of a file, or of standard input for `-`. A List is replaced by its items.
pub(super) fn read(path: &Path) -> Result<Vec<Value>, Failure> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::new(format!("standard input: {error}")))?;
    } else {
        text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
    }
    let mut objects = Vec::new();
    for document in split(&text) {
        let read = machinery::yaml::read(document.as_bytes())
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        match read.value {
            Value::Null => {}
            Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
                if let Some(Value::Array(items)) = list.remove("items") {
                    objects.extend(items);
                }
            }
            object => objects.push(object),
        }
    }
    for object in &objects {
        for member in ["apiVersion", "kind"] {
            if !object[member].is_string() {
                return Err(Failure::new(format!("{}: an object has no {member}", path.display())));
            }
        }
    }
    if objects.is_empty() {
        return Err(Failure::new(format!("{} has no objects in it", path.display())));
    }
    Ok(objects)
}

/// Splits a YAML stream into documents, at lines that begin with three dashes.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            documents.push(String::new());
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents
        .retain(|document| document.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')));
    documents
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn documents_are_split_at_lines_of_dashes() {
        let text = "# first\na: 1\n---\n# only a comment\n---\nb: |\n  --- not a mark\n";
        assert_eq!(split(text), ["# first\na: 1\n", "b: |\n  --- not a mark\n"]);
    }
}
