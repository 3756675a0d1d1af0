//! Compares with recordings of kube-apiserver, if they are next to the checkout (or in the folder
//! `DOGWATCH_RECORDINGS`). Without recordings these tests print a note and pass; the unit tests do not depend on them.

use std::path::PathBuf;

use machinery::json::Value;

#[path = "recordings/columns.rs"]
mod columns;
#[path = "recordings/decode.rs"]
mod decode;
#[path = "recordings/discovery.rs"]
mod discovery;
#[path = "recordings/kinds.rs"]
mod kinds;
#[path = "recordings/writes.rs"]
mod writes;

/// Returns the scenarios of a file; none if it is absent.
fn scenarios(file: &str) -> Vec<Value> {
    let folder = std::env::var_os("DOGWATCH_RECORDINGS")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/recordings"));
    match std::fs::read(folder.join(file)) {
        Ok(bytes) => serde_json::from_slice(&bytes).expect("a recording is a JSON array"),
        Err(_) => {
            eprintln!("no recordings: nothing compared");
            Vec::new()
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn steps(scenario: &Value) -> &[Value] {
    scenario["steps"].as_array().map(Vec::as_slice).unwrap_or_default()
}
