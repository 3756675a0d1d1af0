//! Measures the CPU time of the schema crate in a write, in microseconds for one 3.5 KB pod:
//! `cargo run --release -p dogwatch-schema --example write_path`. Compare with the first line, the bare parser, since machines differ.

use machinery::GroupVersionKind;
use machinery::json::{Value, json};
use schema::decode::{self, FieldValidation, MediaType};
use schema::facts::Types;
use schema::managed::{self, Subject, Writer};
use std::time::Instant;

fn main() {
    let t = Instant::now();
    let types = Types::get();
    println!("load {:?}", t.elapsed());
    let gvk = GroupVersionKind::new("", "v1", "Pod");
    let ty = types.kind(&gvk).unwrap();
    let container = |n: &str| {
        json!({"name": n, "image": "registry.example.com/team/app:1.2.3", "command": ["/bin/app", "--flag=1"], "args": ["a", "b", "c"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}, {"name": "metrics", "containerPort": 9090, "protocol": "TCP"}],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}, {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "kube-api-access", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "initialDelaySeconds": 10, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent", "securityContext": {"runAsNonRoot": true, "allowPrivilegeEscalation": false}})
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-7d4b9c-x2x9k", "namespace": "default", "labels": {"app": "web", "pod-template-hash": "7d4b9c", "tier": "front"}, "annotations": {"example.com/one": "a value of some length for the annotation", "example.com/two": "another"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "d9607e19-f88f-11e6-a518-42010a800195", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"containers": [container("app"), container("sidecar")], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {}, "schedulerName": "default-scheduler",
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]}});
    let mut sorted = pod.clone();
    sorted.sort_all_objects();
    let body = pod.to_string().into_bytes();
    let sorted = sorted.to_string().into_bytes();
    println!("{} bytes", body.len());
    let n = 5000u32;
    let time = |name: &str, f: &mut dyn FnMut()| {
        for _ in 0..200 {
            f();
        }
        let cpu = || {
            std::fs::read_to_string("/proc/thread-self/schedstat")
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        let t = cpu();
        for _ in 0..n {
            f();
        }
        println!("{name}: {:.1} us", (cpu() - t) / 1e3 / f64::from(n));
    };
    time("serde_json parse", &mut || {
        std::hint::black_box(serde_json::from_slice::<Value>(&body).unwrap());
    });
    time("decode in order", &mut || {
        std::hint::black_box(decode::decode(&ty, &gvk, &body, MediaType::Json, FieldValidation::Warn, None).unwrap());
    });
    time("decode sorted", &mut || {
        std::hint::black_box(decode::decode(&ty, &gvk, &sorted, MediaType::Json, FieldValidation::Warn, None).unwrap());
    });
    let object = decode::decode(&ty, &gvk, &body, MediaType::Json, FieldValidation::Warn, None).unwrap().value;
    time("clone", &mut || {
        std::hint::black_box(object.clone());
    });
    let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: false, convert: None };
    let writer = Writer { manager: "bench", subresource: "", time: "2024-01-01T00:00:00Z" };
    time("clone + track create", &mut || {
        let mut o = object.clone();
        managed::track_update(&subject, None, &mut o, &writer);
        std::hint::black_box(o);
    });
    let mut stored = object.clone();
    managed::track_update(&subject, None, &mut stored, &writer);
    stored["metadata"]["uid"] = json!("u");
    println!("stored {} bytes", stored.to_string().len());
    time("clone + normalise stored", &mut || {
        let mut o = stored.clone();
        decode::normalise(&ty, &mut o, None).unwrap();
        std::hint::black_box(o);
    });
    let mut changed = stored.clone();
    changed["metadata"]["labels"]["app"] = json!("other");
    time("clone + track update", &mut || {
        let mut o = changed.clone();
        managed::track_update(&subject, Some(&stored), &mut o, &writer);
        std::hint::black_box(o);
    });
    let target =
        schema::patch::Target { ty: &ty, gvk: &gvk, custom: false, version: None, validation: FieldValidation::Warn };
    let patch = br#"{"metadata":{"labels":{"app":"other"}}}"#;
    time("merge patch", &mut || {
        std::hint::black_box(schema::patch::merge::apply(&target, &stored, patch).unwrap());
    });
    time("strategic patch", &mut || {
        std::hint::black_box(schema::patch::strategic::apply(&target, &stored, patch).unwrap());
    });
    let config = pod.clone();
    time("apply first", &mut || {
        std::hint::black_box(managed::apply(&subject, None, &config, &writer, false).unwrap());
    });
    let mut applied = managed::apply(&subject, None, &config, &writer, false).unwrap();
    applied["metadata"]["uid"] = json!("u");
    time("apply again", &mut || {
        std::hint::black_box(managed::apply(&subject, Some(&applied), &config, &writer, false).unwrap());
    });
}
