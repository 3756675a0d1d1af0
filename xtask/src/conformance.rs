//! `cargo xtask conformance`: tests of the Kubernetes conformance suite against a server of this tree with its own nodes.
//!
//! The program of the tests is built from the published module, outside of this tree:
//!
//! ```text
//! go test -c -o e2e.test k8s.io/kubernetes/test/e2e
//! ```
//!
//! Tests run several at a time, those marked `[Serial]` alone afterwards. A test that fails is run once more, alone: a busy
//! machine makes tests miss their own time-outs.

mod list;
mod run;
mod server;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;

use crate::progress::{Outcome, Step, say};
use crate::workspace::Workspace;
use list::Tests;
use run::{Results, Suite, Verdict};
use server::Server;

const LIST: &str = "tests/conformance/tests.txt";
const USAGE: &str =
    "usage: cargo xtask conformance --e2e-test FILE [--focus LIST] [--program FILE] [--jobs N] [--limit SECONDS]";

struct Arguments {
    e2e_test: PathBuf,
    list: PathBuf,
    /// The server, if it need not be built.
    program: Option<PathBuf>,
    jobs: usize,
    limit: Duration,
}

impl Arguments {
    fn read(workspace: &Workspace, words: &[&str]) -> Result<Arguments, String> {
        let mut arguments = Arguments {
            e2e_test: PathBuf::new(),
            list: workspace.root.join(LIST),
            program: None,
            jobs: 4,
            limit: Duration::from_secs(1200),
        };
        for pair in words.chunks(2) {
            let &[flag, value] = pair else { return Err(USAGE.into()) };
            let number =
                || value.parse::<u16>().ok().filter(|n| *n > 0).ok_or(format!("{flag} needs a number\n{USAGE}"));
            match flag {
                "--e2e-test" => {
                    arguments.e2e_test =
                        fs::canonicalize(value).map_err(|e| format!("{value}: {e}; build it as the help says"))?;
                }
                "--focus" => arguments.list = PathBuf::from(value),
                "--program" => arguments.program = Some(PathBuf::from(value)),
                "--jobs" => arguments.jobs = usize::from(number()?),
                "--limit" => arguments.limit = Duration::from_secs(u64::from(number()?)),
                _ => return Err(USAGE.into()),
            }
        }
        if arguments.e2e_test.as_os_str().is_empty() { Err(USAGE.into()) } else { Ok(arguments) }
    }
}

pub(crate) fn conformance(workspace: &Workspace, words: &[&str]) -> Outcome {
    let arguments = Arguments::read(workspace, words)?;
    let list = &arguments.list;
    let text = fs::read_to_string(list).map_err(|e| format!("{}: {e}", list.display()))?;
    let mut tests = Tests::read(&text);
    // A list of one's own need not repeat the reasons.
    tests.unreachable.extend(Tests::read(&workspace.read(LIST)).unreachable);
    let (beside, alone) = tests.to_run();
    if beside.is_empty() && alone.is_empty() {
        return Err(format!("{} names no test that can be run", list.display()));
    }
    let folder = workspace.target_dir()?.join("conformance");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let program = match arguments.program {
        Some(program) => program,
        None => {
            Step::new("build").run(&mut workspace.cargo(&["build", "--package", "dogwatch"]))?;
            workspace.target_dir()?.join("debug/dogwatch")
        }
    };
    let server = Server::start(&program, &folder)?;
    say(&format!("{} tests; logs are in {}", beside.len() + alone.len(), folder.display()));
    let suite = Suite {
        program: arguments.e2e_test,
        kubeconfig: server.kubeconfig.clone(),
        folder,
        limit: arguments.limit,
        total: beside.len() + alone.len(),
        results: Mutex::default(),
    };
    suite.run(&beside, arguments.jobs, "beside")?;
    suite.run(&alone, 1, "alone")?;
    let first = suite.results.lock().clone();
    let failed: Vec<String> =
        first.iter().filter(|(_, (verdict, _))| *verdict != Verdict::Passed).map(|(name, _)| name.clone()).collect();
    suite.run(&failed, 1, "again")?;
    drop(server);
    let last = suite.results.into_inner();
    print_table(&tests, &first, &last)
}

fn print_table(tests: &Tests, first: &Results, last: &Results) -> Outcome {
    let (mut passed, mut again, mut failed, mut unreachable) = (0, 0, 0, 0);
    for name in &tests.wanted {
        if let Some(reason) = tests.reason(name) {
            unreachable += 1;
            println!("out of reach        {name}: {reason}");
            continue;
        }
        let (verdict, seconds) = last.get(name).copied().unwrap_or((Verdict::DidNotRun, 0));
        let retried = first.get(name).is_some_and(|(verdict, _)| *verdict != Verdict::Passed);
        if verdict == Verdict::Passed {
            passed += 1;
            again += usize::from(retried);
        } else {
            failed += 1;
        }
        let note = if verdict == Verdict::Passed && retried { " (alone, after a failure beside others)" } else { "" };
        println!("{:<11} {seconds:>5} s  {name}{note}", verdict.word());
    }
    println!("{passed} passed ({again} of them at the second try), {failed} failed, {unreachable} out of reach");
    if failed == 0 { Ok(()) } else { Err("some conformance tests failed".into()) }
}
