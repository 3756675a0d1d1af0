//! `cargo xtask tidy`: house rules as tests. It fails the build, so that a reviewer need not.
//!
//! - `crates.rs`: which crate may use which, and that versions and lints stand only in the workspace manifest
//! - `files.rs`: purpose lines, size, unfinished code, words that do not belong in the tree
//! - `map.rs`: ARCHITECTURE.md names every crate and every dependency
//! - `rows.rs`: every row of the specification has a test that carries its name

mod crates;
mod files;
mod map;
mod rows;

use crate::progress::{Outcome, say};
use crate::workspace::Workspace;

pub(crate) fn tidy(workspace: &Workspace) -> Outcome {
    let metadata = workspace.metadata()?;
    let mut complaints = crates::check(workspace, &metadata);
    let (read, found) = files::check(&workspace.root);
    complaints.extend(found);
    complaints.extend(map::check(workspace, &metadata));
    let (rows, found) = rows::check(&workspace.root);
    complaints.extend(found);
    for complaint in &complaints {
        println!("{complaint}");
    }
    if complaints.is_empty() {
        say(&format!("tidy ok, {read} files, {rows} rows of the specification"));
        Ok(())
    } else {
        Err(format!("tidy: {} complaints", complaints.len()))
    }
}
