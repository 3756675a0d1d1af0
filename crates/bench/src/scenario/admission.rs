//! The cost of admission policies: creating pods without a policy, with policies on another kind, and with one policy of three
//! simple rules on pods.
//!
//! All cases are of one run, so that their ratio counts. The rules admit every pod of the load; a pod of another image is
//! refused, which shows when a policy acts.

use std::time::Duration;

use super::requests::measure;
use crate::pod;
use crate::report::{Case, ServerFigures};
use crate::stage::Stage;
use crate::trouble::Trouble;
use crate::wire::{Connection, Request};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const NAME: &str = "bench-admission";
/// How often a policy that does not act yet is tried again.
const ATTEMPTS: usize = 300;

/// The cases, each with the resource that its policy is about.
const CASES: [(&str, Option<&str>); 3] =
    [("no policy", None), ("another kind", Some("configmaps")), ("three rules", Some("pods"))];
/// Each case is measured so often, in turn: a server with more objects is a little slower, and that must not count for a case.
const ROUNDS: u64 = 4;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let requests = (stage.sizes().requests / ROUNDS).max(1);
    // The first requests of a server make what later ones share.
    create(stage, "first", requests).await?;
    let mut measured: [Option<Case>; CASES.len()] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..CASES.len() {
            let number = (turn + round as usize) % CASES.len();
            let (name, resource) = CASES[number];
            if let Some(resource) = resource {
                add_policy(stage, resource).await?;
            }
            let case = create(stage, name, requests).await;
            if resource.is_some() {
                remove_policy(stage).await?;
            }
            let case = case?;
            measured[number] = Some(match measured[number].take() {
                Some(before) => joined(before, case),
                None => case,
            });
        }
    }
    let cpu = |case: &Case| case.server.as_ref().map(|server| server.cpu_us_each);
    let base = measured[0].as_ref().map(|case| (cpu(case), case.per_second));
    for (number, mut case) in measured.into_iter().flatten().enumerate() {
        if let (Some((without, rate)), true) = (base, number > 0) {
            case.figure("rate_over_no_policy", case.per_second / rate.max(f64::MIN_POSITIVE));
            if let (Some(without), Some(with)) = (without, cpu(&case)) {
                case.figure("over_no_policy_us", with - without);
                case.figure("cpu_over_no_policy", with / without.max(f64::MIN_POSITIVE));
            }
        }
        stage.record(case);
    }
    Ok(())
}

/// Two measurements of one case as one. The latencies are those of the second.
fn joined(one: Case, mut other: Case) -> Case {
    let share = |a: f64, b: f64| {
        let (a_count, b_count) = (one.operations as f64, other.operations as f64);
        (a * a_count + b * b_count) / (a_count + b_count).max(1.0)
    };
    if let (Some(first), Some(second)) = (&one.server, &other.server) {
        let cpu_us_each = share(first.cpu_us_each, second.cpu_us_each);
        other.server = Some(ServerFigures { cpu_us_each, ..*second });
    }
    other.generator_cpu_us_each = share(one.generator_cpu_us_each, other.generator_cpu_us_each);
    other.operations += one.operations;
    other.seconds += one.seconds;
    other.per_second = other.operations as f64 / other.seconds.max(f64::MIN_POSITIVE);
    other
}

async fn create(stage: &mut Stage, name: &str, requests: u64) -> Result<Case, Trouble> {
    let server = stage.server().await?;
    let (first, make) = (server.making(requests), server.create());
    measure(stage, Case::new("admission", name, "request"), first, requests, make).await
}

async fn connect(stage: &mut Stage) -> Result<Connection, Trouble> {
    let protocol = stage.options.protocol;
    let target = stage.server().await?.target.clone();
    Connection::open(&target, protocol).await
}

async fn add_policy(stage: &mut Stage, resource: &str) -> Result<(), Trouble> {
    let mut connection = connect(stage).await?;
    let server = stage.server().await?;
    let (namespace, pods) = (server.namespace.clone(), server.pods());
    connection.must("create a policy", &Request::post(POLICIES, policy(resource, &namespace))).await?;
    let binding = format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{{"name":"{NAME}"}},"spec":{{"policyName":"{NAME}","validationActions":["Deny"]}}}}"#
    );
    connection.must("bind a policy", &Request::post(BINDINGS, binding)).await?;
    if resource != "pods" {
        return Ok(());
    }
    let other = String::from_utf8_lossy(&pod::body(0, 1, 0)).replace("registry.example/", "other.example/");
    let probe = Request::post(format!("{pods}?dryRun=All"), other.replace(&pod::name(0), "bench-probe"));
    for _ in 0..ATTEMPTS {
        if connection.ask(&probe).await?.status == 422 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(Trouble::Impossible("the policy does not act".to_owned()))
}

async fn remove_policy(stage: &mut Stage) -> Result<(), Trouble> {
    let mut connection = connect(stage).await?;
    for path in [BINDINGS, POLICIES] {
        connection.must("delete a policy", &Request::delete(format!("{path}/{NAME}"))).await?;
    }
    Ok(())
}

/// Three rules that all pods of the load meet.
fn policy(resource: &str, namespace: &str) -> String {
    let rules = [
        "object.spec.containers.all(c, c.image.startsWith('registry.example/'))",
        "has(object.metadata.labels) && 'app' in object.metadata.labels",
        "object.spec.terminationGracePeriodSeconds <= 60",
    ];
    let rules: Vec<String> = rules.iter().map(|rule| format!(r#"{{"expression":"{rule}"}}"#)).collect();
    format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{{"name":"{NAME}"}},"spec":{{"matchConstraints":{{"namespaceSelector":{{"matchLabels":{{"kubernetes.io/metadata.name":"{namespace}"}}}},"resourceRules":[{{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["{resource}"]}}]}},"validations":[{}]}}}}"#,
        rules.join(",")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn rounds_of_a_case_are_joined_by_their_counts() {
        let round = |operations: u64, seconds: f64, cpu_us_each: f64| Case {
            operations,
            seconds,
            server: Some(ServerFigures { cpu_us_each, ..ServerFigures::default() }),
            ..Case::new("admission", "no policy", "request")
        };
        let case = joined(round(100, 1.0, 10.0), round(300, 1.0, 30.0));
        assert_eq!((case.operations, case.per_second), (400, 200.0));
        assert_eq!(case.server.map(|server| server.cpu_us_each), Some(25.0));
    }

    #[test]
    fn the_policy_is_json() {
        let policy: Value = serde_json::from_str(&policy("pods", "bench")).expect("JSON");
        assert_eq!(policy["spec"]["validations"].as_array().map(Vec::len), Some(3));
        assert_eq!(policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"][0], "pods");
    }
}
