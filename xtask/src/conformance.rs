//! `cargo xtask conformance`: tests of the Kubernetes conformance suite against a server of this tree with its own nodes.
//!
//! The program of the tests is built from the published module, outside of this tree:
//!
//! ```text
//! go test -c -o e2e.test k8s.io/kubernetes/test/e2e
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::progress::Outcome;
use crate::workspace::Workspace;

const LIST: &str = "tests/conformance/tests.txt";
const USAGE: &str = "usage: cargo xtask conformance --e2e-test FILE [--focus LIST]";
/// How long the server may take to start.
const START: Duration = Duration::from_secs(120);

/// Names of tests, and prefixes of those that are out of reach with the reason.
#[derive(Debug, Default, PartialEq)]
struct Tests {
    wanted: Vec<String>,
    unreachable: Vec<(String, String)>,
}

impl Tests {
    fn read(text: &str) -> Tests {
        let mut tests = Tests::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.strip_prefix("- ").and_then(|rest| rest.rsplit_once(": ")) {
                Some((prefix, reason)) => tests.unreachable.push((prefix.to_owned(), reason.to_owned())),
                None => tests.wanted.push(line.to_owned()),
            }
        }
        tests
    }

    fn reason(&self, name: &str) -> Option<&str> {
        self.unreachable.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, reason)| reason.as_str())
    }
}

pub(crate) fn conformance(workspace: &Workspace, args: &[&str]) -> Outcome {
    let (program, list) = match args {
        ["--e2e-test", program] => (*program, workspace.root.join(LIST)),
        ["--e2e-test", program, "--focus", list] => (*program, PathBuf::from(list)),
        _ => return Err(USAGE.into()),
    };
    let program = fs::canonicalize(program).map_err(|e| format!("{program}: {e}; build it as the help says"))?;
    let text = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let mut tests = Tests::read(&text);
    // A list of one's own need not repeat the reasons.
    tests.unreachable.extend(Tests::read(&workspace.read(LIST)).unreachable);
    let run: Vec<&String> = tests.wanted.iter().filter(|name| tests.reason(name).is_none()).collect();
    if run.is_empty() {
        return Err(format!("{} names no test that can be run", list.display()));
    }
    let folder = workspace.target_dir()?.join("conformance");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let server = Server::start(workspace, &folder)?;
    let status = Command::new(&program)
        .args(["--provider=local", "--ginkgo.no-color", "--allowed-not-ready-nodes=-1", "--disable-log-dump"])
        .arg(format!("--kubeconfig={}", server.kubeconfig.display()))
        .arg(format!("--report-dir={}", folder.display()))
        .arg(format!("--ginkgo.focus={}", focus(&run)))
        .current_dir(&folder)
        .stdout(Stdio::from(log(&folder, "e2e.log")?))
        .stderr(Stdio::inherit())
        .status()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    drop(server);
    let report = fs::read_to_string(folder.join("junit_01.xml"))
        .map_err(|e| format!("no report of the tests: {e}; see {}", folder.join("e2e.log").display()))?;
    print_table(&tests, &results(&report), status.success())
}

/// Returns the expression that selects exactly these tests.
fn focus(names: &[&String]) -> String {
    let escaped = names.iter().map(|name| {
        name.chars().fold(String::new(), |mut text, c| {
            if !(c.is_alphanumeric() || c == ' ' || c == '_') {
                text.push('\\');
            }
            text.push(c);
            text
        })
    });
    escaped.collect::<Vec<_>>().join("|")
}

/// Returns the names and results of the tests that ran, from a report in the form of JUnit.
fn results(report: &str) -> Vec<(String, String)> {
    let attribute = |case: &str, name: &str| -> Option<String> {
        let start = case.find(&format!(" {name}=\""))? + name.len() + 3;
        let text = &case[start..start + case[start..].find('"')?];
        let plain = text.replace("&#34;", "\"").replace("&#39;", "'").replace("&lt;", "<").replace("&gt;", ">");
        Some(plain.replace("&amp;", "&"))
    };
    let cases = report.split("<testcase").skip(1).filter_map(|case| {
        let name = attribute(case, "name")?;
        let name = name.trim_start_matches("[It] ").split(" [Conformance]").next()?.trim().to_owned();
        Some((name, attribute(case, "status")?))
    });
    cases.filter(|(_, status)| status != "skipped").collect()
}

