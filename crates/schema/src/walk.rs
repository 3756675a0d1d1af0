//! Reading and filling JSON objects by field name. Nothing here fails on odd JSON: what is not there, or is of another
//! type, reads as absent.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// Reads; a path is field names joined by dots.
pub(crate) trait Walk {
    /// What stands at a path; null when it is not there.
    fn at(&self, path: &str) -> &Value;

    /// A string; empty when it is not there.
    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn int(&self, path: &str) -> Option<i64> {
        self.at(path).as_i64()
    }

    fn flag(&self, path: &str) -> Option<bool> {
        self.at(path).as_bool()
    }

    fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn map(&self, path: &str) -> Option<&Map<String, Value>> {
        self.at(path).as_object()
    }

    /// Something other than null stands there.
    fn has(&self, path: &str) -> bool {
        !self.at(path).is_null()
    }
}

impl Walk for Value {
    fn at(&self, path: &str) -> &Value {
        let mut at = self;
        for name in path.split('.') {
            match at.as_object().and_then(|map| map.get(name)) {
                Some(next) => at = next,
                None => return &NULL,
            }
        }
        at
    }
}
