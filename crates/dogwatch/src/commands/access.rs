//! `dogwatch access`: explains rights, derives roles, and creates credentials of service accounts.

mod kubeconfig;
mod roles;
mod why;

use machinery::json::Value;

use crate::args::Access;
use crate::failure::Failure;

pub(super) async fn access(what: Access) -> Result<(), Failure> {
    match what {
        Access::Why(args) => why::why(args).await,
        Access::Roles(args) => roles::roles(args).await,
        Access::Kubeconfig(args) => kubeconfig::kubeconfig(args).await,
    }
}

/// Objects as YAML documents.
fn documents(objects: &Value) -> String {
    let objects = objects.as_array().into_iter().flatten();
    objects.map(|object| format!("---\n{}", machinery::yaml::to_yaml(object))).collect()
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

fn texts<'v>(value: &'v Value, member: &str) -> Vec<&'v str> {
    value[member].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
