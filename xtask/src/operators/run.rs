//! One suite against one folder of programs (`kube-apiserver`, `etcd`, `kubectl`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::list::Suite;
use super::modules::{self, Program};
use super::results::Results;
use crate::progress::{Failure, say};
use crate::workspace::Workspace;

/// After this a test program ends itself and prints where it was.
const TIMEOUT: &str = "20m";

/// How long a control plane may take to start.
const START_TIMEOUT: &str = "5m";

/// The version under which suites look for programs that they would download.
pub(crate) const VERSION: &str = "1.36.4";

/// A control plane's programs.
#[derive(Debug)]
pub(super) struct Assets {
    name: String,
    folder: PathBuf,
}

impl Assets {
    /// The folder that `dogwatch assets` prints.
    pub(super) fn of_program(program: &Path) -> Result<Self, Failure> {
        let printed = Command::new(program).arg("assets").output();
        let printed = printed.map_err(|e| format!("{} did not start: {e}", program.display()))?;
        let folder = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
        if !printed.status.success() || folder.is_empty() {
            return Err(format!("{} assets: {}", program.display(), String::from_utf8_lossy(&printed.stderr)));
        }
        Self::in_folder("dogwatch", Path::new(&folder))
    }

    pub(super) fn in_folder(name: &str, folder: &Path) -> Result<Self, Failure> {
        let folder = std::path::absolute(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Assets { name: name.to_owned(), folder })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sets the variables by which envtest finds the programs.
    ///
    /// A suite that downloads its programs first looks into a folder below `XDG_DATA_HOME`, so they are linked there too.
    fn offer(&self, command: &mut Command, data: &Path) -> std::io::Result<()> {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let below = format!("kubebuilder-envtest/k8s/{VERSION}-{}-{arch}", std::env::consts::OS);
        let folder = data.join(below);
        fs::create_dir_all(&folder)?;
        for name in ["kube-apiserver", "etcd", "kubectl"] {
            let link = folder.join(name);
            let _ = fs::remove_file(&link);
            symlink(self.folder.join(name), link)?;
        }
        command.env("KUBEBUILDER_ASSETS", &self.folder).env("XDG_DATA_HOME", data);
        Ok(())
    }
}

/// What a suite did on one control plane.
#[derive(Debug, Default)]
pub(super) struct SuiteResult {
    pub(super) passed: u64,
    /// `package: test` of each that failed.
    pub(super) failures: Vec<String>,
    pub(super) time: Duration,
}

/// Runs the programs of a suite one after the other; their output is in `.tools/operators/NAME/logs`.
pub(super) fn suite(
    workspace: &Workspace,
    suite: &Suite,
    programs: &[Program],
    assets: &Assets,
) -> Result<SuiteResult, Failure> {
    let root = modules::folder(workspace, suite);
    let logs = root.join("logs").join(assets.name.replace(' ', "-"));
    let data = root.join("data").join(assets.name.replace(' ', "-"));
    fs::create_dir_all(&logs).map_err(|e| format!("cannot make {}: {e}", logs.display()))?;
    let mut sum = SuiteResult::default();
    for program in programs {
        let mut command = workspace.command(&program.file.to_string_lossy(), &["-test.v", "-test.timeout", TIMEOUT]);
        command.args(&suite.arguments).envs(&suite.variables).env("GINKGO_NO_COLOR", "TRUE");
        command.current_dir(&program.folder).stdin(std::process::Stdio::null());
        // A genuine server needs more than envtest's 20 seconds on a busy machine.
        command.env("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", START_TIMEOUT);
        // What decides about the server must not come from the caller.
        for name in ["KUBECONFIG", "USE_EXISTING_CLUSTER", "DOGWATCH_CONTROLLERS", "DOGWATCH_NODES", "DOGWATCH_DATA"] {
            command.env_remove(name);
        }
        assets.offer(&mut command, &data).map_err(|e| format!("cannot link the programs: {e}"))?;
        let began = Instant::now();
        let output = command.output().map_err(|e| format!("{} did not start: {e}", program.file.display()))?;
        sum.time += began.elapsed();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let log = logs.join(format!("{}.log", program.package.replace('/', "_")));
        fs::write(&log, text.as_bytes()).map_err(|e| format!("cannot write {}: {e}", log.display()))?;
        let mut results = Results::read(&text);
        if !output.status.success() && results.failures.is_empty() {
            results.failures.push(format!("ended without a result ({}), see {}", output.status, log.display()));
        }
        say(&format!(
            "  {}: {} passed, {} failed, {:.1} s",
            program.package,
            results.passed,
            results.failures.len(),
            began.elapsed().as_secs_f64()
        ));
        sum.passed += results.passed;
        sum.failures.extend(results.failures.into_iter().map(|test| format!("{}: {test}", program.package)));
    }
    Ok(sum)
}
