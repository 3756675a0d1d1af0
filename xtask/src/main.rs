//! The project's commands, one list for people and CI: `cargo xtask` prints it.

mod ci;
mod counts;
mod informers;
mod progress;
mod soak;
mod suites;
mod tidy;
mod tools;
mod torture;
mod workspace;

use std::process::ExitCode;

use progress::Outcome;
use workspace::Workspace;

/// What `cargo xtask` prints; each command's arguments are parsed in its own file.
const USAGE: &str = "\
cargo xtask COMMAND

  test [--only NAME]   install what the tests need into .tools, then run them all
                       NAME is one black-box suite: kubectl, go, python, js, curl, kube-rs
  ci                   fmt, clippy, tidy, deny (where cargo-deny is installed), counts, test
  tidy                 the rules a compiler does not know: crate order, purpose lines, size, words
  counts [--write]     instructions of the hot paths against those on record (needs valgrind)
  facts                make the committed tables of Kubernetes facts again (tools/facts)
  torture --kills N    kill the store N times while it writes, and check what it kept
  informers [PODS [RATE [SECONDS]]]
                       what our informer costs beside kube-rs' reflector and client-go's, on one server
  soak                 10 informers on 50 000 objects, 2 000 changes a second, three kills of the server
  tools                only install what the tests need
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let workspace = Workspace::locate();
    let outcome = match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        ["test", rest @ ..] => suites::test(&workspace, rest),
        ["ci"] => ci::ci(&workspace),
        ["tidy", rest @ ..] => tidy::tidy(&workspace, rest),
        ["counts", rest @ ..] => counts::counts(&workspace, rest),
        ["facts"] => facts(&workspace),
        ["torture", rest @ ..] => torture::torture(&workspace, rest),
        ["informers", rest @ ..] => informers::informers(&workspace, rest),
        ["soak", rest @ ..] => soak::soak(&workspace, rest),
        ["tools"] => tools::install_all(&workspace),
        _ => {
            eprintln!("xtask: no such command: {}\n\n{USAGE}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure != progress::SAID {
                eprintln!("xtask: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The Go program knows which tables it makes and where they stand; it only has to be started in its folder.
fn facts(workspace: &Workspace) -> Outcome {
    let folder = workspace.root.join("tools/facts");
    if !folder.join("go.mod").is_file() {
        return Err("there is no tools/facts in this tree".into());
    }
    progress::Step::new("facts").run(workspace.command("go", &["run", "."]).current_dir(folder))
}
