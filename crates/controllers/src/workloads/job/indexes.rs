//! Sets of completion indexes, in the notation of a status: `1,3-5,7` (JB-7).

use std::fmt;

/// Disjoint ascending ranges, both ends included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Parses the notation. Unreadable parts are skipped, indexes not below `completions` cut off.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut read = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) else { continue };
            if first >= completions {
                break;
            }
            read.push((first, last.min(completions - 1)));
        }
        Self::default().with_ranges(read)
    }

    /// These and others.
    pub(super) fn with(&self, others: impl IntoIterator<Item = i32>) -> Self {
        self.with_ranges(others.into_iter().map(|index| (index, index)).collect())
    }

    /// The union of both.
    pub(super) fn merge(&self, others: &Self) -> Self {
        self.with_ranges(others.0.clone())
    }

    fn with_ranges(&self, mut ranges: Vec<(i32, i32)>) -> Self {
        ranges.extend(&self.0);
        ranges.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Number of indexes.
    pub(super) fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// True if the set has this index.
    pub(super) fn has(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// Number of indexes in both sets.
    pub(super) fn overlap(&self, others: &Self) -> i32 {
        let common = |a: &(i32, i32), b: &(i32, i32)| (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
        self.0.iter().map(|a| others.0.iter().map(|b| common(a, b)).sum::<i32>()).sum()
    }

    /// The first `count` of those below `completions` that are not among these.
    pub(super) fn missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut found = Vec::new();
        let mut candidate = 0;
        let ends = self.0.iter().copied().chain([(completions, completions)]);
        for (first, last) in ends {
            while candidate < first.min(completions) && found.len() < count {
                found.push(candidate);
                candidate += 1;
            }
            candidate = candidate.max(last.saturating_add(1));
        }
        found
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jb_7_ranges_are_written_short() {
        for (indexes, text) in [
            (vec![], ""),
            (vec![3], "3"),
            (vec![0, 1], "0,1"),
            (vec![5, 3, 4, 1], "1,3-5"),
            (vec![0, 1, 2, 9, 10], "0-2,9,10"),
            (vec![2, 2, 2], "2"),
        ] {
            let set = Indexes::default().with(indexes.clone());
            assert_eq!(set.to_string(), text, "{indexes:?}");
            assert_eq!(Indexes::parse(text, 100), set);
            assert!(indexes.iter().all(|index| set.has(*index)) && !set.has(6));
        }
    }

    #[test]
    fn jb_7_what_a_status_says_is_read_with_care() {
        assert_eq!(Indexes::parse("1,x,3-5,7-y,8", 100).to_string(), "1,3-5,8");
        assert_eq!(Indexes::parse("1-9,12", 5).to_string(), "1-4");
        assert_eq!(Indexes::parse("1-9,12", 5).total(), 4);
    }

    #[test]
    fn jb_7_the_first_missing_indexes() {
        let done = Indexes::parse("0,2-4,6", 10);
        assert_eq!(done.missing(3, 10), [1, 5, 7]);
        assert_eq!(done.missing(9, 8), [1, 5, 7]);
        assert_eq!(Indexes::default().missing(2, 10), [0, 1]);
        assert!(Indexes::parse("0-9", 10).missing(5, 10).is_empty());
        assert_eq!(done.overlap(&Indexes::parse("3-6,9", 10)), 3);
        assert_eq!(done.merge(&Indexes::parse("1,5", 10)).to_string(), "0-6");
    }
}
