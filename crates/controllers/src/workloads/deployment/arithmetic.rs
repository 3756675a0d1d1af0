//! The number of replicas of each replica set of a deployment: functions from numbers to numbers.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The limits of a rollout: surge and unavailability (DP-20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) replicas: i32,
    pub(super) surge: i32,
    pub(super) unavailable: i32,
}

impl Budget {
    /// Of a rolling update.
    pub(super) fn rolling(replicas: i32, surge: Option<&IntOrString>, unavailable: Option<&IntOrString>) -> Self {
        let surge = surge.map_or(0, |value| resolve(value, replicas, Rounding::Up));
        let mut unavailable = unavailable.map_or(0, |value| resolve(value, replicas, Rounding::Down));
        if surge == 0 && unavailable == 0 {
            // Without either no rollout could move; more pods might not be allowed, fewer always are.
            unavailable = 1;
        }
        Self { replicas, surge, unavailable: unavailable.min(replicas) }
    }

    /// Of a strategy that first removes everything.
    pub(super) fn recreate(replicas: i32) -> Self {
        Self { replicas, surge: 0, unavailable: 0 }
    }

    /// The most pods there may be.
    pub(super) fn most(self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// The fewest available pods there may be.
    pub(super) fn fewest_available(self) -> i32 {
        self.replicas - self.unavailable
    }
}

/// The rounding of a percentage.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// A number, or a percentage of `total`. Anything else is zero: the server has validated it.
pub(crate) fn resolve(value: &IntOrString, total: i32, rounding: Rounding) -> i32 {
    let percent = match value {
        IntOrString::Int(number) => return *number,
        IntOrString::String(text) => text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok()).unwrap_or(0),
    };
    let hundredfold = percent * i64::from(total);
    let result = match rounding {
        Rounding::Up => hundredfold.div_euclid(100) + i64::from(hundredfold.rem_euclid(100) != 0),
        Rounding::Down => hundredfold.div_euclid(100),
    };
    i32::try_from(result).unwrap_or(i32::MAX)
}

/// The size of the new replica set in a rolling update (DP-21). `total` counts all sets, the new one too.
pub(super) fn new_size(budget: Budget, total: i32, new: i32) -> i32 {
    if new > budget.replicas {
        return budget.replicas;
    }
    if total >= budget.most() {
        return new;
    }
    new + (budget.most() - total).min(budget.replicas - new)
}

/// A replica set in numbers. Between the available and the broken ones are those about which nothing is sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) wanted: i32,
    /// Never more than wanted.
    pub(super) available: i32,
    /// The number of wanted pods that are certainly not available.
    broken: i32,
}

impl Size {
    /// At least `fewest` and at most `most` of its pods are available.
    ///
    /// A set that was made smaller reports the pods that will be deleted until its controller has synced.
    /// If they were counted, others would be removed in their place, and too few would be available.
    pub(super) fn new(wanted: i32, fewest: i32, most: i32) -> Self {
        Self { wanted, available: fewest.min(wanted), broken: (wanted - most).max(0) }
    }
}

/// The new sizes of the old replica sets, oldest first: the index of each and its new size, in the order of the writes
/// (DP-23). Unavailable pods first, then as many as leaves enough available.
pub(super) fn shrink_old(budget: Budget, old: &[Size], new: Size) -> Vec<(usize, i32)> {
    let total: i32 = old.iter().map(|set| set.wanted).sum::<i32>() + new.wanted;
    let allowed = total - budget.fewest_available() - (new.wanted - new.available);
    if allowed <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i32> = old.iter().map(|set| set.wanted).collect();
    let mut steps = Vec::new();
    let mut left = allowed;
    for (index, set) in old.iter().enumerate() {
        let down = left.min(set.broken);
        if down > 0 {
            left -= down;
            sizes[index] -= down;
            steps.push((index, sizes[index]));
        }
    }
    let available = old.iter().map(|set| set.available).sum::<i32>() + new.available;
    let mut left = available - budget.fewest_available();
    for (index, size) in sizes.iter_mut().enumerate() {
        let down = left.min(*size);
        if down > 0 {
            left -= down;
            *size -= down;
            steps.push((index, *size));
        }
    }
    steps
}

/// A replica set that is scaled with others, in the order in which they get their share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) wanted: i32,
    /// The most pods there might be when this set was scaled last.
    pub(super) most_before: Option<i32>,
}

/// The number to add to all active replica sets together; negative to remove.
pub(super) fn to_distribute(budget: Budget, total: i32) -> i32 {
    if budget.replicas > 0 { budget.most() - total } else { -total }
}

