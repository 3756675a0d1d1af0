//! Differences of two texts as the lines that were removed and added, with three lines around them.
//!
//! Matching lines are chosen as Python's difflib and its Go relative do: the longest block that both texts have, then the same
//! before it and after it. Clients compare the result, so another choice of equally good blocks would be a difference.

use std::collections::HashMap;

/// Lines shown before and after a change.
const CONTEXT: usize = 3;

/// Most comparisons of lines, which take about a tenth of a second; texts of a few thousand lines need far fewer.
const COMPARISONS_MAX: usize = 4_000_000;

/// From this many lines on, lines that are more than one in a hundred do not start a block.
const POPULAR_FROM: usize = 200;

/// A block of lines that both texts have.
#[derive(Clone, Copy)]
struct Block {
    old: usize,
    new: usize,
    lines: usize,
}

/// Returns a unified diff without file names; empty if the texts are equal, `None` if comparing them would take too long.
#[must_use]
pub fn unified(old: &str, new: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut text = String::new();
    for group in groups(&changes(&old, &new)?) {
        let (first, last) = (group[0], group[group.len() - 1]);
        let range = |start: usize, end: usize| match end - start {
            1 => format!("{}", start + 1),
            0 => format!("{start},0"),
            lines => format!("{},{lines}", start + 1),
        };
        text.push_str(&format!("@@ -{} +{} @@\n", range(first.old.0, last.old.1), range(first.new.0, last.new.1)));
        for change in group {
            let mut lines = |mark: char, lines: &[&str]| {
                for line in lines {
                    text.push(mark);
                    text.push_str(line);
                    text.push('\n');
                }
            };
            if change.equal {
                lines(' ', &old[change.old.0..change.old.1]);
            } else {
                lines('-', &old[change.old.0..change.old.1]);
                lines('+', &new[change.new.0..change.new.1]);
            }
        }
    }
    Some(text)
}

/// A range of lines in both texts, the same or not.
#[derive(Clone, Copy)]
struct Change {
    equal: bool,
    old: (usize, usize),
    new: (usize, usize),
}

fn changes(old: &[&str], new: &[&str]) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    let (mut i, mut j) = (0, 0);
    for block in blocks(old, new)? {
        if i < block.old || j < block.new {
            changes.push(Change { equal: false, old: (i, block.old), new: (j, block.new) });
        }
        (i, j) = (block.old + block.lines, block.new + block.lines);
        if block.lines > 0 {
            changes.push(Change { equal: true, old: (block.old, i), new: (block.new, j) });
        }
    }
    Some(changes)
}

/// Returns the common blocks in order, adjacent ones joined, and an empty one at the end.
fn blocks(old: &[&str], new: &[&str]) -> Option<Vec<Block>> {
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (j, line) in new.iter().enumerate() {
        positions.entry(line).or_default().push(j);
    }
    if new.len() >= POPULAR_FROM {
        let most = new.len() / 100 + 1;
        positions.retain(|_, found| found.len() <= most);
    }
    let mut left = COMPARISONS_MAX;
    let mut found = Vec::new();
    let mut waiting = vec![(0, old.len(), 0, new.len())];
    while let Some((a, b, c, d)) = waiting.pop() {
        let block = longest(old, new, &positions, (a, b, c, d), &mut left)?;
        if block.lines > 0 {
            waiting.push((a, block.old, c, block.new));
            waiting.push((block.old + block.lines, b, block.new + block.lines, d));
            found.push(block);
        }
    }
    found.sort_unstable_by_key(|block| (block.old, block.new));
    let mut joined: Vec<Block> = Vec::new();
    for block in found {
        match joined.last_mut() {
            Some(last) if last.old + last.lines == block.old && last.new + last.lines == block.new => {
                last.lines += block.lines;
            }
            _ => joined.push(block),
        }
    }
    joined.push(Block { old: old.len(), new: new.len(), lines: 0 });
    Some(joined)
}

/// Returns the longest common block of two ranges, the first of several.
fn longest(
    old: &[&str],
    new: &[&str],
    positions: &HashMap<&str, Vec<usize>>,
    (a, b, c, d): (usize, usize, usize, usize),
    left: &mut usize,
) -> Option<Block> {
    let mut best = Block { old: a, new: c, lines: 0 };
    // How many lines before these two are the same, for the line of `old` before.
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in old.iter().enumerate().take(b).skip(a) {
        let mut next = HashMap::new();
        for &j in positions.get(line).into_iter().flatten() {
            if j < c {
                continue;
            }
            if j >= d {
                break;
            }
            *left = left.checked_sub(1)?;
            let lines = j.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0) + 1;
            next.insert(j, lines);
            if lines > best.lines {
                best = Block { old: i + 1 - lines, new: j + 1 - lines, lines };
            }
        }
        lengths = next;
        *left = left.checked_sub(1)?;
    }
    // Popular lines do not start a block, but they extend one.
    while best.old > a && best.new > c && old[best.old - 1] == new[best.new - 1] {
        best = Block { old: best.old - 1, new: best.new - 1, lines: best.lines + 1 };
    }
    while best.old + best.lines < b
        && best.new + best.lines < d
        && old[best.old + best.lines] == new[best.new + best.lines]
    {
        best.lines += 1;
    }
    Some(best)
}

/// Splits the changes where more than twice the context is the same, and cuts what is the same to the context.
fn groups(changes: &[Change]) -> Vec<Vec<Change>> {
    let mut changes = changes.to_vec();
    if let Some(first) = changes.first_mut().filter(|first| first.equal) {
        first.old.0 = first.old.0.max(first.old.1.saturating_sub(CONTEXT));
        first.new.0 = first.new.0.max(first.new.1.saturating_sub(CONTEXT));
    }
    if let Some(last) = changes.last_mut().filter(|last| last.equal) {
        last.old.1 = last.old.1.min(last.old.0 + CONTEXT);
        last.new.1 = last.new.1.min(last.new.0 + CONTEXT);
    }
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for change in changes {
        let mut start = change;
        if change.equal && change.old.1 - change.old.0 > 2 * CONTEXT {
            let cut = |(from, to): (usize, usize)| (from, to.min(from + CONTEXT));
            group.push(Change { old: cut(change.old), new: cut(change.new), ..change });
            groups.push(std::mem::take(&mut group));
            let rest = |(from, to): (usize, usize)| (from.max(to - CONTEXT), to);
            start = Change { old: rest(change.old), new: rest(change.new), ..change };
        }
        group.push(start);
    }
    if !(group.is_empty() || group.len() == 1 && group[0].equal) {
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(unified("a\nb", "a\nb").as_deref(), Some(""));
    }

    #[test]
    fn distant_changes_are_two_groups() {
        let old: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let mut new = old.clone();
        new[2] = "x".to_owned();
        new.insert(20, "y".to_owned());
        let text = unified(&old.join("\n"), &new.join("\n")).unwrap();
        let wanted =
            "@@ -1,6 +1,6 @@\n 0\n 1\n-2\n+x\n 3\n 4\n 5\n@@ -18,6 +18,7 @@\n 17\n 18\n 19\n+y\n 20\n 21\n 22\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn texts_that_take_too_long_are_not_compared() {
        let old: Vec<String> = (0..12_000).map(|n| format!("{}", n % 100)).collect();
        let new: Vec<String> = (0..12_000).map(|n| format!("{}", (n * 7) % 100)).collect();
        assert!(unified(&old.join("\n"), &new.join("\n")).is_none_or(|text| !text.is_empty()));
    }
}
