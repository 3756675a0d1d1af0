//! A suite's Go module: downloaded from the proxy, copied to `.tools/operators`, and its tests compiled.
//!
//! The module cache is read-only and shared, and some suites write beside their sources; so they run in a copy. `go.mod` and
//! `go.sum` are those that were published, unless the suite's own `prepare` changes them: some modules lack what their tests
//! need, such as manifests that a build makes, or a nested module that is published on its own.

use std::fs;
use std::path::{Path, PathBuf};

use super::list::Suite;
use crate::progress::{Failure, Outcome, Step};
use crate::workspace::Workspace;

/// A compiled test program and the folder in which it runs.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) package: String,
    pub(crate) file: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Folder of everything about one suite in this version.
pub(crate) fn folder(workspace: &Workspace, suite: &Suite) -> PathBuf {
    let version = suite.module.rsplit('@').next().unwrap_or_default();
    workspace.tools.join("operators").join(format!("{}-{version}", suite.name))
}

/// Downloads, copies and compiles what is missing.
pub(crate) fn build(workspace: &Workspace, suite: &Suite, packages: &[String]) -> Result<Vec<Program>, Failure> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let root = folder(workspace, suite);
    let sources = root.join("src");
    let programs: Vec<Program> = packages
        .iter()
        .map(|package| Program {
            package: package.clone(),
            file: root.join("bin").join(format!("{}.test", package.replace('/', "_"))),
            folder: sources.join(package),
        })
        .collect();
    if !sources.is_dir() {
        make(&root)?;
        let origin = download(workspace, suite, &root)?;
        let partial = copy(&origin, &sources)?;
        prepare(workspace, suite, &partial, &root)?;
        // A copy that was interrupted is not taken for a whole one.
        fs::rename(&partial, &sources).map_err(|e| format!("cannot rename {}: {e}", partial.display()))?;
    }
    for program in programs.iter().filter(|program| !program.file.is_file()) {
        make(&root.join("bin"))?;
        // Not with -trimpath: some suites find their manifests by the path of their sources.
        let mut build = workspace.command("go", &["test", "-c", "-o"]);
        // In the folder of the package, which may be in a nested module that `prepare` made.
        build.arg(&program.file).arg(".").current_dir(&program.folder);
        // A workspace file of the module names neighbours that are not published with it.
        build.env("GOWORK", "off");
        let log = root.join("build.log");
        Step::new(&format!("build {} {}", suite.name, program.package)).run_logged(&mut build, &log)?;
    }
    Ok(programs)
}

/// Returns the folder of the module in the cache.
fn download(workspace: &Workspace, suite: &Suite, root: &Path) -> Result<PathBuf, Failure> {
    let mut download = workspace.command("go", &["mod", "download", "-json", &suite.module]);
    let log = root.join("download.log");
    Step::new(&format!("get {}", suite.module)).run_logged(download.current_dir(root), &log)?;
    let output = fs::read_to_string(&log).map_err(|e| format!("cannot read {}: {e}", log.display()))?;
    let folder = output.lines().find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.split('"').next());
    folder.map(PathBuf::from).ok_or_else(|| format!("{} was downloaded to an unknown folder", suite.module))
}

/// Runs the suite's own commands in the copy.
fn prepare(workspace: &Workspace, suite: &Suite, copy: &Path, root: &Path) -> Outcome {
    for words in &suite.prepare {
        let Some((program, arguments)) = words.split_first() else { continue };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = workspace.command(program, &arguments);
        command.current_dir(copy).env("GOWORK", "off");
        let step = format!("prepare {}: {}", suite.name, words.join(" "));
        Step::new(&step).run_logged(&mut command, &root.join("prepare.log"))?;
    }
    Ok(())
}

/// Copies a module beside its final place and makes the copy writable.
fn copy(from: &Path, to: &Path) -> Result<PathBuf, Failure> {
    let partial = to.with_extension("partial");
    let _ = fs::remove_dir_all(&partial);
    copy_folder(from, &partial).map_err(|e| format!("cannot copy {} to {}: {e}", from.display(), partial.display()))?;
    Ok(partial)
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            let mode = fs::metadata(&target)?.permissions().mode();
            fs::set_permissions(&target, fs::Permissions::from_mode(mode | 0o200))?;
        }
    }
    Ok(())
}

fn make(folder: &Path) -> Outcome {
    fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))
}
