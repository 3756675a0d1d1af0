//! Commands in simulated containers: those that a rule prescribes, `tar`, shells with and without a terminal, and what the
//! simulated shell understands.

use std::time::Duration;

use clock::WorldClock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::rules::{ExecResult, ExecRule, is_about};
use super::tar::{self, ARCHIVE_BYTES_MAX};
use super::{Containers, terminal};
use crate::nodes::shell::files::absolute;
use crate::nodes::shell::{self, Environment, Files};

/// Bytes of input that a command gets at most; what it does not read is not waited for.
pub const STDIN_BYTES_MAX: usize = 1024 * 1024;
/// The exit code of a command that is not known.
const NOT_FOUND: i32 = 127;
/// Commands that read their input. A command without any of them does not wait for it.
const READING: [&str; 19] = [
    "cat",
    "read",
    "tee",
    "wc",
    "grep",
    "head",
    "tail",
    "sort",
    "uniq",
    "sed",
    "awk",
    "tr",
    "cut",
    "xargs",
    "dd",
    "base64",
    "md5sum",
    "sha256sum",
    "tar",
];

pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The standard streams of a command.
pub struct Streams {
    pub stdin: Option<Reader>,
    pub stdout: Option<Writer>,
    /// None with a terminal, where both outputs are one.
    pub stderr: Option<Writer>,
    pub is_terminal: bool,
    /// The sizes of the client's terminal; nothing here depends on them.
    pub resizes: mpsc::Receiver<(u16, u16)>,
}

impl Streams {
    /// Writes to one of the outputs. False if the client is gone.
    pub(super) async fn write(&mut self, is_error: bool, bytes: &[u8]) -> bool {
        let to = if is_error && self.stderr.is_some() { &mut self.stderr } else { &mut self.stdout };
        let Some(to) = to else { return true };
        let translated;
        let bytes = if self.is_terminal {
            translated = terminal::with_returns(bytes);
            &translated
        } else {
            bytes
        };
        to.write_all(bytes).await.is_ok() && to.flush().await.is_ok()
    }

    /// Reads the input until its end, or until `is_enough`. None if it is too long.
    async fn read_all(&mut self, bytes_max: usize, is_enough: fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let mut input = Vec::new();
        let Some(stdin) = &mut self.stdin else { return Some(input) };
        let mut piece = vec![0; 16 * 1024];
        while !is_enough(&input) {
            match stdin.read(&mut piece).await {
                Ok(0) | Err(_) => break,
                Ok(len) => input.extend_from_slice(piece.get(..len).unwrap_or_default()),
            }
            if input.len() > bytes_max {
                return None;
            }
        }
        Some(input)
    }
}

/// What a command runs in.
pub(super) struct Place {
    pub(super) files: Files,
    pub(super) environment: Environment,
    pub(super) clock: WorldClock,
}

impl Containers {
    /// Runs a command in a container: its exit code, or why it could not run.
    pub async fn exec(
        &self,
        pod: &Pod,
        container: &str,
        command: &[String],
        mut streams: Streams,
        clock: WorldClock,
    ) -> Result<i32, String> {
        let rules = self.rules_of(pod).execs;
        let applies = |rule: &&ExecRule| {
            is_about(&rule.containers, container) && rule.command.as_ref().is_none_or(|known| known.matches(command))
        };
        match rules.iter().find(applies).map(|rule| &rule.result) {
            Some(ExecResult::Refused(why)) => return Err(why.clone()),
            Some(ExecResult::Fixed { stdout, stderr, exit }) => {
                let _ = streams.write(false, stdout.as_bytes()).await && streams.write(true, stderr.as_bytes()).await;
                return Ok(*exit);
            }
            None => {}
        }
        let Some((name, words)) = command.split_first() else {
            return Err("no command specified".to_owned());
        };
        let found = self.places().of(pod, container);
        let (files, environment) = found.ok_or_else(|| format!("container not found ({container:?})"))?;
        let mut place = Place { files, environment: (*environment).clone(), clock };
        place.environment.is_first_process = false;
        let program = name.rsplit('/').next().unwrap_or_default();
        // A terminal of a shell, or a script on its input.
        if shell::is_shell(name) && !words.iter().any(|word| word.starts_with('-') && word.contains('c')) {
            return Ok(terminal::run_session(&mut place, streams).await);
        }
        match program {
            "tar" => Ok(archive(&place, words, streams).await),
            "cat" if words.is_empty() => Ok(copy(streams).await),
            _ => Ok(run(&place, command, &mut streams).await),
        }
    }
}

