//! From the replicas that metrics ask for to those that are set: stabilisation, the rate of change, and the bounds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec,
};

/// Without `behavior`, a target may double at once, and always reach this.
const SCALE_UP_MIN: i32 = 4;
/// The longest stabilisation window and the longest period of a policy that an autoscaler can have.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// What an autoscaler did and wanted to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History {
    recommendations: Vec<(Timestamp, i32)>,
    /// By how many replicas the target grew and shrank.
    ups: Vec<(Timestamp, i32)>,
    downs: Vec<(Timestamp, i32)>,
}

/// A reason with its message, as a condition has them.
pub(super) type Said = (&'static str, &'static str);

/// The replicas to set, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) replicas: i32,
    /// For the condition AbleToScale.
    pub(super) able: Said,
    /// For the condition ScalingLimited, and whether it is true.
    pub(super) limit: Said,
    pub(super) is_limited: bool,
}

const READY: Said = ("ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: Said = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: Said = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: Said = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: Said = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: Said = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST: Said = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: Said =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

/// When something is decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) time: Timestamp,
    /// The stabilisation window of scaling down where an autoscaler has none.
    pub(super) down_window: Duration,
}

impl Now {
    fn before(self, by: Duration) -> Timestamp {
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        self.time.checked_sub(by).unwrap_or(Timestamp::MIN)
    }
}

impl History {
    /// Remembers the size at the first sight: the target must not shrink before it was watched for a while.
    pub(super) fn begin(&mut self, current: i32, now: Now) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now.time, current));
        }
    }

    /// HPA-13: remembers a change, which counts against the rates of `behavior`.
    pub(super) fn changed(&mut self, from: i32, to: i32, now: Now) {
        let changes = if to > from { &mut self.ups } else { &mut self.downs };
        changes.push((now.time, to.abs_diff(from).try_into().unwrap_or(i32::MAX)));
    }

    fn forget_old(&mut self, now: Now) {
        let oldest = now.before(REMEMBERED.max(now.down_window));
        for known in [&mut self.recommendations, &mut self.ups, &mut self.downs] {
            known.retain(|(at, _)| *at >= oldest);
        }
    }

    /// HPA-10 to HPA-13: stabilises a recommendation and keeps it within its limits.
    pub(super) fn limit(
        &mut self,
        spec: &HorizontalPodAutoscalerSpec,
        current: i32,
        recommended: i32,
        now: Now,
    ) -> Limited {
        self.forget_old(now);
        let (least, most) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let (stable, able, (replicas, limit)) = match &spec.behavior {
            None => {
                let stable = self.highest(now.down_window, recommended, now);
                let able = if stable == recommended { READY } else { DOWN_STABILIZED };
                (stable, able, without_behaviour(current, stable, least, most))
            }
            Some(behaviour) => {
                let rules = Rules::of(behaviour, now.down_window);
                let lowest = self.lowest(rules.up_window, recommended, now);
                let highest = self.highest(rules.down_window, recommended, now);
                let stable = current.max(lowest).min(highest);
                let reason = if recommended >= current { UP_STABILIZED } else { DOWN_STABILIZED };
                let able = if stable == recommended { READY } else { reason };
                (stable, able, self.with_behaviour(&rules, current, stable, least, most, now))
            }
        };
        self.recommendations.push((now.time, recommended));
        Limited { replicas, able, limit, is_limited: replicas != stable }
    }

    fn recent(&self, window: Duration, now: Now) -> impl Iterator<Item = i32> {
        let since = now.before(window);
        self.recommendations.iter().filter(move |(at, _)| *at > since).map(|(_, replicas)| *replicas)
    }

    fn highest(&self, window: Duration, recommended: i32, now: Now) -> i32 {
        self.recent(window, now).fold(recommended, i32::max)
    }

    fn lowest(&self, window: Duration, recommended: i32, now: Now) -> i32 {
        self.recent(window, now).fold(recommended, i32::min)
    }

    fn with_behaviour(
        &self,
        rules: &Rules<'_>,
        current: i32,
        wanted: i32,
        least: i32,
        most: i32,
        now: Now,
    ) -> (i32, Said) {
        if wanted > current {
            let rate = self.allowed(rules.up, current, now, true).max(current);
            let (bound, said) = if most > rate { (rate, TOO_FAST) } else { (most, TOO_MANY) };
            return if wanted > bound { (bound, said) } else { (wanted, WITHIN) };
        }
        if wanted < current {
            let rate = self.allowed(rules.down, current, now, false).min(current);
            let (bound, said) = if least < rate { (rate, TOO_FAST_DOWN) } else { (least, TOO_FEW) };
            return if wanted < bound { (bound, said) } else { (wanted, WITHIN) };
        }
        (wanted, WITHIN)
    }

    /// The largest (or smallest) size that the policies of a direction allow now.
    fn allowed(&self, rules: Option<&HPAScalingRules>, current: i32, now: Now, is_up: bool) -> i32 {
        let select = rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let given = rules.and_then(|rules| rules.policies.clone()).unwrap_or_default();
        let policies = if given.is_empty() { default_policies(is_up) } else { given };
        let proposals = policies.iter().map(|policy| {
            let since = now.before(Duration::from_secs(u64::try_from(policy.period_seconds).unwrap_or_default()));
            let change = |changes: &[(Timestamp, i32)]| {
                changes.iter().filter(|(at, _)| *at > since).fold(0i32, |sum, (_, by)| sum.saturating_add(*by))
            };
            let began = current.saturating_sub(change(&self.ups)).saturating_add(change(&self.downs));
            let part = f64::from(policy.value) / 100.0;
            match (policy.type_.as_str(), is_up) {
                ("Percent", true) => (f64::from(began) * (1.0 + part)).ceil() as i32,
                ("Percent", false) => (f64::from(began) * (1.0 - part)) as i32,
                (_, true) => began.saturating_add(policy.value),
                (_, false) => began.saturating_sub(policy.value),
            }
        });
        // The largest change upwards is the largest size, downwards the smallest.
        let chosen = if (select == "Min") == is_up { proposals.min() } else { proposals.max() };
        chosen.unwrap_or(current)
    }
}

