//! The list of conformance tests: names to run, and prefixes of those that are out of reach with the reason.

/// Names of tests, and prefixes of those that are out of reach with the reason.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tests {
    pub(super) wanted: Vec<String>,
    pub(super) unreachable: Vec<(String, String)>,
}

impl Tests {
    pub(super) fn read(text: &str) -> Tests {
        let mut tests = Tests::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.strip_prefix("- ").and_then(|rest| rest.rsplit_once(": ")) {
                Some((prefix, reason)) => tests.unreachable.push((prefix.to_owned(), reason.to_owned())),
                None => tests.wanted.push(line.to_owned()),
            }
        }
        tests
    }

    /// Returns why this test cannot pass, if it is out of reach.
    pub(super) fn reason(&self, name: &str) -> Option<&str> {
        self.unreachable.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, reason)| reason.as_str())
    }

    /// Returns the tests to run: those that may run beside others, and those that need the cluster for themselves.
    pub(super) fn to_run(&self) -> (Vec<String>, Vec<String>) {
        let wanted = self.wanted.iter().filter(|name| self.reason(name).is_none()).cloned();
        wanted.partition(|name| !name.contains("[Serial]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_names_and_reasons() {
        let tests = Tests::read(
            "# a comment\n- [sig-node]: needs containers\n\n[sig-apps] Job should run: all\n[sig-apps] Daemon set [Serial] runs\n[sig-node] Pods\n",
        );
        assert_eq!(tests.reason("[sig-node] Pods should run"), Some("needs containers"));
        assert_eq!(tests.reason("[sig-apps] Job should run: all"), None);
        let (beside, alone) = tests.to_run();
        assert_eq!(beside, ["[sig-apps] Job should run: all"]);
        assert_eq!(alone, ["[sig-apps] Daemon set [Serial] runs"]);
    }
}
