//! Real kubectl, with commands as users type them, by topic.
//!
//! - `access.rs`: auth can-i, whoami and reconcile, roles, and the commands of dogwatch about them
//! - `explaining.rs`: explain, and other uses of OpenAPI documents
//! - `reading.rs`: get in all its forms, and information about the server
//! - `streams.rs`: logs, exec, attach, cp, port-forward
//! - `watching.rs`: get -w, wait, proxy
//! - `certificates.rs`: certificate approve and deny, and the certificates that follow
//! - `applying.rs`: client-side and server-side apply, of files and folders, pruning, diff
//! - `changing.rs`: edit, set, strategic patches, taint, and conditional changes
//! - `workloads.rs`: deployments, jobs, nodes and namespaces, with controllers
//! - `writing.rs`: create, delete, label, annotate, patch, and refused requests

mod access;
mod applying;
mod certificates;
mod changing;
mod explaining;
mod reading;
mod streams;
mod watching;
mod workloads;
mod writing;

use blackbox::Server;

/// A manifest with only the required fields of a pod.
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

/// A table without its last column if that is an age, which changes with time.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(cells).collect()
}
