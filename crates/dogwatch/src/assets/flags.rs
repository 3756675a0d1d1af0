//! A command line in the style of Go programs: `--name=value`, `--name value`, `--name`.

use std::collections::BTreeMap;

/// The flags of a command line by name, with all values of a repeated flag in order. A flag without a value has an empty one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    /// Reads the flags; words that belong to no flag are left out.
    pub(super) fn read(words: &[String]) -> Self {
        let mut flags = Flags::default();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                // A value never begins with two dashes in the programs that are started this way.
                None => (flag, words.next_if(|next| !next.starts_with("--")).cloned().unwrap_or_default()),
            };
            flags.0.entry(name.to_owned()).or_default().push(value);
        }
        flags
    }

    /// Takes all values of a flag.
    pub(super) fn take_all(&mut self, name: &str) -> Vec<String> {
        self.0.remove(name).unwrap_or_default()
    }

    /// Takes the last value of a flag, which counts.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.take_all(name).pop()
    }

    /// Takes the flag and returns whether it was set to something other than `false`.
    pub(super) fn take_switch(&mut self, name: &str) -> Option<bool> {
        self.take(name).map(|value| value != "false")
    }

    /// The flags that were not taken.
    pub(super) fn rest(self) -> impl Iterator<Item = (String, Vec<String>)> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> Flags {
        Flags::read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn values_follow_a_sign_or_a_blank() {
        let mut read = flags("--secure-port=6443 --bind-address 127.0.0.1 --profiling --v=2 -x=1");
        assert_eq!(read.take("secure-port").as_deref(), Some("6443"));
        assert_eq!(read.take("bind-address").as_deref(), Some("127.0.0.1"));
        assert_eq!(read.take_switch("profiling"), Some(true));
        assert_eq!(read.take_switch("profiling"), None, "a flag is taken once");
        assert_eq!(read.rest().map(|(name, _)| name).collect::<Vec<_>>(), ["v", "x"]);
    }

    #[test]
    fn a_repeated_flag_keeps_its_values_in_order() {
        let mut read = flags("--key-file=a --key-file b --anonymous-auth=false");
        assert_eq!(read.take_all("key-file"), ["a", "b"]);
        assert_eq!(read.take_switch("anonymous-auth"), Some(false));
    }
}
