//! `cargo xtask tidy`: house rules that fail the build, so that a reviewer need not look for them.
//!
//! - `crates.rs`: dependencies between crates; versions and lints only in the workspace manifest
//! - `files.rs`: purpose lines, size, unfinished code, words that do not belong in the tree
//! - `map.rs`: ARCHITECTURE.md has every crate and every dependency, and no others
//! - `paths.rs`: paths and links in the documentation exist
//! - `rows.rs`: every row of the specification is listed and has a test that carries its id
//! - `spec.rs`: the rows and sections of `docs/spec`, and citations of them
//! - `words.rs`: English that needs a second reading

mod crates;
mod files;
mod map;
mod paths;
mod rows;
mod spec;
mod words;

use crate::progress::{Outcome, say};
use crate::workspace::Workspace;

/// Checks all rules.
pub(crate) fn tidy(workspace: &Workspace, args: &[&str]) -> Outcome {
    match args {
        [] => report(rules(workspace)?),
        _ => Err(format!("tidy takes no arguments, not {}", args.join(" "))),
    }
}

/// Returns a summary of what was checked, and the complaints.
fn rules(workspace: &Workspace) -> Result<(String, Vec<String>), String> {
    let metadata = workspace.metadata()?;
    let mut complaints = crates::check(workspace, &metadata);
    let (read, found) = files::check(&workspace.root);
    complaints.extend(found);
    complaints.extend(map::check(workspace, &metadata));
    complaints.extend(paths::check(&workspace.root));
    let (rows, found) = rows::check(&workspace.root);
    complaints.extend(found);
    complaints.extend(words::check(&workspace.root));
    Ok((format!("{read} files, {rows} rows of the specification"), complaints))
}

fn report((summary, complaints): (String, Vec<String>)) -> Outcome {
    for complaint in &complaints {
        println!("{complaint}");
    }
    if complaints.is_empty() {
        say(&format!("tidy ok, {summary}"));
        Ok(())
    } else {
        Err(format!("tidy: {} complaints", complaints.len()))
    }
}
