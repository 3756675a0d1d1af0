//! The cost of a decision by roles: a get as an administrator, and as service accounts with one, ten and a thousand bindings.
//!
//! The accounts differ in nothing but the number of their bindings, so the difference between them is what bindings cost. The
//! role that allows the request is that of the last binding; each binding has a role of its own.

use std::sync::Arc;

use super::requests::measure;
use crate::frames::Field;
use crate::load_driver::{Load, LoadDriver, RequestFactory};
use crate::pod;
use crate::progress::Progress;
use crate::report::Case;
use crate::stage::Stage;
use crate::trouble::Trouble;
use crate::wire::{Connection, Request};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// Numbers of bindings of an account.
const BINDINGS: [u64; 3] = [1, 10, 1000];

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let objects = stage.sizes().callers as u64 * 10;
    stage.populate(objects).await?;
    let administrator = stage.server().await?.target.clone();
    let case = get(stage, "administrator").await?;
    stage.record(case);
    let mut with_one = None;
    for bindings in BINDINGS {
        let token = account(stage, &format!("with-{bindings}"), bindings).await?;
        stage.server().await?.target = administrator.without_identity(format!("Bearer {token}"))?;
        let measured = get(stage, &format!("{bindings} bindings")).await;
        stage.server().await?.target = administrator.clone();
        let mut case = measured?.with("bindings", bindings);
        if let Some(cpu) = case.server.as_ref().map(|server| server.cpu_us_each) {
            let least = *with_one.get_or_insert(cpu);
            case.figure("over_one_binding_us", cpu - least);
        }
        stage.record(case);
    }
    Ok(())
}

async fn get(stage: &mut Stage, name: &str) -> Result<Case, Trouble> {
    let requests = stage.sizes().requests;
    let server = stage.server().await?;
    let (pods, made) = (server.pods(), server.made());
    let make = Arc::new(move |number: u64, _| Request::get(format!("{pods}/{}", pod::name(number % made))));
    measure(stage, Case::new("access", name, "request"), 0, requests, make).await
}

/// Creates an account with this many bindings in the namespace of the pods, and returns a token of it.
pub(super) async fn account(stage: &mut Stage, name: &str, bindings: u64) -> Result<String, Trouble> {
    let (protocol, callers) = (stage.options.protocol, stage.sizes().callers);
    let server = stage.server().await?;
    let (target, namespace) = (server.target.clone(), server.namespace.clone());
    let mut connection = Connection::open(&target, protocol).await?;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let body = format!(r#"{{"apiVersion":"v1","kind":"ServiceAccount","metadata":{{"name":"{name}"}}}}"#);
    connection.must("create a service account", &Request::post(accounts.as_str(), body)).await?;
    let progress = Progress::new("making bindings", 2 * bindings);
    let in_namespace = |kind: &str| format!("{RBAC}/namespaces/{namespace}/{kind}");
    let (roles, role_bindings) = (in_namespace("roles"), in_namespace("rolebindings"));
    let account = name.to_owned();
    let make_role: RequestFactory = Arc::new(move |number, _| {
        let resource = if number + 1 == bindings { "pods".to_owned() } else { format!("things{number}") };
        Request::post(roles.as_str(), role(&account, number, &resource))
    });
    let (account, of) = (name.to_owned(), namespace.clone());
    let make_binding: RequestFactory =
        Arc::new(move |number, _| Request::post(role_bindings.as_str(), binding(&of, &account, number)));
    let mut driver = LoadDriver::open(&target, protocol, callers.max(16)).await?;
    for make in [make_role, make_binding] {
        driver = driver.drive(Load { first: 0, count: bindings, rate: None }, &progress, make).await.into_driver()?;
    }
    let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#;
    let request = Request::post(format!("{accounts}/{name}/token"), body);
    let answer = connection.must("create a token", &request).await?;
    let token = Field::new("token").text(&answer.kept).map(str::to_owned);
    token.ok_or_else(|| Trouble::refused("create a token", answer.status, b"the answer has no token"))
}

fn role(account: &str, number: u64, resource: &str) -> String {
    format!(
        r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{{"name":"{account}-{number}"}},"rules":[{{"verbs":["get","list","watch"],"apiGroups":["","apps"],"resources":["{resource}","{resource}/status"]}}]}}"#
    )
}

fn binding(namespace: &str, account: &str, number: u64) -> String {
    format!(
        r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{{"name":"{account}-{number}"}},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"{account}-{number}"}},"subjects":[{{"kind":"ServiceAccount","name":"{account}","namespace":"{namespace}"}}]}}"#
    )
}
