//! `kubectl`: the one of this machine if there is one, else the commands that this program has itself.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use clap::Parser as _;

use super::connection;
use crate::args::Cli;
use crate::commands;
use crate::failure::Failure;

/// The commands that this program has under the same name and with the same flags.
const OWN: [&str; 4] = ["get", "apply", "delete", "wait"];

/// Flags of kubectl that change nothing here: an apply is always on the server's side, and no command waits or asks.
const DROPPED: [&str; 4] = ["--server-side", "--wait", "--now", "--validate"];

pub(super) async fn run(words: Vec<String>) -> Result<(), Failure> {
    if let Some(real) = real_kubectl() {
        // Only returns if the program could not be started.
        let error = std::process::Command::new(&real).args(&words).exec();
        return Err(Failure::new(format!("{} could not be started: {error}", real.display())));
    }
    let (words, server) = connection::split(words)?;
    match translate(&words) {
        Some(mut words) => {
            // Removed at the end of this command.
            let kubeconfig = server.map(|server| server.write()).transpose()?;
            words.extend(kubeconfig.as_ref().map(|file| format!("--kubeconfig={}", file.path().display())));
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
        None => Err(Failure::usage(
            "this kubectl is dogwatch, which has only get, apply, create -f, delete, wait and version",
        )
        .hint("install kubectl, and it is used instead: https://kubernetes.io/docs/tasks/tools/")),
    }
}

/// The command line of this program that does the same; none if there is no such command.
fn translate(words: &[String]) -> Option<Vec<String>> {
    let at = words.iter().position(|word| OWN.contains(&word.as_str()) || word == "create")?;
    let command = words[at].as_str();
    let mut translated = vec!["dogwatch".to_owned()];
    if command == "create" {
        // `create deployment` and the like are not here.
        let is_file = |word: &String| word == "-f" || word.starts_with("--filename") || word.starts_with("-f=");
        if !words.iter().any(is_file) {
            return None;
        }
        translated.extend(["apply", "--create"].map(str::to_owned));
    } else {
        translated.push(command.to_owned());
    }
    // Flags may stand before the command, and belong to it here.
    for word in words[..at].iter().chain(&words[at + 1..]) {
        let flag = word.split('=').next().unwrap_or_default();
        if DROPPED.contains(&flag) {
            continue;
        }
        match word.split_once('/') {
            _ if word == "--force-conflicts" => translated.push("--force".to_owned()),
            // `pod/a` is two words here.
            Some((resource, name)) if matches!(command, "get" | "delete") && is_object(resource, name) => {
                translated.extend([resource.to_owned(), name.to_owned()]);
            }
            _ => translated.push(word.clone()),
        }
    }
    Some(translated)
}

/// Whether the two parts around a slash are a resource and a name, and not a path.
fn is_object(resource: &str, name: &str) -> bool {
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
    !resource.is_empty()
        && !name.is_empty()
        && !resource.starts_with(['-', '.'])
        && is_word(resource)
        && is_word(name)
        && !Path::new(resource).exists()
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
        assert_eq!(translated("create -f x.yaml").as_deref(), Some("dogwatch apply --create -f x.yaml"));
        assert_eq!(
            translated("apply --server-side --force-conflicts -f x.yaml").as_deref(),
            Some("dogwatch apply --force -f x.yaml")
        );
        assert_eq!(translated("get pod/a -n b").as_deref(), Some("dogwatch get pod a -n b"));
        assert_eq!(translated("delete -f ./x/y.yaml --wait=false").as_deref(), Some("dogwatch delete -f ./x/y.yaml"));
        assert_eq!(
            translated("wait pod/a --for=condition=Ready").as_deref(),
            Some("dogwatch wait pod/a --for=condition=Ready")
        );
        assert_eq!(translated("create deployment d"), None);
        assert_eq!(translated("rollout status deploy/d"), None);
    }
}
