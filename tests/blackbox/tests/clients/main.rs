//! The built binary with the clients in use: one module for each client.
//!
//! One binary, so one link step. `cargo xtask test --only NAME` runs one module.

mod crds;
mod curl;
mod envtest;
mod go;
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
