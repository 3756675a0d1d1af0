//! Every row of the specification is in `tests/rows.txt`, and a test carries it in its name or docs/compatibility.md names it.
//!
//! A test carries a row if its name has the row's family with the number right behind it: `dp_14_…` is DP-14, `rs_4_rs_6_…` and
//! `rs_4_6_…` are RS-4 and RS-6, `k_05_…` is K-5.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::files;
use super::spec::{self, Row, Spec, shown};

const LIST: &str = "tests/rows.txt";
const DEVIATIONS: &str = "docs/compatibility.md";
const PAGES: &str = "docs/spec";

/// Returns the number of rows, and complaints.
pub(super) fn check(root: &Path) -> (usize, Vec<String>) {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (spec, mut complaints) = spec::read(root);
    let (rows, found) = read(&text(LIST));
    complaints.extend(found);
    let mut names = BTreeSet::new();
    for file in files::all(root).iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
        names.extend(tests(&fs::read_to_string(file).unwrap_or_default()));
    }
    complaints.extend(rows.against_tests(&names, &text(DEVIATIONS)));
    complaints.extend(rows.against_pages(&spec));
    complaints.extend(spec::check_citations(root, &spec));
    (spec.rows.len(), complaints)
}

/// The rows of the list, by what proves them.
#[derive(Debug, Default)]
struct Rows {
    /// A test carries the row.
    tested: BTreeSet<Row>,
    /// `!`: not met, or not tested; docs/compatibility.md gives the reason.
    untested: BTreeSet<Row>,
    /// `~`: a summary of rows that its text names, which prove it.
    summaries: BTreeSet<Row>,
}

fn read(list: &str) -> (Rows, Vec<String>) {
    let (mut rows, mut complaints) = (Rows::default(), Vec::new());
    for (at, line) in list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let Some((family, numbers)) = line.split_once(':') else {
            complaints.push(format!("{LIST}:{}: no family", at + 1));
            continue;
        };
        for word in numbers.split_whitespace() {
            let digits = word.trim_start_matches(['!', '~']);
            let (first, last) = digits.split_once('-').unwrap_or((digits, digits));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
                complaints.push(format!("{LIST}:{}: {word} is not a row", at + 1));
                continue;
            };
            for row in (first..=last).map(|number| (family.to_owned(), number)) {
                match word.chars().next() {
                    Some(mark @ ('!' | '~')) => {
                        rows.tested.remove(&row);
                        let set = if mark == '!' { &mut rows.untested } else { &mut rows.summaries };
                        set.insert(row);
                    }
                    _ => {
                        rows.tested.insert(row);
                    }
                }
            }
        }
    }
    if rows.tested.is_empty() {
        complaints.push(format!("{LIST}: no rows"));
    }
    (rows, complaints)
}

/// Returns the names of the tests in a source file.
fn tests(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|(before, _)| test && !before.contains("//")) {
            names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            test = false;
        } else if !line.starts_with("//") {
            test = false;
        }
    }
    names
}

/// Returns the rows of a family that a name carries.
fn carried(name: &str, family: &str) -> Vec<u32> {
    let (words, family): (Vec<&str>, Vec<&str>) = (name.split('_').collect(), family.split('_').collect());
    let mut numbers = Vec::new();
    for at in 0..words.len() {
        if words[at..].starts_with(&family) {
            let behind = words[at + family.len()..].iter().map_while(|word| word.parse::<u32>().ok());
            numbers.extend(behind);
        }
    }
    numbers
}

impl Rows {
    fn all(&self) -> impl Iterator<Item = &Row> {
        self.tested.iter().chain(&self.untested).chain(&self.summaries)
    }

    /// Compares the list with the names of tests and with the page of deviations.
    fn against_tests(&self, names: &BTreeSet<String>, deviations: &str) -> Vec<String> {
        let families: BTreeSet<&String> = self.all().map(|(family, _)| family).collect();
        let mut proven = BTreeSet::new();
        for name in names {
            for family in &families {
                proven.extend(carried(name, family).into_iter().map(|number| ((*family).clone(), number)));
            }
        }
        let mut complaints = Vec::new();
        for (family, number) in self.tested.difference(&proven) {
            complaints.push(format!("{LIST}: no test is called {family}_{number}_…"));
        }
        for row in &self.untested {
            let id = shown(row);
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
            if !deviations.match_indices(&id).any(|(at, _)| ends(&deviations[at + id.len()..])) {
                complaints.push(format!("{DEVIATIONS}: row {id} has no test and is not named"));
            }
        }
        for row in self.untested.union(&self.summaries).filter(|row| proven.contains(row)) {
            complaints.push(format!("{LIST}: {} has a test; it needs no `!` or `~`", shown(row)));
        }
        complaints
    }

