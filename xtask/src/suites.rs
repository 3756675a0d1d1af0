//! `cargo xtask test`: installs what the tests need, builds once, runs every suite, and prints the sums.

use std::thread;

use crate::progress::{self, Outcome, Step, say};
use crate::tools::{self, Tool};
use crate::workspace::Workspace;

/// A black-box suite: a module of tests/blackbox/tests/clients, and the tools it needs.
struct Suite {
    name: &'static str,
    /// libtest runs the tests whose path starts with this.
    module: &'static str,
    tools: &'static [Tool],
}

const SUITES: [Suite; 14] = [
    Suite { name: "kubectl", module: "kubectl::", tools: &[Tool::Kubectl] },
    Suite { name: "helm", module: "helm::", tools: &[Tool::Helm, Tool::Kubectl] },
    Suite { name: "go", module: "go::", tools: &[Tool::Go] },
    Suite { name: "envtest", module: "envtest::", tools: &[Tool::Envtest] },
    Suite { name: "operators", module: "operators::", tools: &[Tool::Operators] },
    Suite { name: "python", module: "python::", tools: &[Tool::Python] },
    Suite { name: "js", module: "js::", tools: &[Tool::Js] },
    Suite { name: "curl", module: "curl::", tools: &[Tool::Curl, Tool::Kubectl] },
    Suite {
        name: "kits",
        module: "kits::",
        tools: &[Tool::GoKit, Tool::GoKitExample, Tool::PythonKit, Tool::JsKit, Tool::JavaKit],
    },
    Suite { name: "kube-rs", module: "kube_rs::", tools: &[] },
    Suite { name: "crds", module: "crds::", tools: &[Tool::Kubectl, Tool::Go, Tool::Python, Tool::Definitions] },
    Suite { name: "policies", module: "policies::", tools: &[Tool::Python, Tool::Policies] },
    Suite { name: "kwok", module: "kwok::", tools: &[Tool::Kubectl, Tool::Stages] },
    Suite { name: "console", module: "console::", tools: &[Tool::Kubectl, Tool::Chromium, Tool::Console] },
];

/// Selection of packages and features for every run. A second selection would compile crates twice.
const SELECTION: [&str; 2] = ["--workspace", "--all-features"];

pub(crate) fn test(workspace: &Workspace, args: &[&str]) -> Outcome {
    let only = match args {
        [] => None,
        ["--only", name] => Some(SUITES.iter().find(|suite| suite.name == *name).ok_or_else(|| {
            let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
            format!("no suite is called {name:?}; there are {}", names.join(", "))
        })?),
        _ => return Err("usage: cargo xtask test [--only NAME]".into()),
    };
    prepare(workspace, only.map_or(&Tool::ALL, |suite| suite.tools))?;
    let sums = run(workspace, only)?;
    for name in &sums.failures {
        println!("failed: {name}");
    }
    println!("{} passed, {} failed", sums.passed, sums.failed);
    if sums.failed == 0 { Ok(()) } else { Err(progress::REPORTED.into()) }
}

/// Installs the tools and builds: downloads during the build, compilers after it, since both need all cores.
fn prepare(workspace: &Workspace, needed: &[Tool]) -> Outcome {
    let (heavy, light): (Vec<Tool>, Vec<Tool>) = needed.iter().partition(|tool| tool.is_heavy());
    let (installed, built) = thread::scope(|scope| {
        let installing = scope.spawn(|| tools::install(workspace, &light));
        let mut build = workspace.cargo(&["build"]);
        let built = Step::new("build").run(build.args(SELECTION).args(["--lib", "--bins", "--tests"]));
        (installing.join().unwrap_or_else(|_| Err("installing the tools panicked".into())), built)
    });
    installed?;
    built?;
    tools::install(workspace, &heavy)
}

#[derive(Default)]
struct Sums {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
}

impl Sums {
    /// Adds one line of libtest's output.
    fn take(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        for part in result.split(['.', ';']) {
            match part.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse::<u64>().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse::<u64>().unwrap_or(0),
                _ => {}
            }
        }
    }
}

fn run(workspace: &Workspace, only: Option<&Suite>) -> Result<Sums, progress::Failure> {
    let mut command = workspace.cargo(&["test", "--no-fail-fast"]);
    command.args(SELECTION);
    command.env("DOGWATCH_BIN", workspace.target_dir()?.join("debug/dogwatch"));
    if let Some(suite) = only {
        command.args(["--test", "clients", "--", suite.module]);
    }
    let mut sums = Sums::default();
    let step = Step::new("test");
    let success = step.run_lines(&mut command, |line| {
        println!("{line}");
        sums.take(line);
    })?;
    if !success && sums.failed == 0 {
        // A suite that does not compile, or that is killed, prints no result line.
        say("a suite ended without a result line; counted as one failure");
        sums.failed = 1;
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::Sums;

    #[test]
    fn sums_add_up_over_suites_and_name_the_failures() {
        let mut sums = Sums::default();
        for line in [
            "test kubectl::get ... ok",
            "test kubectl::watch ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1.25s",
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ] {
            sums.take(line);
        }
        assert_eq!((sums.passed, sums.failed), (41, 1));
        assert_eq!(sums.failures, ["kubectl::watch"]);
    }
}
