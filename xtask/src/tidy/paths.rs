//! Paths and links in the documentation lead to files, folders and headings that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::files;

/// Folders at the root of the tree; a quoted path that starts with one is meant from the root.
const ROOTS: [&str; 7] = ["crates", "docs", "tests", "tools", "xtask", "fuzz", ".ci"];

/// Endings of names that are looked for anywhere in the tree.
const ENDINGS: [&str; 5] = [".rs", ".md", ".toml", ".txt", ".tsv"];

/// Pages whose quoted paths are those of other repositories; only their links are checked.
const FOREIGN_PATHS: &str = "docs/spec/";

pub(super) fn check(root: &Path) -> Vec<String> {
    let tree = Tree::read(root);
    let mut complaints = Vec::new();
    for page in tree.files.iter().filter(|file| file.ends_with(".md")) {
        let text = fs::read_to_string(root.join(page)).unwrap_or_default();
        complaints.extend(tree.check_page(page, &text, |file| fs::read_to_string(root.join(file)).unwrap_or_default()));
    }
    complaints
}

/// Names of all files and folders, from the root.
#[derive(Debug, Default)]
struct Tree {
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
}

impl Tree {
    fn read(root: &Path) -> Self {
        let mut tree = Tree::default();
        for file in files::all(root) {
            tree.add(&file.strip_prefix(root).unwrap_or(&file).to_string_lossy());
        }
        tree
    }

    fn add(&mut self, file: &str) {
        self.files.insert(file.to_owned());
        let folders = file.match_indices('/').map(|(at, _)| file[..at].to_owned());
        self.folders.extend(folders);
    }

    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.contains(path) || self.folders.contains(path)
    }

    /// Reports paths and links of a page that lead nowhere; `read` returns the text of another page.
    fn check_page(&self, page: &str, text: &str, read: impl Fn(&str) -> String) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut fenced = false;
        for (at, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if fenced || line.starts_with("    ") {
                continue;
            }
            let at = at + 1;
            if !page.starts_with(FOREIGN_PATHS) {
                for path in line.split('`').skip(1).step_by(2).filter(|path| !self.exists(path)) {
                    complaints.push(format!("{page}:{at}: there is no `{path}`"));
                }
            }
            for target in links(&without_code(line)) {
                let (file, heading) = target.split_once('#').unwrap_or((target, ""));
                let file = if file.is_empty() { page.to_owned() } else { resolve(page, file) };
                if !self.has(&file) {
                    complaints.push(format!("{page}:{at}: the link {target} leads nowhere"));
                } else if !heading.is_empty() && !anchors(&read(&file)).any(|anchor| anchor == heading) {
                    complaints.push(format!("{page}:{at}: {file} has no heading #{heading}"));
                }
            }
        }
        complaints
    }

    /// Returns false only for text that is meant as a path of this tree and is none.
    fn exists(&self, text: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        if text.starts_with(['/', '.']) && !text.starts_with(".ci/") || !text.chars().all(plain) {
            return true;
        }
        let mut segments = text.split('/');
        let (first, second) = (segments.next().unwrap_or_default(), segments.next());
        if ROOTS.contains(&first) && second.is_some() {
            return self.has(text);
        }
        let of_a_crate = second.is_some_and(|second| ["src", "tests", "examples", "build.rs"].contains(&second));
        if of_a_crate && self.folders.contains(&format!("crates/{first}")) {
            return self.has(&format!("crates/{text}"));
        }
        if ENDINGS.iter().any(|ending| text.ends_with(ending)) {
            return self.files.iter().any(|file| {
                file.ends_with(text) && file[..file.len() - text.len()].ends_with(['/', ' ']) || file == text
            });
        }
        true
    }
}

/// Returns a line without what it quotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the targets of links to other pages, without those of the web.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("](").skip(1);
    after.filter_map(|rest| rest.split(')').next()).filter(|target| !target.contains("://"))
}

/// Returns a relative link as a path from the root.
fn resolve(page: &str, link: &str) -> String {
    let mut path: Vec<&str> = page.split('/').collect();
    path.pop();
    for segment in link.split('/') {
        match segment {
            "." => {}
            ".." => {
                path.pop();
            }
            name => path.push(name),
        }
    }
    path.join("/")
}

/// Returns the anchors of the headings of a page, as GitHub makes them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        for file in
            ["Cargo.toml", "crates/server/src/wire/limits.rs", "docs/tour.md", "docs/spec/01-a.md", "tests/rows.txt"]
        {
            tree.add(file);
        }
        tree
    }

    #[test]
    fn quoted_paths_exist() {
        let tree = tree();
        for good in [
            "crates/server/src/wire/",
            "crates/server",
            "server/src/wire/limits.rs",
            "wire/limits.rs",
            "limits.rs",
            "docs/tour.md",
            "tour.md",
            "Cargo.toml",
            // Not paths of this tree.
            "apps/v1",
            "/var/log/x.rs",
            "docs",
            "pod/status",
            "kube-system/kube-controller-manager",
            "crates/*/src",
        ] {
            assert!(tree.exists(good), "{good}");
        }
        for bad in [
            "crates/server/src/limits.rs",
            "server/src/limits.rs",
            "imits.rs",
            "docs/trip.md",
            "tests/go",
            "crates/console",
        ] {
            assert!(!tree.exists(bad), "{bad}");
        }
    }

    #[test]
    fn a_page_is_checked_outside_of_its_code_blocks() {
        let text = "`crates/console` is\n\n    run `crates/none`\n\n```\n`docs/none.md`\n```\n";
        let complaints = tree().check_page("README.md", text, |_| String::new());
        assert_eq!(complaints, ["README.md:1: there is no `crates/console`"]);
        assert!(tree().check_page("docs/spec/01-a.md", "`tools/cache/listwatch.go`", |_| String::new()).is_empty());
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let check = |line: &str| {
            tree().check_page("docs/spec/01-a.md", line, |_| "# A tour\n## 1.4 Media types, `all`\n".to_owned())
        };
        assert!(
            check("[a](../tour.md), [b](../tour.md#a-tour), [c](#14-media-types-all), [d](https://x.org/y)").is_empty()
        );
        assert_eq!(check("[a](tour.md)"), ["docs/spec/01-a.md:1: the link tour.md leads nowhere"]);
        assert_eq!(check("[a](../tour.md#b)"), ["docs/spec/01-a.md:1: docs/tour.md has no heading #b"]);
    }
}
