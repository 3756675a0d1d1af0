//! What every package has: the program, its man pages and completions, the licence.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::archive::Entry;
use super::elf::{self, Elf};
use super::notices;
use crate::workspace::Workspace;

pub(super) const NAME: &str = "dogwatch";
pub(super) const SUMMARY: &str = "A Kubernetes API server with controllers and simulated nodes in one program";
pub(super) const LICENCE: &str = "Apache-2.0";

/// Shells with a completion script, and the script's path below `share/`.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/dogwatch"),
    ("zsh", "zsh/site-functions/_dogwatch"),
    ("fish", "fish/vendor_completions.d/dogwatch.fish"),
];

pub(super) struct Product {
    pub(super) version: String,
    /// Without symbols.
    pub(super) program: Vec<u8>,
    pub(super) elf: Elf,
    /// Files below `share/`: completions and man pages.
    pub(super) share: Vec<(String, Vec<u8>)>,
    pub(super) licence: Vec<u8>,
    /// The licences of the crates in the program.
    pub(super) notices: Vec<u8>,
    /// Whether to compress quickly.
    pub(super) fast: bool,
}

impl Product {
    pub(super) fn collect(workspace: &Workspace, program: &Path, fast: bool) -> Result<Self, String> {
        let folder = Scratch::new(workspace)?;
        let stripped = folder.0.join(NAME);
        let mut bytes = read(program)?;
        let mut elf = facts(program, &bytes)?;
        if elf.has_symbols {
            run(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
            bytes = read(&stripped)?;
            elf = facts(program, &bytes)?;
        }
        let mut share = Vec::new();
        for (shell, path) in SHELLS {
            share.push((path.to_owned(), run(Command::new(program).args(["manual", "completions", shell]))?));
        }
        let pages = folder.0.join("man");
        fs::create_dir_all(&pages).map_err(|e| format!("cannot make {}: {e}", pages.display()))?;
        run(Command::new(program).args(["manual", "pages"]).arg(&pages))?;
        for entry in fs::read_dir(&pages).map_err(|e| format!("{}: {e}", pages.display()))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            share.push((format!("man/man1/{name}"), read(&entry.path())?));
        }
        // In the order of names: a folder lists its files in any.
        share.sort();
        let version = version(&run(Command::new(program).arg("--version"))?)?;
        let licence = read(&workspace.root.join("LICENSE"))?;
        let notices = notices::collect(workspace, elf.machine)?;
        Ok(Self { version, program: bytes, elf, share, licence, notices, fast })
    }

    /// The files of an installation: `bin/` and `share/`.
    pub(super) fn installation(&self) -> Vec<Entry<'_>> {
        let mut entries = vec![Entry::program("bin/dogwatch", self.program.as_slice())];
        entries
            .extend(self.share.iter().map(|(path, content)| Entry::file(format!("share/{path}"), content.as_slice())));
        entries
    }

    /// The licence, and the licences of what the program contains, below a folder.
    pub(super) fn legal(&self, folder: &str) -> [Entry<'_>; 2] {
        [
            Entry::file(format!("{folder}LICENSE"), self.licence.as_slice()),
            Entry::file(format!("{folder}THIRD-PARTY-NOTICES"), self.notices.as_slice()),
        ]
    }

    /// The start of a package's file name.
    pub(super) fn stem(&self) -> String {
        format!("{NAME}-{}-linux-{}", self.version, self.elf.machine.debian())
    }
}

/// Takes `0.1.0` from `dogwatch 0.1.0`.
fn version(output: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(output);
    text.split_whitespace().nth(1).map(str::to_owned).ok_or_else(|| format!("--version printed {text:?}"))
}

fn facts(program: &Path, bytes: &[u8]) -> Result<Elf, String> {
    elf::read(bytes).ok_or_else(|| format!("{} is not a Linux program for x86-64 or arm64", program.display()))
}

pub(super) fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
}

/// Runs a program and returns what it printed.
fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name} did not start: {e}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// A folder for the time of the command.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(workspace: &Workspace) -> Result<Self, String> {
        let folder = workspace.target_dir()?.join(format!("tmp/package-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
