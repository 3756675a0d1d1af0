//! The project's commands for people and CI; `cargo xtask` lists them.

mod ci;
mod conformance;
mod console;
mod counts;
mod informers;
mod operators;
mod package;
mod picture;
mod progress;
mod scaling;
mod soak;
mod suites;
mod tidy;
mod tools;
mod torture;
mod workspace;

use std::process::ExitCode;

use progress::Outcome;
use workspace::Workspace;

/// Help text of `cargo xtask`; each command parses its own arguments.
const USAGE: &str = "\
cargo xtask COMMAND

  test [--only NAME]   install what the tests need into .tools, then run them all
                       NAME is one black-box suite: kubectl, go, python, js, curl, kube-rs, crds, kits
  ci                   fmt, clippy, tidy, deny (where cargo-deny is installed), counts, test
  tidy                 house rules: crate order, purpose lines, size, the map, rows of the specification, phrases
                       that need a second reading
  counts [--write]     compare the instructions of the hot paths with the record (needs valgrind)
  counts --requests    the same for requests through the whole server, which take minutes to build
  counts --lab         what an unused lab adds to requests; takes minutes to build
  counts --scaling [TEXT]
                       hold the instructions of each step (with TEXT in its name) to at most 2.5 times for twice the input
  facts                generate the committed tables of Kubernetes facts (tools/facts)
  conformance --e2e-test FILE [--focus LIST] [--program FILE] [--jobs N] [--limit SECONDS]
                       run tests of the Kubernetes conformance suite against a server with its own nodes; a test that
                       fails is run again alone
  torture --kills N    kill the store N times while it writes, and check its content
  torture --cluster --kills N [--seed S]
                       kill a cluster N times in the middle of everything, and compare it with its specs; a seed gives other moments
  informers [PODS [RATE [SECONDS]]]
                       compare our informer with kube-rs' reflector and client-go's informer
  operators [NAME...] [--reference DIR] [--program FILE] [--list]
                       run the suites of real operators on this program, and on a genuine control plane where there is one
  soak                 10 informers on 50 000 objects, 2 000 changes a second, three kills of the server
  package [--profile P | --program FILE] [--out DIR] [--base-url URL]
                       build (with the profile dist) and make what people install: tarball, wheel, npm package, Debian
                       package, container image, Homebrew formula, Nix file
  picture [--program FILE] [--out FILE]
                       draw the terminal session of the README again
  console screenshots|load [--program FILE]
                       take the pictures of docs/console.md again; measure the page with 10 000 pods
  tools                install what the tests need, and run nothing
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
        ["operators", rest @ ..] => operators::operators(&workspace, rest),
        ["conformance", rest @ ..] => conformance::conformance(&workspace, rest),
        ["soak", rest @ ..] => soak::soak(&workspace, rest),
        ["package", rest @ ..] => package::package(&workspace, rest),
        ["picture", rest @ ..] => picture::picture(&workspace, rest),
        ["console", rest @ ..] => console::console(&workspace, rest),
        ["tools"] => tools::install_all(&workspace),
        _ => {
            eprintln!("xtask: no such command: {}\n\n{USAGE}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure != progress::REPORTED {
                eprintln!("xtask: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs the Go program in its folder; it knows which tables it writes and where.
fn facts(workspace: &Workspace) -> Outcome {
    let folder = workspace.root.join("tools/facts");
    if !folder.join("go.mod").is_file() {
        return Err("there is no tools/facts in this tree".into());
    }
    progress::Step::new("facts").run(workspace.command("go", &["run", "."]).current_dir(folder))
}
