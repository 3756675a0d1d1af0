//! The object of most measurements: a pod of the size that pods have in real clusters.

use crate::frames::DUE;

/// Pods differ in name, in one label of ten values, and in their node, which is the only difference between specs.
pub(crate) const APPS: u64 = 10;
pub(crate) const NODES: u64 = 100;

pub(crate) fn name(number: u64) -> String {
    format!("pod-{number:07}")
}

/// A pod as a client would send it, on one of `nodes` nodes. `filler` sets its size.
pub(crate) fn body(number: u64, nodes: u64, filler: usize) -> Vec<u8> {
    let (name, app, node) = (name(number), number % APPS, number % nodes.max(1));
    let filler = "x".repeat(filler);
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"app-{app}","bench":"load","pod-template-hash":"5d4f8c7b9"}},"annotations":{{"{DUE}":"0","bench/filler":"{filler}"}}}},"spec":{{"automountServiceAccountToken":false,"nodeName":"node-{node}","terminationGracePeriodSeconds":30,"containers":[{{"name":"main","image":"registry.example/team/service:1.4.2","args":["--listen=:8080","--log=info"],"ports":[{{"name":"http","containerPort":8080}}],"env":[{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"fieldPath":"metadata.name"}}}}}},{{"name":"REGION","value":"eu-north-1"}},{{"name":"LOG_LEVEL","value":"info"}}],"resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}},"limits":{{"memory":"256Mi"}}}},"readinessProbe":{{"httpGet":{{"path":"/ready","port":8080}},"periodSeconds":10}},"volumeMounts":[{{"name":"config","mountPath":"/etc/service"}}]}}],"volumes":[{{"name":"config","configMap":{{"name":"service"}}}}],"tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}]}}}}"#
    )
    .into_bytes()
}

/// A merge patch that writes the due time into the object.
pub(crate) fn due_patch(due: u64) -> Vec<u8> {
    format!(r#"{{"metadata":{{"annotations":{{"{DUE}":"{due}"}}}}}}"#).into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    #[test]
    fn a_pod_and_its_patch_are_json() {
        let pod: Value = serde_json::from_slice(&super::body(12, 100, 5)).expect("JSON");
        assert_eq!(pod["metadata"]["name"], "pod-0000012");
        assert_eq!(pod["metadata"]["labels"]["app"], "app-2");
        assert_eq!(pod["metadata"]["annotations"]["bench/filler"], "xxxxx");
        let patch: Value = serde_json::from_slice(&super::due_patch(77)).expect("JSON");
        assert_eq!(patch["metadata"]["annotations"][super::DUE], "77");
    }
}