/// Runs a command that the simulated shell understands.
pub(super) async fn run(place: &Place, command: &[String], streams: &mut Streams) -> i32 {
    let reads = command.iter().any(|word| {
        let names = word.split(|character: char| !(character.is_alphanumeric() || character == '_'));
        names.into_iter().any(|name| READING.contains(&name))
    });
    let input = if reads { streams.read_all(STDIN_BYTES_MAX, |_| false).await } else { Some(Vec::new()) };
    let Some(input) = input else {
        let _ = streams.write(true, b"the input of a simulated command is at most 1 MiB\n").await;
        return 1;
    };
    streams.stdin = None;
    let (words, environment, files) = (command.to_vec(), place.environment.clone(), place.files.clone());
    let began = place.clock.now();
    let running = tokio::task::spawn_blocking(move || shell::run(&words, &environment, &files, &input, began));
    let ran = match running.await {
        Ok(Ok(ran)) => ran,
        Ok(Err(what)) => {
            let text = format!(
                "dogwatch: this container is simulated and does not understand {what}; the annotation nodes.dogwatch/exec \
                 prescribes results of commands\n"
            );
            let _ = streams.write(true, text.as_bytes()).await;
            return NOT_FOUND;
        }
        Err(_) => return 1,
    };
    for chunk in ran.chunks {
        wait_until(place, chunk.at).await;
        if !streams.write(chunk.is_error, &chunk.bytes).await {
            return 1;
        }
    }
    let Some(status) = ran.status else { std::future::pending().await };
    wait_until(place, ran.ends_at).await;
    status
}

async fn wait_until(place: &Place, at: Timestamp) {
    let left = at.duration_since(place.clock.now());
    if let Ok(left) = Duration::try_from(left) {
        place.clock.sleep(left).await;
    }
}

/// `cat` without a file.
async fn copy(streams: Streams) -> i32 {
    let Streams { stdin, stdout, .. } = streams;
    let (Some(mut stdin), Some(mut stdout)) = (stdin, stdout) else { return 0 };
    let mut piece = vec![0; 16 * 1024];
    loop {
        match stdin.read(&mut piece).await {
            Ok(0) | Err(_) => return 0,
            Ok(len) => {
                let bytes = piece.get(..len).unwrap_or_default();
                if stdout.write_all(bytes).await.is_err() || stdout.flush().await.is_err() {
                    return 1;
                }
            }
        }
    }
}

/// The words of a `tar` command that `kubectl cp` uses: `-xmf - -C DIR`, `cf - PATH`.
#[derive(Debug, Default, PartialEq, Eq)]
struct TarWords<'w> {
    unpacks: bool,
    packs: bool,
    directory: Option<&'w str>,
    paths: Vec<&'w str>,
}

fn tar_words(words: &[String]) -> TarWords<'_> {
    let mut found = TarWords::default();
    let mut words = words.iter().map(String::as_str);
    let mut is_first = true;
    while let Some(word) = words.next() {
        let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty());
        match letters.or(Some(word).filter(|_| is_first)) {
            Some("C") => found.directory = words.next(),
            Some(letters) => {
                found.unpacks |= letters.contains('x');
                found.packs |= letters.contains('c');
                if letters.contains('f') {
                    words.next();
                }
            }
            None => found.paths.push(word),
        }
        is_first = false;
    }
    found
}

async fn archive(place: &Place, words: &[String], mut streams: Streams) -> i32 {
    let words = tar_words(words);
    let home = &place.environment.directory;
    let directory = words.directory.map_or_else(|| home.clone(), |directory| absolute(home, directory));
    let result = if words.unpacks {
        match streams.read_all(ARCHIVE_BYTES_MAX, tar::is_complete).await {
            Some(archive) => tar::unpack(&place.files, &archive, &directory).map(|()| Vec::new()),
            None => Err("tar: an archive for a simulated container is at most 4 MiB\n".to_owned()),
        }
    } else if words.packs {
        let path = words.paths.first().copied().unwrap_or(".");
        tar::pack(&place.files, &absolute(&directory, path), path)
    } else {
        Err("tar: You must specify one of the '-cx' options\n".to_owned())
    };
    match result {
        Ok(archive) => i32::from(!streams.write(false, &archive).await),
        Err(why) => {
            let _ = streams.write(true, why.as_bytes()).await;
            2
        }
    }
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
