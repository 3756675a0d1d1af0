//! What a Linux program needs from the system that it runs on, read from the file itself.

/// Facts of a 64-bit little-endian ELF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elf {
    pub(super) machine: Machine,
    /// Path of the loader; none for a static program.
    pub(super) interpreter: Option<String>,
    /// Shared libraries by name.
    pub(super) libraries: Vec<String>,
    /// The oldest glibc 2.N that has every symbol of the program.
    pub(super) glibc: Option<u32>,
    /// Whether it has symbols that only debuggers and profilers read.
    pub(super) has_symbols: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    X86,
    Arm,
}

impl Machine {
    /// As the compiler, Python and Nix call it.
    pub(super) fn triple(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// As Debian and container images call it.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// As Node calls it.
    pub(super) fn node(self) -> &'static str {
        match self {
            Self::X86 => "x64",
            Self::Arm => "arm64",
        }
    }
}

const SYMBOLS: u64 = 2;
const DYNAMIC: u64 = 6;
const NEEDED: u64 = 1;

struct Section<'a> {
    name: u64,
    kind: u64,
    link: u64,
    bytes: &'a [u8],
}

/// Reads the facts; none if the file is not such a program.
pub(super) fn read(file: &[u8]) -> Option<Elf> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let machine = match number(file, 18, 2)? {
        62 => Machine::X86,
        183 => Machine::Arm,
        _ => return None,
    };
    let (table, size, count, names) =
        (number(file, 40, 8)?, number(file, 58, 2)?, number(file, 60, 2)?, number(file, 62, 2)?);
    let sections: Vec<Section<'_>> =
        (0..count).map(|index| section(file, table.checked_add(index.checked_mul(size)?)?)).collect::<Option<_>>()?;
    let names = sections.get(usize::try_from(names).ok()?)?.bytes;
    let interpreter = sections.iter().find(|section| text(names, section.name) == Some(".interp"));
    let interpreter = interpreter.and_then(|section| text(section.bytes, 0)).map(str::to_owned);
    let mut libraries = Vec::new();
    let mut glibc = None;
    if let Some(dynamic) = sections.iter().find(|section| section.kind == DYNAMIC) {
        let strings = sections.get(usize::try_from(dynamic.link).ok()?)?.bytes;
        for entry in dynamic.bytes.chunks_exact(16) {
            if number(entry, 0, 8)? == NEEDED {
                libraries.push(text(strings, number(entry, 8, 8)?)?.to_owned());
            }
        }
        // The names of required versions are among these strings, as GLIBC_2.34.
        let versions = strings.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
        glibc = versions.filter_map(|name| name.strip_prefix("GLIBC_2.")?.split('.').next()?.parse().ok()).max();
    }
    let has_symbols = sections.iter().any(|section| section.kind == SYMBOLS);
    Some(Elf { machine, interpreter, libraries, glibc, has_symbols })
}

fn section(file: &[u8], at: u64) -> Option<Section<'_>> {
    let header = file.get(usize::try_from(at).ok()?..)?.get(..64)?;
    let kind = number(header, 4, 4)?;
    let (start, size) = (usize::try_from(number(header, 24, 8)?).ok()?, usize::try_from(number(header, 32, 8)?).ok()?);
    // 8 is a section without bytes in the file.
    let bytes = if kind == 8 { &[] } else { file.get(start..start.checked_add(size)?)? };
    Some(Section { name: number(header, 0, 4)?, kind, link: number(header, 40, 4)?, bytes })
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The text from `at` to the next zero byte.
fn text(bytes: &[u8], at: u64) -> Option<&str> {
    let rest = bytes.get(usize::try_from(at).ok()?..)?;
    std::str::from_utf8(rest.split(|byte| *byte == 0).next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::{Machine, read};

    #[test]
    fn reads_what_this_test_needs() {
        let file = std::env::current_exe().and_then(std::fs::read).expect("a running test has a file");
        let elf = read(&file).expect("the tests run on Linux");
        assert!(elf.has_symbols);
        assert_eq!(elf.machine == Machine::X86, cfg!(target_arch = "x86_64"));
        if cfg!(target_env = "gnu") {
            assert!(elf.libraries.iter().any(|name| name == "libc.so.6"), "{elf:?}");
            assert!(elf.interpreter.is_some_and(|path| path.contains("/ld-linux")));
            assert!(elf.glibc.is_some());
        }
    }

    #[test]
    fn cut_and_foreign_files_are_refused() {
        let file = std::env::current_exe().and_then(std::fs::read).expect("a running test has a file");
        for end in (0..200).chain([file.len() - 1]) {
            assert_eq!(read(&file[..end]), None);
        }
        assert_eq!(read(b"MZ"), None);
    }
}
