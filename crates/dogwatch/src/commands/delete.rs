//! `dogwatch delete`: deletes objects by name, or those of files.

use http::Method;

use super::documents;
use super::remote::{Remote, Resource};
use crate::args::Delete;
use crate::failure::Failure;

pub(super) async fn delete(args: Delete) -> Result<(), Failure> {
    let remote = Remote::connect(args.scope.kubeconfig.as_deref()).await?;
    let fallback = args.scope.namespace(&remote.namespace).unwrap_or(&remote.namespace).to_owned();
    if let Some(word) = &args.resource {
        if args.names.is_empty() {
            return Err(Failure::new("the names of the objects are missing").hint("dogwatch delete pods a b"));
        }
        let resource = remote.resource(word).await?;
        for name in &args.names {
            delete_object(&remote, &resource, &fallback, name, args.ignore_not_found).await?;
        }
    }
    for file in &args.files {
        for object in documents::read(file)? {
            let text = |member: &str| object[member].as_str().unwrap_or_default().to_owned();
            let resource = remote.resource_of_kind(&text("apiVersion"), &text("kind")).await?;
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&fallback);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            delete_object(&remote, &resource, namespace, name, args.ignore_not_found).await?;
        }
    }
    Ok(())
}

async fn delete_object(
    remote: &Remote,
    resource: &Resource,
    namespace: &str,
    name: &str,
    ignore_not_found: bool,
) -> Result<(), Failure> {
    let path = resource.path(Some(namespace), Some(name));
    let response = remote.call(Method::DELETE, &path, "application/json", None).await?;
    match response.code {
        200..300 => println!("{} deleted", resource.display(name)),
        404 if ignore_not_found => {}
        _ => return Err(response.refusal()),
    }
    Ok(())
}
