//! Positions of list items by identity, so that long lists merge in one pass.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeSet, HashSet};

use machinery::json::Value;

/// Returns the identity of an item: its merge key, or itself.
pub(super) fn identity<'v>(item: &'v Value, key: Option<&str>) -> &'v Value {
    const NONE: &Value = &Value::Null;
    match key {
        Some(key) => item.get(key).unwrap_or(NONE),
        None => item,
    }
}

/// The first position of each item of a list.
pub(super) struct Positions<'v> {
    first: HashMap<&'v Value, usize>,
    key: Option<&'v str>,
}

impl<'v> Positions<'v> {
    pub(super) fn new(list: &'v [Value], key: Option<&'v str>) -> Self {
        let mut first = HashMap::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            first.entry(identity(item, key)).or_insert(at);
        }
        Positions { first, key }
    }

    pub(super) fn get(&self, item: &Value) -> Option<usize> {
        self.first.get(identity(item, self.key)).copied()
    }
}

/// Returns the values of a key in the items that have it.
pub(super) fn values<'v>(list: &'v [Value], key: &str) -> HashSet<&'v Value> {
    list.iter().filter_map(|item| item.get(key)).collect()
}

/// Keeps the first of equal scalars; the last item moves to the position of a removed one, as in the reference.
pub(super) fn without_duplicates(mut items: Vec<Value>) -> Vec<Value> {
    // The positions of each value, in classes that are numbered in order of appearance.
    let mut numbers: HashMap<&Value, usize> = HashMap::with_capacity(items.len());
    let mut positions: Vec<BTreeSet<usize>> = Vec::new();
    let mut classes: Vec<usize> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let class = match numbers.entry(item) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                positions.push(BTreeSet::new());
                *new.insert(positions.len() - 1)
            }
        };
        positions[class].insert(at);
        classes.push(class);
    }
    drop(numbers);
    let mut at = 0;
    while at < items.len() {
        let class = classes[at];
        while let Some(other) = positions[class].range(at + 1..).next().copied() {
            let (last, moved) = (items.len() - 1, classes[items.len() - 1]);
            items.swap_remove(other);
            classes.swap_remove(other);
            positions[class].remove(&other);
            if other != last {
                positions[moved].remove(&last);
                positions[moved].insert(other);
            }
        }
        at += 1;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_item_moves_to_the_position_of_a_duplicate() {
        for (items, kept) in
            [("abcabc", "abc"), ("aabcd", "adbc"), ("aaab", "ab"), ("abab", "ab"), ("abacad", "abdc"), ("", "")]
        {
            let items: Vec<Value> = items.chars().map(|c| Value::from(c.to_string())).collect();
            let kept: Vec<Value> = kept.chars().map(|c| Value::from(c.to_string())).collect();
            assert_eq!(without_duplicates(items.clone()), kept);
            assert_eq!(one_by_one(items), kept);
        }
    }

    /// The same, as the reference does it.
    fn one_by_one(mut items: Vec<Value>) -> Vec<Value> {
        let mut at = 0;
        while at < items.len() {
            let mut other = at + 1;
            while other < items.len() {
                if items[at] == items[other] {
                    items.swap_remove(other);
                } else {
                    other += 1;
                }
            }
            at += 1;
        }
        items
    }

    #[test]
    fn random_lists_are_as_those_of_the_reference() {
        let mut state = 1u64;
        for length in 0..60 {
            let items: Vec<Value> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    Value::from(state >> 60)
                })
                .collect();
            assert_eq!(without_duplicates(items.clone()), one_by_one(items));
        }
    }
}