fn print_table(tests: &Tests, results: &[(String, String)], success: bool) -> Outcome {
    let (mut passed, mut failed, mut unreachable) = (0, 0, 0);
    for name in &tests.wanted {
        if let Some(reason) = tests.reason(name) {
            unreachable += 1;
            println!("out of reach  {name}: {reason}");
            continue;
        }
        match results.iter().find(|(ran, _)| ran == name).map(|(_, status)| status.as_str()) {
            Some("passed") => {
                passed += 1;
                println!("passed        {name}");
            }
            Some(status) => {
                failed += 1;
                println!("{status:<13} {name}");
            }
            None => {
                failed += 1;
                println!("did not run   {name}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {unreachable} out of reach");
    if failed == 0 && success { Ok(()) } else { Err("some conformance tests failed".into()) }
}

fn log(folder: &Path, name: &str) -> Result<fs::File, String> {
    let file = folder.join(name);
    fs::File::create(&file).map_err(|e| format!("{}: {e}", file.display()))
}

/// A server with its own nodes, stopped when dropped.
struct Server {
    process: Child,
    kubeconfig: PathBuf,
}

impl Server {
    fn start(workspace: &Workspace, folder: &Path) -> Result<Server, String> {
        crate::progress::Step::new("build").run(&mut workspace.cargo(&["build", "--package", "dogwatch"]))?;
        let kubeconfig = folder.join("kubeconfig");
        let _ = fs::remove_file(&kubeconfig);
        let process = Command::new(workspace.target_dir()?.join("debug/dogwatch"))
            .args(["up", "--memory", "--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(&kubeconfig)
            .arg("--data-dir")
            .arg(folder.join("data"))
            .stdout(Stdio::from(log(folder, "server.log")?))
            .stderr(Stdio::from(log(folder, "server.err")?))
            .spawn()
            .map_err(|e| format!("the server did not start: {e}"))?;
        let server = Server { process, kubeconfig };
        let deadline = Instant::now() + START;
        let log = folder.join("server.log");
        while !fs::read_to_string(&log).unwrap_or_default().contains("ready in") {
            if Instant::now() > deadline {
                return Err(format!("the server is not ready after {} s; see {}", START.as_secs(), log.display()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_names_and_reasons() {
        let tests = Tests::read("# a comment\n- [sig-node]: needs containers\n\n[sig-apps] Job should run: all\n");
        assert_eq!(tests.wanted, ["[sig-apps] Job should run: all"]);
        assert_eq!(tests.reason("[sig-node] Pods should run"), Some("needs containers"));
        assert_eq!(tests.reason("[sig-apps] Job should run: all"), None);
    }

    #[test]
    fn reports_tell_what_ran() {
        let report = r#"<testsuite><testcase name="[It] [sig-apps] a &#34;b&#34; [Conformance] [sig-apps, Conformance]" status="passed" time="1"></testcase>
            <testcase name="[It] [sig-apps] c [Conformance]" status="skipped"></testcase>
            <testcase name="[It] [sig-apps] d [Conformance]" status="failed"><failure/></testcase></testsuite>"#;
        let wanted =
            [("[sig-apps] a \"b\"".to_owned(), "passed".to_owned()), ("[sig-apps] d".to_owned(), "failed".to_owned())];
        assert_eq!(results(report), wanted);
    }

    #[test]
    fn names_are_expressions() {
        assert_eq!(focus(&[&"[sig-apps] a.b".to_owned(), &"c".to_owned()]), r"\[sig\-apps\] a\.b|c");
    }
}
