//! Counts and times of authentication and authorization, under the names of the reference.
//!
//! Most users are known by their connection, and most decisions are a look-up in roles: both take far less than the smallest
//! bucket of a millisecond. They are counted without a look at the clock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access::authorizer::Decision;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::histogram::Histogram;

/// 1 ms to 16 s, each twice the one before; in nanoseconds.
const DURATIONS: &[u64] = &[
    1_000_000,
    2_000_000,
    4_000_000,
    8_000_000,
    16_000_000,
    32_000_000,
    64_000_000,
    128_000_000,
    256_000_000,
    512_000_000,
    1_024_000_000,
    2_048_000_000,
    4_096_000_000,
    8_192_000_000,
    16_384_000_000,
];
const AUTHENTICATION: [&str; 3] = ["success", "failure", "error"];
const AUTHORIZATION: [&str; 4] = ["allowed", "denied", "no-opinion", "error"];
/// User names that the metric shows. The others are counted as `email_id` if they have an `@`, otherwise as `other`.
const USERS: [&str; 5] = ["admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"];
const EMAIL: usize = USERS.len();
const OTHER: usize = USERS.len() + 1;

/// The outcome of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authenticated<'a> {
    As(&'a str),
    /// There were no credentials, and anonymous requests are refused.
    NoCredentials,
    WrongCredentials,
}

/// Counts and times of both.
#[derive(Debug)]
pub struct AccessCounts {
    authentication: [Outcome; AUTHENTICATION.len()],
    authorization: [Outcome; AUTHORIZATION.len()],
    users: [AtomicU64; OTHER + 1],
}

/// The requests of one outcome.
#[derive(Debug)]
struct Outcome {
    /// Those that took no time worth measuring.
    instant: AtomicU64,
    timed: Histogram,
}

impl Default for Outcome {
    fn default() -> Self {
        Outcome { instant: AtomicU64::new(0), timed: Histogram::new(DURATIONS, 1e-9) }
    }
}

impl Default for AccessCounts {
    fn default() -> Self {
        AccessCounts {
            authentication: Default::default(),
            authorization: Default::default(),
            users: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Outcome {
    /// None took no time.
    fn add(&self, took: Option<Duration>) {
        match took {
            None => {
                self.instant.fetch_add(1, Ordering::Relaxed);
            }
            Some(took) => self.timed.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    fn count(&self) -> u64 {
        self.instant.load(Ordering::Relaxed) + self.timed.count()
    }
}

impl AccessCounts {
    /// Counts an authentication; it took no time if the connection has its user.
    pub fn authenticated(&self, outcome: Authenticated<'_>, took: Option<Duration>) {
        let at = match outcome {
            Authenticated::As(name) => {
                self.users[user_class(name)].fetch_add(1, Ordering::Relaxed);
                0
            }
            Authenticated::NoCredentials => 1,
            Authenticated::WrongCredentials => 2,
        };
        self.authentication[at].add(took);
    }

    /// Counts a decision; it took no time unless an authorizer had to wait for it.
    pub fn authorized(&self, decision: &Decision, took: Option<Duration>) {
        let at = match decision {
            Decision { allowed: true, .. } => 0,
            Decision { error, .. } if !error.is_empty() => 3,
            Decision { denied: true, .. } => 1,
            _ => 2,
        };
        self.authorization[at].add(took);
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let users = USERS.into_iter().chain(["email_id", "other"]);
        let users = users.zip(&self.users).map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        plain(encoder, "authenticated_user_requests", "Authenticated requests by user", "username", users)?;
        let results = AUTHENTICATION.into_iter().zip(&self.authentication);
        let attempts = results.clone().map(|(result, outcome)| (result, outcome.count()));
        plain(encoder, "authentication_attempts", "Authentications by their result", "result", attempts)?;
        durations(encoder, "authentication_duration_seconds", "Time of an authentication", results)?;
        let results = AUTHORIZATION.into_iter().zip(&self.authorization);
        let help = "Authorizations by their result";
        let mut family = encoder.encode_descriptor("authorization_attempts", help, None, MetricType::Counter)?;
        for (result, outcome) in results.clone() {
            let labels = [("result", result)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&outcome.count(), None)?;
        }
        durations(encoder, "authorization_duration_seconds", "Time of an authorization", results)
    }
}

/// Counters whose names in the reference do not end in `_total`, as those of the library do.
fn plain(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    counts: impl Iterator<Item = (&'static str, u64)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Unknown)?;
    for (value, count) in counts.filter(|(_, count)| *count > 0) {
        family.encode_family(&[(label, value)])?.encode_gauge(&count.cast_signed())?;
    }
    Ok(())
}

fn durations<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    results: impl Iterator<Item = (&'static str, &'a Outcome)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (result, outcome) in results {
        let instant = outcome.instant.load(Ordering::Relaxed);
        let (sum, count, mut buckets) = outcome.timed.read();
        if let Some((_, first)) = buckets.first_mut() {
            *first += instant;
        }
        let labels = [("result", result)];
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count + instant, &buckets, None)?;
    }
    Ok(())
}

fn user_class(name: &str) -> usize {
    match USERS.iter().position(|known| *known == name) {
        Some(known) => known,
        None if name.contains('@') => EMAIL,
        None => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limits::Limits;
    use crate::metrics::Metrics;

    #[test]
    fn au_77_az_10_attempts_and_their_times_are_counted() {
        let metrics = Arc::new(Metrics::new(&Limits::default()));
        let counts = &metrics.access;
        counts.authenticated(Authenticated::As("admin"), None);
        counts.authenticated(Authenticated::As("jane@example.com"), Some(Duration::from_millis(3)));
        counts.authenticated(Authenticated::As("alice"), None);
        counts.authenticated(Authenticated::NoCredentials, Some(Duration::ZERO));
        counts.authenticated(Authenticated::WrongCredentials, Some(Duration::ZERO));
        counts.authorized(&Decision::allow(""), None);
        counts.authorized(&Decision::deny(""), Some(Duration::from_secs(60)));
        counts.authorized(&Decision::no_opinion(), None);
        counts.authorized(&Decision::failed("no answer"), None);
        let mut registry = prometheus_client::registry::Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "authenticated_user_requests{username=\"admin\"} 1",
            "authenticated_user_requests{username=\"email_id\"} 1",
            "authenticated_user_requests{username=\"other\"} 1",
            "authentication_attempts{result=\"success\"} 3",
            "authentication_attempts{result=\"failure\"} 1",
            "authentication_attempts{result=\"error\"} 1",
            "authentication_duration_seconds_bucket{le=\"0.001\",result=\"success\"} 2",
            "authentication_duration_seconds_bucket{le=\"0.004\",result=\"success\"} 3",
            "authentication_duration_seconds_count{result=\"success\"} 3",
            "authorization_attempts_total{result=\"allowed\"} 1",
            "authorization_attempts_total{result=\"denied\"} 1",
            "authorization_attempts_total{result=\"no-opinion\"} 1",
            "authorization_attempts_total{result=\"error\"} 1",
            "authorization_duration_seconds_count{result=\"denied\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