    /// Compares the list with the rows that the pages of the specification define.
    fn against_pages(&self, spec: &Spec) -> Vec<String> {
        let listed: BTreeSet<&Row> = self.all().collect();
        let mut complaints = Vec::new();
        for row in listed.iter().filter(|row| !spec.rows.contains_key(**row)) {
            complaints.push(format!("{LIST}: row {} has no text in {PAGES}", shown(row)));
        }
        for row in spec.rows.keys().filter(|row| !listed.contains(row)) {
            complaints.push(format!("{PAGES}: row {} is not in {LIST}", shown(row)));
        }
        let text = |row: &Row| spec.rows.get(row).map_or("", String::as_str);
        for row in self.untested.iter().filter(|row| !text(row).contains("compatibility.md")) {
            complaints.push(format!("{PAGES}: row {} is not met and has no link to {DEVIATIONS}", shown(row)));
        }
        for row in &self.summaries {
            if !spec::cited(text(row)).any(|other| self.tested.contains(&other)) {
                complaints.push(format!("{PAGES}: row {} names no tested row that proves it", shown(row)));
            }
        }
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_name_carries_the_numbers_right_behind_its_families() {
        assert_eq!(carried("dp_14_a_set_of_3", "dp"), [14]);
        assert_eq!(carried("rs_4_rs_6_8_pods", "rs"), [4, 6, 8]);
        assert_eq!(carried("k_05_a_line", "k"), [5]);
        assert_eq!(carried("dp_12_sequence_12_2_create", "dp"), [12]);
        assert_eq!(carried("dp_12_sequence_12_2_create", "sequence_12"), [2]);
        assert_eq!(carried("udp_5_packets", "dp"), Vec::<u32>::new());
    }

    #[test]
    fn only_tests_count() {
        let source = "#[test]\nfn a_1() {}\nfn b_2() {}\n#[tokio::test(flavor = \"x\")]\n#[cfg(unix)]\n// why\nasync fn c_3() {\nfn d_4";
        assert_eq!(tests(source), ["a_1", "c_3"]);
        assert_eq!(tests("#[derive(Debug)]\nstruct X;\nfn e_5() {}"), Vec::<String>::new());
    }

    #[test]
    fn a_row_without_a_test_is_named() {
        let (rows, complaints) = read("# rows\n\ndp: 1-2 7\nrc: 1 !3\n");
        assert!(complaints.is_empty(), "{complaints:?}");
        let judge = |tests: &[&str], deviations: &str| rows.against_tests(&names(tests), deviations);
        assert_eq!(judge(&["dp_1_2_both", "rc_1_one", "dp_7"], "| RC-3 | not offered |"), [""; 0]);
        assert_eq!(judge(&["dp_1_one", "rc_1_one", "dp_7_x"], "RC-3"), ["tests/rows.txt: no test is called dp_2_…"]);
        assert_eq!(judge(&["dp_1_2_both", "rc_1_one", "dp_7"], "| RC-31 |").len(), 1);
        assert_eq!(judge(&["dp_1_2_both", "rc_1_3_one", "dp_7"], "RC-3").len(), 1);
    }

    #[test]
    fn the_list_and_the_pages_have_the_same_rows() {
        let (rows, _) = read("dp: 1-2 ~3\nrc: !1\n");
        let page = [
            ("dp", 1, "| DP-1 | one |"),
            ("dp", 2, "| DP-2 | two |"),
            ("dp", 3, "| DP-3 | as DP-1 |"),
            ("rc", 1, "| RC-1 | [not offered](../compatibility.md) |"),
        ];
        let spec = |page: &[(&str, u32, &str)]| {
            let mut spec = Spec::default();
            spec.rows.extend(
                page.iter().map(|(family, number, text)| (((*family).to_owned(), *number), (*text).to_owned())),
            );
            spec
        };
        assert_eq!(rows.against_pages(&spec(&page)), [""; 0]);
        let missing = rows.against_pages(&spec(&[page[0], page[2], page[3]]));
        assert_eq!(missing, ["tests/rows.txt: row DP-2 has no text in docs/spec"]);
        let more = rows.against_pages(&spec(&[&page[..], &[("dp", 4, "| DP-4 | four |")]].concat()));
        assert_eq!(more, ["docs/spec: row DP-4 is not in tests/rows.txt"]);
        let unlinked = rows.against_pages(&spec(&[page[0], page[1], page[2], ("rc", 1, "| RC-1 | later |")]));
        assert_eq!(unlinked, ["docs/spec: row RC-1 is not met and has no link to docs/compatibility.md"]);
        let alone = rows.against_pages(&spec(&[page[0], page[1], ("dp", 3, "| DP-3 | as DP-3 |"), page[3]]));
        assert_eq!(alone, ["docs/spec: row DP-3 names no tested row that proves it"]);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_no_list() {
        assert_eq!(read("dp 1-2\n").1.len(), 2);
        assert_eq!(read("dp: 1-x 4\n").1.len(), 1);
    }
}