/// The sizes of several active replica sets after a change of the total: each in proportion, the remainder to the first
/// (DP-26).
pub(super) fn proportional(budget: Budget, sets: &[Share], replicas_in_status: i32) -> Vec<i32> {
    let to_add = to_distribute(budget, sets.iter().map(|set| set.wanted).sum());
    let mut added = 0;
    let mut sizes: Vec<i32> = sets
        .iter()
        .map(|set| {
            let share = fraction(budget, set, replicas_in_status);
            let left = to_add - added;
            let share = if to_add > 0 { share.min(left) } else { share.max(left) };
            let share = if to_add == 0 || left == 0 || set.wanted == 0 { 0 } else { share };
            added += share;
            set.wanted + share
        })
        .collect();
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    sizes
}

fn fraction(budget: Budget, set: &Share, replicas_in_status: i32) -> i32 {
    if budget.replicas == 0 {
        return -set.wanted;
    }
    let before = set.most_before.filter(|most| *most > 0).unwrap_or(replicas_in_status);
    if before == 0 {
        return 0;
    }
    let size = f64::from(set.wanted) * f64::from(budget.most()) / f64::from(before);
    size.round() as i32 - set.wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(text: &str) -> IntOrString {
        IntOrString::String(text.into())
    }

    #[test]
    fn dp_20_surge_rounds_up_and_unavailable_down() {
        let quarter = percent("25%");
        for (replicas, surge, unavailable) in [(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0), (4, 1, 1), (10, 3, 2)] {
            let budget = Budget::rolling(replicas, Some(&quarter), Some(&quarter));
            assert_eq!((budget.surge, budget.unavailable), (surge, unavailable), "{replicas} replicas");
        }
        let none = percent("0%");
        assert_eq!(
            Budget::rolling(10, Some(&none), Some(&percent("1%"))).unavailable,
            1,
            "a rollout must be able to move"
        );
        assert_eq!(Budget::rolling(0, Some(&none), Some(&none)).unavailable, 0);
        assert_eq!(Budget::rolling(3, Some(&IntOrString::Int(1)), Some(&IntOrString::Int(9))).unavailable, 3);
        assert_eq!(Budget::recreate(5), Budget { replicas: 5, surge: 0, unavailable: 0 });
        assert_eq!(resolve(&percent("x%"), 10, Rounding::Up), 0);
        assert_eq!(resolve(&percent("200%"), i32::MAX, Rounding::Up), i32::MAX);
    }

    #[test]
    fn dp_21_the_new_set_grows_into_what_is_left() {
        let budget = Budget { replicas: 10, surge: 3, unavailable: 2 };
        for (total, new, expected) in [
            (10, 0, 3),
            (13, 3, 3),
            (11, 3, 5),
            (0, 0, 10),
            (12, 9, 10),
            (14, 12, 10),
            // More pods than the budget allows, after a scale-down: the new set waits and does not shrink.
            (15, 3, 3),
        ] {
            assert_eq!(new_size(budget, total, new), expected, "{total} in all, {new} new");
        }
    }

    #[test]
    fn dp_23_unavailable_replicas_of_the_oldest_go_first() {
        let budget = Budget { replicas: 10, surge: 3, unavailable: 2 };
        let size = |wanted, available| Size::new(wanted, available, available);
        // 13 - 8 - (5 - 0): nothing may go, although some old ones are broken.
        assert_eq!(shrink_old(budget, &[size(8, 7)], size(5, 0)), []);
        // After an undo the broken ones (old now) make room.
        assert_eq!(shrink_old(budget, &[size(5, 0)], size(8, 7)), [(0, 1)]);
        // Two old sets: first what is broken in both, then the oldest down to what must be available.
        assert_eq!(shrink_old(budget, &[size(4, 3), size(4, 2)], size(5, 5)), [(0, 3), (1, 2), (0, 1)]);
    }

    #[test]
    fn dp_23_pods_that_are_about_to_go_do_not_count() {
        let budget = Budget { replicas: 20, surge: 5, unavailable: 5 };
        let size = |wanted, available| Size::new(wanted, available, available);
        // The old set went from 15 to 10 and reports 15 still: five more may go, not ten.
        assert_eq!(shrink_old(budget, &[size(10, 15)], size(10, 10)), [(0, 5)]);
        // A third template: the second one's pods are not available yet, the first has just given up all it may.
        assert_eq!(shrink_old(budget, &[size(15, 20), size(10, 0)], size(0, 0)), [(1, 0)]);
        // The new set is an old one that was on its way down.
        assert_eq!(shrink_old(budget, &[size(20, 20)], size(5, 20)), [(0, 10)]);
        // Seven of the first set's pods run, though it reports two: they are not broken.
        assert_eq!(shrink_old(budget, &[Size::new(10, 2, 7), size(15, 13)], size(0, 0)), [(0, 7), (1, 13)]);
    }

    /// All sets that want up to `most` pods: what they want, how many are available, and the bounds that are known of that.
    fn sets(most: i32) -> Vec<(i32, i32, Size)> {
        let mut sets = Vec::new();
        for wanted in 0..=most {
            for available in 0..=wanted {
                let bounds = (0..=available).flat_map(|least| (available..=wanted).map(move |most| (least, most)));
                sets.extend(bounds.map(|(least, most)| (wanted, available, Size::new(wanted, least, most))));
            }
        }
        sets
    }

    #[test]
    fn dp_23_enough_stay_available_as_long_as_the_bounds_are_right() {
        let budget = Budget { replicas: 4, surge: 1, unavailable: 1 };
        let (olds, news) = (sets(4), sets(3));
        let mut shrunk = 0;
        for (a, b) in olds.iter().flat_map(|a| olds.iter().map(move |b| (a, b))) {
            for new in &news {
                let mut sizes = [a.0, b.0];
                for (index, size) in shrink_old(budget, &[a.2, b.2], new.2) {
                    assert!((0..sizes[index]).contains(&size), "{a:?}, {b:?}, {new:?}");
                    sizes[index] = size;
                    shrunk += 1;
                }
                let before = a.1 + b.1 + new.1;
                // A replica set removes pods that are not ready first.
                let after = a.1.min(sizes[0]) + b.1.min(sizes[1]) + new.1;
                assert!(after >= before.min(budget.fewest_available()), "{a:?}, {b:?}, {new:?}: {sizes:?}");
            }
        }
        assert!(shrunk > 0, "nothing was tried");
    }

    #[test]
    fn dp_26_a_change_of_scale_is_shared_in_proportion() {
        let share = |wanted, most| Share { wanted, most_before: Some(most) };
        let budget = |replicas, surge| Budget { replicas, surge, unavailable: 0 };
        // 10 → 15 with surge 3 → 4 in the middle of a rollout 8 + 5.
        assert_eq!(proportional(budget(15, 4), &[share(8, 13), share(5, 13)], 13), [12, 7]);
        // 10 → 5: 8 + 5 become 4 + 3 (most 7).
        assert_eq!(proportional(budget(5, 2), &[share(8, 13), share(5, 13)], 13), [4, 3]);
        assert_eq!(proportional(budget(0, 0), &[share(8, 13), share(5, 13)], 13), [0, 0]);
        // Nothing to distribute: sizes stay.
        assert_eq!(proportional(budget(10, 3), &[share(8, 13), share(5, 13)], 13), [8, 5]);
        // Without an annotation the status has the earlier size; without either the first set gets all.
        assert_eq!(proportional(budget(20, 0), &[Share { wanted: 5, most_before: None }, share(5, 10)], 10), [10, 10]);
        assert_eq!(proportional(budget(20, 0), &[Share { wanted: 5, most_before: None }; 2], 0), [15, 5]);
        // Never below zero, whatever the numbers are.
        assert!(proportional(budget(1, 0), &[share(1, 100), share(50, 1)], 51).iter().all(|size| *size >= 0));
    }

    /// Plays a rolling update from `replicas` old pods to new ones that become available one at a time.
    fn roll(budget: Budget) -> String {
        let (mut old, mut new) = (budget.replicas, 0);
        let mut available = 0;
        let mut story = String::new();
        let mut tell = |text: String| {
            if !story.is_empty() {
                story.push_str(", ");
            }
            story.push_str(&text);
        };
        loop {
            let wanted = new_size(budget, old + new, new);
            if wanted != new {
                tell(format!("n {new}→{wanted}"));
                new = wanted;
            } else if let Some((_, size)) =
                shrink_old(budget, &[Size::new(old, old, old)], Size::new(new, available, available)).pop()
            {
                tell(format!("o {old}→{size}"));
                old = size;
            } else if available < new {
                available += 1;
                tell(format!("[a{available}]"));
            } else {
                return story;
            }
            assert!(old + new <= budget.most(), "too many pods");
            assert!(old + available >= budget.fewest_available(), "too few available pods");
        }
    }

    #[test]
    fn dp_22_rolling_sequences() {
        let quarter = percent("25%");
        let rows = [
            (1, "n 0→1, [a1], o 1→0"),
            (2, "n 0→1, [a1], o 2→1, n 1→2, [a2], o 1→0"),
            (3, "n 0→1, [a1], o 3→2, n 1→2, [a2], o 2→1, n 2→3, [a3], o 1→0"),
            (4, "n 0→1, o 4→3, n 1→2, [a1], o 3→2, n 2→3, [a2], o 2→1, n 3→4, [a3], o 1→0, [a4]"),
            (
                10,
                "n 0→3, o 10→8, n 3→5, [a1], o 8→7, n 5→6, [a2], o 7→6, n 6→7, [a3], o 6→5, n 7→8, [a4], o 5→4, n 8→9, \
                 [a5], o 4→3, n 9→10, [a6], o 3→2, [a7], o 2→1, [a8], o 1→0, [a9], [a10]",
            ),
        ];
        for (replicas, expected) in rows {
            assert_eq!(
                roll(Budget::rolling(replicas, Some(&quarter), Some(&quarter))),
                expected,
                "{replicas} replicas"
            );
        }
    }
}
