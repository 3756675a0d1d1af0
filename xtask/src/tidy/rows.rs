//! Every row of the specification is carried by the name of a test, or docs/compatibility.md names it.
//!
//! `tests/rows.txt` lists the rows. A test carries a row if the row's family stands in its name and its number right behind:
//! `dp_14_…` is DP-14, `rs_4_rs_6_…` and `rs_4_6_…` are RS-4 and RS-6, `k_05_…` is K-5.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::files;

const LIST: &str = "tests/rows.txt";
const DEVIATIONS: &str = "docs/compatibility.md";

type Row = (String, u32);

/// How many rows there are, and what is wrong with them.
pub(super) fn check(root: &Path) -> (usize, Vec<String>) {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (rows, mut complaints) = read(&text(LIST));
    let mut names = BTreeSet::new();
    for file in files::all(root).iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
        names.extend(tests(&fs::read_to_string(file).unwrap_or_default()));
    }
    complaints.extend(judge(&rows, &names, &text(DEVIATIONS)));
    (rows.tested.len() + rows.untested.len(), complaints)
}

#[derive(Debug, Default)]
struct Rows {
    tested: BTreeSet<Row>,
    untested: BTreeSet<Row>,
}

fn read(list: &str) -> (Rows, Vec<String>) {
    let (mut rows, mut complaints) = (Rows::default(), Vec::new());
    for (at, line) in list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let Some((family, numbers)) = line.split_once(':') else {
            complaints.push(format!("{LIST}:{}: no family", at + 1));
            continue;
        };
        for word in numbers.split_whitespace() {
            let (word, untested) = word.strip_prefix('!').map_or((word, false), |word| (word, true));
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
                complaints.push(format!("{LIST}:{}: {word} is no row", at + 1));
                continue;
            };
            for row in (first..=last).map(|number| (family.to_owned(), number)) {
                if untested {
                    rows.tested.remove(&row);
                    rows.untested.insert(row);
                } else {
                    rows.tested.insert(row);
                }
            }
        }
    }
    if rows.tested.is_empty() {
        complaints.push(format!("{LIST}: no rows"));
    }
    (rows, complaints)
}

/// The names of the tests in a source file.
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

/// The rows of a family that a name carries.
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

fn judge(rows: &Rows, names: &BTreeSet<String>, deviations: &str) -> Vec<String> {
    let families: BTreeSet<&String> = rows.tested.iter().chain(&rows.untested).map(|(family, _)| family).collect();
    let mut proven = BTreeSet::new();
    for name in names {
        for family in &families {
            proven.extend(carried(name, family).into_iter().map(|number| ((*family).clone(), number)));
        }
    }
    let mut complaints = Vec::new();
    for (family, number) in rows.tested.difference(&proven) {
        complaints.push(format!("{LIST}: no test is called {family}_{number}_…"));
    }
    for (family, number) in &rows.untested {
        let forms = [format!("{}-{number}", family.to_uppercase()), format!("{family}_{number}")];
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
        let named = |form: &String| deviations.match_indices(form).any(|(at, _)| ends(&deviations[at + form.len()..]));
        if !forms.iter().any(named) {
            complaints.push(format!("{DEVIATIONS}: row {} has no test and is not named", forms[0]));
        }
        if proven.contains(&(family.clone(), *number)) {
            complaints.push(format!("{LIST}: {family}_{number} has a test; it needs no `!`"));
        }
    }
    complaints
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
        assert_eq!(judge(&rows, &names(&["dp_1_2_both", "rc_1_one", "dp_7"]), "| RC-3 | not offered |"), [""; 0]);
        assert_eq!(judge(&rows, &names(&["dp_1_one", "rc_1_one", "dp_7_x"]), "RC-3").len(), 1);
        assert_eq!(judge(&rows, &names(&["dp_1_2_both", "rc_1_one", "dp_7"]), "| RC-31 |").len(), 1);
        assert_eq!(judge(&rows, &names(&["dp_1_2_both", "rc_1_3_one", "dp_7"]), "RC-3").len(), 1);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_no_list() {
        assert_eq!(read("dp 1-2\n").1.len(), 2);
        assert_eq!(read("dp: 1-x 4\n").1.len(), 1);
    }
}
