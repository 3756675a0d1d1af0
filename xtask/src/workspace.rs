//! Paths of the checkout and of installed tools, and the environment in which commands run.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Folder of everything that `cargo xtask test` installs; deleting it removes all of that.
    pub(crate) tools: PathBuf,
}

impl Workspace {
    pub(crate) fn locate() -> Self {
        // Cargo sets this for `cargo run`; the manifest of xtask is one folder below the root.
        let manifest =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let root = manifest.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf);
        let tools = root.join(".tools");
        Self { root, tools }
    }

    /// Folder of installed programs, first on PATH.
    pub(crate) fn bin(&self) -> PathBuf {
        self.tools.join("bin")
    }

    /// Returns a command that runs in the root with the installed tools first on PATH.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.root).env("PATH", self.path()).env("DOGWATCH_TOOLS", &self.tools);
        command
    }

    /// Returns a command of the cargo that runs xtask, so that one toolchain builds everything.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut command = self.command(&cargo, args);
        // `cargo run` describes xtask in these; other build scripts must not see them.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") {
                command.env_remove(name);
            }
        }
        command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
        command
    }

    fn path(&self) -> std::ffi::OsString {
        let old = env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.bin()).chain(env::split_paths(&old));
        env::join_paths(folders).unwrap_or(old)
    }

    /// Returns the text of a file below the root; empty when it does not exist.
    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.root.join(file)).unwrap_or_default()
    }

    /// Returns cargo's target directory.
    pub(crate) fn target_dir(&self) -> Result<PathBuf, String> {
        let metadata = self.metadata()?;
        let dir = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
        Ok(PathBuf::from(dir))
    }

    pub(crate) fn metadata(&self) -> Result<serde_json::Value, String> {
        let output = self
            .cargo(&["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .map_err(|e| format!("cargo metadata did not start: {e}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
        }
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata is not JSON: {e}"))
    }
}

/// Returns whether a program is on PATH.
pub(crate) fn has_program(name: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}
