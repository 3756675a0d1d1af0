//! `cargo xtask operators`: runs the suites of real operators against this program, and against a genuine control plane.
//!
//! - [`list`]: which suites there are (`tests/operators/suites.json`)
//! - [`modules`]: a suite's published Go module, copied and compiled
//! - [`results`]: what the output of a Go test says
//! - [`run`]: one suite against one folder of programs
//! - [`table`]: the answer

pub(crate) mod list;
pub(crate) mod modules;
mod results;
mod run;
mod table;

use std::path::{Path, PathBuf};

use crate::progress::{self, Failure, Outcome, say};
use crate::tools;
use crate::workspace::Workspace;
use list::Suite;
use run::{Assets, SuiteResult};

const USAGE: &str = "usage: cargo xtask operators [NAME...] [--reference DIR] [--program FILE] [--list]";

/// Command-line arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    names: Vec<String>,
    /// Folder with a genuine kube-apiserver and etcd.
    reference: Option<PathBuf>,
    /// The program under test; built in release mode if not given.
    program: Option<PathBuf>,
    /// Only lists the suites.
    list: bool,
}

impl Arguments {
    fn parse(words: &[&str]) -> Result<Self, Failure> {
        let mut arguments = Arguments::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut path = || words.next().map(PathBuf::from).ok_or_else(|| format!("{word} needs a path; {USAGE}"));
            match *word {
                "--reference" => arguments.reference = Some(path()?),
                "--program" => arguments.program = Some(path()?),
                "--list" => arguments.list = true,
                flag if flag.starts_with('-') => return Err(format!("no such option: {flag}; {USAGE}")),
                name => arguments.names.push(name.to_owned()),
            }
        }
        Ok(arguments)
    }
}

pub(crate) fn operators(workspace: &Workspace, words: &[&str]) -> Outcome {
    let arguments = Arguments::parse(words)?;
    let suites = list::read(workspace)?;
    if arguments.list {
        print!("{}", table::list(&suites));
        return Ok(());
    }
    let chosen = choose(&suites, &arguments.names)?;
    let ours = Assets::of_program(&program(workspace, arguments.program)?)?;
    let reference = reference(workspace, arguments.reference)?;
    if reference.is_none() {
        say(
            "no genuine control plane is at hand (--reference DIR, or .tools/reference): only this program is measured",
        );
    }
    let mut rows = Vec::new();
    for suite in chosen {
        let built = match modules::build(workspace, suite, &suite.packages) {
            Ok(built) => built,
            Err(failure) => {
                say(&failure);
                rows.push(table::Row::not_built(suite));
                continue;
            }
        };
        let on = |assets: &Assets| -> Result<SuiteResult, Failure> {
            let step = format!("{} on {}", suite.name, assets.name());
            say(&format!("{step} ..."));
            let result = run::suite(workspace, suite, &built, assets)?;
            say(&format!("{step}: {} passed, {} failed", result.passed, result.failures.len()));
            Ok(result)
        };
        rows.push(table::Row::new(suite, on(&ours)?, reference.as_ref().map(on).transpose()?));
    }
    print!("{}", table::render(&rows));
    if rows.iter().all(table::Row::is_good) { Ok(()) } else { Err(progress::REPORTED.into()) }
}

/// Returns the suites with these names; all without names.
fn choose<'a>(suites: &'a [Suite], names: &[String]) -> Result<Vec<&'a Suite>, Failure> {
    if names.is_empty() {
        return Ok(suites.iter().collect());
    }
    let find = |name: &String| suites.iter().find(|suite| suite.name == *name);
    names
        .iter()
        .map(|name| {
            find(name).ok_or_else(|| {
                let known: Vec<_> = suites.iter().map(|suite| suite.name.as_str()).collect();
                format!("no suite is called {name:?}; there are {}", known.join(", "))
            })
        })
        .collect()
}

/// Returns the program under test.
fn program(workspace: &Workspace, given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(program) = given {
        return std::path::absolute(&program).map_err(|e| format!("{}: {e}", program.display()));
    }
    tools::release_program(workspace)
}

/// Returns the genuine programs: those that were named, else those in `.tools/reference`, if both are there.
fn reference(workspace: &Workspace, given: Option<PathBuf>) -> Result<Option<Assets>, Failure> {
    let is_complete = |folder: &Path| ["kube-apiserver", "etcd"].iter().all(|name| folder.join(name).is_file());
    match given {
        Some(folder) if is_complete(&folder) => Assets::in_folder("the reference", &folder).map(Some),
        Some(folder) => Err(format!("{} has no kube-apiserver and etcd", folder.display())),
        None => {
            let folder = workspace.tools.join("reference");
            if is_complete(&folder) { Assets::in_folder("the reference", &folder).map(Some) } else { Ok(None) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_names_and_paths() {
        let parsed = Arguments::parse(&["jobset", "--reference", "/g", "lws", "--program", "/p"]).unwrap();
        assert_eq!(parsed.names, ["jobset", "lws"]);
        assert_eq!((parsed.reference, parsed.program), (Some("/g".into()), Some("/p".into())));
        assert!(Arguments::parse(&["--reference"]).is_err());
        assert!(Arguments::parse(&["--fast"]).unwrap_err().contains("no such option"));
    }
}
