//! The suites in `tests/operators/suites.json`: whose they are, what is compiled, and what is known of them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::progress::Failure;
use crate::workspace::Workspace;

/// The list, below the root of the workspace.
pub(crate) const FILE: &str = "tests/operators/suites.json";

/// The tests of one published Go module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) name: String,
    /// `path@version`, as the Go proxy has it.
    pub(crate) module: String,
    /// What it asks of a server.
    pub(crate) style: String,
    /// Folders of the packages whose tests are run.
    pub(crate) packages: Vec<String>,
    /// Those of them that `cargo xtask test` runs too.
    pub(crate) in_tests: Vec<String>,
    /// Commands that run in the copy of the module before it is compiled: they make what is not published with it.
    pub(crate) prepare: Vec<Vec<String>>,
    /// Further words for each test program, such as `-ginkgo.skip=...`.
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) known: Vec<Known>,
}

/// A test that fails on a genuine server too, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    /// Part of the name of the test.
    pub(crate) test: String,
    pub(crate) why: String,
}

impl Suite {
    /// Returns why a test is known to fail everywhere, if it is.
    pub(crate) fn known(&self, test: &str) -> Option<&str> {
        self.known.iter().find(|known| test.contains(&known.test)).map(|known| known.why.as_str())
    }
}

pub(crate) fn read(workspace: &Workspace) -> Result<Vec<Suite>, Failure> {
    parse(&workspace.read(FILE)).map_err(|e| format!("{FILE}: {e}"))
}

fn parse(text: &str) -> Result<Vec<Suite>, Failure> {
    let document: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let suites = document["suites"].as_array().ok_or("suites is no list")?;
    suites.iter().map(suite).collect()
}

fn suite(value: &Value) -> Result<Suite, Failure> {
    let text =
        |name: &str| value[name].as_str().map(str::to_owned).ok_or_else(|| format!("{name} is missing in {value}"));
    let suite = Suite {
        name: text("name")?,
        module: text("module")?,
        style: text("style")?,
        packages: texts(&value["packages"]),
        in_tests: texts(&value["in_tests"]),
        prepare: value["prepare"].as_array().into_iter().flatten().map(texts).collect(),
        arguments: texts(&value["arguments"]),
        variables: value["variables"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        known: value["known"].as_array().into_iter().flatten().map(known).collect::<Result<_, _>>()?,
    };
    if suite.packages.is_empty() {
        return Err(format!("{} has no packages", suite.name));
    }
    if suite.prepare.iter().any(Vec::is_empty) {
        return Err(format!("{} has an empty command in prepare", suite.name));
    }
    match suite.in_tests.iter().find(|package| !suite.packages.contains(package)) {
        Some(package) => Err(format!("{} has no package {package}", suite.name)),
        None => Ok(suite),
    }
}

fn known(value: &Value) -> Result<Known, Failure> {
    match (value["test"].as_str(), value["why"].as_str()) {
        (Some(test), Some(why)) if !test.is_empty() => Ok(Known { test: test.to_owned(), why: why.to_owned() }),
        _ => Err(format!("a known failure has a test and a why: {value}")),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_this_tree_is_readable() {
        let suites = read(&Workspace::locate()).unwrap();
        assert!(suites.iter().filter(|suite| !suite.in_tests.is_empty()).count() >= 2);
        for suite in &suites {
            assert!(suite.module.contains("@v"), "{}", suite.module);
        }
    }

    #[test]
    fn a_known_failure_is_found_by_a_part_of_its_name() {
        let text = r#"{"suites": [{"name": "n", "module": "m@v1", "style": "s", "packages": ["a"],
            "known": [{"test": "TestSlow", "why": "it needs the net"}]}]}"#;
        let suites = parse(text).unwrap();
        assert_eq!(suites[0].known("TestSlow/one"), Some("it needs the net"));
        assert_eq!(suites[0].known("TestFast"), None);
        assert!(parse(r#"{"suites": [{"name": "n"}]}"#).is_err());
    }

    #[test]
    fn a_command_of_prepare_has_a_name() {
        let text = |prepare: &str| {
            format!(
                r#"{{"suites": [{{"name": "n", "module": "m@v1", "style": "s", "packages": ["a"], "prepare": {prepare}}}]}}"#
            )
        };
        assert_eq!(parse(&text(r#"[["make", "all"]]"#)).unwrap()[0].prepare, [["make", "all"]]);
        assert!(parse(&text("[[]]")).unwrap_err().contains("empty command"));
    }
}
