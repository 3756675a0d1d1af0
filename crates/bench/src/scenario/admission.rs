//! The cost of admission policies: creating pods without a policy, with policies on another kind, and with one policy of three
//! simple rules on pods.
//!
//! All cases are of one run, so that their ratio counts. The rules admit every pod of the load; a pod of another image is
//! refused, which shows when a policy acts.

use std::time::Duration;

use super::requests::measure;
use crate::pod;
use crate::report::Case;
use crate::stage::Stage;
use crate::trouble::Trouble;
use crate::wire::{Connection, Request};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const NAME: &str = "bench-admission";
/// How often a policy that does not act yet is tried again.
const ATTEMPTS: usize = 300;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let base = create(stage, "no policy").await?;
    let without = base.server.as_ref().map(|server| server.cpu_us_each);
    let rate = base.per_second;
    stage.record(base);
    for (name, resource) in [("another kind", "configmaps"), ("three rules", "pods")] {
        add_policy(stage, resource).await?;
        let measured = create(stage, name).await;
        remove_policy(stage).await?;
        let mut case = measured?;
        case.figure("rate_over_no_policy", case.per_second / rate.max(f64::MIN_POSITIVE));
        if let (Some(without), Some(server)) = (without, &case.server) {
            let cpu = server.cpu_us_each;
            case.figure("over_no_policy_us", cpu - without);
            case.figure("cpu_over_no_policy", cpu / without.max(f64::MIN_POSITIVE));
        }
        stage.record(case);
    }
    Ok(())
}

async fn create(stage: &mut Stage, name: &str) -> Result<Case, Trouble> {
    let requests = stage.sizes().requests;
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

    #[test]
    fn the_policy_is_json() {
        let policy: Value = serde_json::from_str(&super::policy("pods", "bench")).expect("JSON");
        assert_eq!(policy["spec"]["validations"].as_array().map(Vec::len), Some(3));
        assert_eq!(policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"][0], "pods");
    }
}
