//! Real kubectl, as a person types it. Its own suite is in the files below, by what the person wants.
//!
//! - `explaining.rs`: explain, and what else kubectl reads from OpenAPI documents
//! - `reading.rs`: get in all its forms, and asking about the server
//! - `watching.rs`: get -w, wait, proxy
//! - `applying.rs`: apply on both sides, of files and folders, pruning, diff
//! - `changing.rs`: edit, set, strategic patches, taint, and changes that hold only on a condition
//! - `workloads.rs`: deployments, jobs, nodes and namespaces, with controllers
//! - `writing.rs`: create, delete, label, annotate, patch, and what is refused

mod applying;
mod changing;
mod explaining;
mod reading;
mod watching;
mod workloads;
mod writing;

use blackbox::Server;

/// Manifests as people write them, with only the fields a pod must have.
fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: app, image: app}}]}}\n"
    )
}

fn create_pods(server: &Server, names: &[&str]) {
    let manifests: Vec<String> = names.iter().map(|name| pod(name)).collect();
    server.kubectl_with("create -f -", &manifests.join("---\n")).ok();
}

/// The cells of a line of a table; kubectl puts at least two spaces between them.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// A table without its last column where that is an age, which changes as time goes by.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(cells).collect()
}
