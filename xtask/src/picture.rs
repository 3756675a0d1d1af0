//! `cargo xtask picture`: runs the first minute of the README in terminals and draws what they showed, as an SVG that plays once.

mod session;
mod svg;

use std::path::PathBuf;

use crate::progress::{Outcome, say};
use crate::tools::{self, Tool};
use crate::workspace::Workspace;

/// The picture in the README.
const PICTURE: &str = "docs/first-minute.svg";

const USAGE: &str = "usage: cargo xtask picture [--program FILE] [--out FILE]";

pub(crate) fn picture(workspace: &Workspace, args: &[&str]) -> Outcome {
    let (mut program, mut out) = (None, workspace.root.join(PICTURE));
    let mut args = args.iter();
    while let Some(&flag) = args.next() {
        let value = PathBuf::from(args.next().ok_or(USAGE)?);
        match flag {
            "--program" => program = Some(value),
            "--out" => out = value,
            _ => return Err(USAGE.into()),
        }
    }
    let program = program.map_or_else(|| tools::release_program(workspace), Ok)?;
    tools::install(workspace, &[Tool::Kubectl])?;
    let terminals = session::record(&program, &workspace.bin().join("kubectl"))?;
    std::fs::write(&out, svg::draw(&terminals)).map_err(|e| format!("cannot write {}: {e}", out.display()))?;
    say(&format!("wrote {}", out.display()));
    Ok(())
}
