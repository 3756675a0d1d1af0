//! The built binary with the clients in use: one module for each client.
//!
//! One binary, so one link step. `cargo xtask test --only NAME` runs one module.

mod console;
mod crds;
mod curl;
mod envtest;
mod go;
mod helm;
mod js;
mod kits;
mod kube_rs;
mod kubectl;
mod kwok;
mod lifecycle;
mod operators;
mod policies;
mod python;
mod shared_etcd;
mod tour;

/// A server with a running pod `web`, whose log has two lines and whose port 8080 answers 201.
fn with_web() -> blackbox::Server {
    let server = blackbox::Server::with_controllers(&["--memory"]);
    let pod = "apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations:
    nodes.dogwatch/logs: \"first\\nsecond\\n\"
    nodes.dogwatch/port-forward: \"{8080: {http: {status: 201, body: made}}}\"
spec: {containers: [{name: app, image: nginx}]}
";
    server.kubectl_with("create -f -", pod).ok();
    server.kubectl("wait --for=condition=Ready pod/web --timeout=60s").ok();
    server
}