struct Rules<'a> {
    up: Option<&'a HPAScalingRules>,
    down: Option<&'a HPAScalingRules>,
    up_window: Duration,
    down_window: Duration,
}

impl<'a> Rules<'a> {
    fn of(behaviour: &'a HorizontalPodAutoscalerBehavior, down_window: Duration) -> Self {
        let (up, down) = (behaviour.scale_up.as_ref(), behaviour.scale_down.as_ref());
        let window = |rules: Option<&HPAScalingRules>, default: Duration| {
            let seconds = rules.and_then(|rules| rules.stabilization_window_seconds);
            seconds.map_or(default, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
        };
        Rules { up, down, up_window: window(up, Duration::ZERO), down_window: window(down, down_window) }
    }
}

/// The policies of a direction that has none: up by four pods or to the double in 15 s, down without a limit.
fn default_policies(is_up: bool) -> Vec<HPAScalingPolicy> {
    let policy = |kind: &str, value| HPAScalingPolicy { type_: kind.to_owned(), value, period_seconds: 15 };
    if is_up { vec![policy("Pods", 4), policy("Percent", 100)] } else { vec![policy("Percent", 100)] }
}

fn without_behaviour(current: i32, wanted: i32, least: i32, most: i32) -> (i32, Said) {
    let rate = current.saturating_mul(2).max(SCALE_UP_MIN);
    let (bound, said) = if most > rate { (rate, TOO_FAST) } else { (most, TOO_MANY) };
    if wanted < least {
        (least, TOO_FEW)
    } else if wanted > bound {
        (bound, said)
    } else {
        (wanted, WITHIN)
    }
}
