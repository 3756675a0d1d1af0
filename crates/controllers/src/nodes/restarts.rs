//! Whether a container that ended is started again, and after which wait.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

/// Waits are at most this many times the first one: 10 s to five minutes.
const LONGEST: u32 = 30;

/// True for a sidecar: an init container that runs on.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// True if a container that ended with this code is started again.
pub(super) fn starts_again(pod: &Pod, container: &Container, is_init: bool, code: i32) -> bool {
    for rule in container.restart_policy_rules.iter().flatten() {
        let Some(codes) = &rule.exit_codes else { continue };
        let listed = codes.values.iter().flatten().any(|value| *value == code);
        let matches = if codes.operator == "NotIn" { !listed } else { listed };
        if matches && rule.action == "Restart" {
            return true;
        }
    }
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let policy = container.restart_policy.as_deref().or(of_pod).unwrap_or("Always");
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        // An init container that succeeded has done its work.
        _ => !is_init || is_sidecar(container) || code != 0,
    }
}

/// 10 s, 20 s, … five minutes, for the usual first wait. The first restart is immediate.
pub(super) fn backoff(first: Duration, restarts: i32) -> Duration {
    let doubled = u32::try_from(restarts.saturating_sub(1).clamp(0, 16)).unwrap_or_default();
    first.saturating_mul(1 << doubled).min(first.saturating_mul(LONGEST))
}
