//! A server process of the built binary, on a free port, with a temporary data directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::{Output, Process, run};
use crate::tools;

/// A running `dogwatch up`. Killed when dropped.
pub struct Server {
    process: Process,
    url: String,
    kubeconfig: PathBuf,
    folder: TempDir,
    flags: Vec<String>,
}

impl Server {
    /// Starts it without controllers, so that only the test makes changes.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(flags: &[&str]) -> Self {
        Self::start_in(TempDir::new().expect("the temporary folder can be written"), flags)
    }

    /// Starts it on the data directory `data` of a folder.
    pub fn start_in(folder: TempDir, flags: &[&str]) -> Self {
        let flags: Vec<&str> = ["--no-controllers"].iter().chain(flags).copied().collect();
        Self::start_with_folder(folder, &flags)
    }

    /// Starts it with its defaults: controllers, a scheduler and simulated nodes.
    pub fn with_controllers(flags: &[&str]) -> Self {
        Self::start_with_folder(TempDir::new().expect("the temporary folder can be written"), flags)
    }

    fn start_with_folder(folder: TempDir, flags: &[&str]) -> Self {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let (process, url, kubeconfig) = up(folder.path(), "127.0.0.1:0", &flags);
        Self { process, url, kubeconfig, folder, flags }
    }

    /// Kills it, and starts it again on the same port and data.
    pub fn kill_and_restart(&mut self) {
        let address = self.address().to_owned();
        self.process.kill();
        let (process, url, kubeconfig) = up(self.folder.path(), &address, &self.flags);
        assert_eq!(url, self.url, "the same address again");
        (self.process, self.kubeconfig) = (process, kubeconfig);
    }

    /// Stops it as an operator would, and starts it again on the same port and data.
    pub fn stop_and_restart(&mut self) {
        self.stop_change_and_restart(|_| ());
    }

    /// As [`Server::stop_and_restart`], and calls `change` with the data directory in between.
    pub fn stop_change_and_restart(&mut self, change: impl FnOnce(&Path)) {
        let address = self.address().to_owned();
        self.process.interrupt();
        change(&self.folder.path().join("data"));
        let (process, url, kubeconfig) = up(self.folder.path(), &address, &self.flags);
        (self.process, self.url, self.kubeconfig) = (process, url, kubeconfig);
    }

    /// Stops it cleanly and returns the folder with its data.
    pub fn stop_keeping_data(self) -> TempDir {
        let Server { process, folder, .. } = self;
        let (status, _) = process.terminate();
        assert!(status.success(), "a clean stop ends with 0, not {status}");
        folder
    }

    /// `https://127.0.0.1:PORT`
    pub fn url(&self) -> &str {
        &self.url
    }

    fn address(&self) -> &str {
        self.url.strip_prefix("https://").expect("it serves TLS by default")
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A folder that lives as long as the server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client command for this server, with caches separate from other tests.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.folder.path()).current_dir(self.folder.path());
        command
    }

    /// A kubectl command with the words of `line` as arguments; single quotes keep words together.
    pub fn kubectl_command(&self, line: &str) -> Command {
        let mut command = self.command(tools::installed("bin/kubectl"));
        command.args(words(line));
        command
    }

    pub fn kubectl(&self, line: &str) -> Output {
        run(self.kubectl_command(line), "")
    }

    pub fn kubectl_with(&self, line: &str, input: &str) -> Output {
        run(self.kubectl_command(line), input)
    }

    /// A command of the client in the binary itself.
    pub fn dogwatch_command(&self, line: &str) -> Command {
        let mut command = self.command(tools::dogwatch());
        command.args(words(line));
        command
    }

    /// The lines on stderr so far.
    pub fn stderr_lines(&mut self) -> &[String] {
        self.process.stderr_lines()
    }

    /// Sends SIGTERM and asserts a clean exit.
    pub fn stop(self) {
        let (status, _) = self.process.terminate();
        assert!(status.success(), "a clean stop ends with 0, not {status}");
    }
}

/// Starts `dogwatch up` and reads its output until it is ready. Returns the process, its URL and its kubeconfig.
fn up(folder: &Path, listen: &str, flags: &[String]) -> (Process, String, PathBuf) {
    let mut command = Command::new(tools::dogwatch());
    command.args(["up", "--listen", listen, "--data-dir"]).arg(folder.join("data")).args(flags);
    let mut process = Process::start(command);
    let export = process.line_where("the kubeconfig", |line| line.contains("export KUBECONFIG="));
    let kubeconfig = export.split("KUBECONFIG=").nth(1).unwrap_or_default().trim().trim_matches(['\'', '"']).into();
    let address = process.line_where("the URL", |line| line.contains("https://"));
    let from = address.find("https://").expect("the line has a URL");
    let url = address[from..].split_whitespace().next().unwrap_or_default().trim_end_matches('/').to_owned();
    process.line_where("the end of the start", |line| line.contains("ready in "));
    (process, url, kubeconfig)
}

/// Splits a line as a shell would, with single quotes only.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_line_splits_as_in_a_shell() {
        assert_eq!(words("get pods -o 'jsonpath={.items[*].metadata.name} x'").len(), 4);
        assert_eq!(words(" a  '' b='c d' "), ["a", "", "b=c d"]);
    }
}
