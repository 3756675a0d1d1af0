//! `kubectl`: the one of this machine if there is one, else the commands that this program has itself.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use clap::Parser as _;

use crate::args::Cli;
use crate::commands;
use crate::failure::Failure;

/// The commands that this program has under the same name and with the same flags.
const OWN: [&str; 3] = ["get", "apply", "delete"];

pub(super) async fn run(words: Vec<String>) -> Result<(), Failure> {
    if let Some(real) = real_kubectl() {
        // Only returns if the program could not be started.
        let error = std::process::Command::new(&real).args(&words).exec();
        return Err(Failure::new(format!("{} could not be started: {error}", real.display())));
    }
    match translate(&words) {
        Some(words) => {
            let cli = Cli::try_parse_from(&words).map_err(|error| {
                let text = error.to_string();
                Failure::usage(text.lines().next().unwrap_or_default().trim_start_matches("error: "))
                    .hint("this kubectl is dogwatch; the real one is used if it is on PATH")
            })?;
            commands::run(cli.command).await
        }
        None if words.iter().any(|word| word == "version") => {
            println!("Client Version: dogwatch {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        None => {
            Err(Failure::usage("this kubectl is dogwatch, which has only get, apply, create -f, delete and version")
                .hint("install kubectl, and it is used instead: https://kubernetes.io/docs/tasks/tools/"))
        }
    }
}

/// The command line of this program that does the same; none if there is no such command.
fn translate(words: &[String]) -> Option<Vec<String>> {
    let command = words.iter().position(|word| OWN.contains(&word.as_str()) || word == "create")?;
    // Flags may stand before the command, and belong to it here.
    let mut translated = vec!["dogwatch".to_owned(), words[command].clone()];
    translated.extend(words[..command].iter().chain(&words[command + 1..]).cloned());
    if words[command] == "create" {
        // Objects of files are created by an apply too; `create deployment` and the like are not here.
        let from_file =
            words.iter().any(|word| word == "-f" || word.starts_with("--filename") || word.starts_with("-f="));
        if !from_file {
            return None;
        }
        translated[1] = "apply".to_owned();
    }
    Some(translated)
}

/// A kubectl on PATH that is not this program.
fn real_kubectl() -> Option<PathBuf> {
    let own = env::current_exe().ok()?.canonicalize().ok()?;
    let is_other = |path: &Path| path.canonicalize().is_ok_and(|path| path != own);
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join("kubectl"))
        .find(|path| path.is_file() && is_other(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_exist_here_are_translated() {
        let translated = |line: &str| {
            translate(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).map(|words| words.join(" "))
        };
        assert_eq!(
            translated("--kubeconfig=/k get pods -o json").as_deref(),
            Some("dogwatch get --kubeconfig=/k pods -o json")
        );
        assert_eq!(translated("create -f x.yaml").as_deref(), Some("dogwatch apply -f x.yaml"));
        assert_eq!(translated("create deployment d"), None);
        assert_eq!(translated("rollout status deploy/d"), None);
    }
}
