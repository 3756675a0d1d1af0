//! `dogwatch apply`: creates or updates the objects of files, by server-side apply; or only creates them.

use http::Method;

use super::documents;
use super::remote::Remote;
use crate::args::Apply;
use crate::failure::Failure;

pub(super) async fn apply(args: Apply) -> Result<(), Failure> {
    let remote = Remote::connect(args.scope.kubeconfig.as_deref()).await?;
    for file in &args.files {
        for object in documents::read(file)? {
            let text = |member: &str| object[member].as_str().unwrap_or_default().to_owned();
            let resource = remote.resource_of_kind(&text("apiVersion"), &text("kind")).await?;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                return Err(Failure::new(format!("{}: a {} has no name", file.display(), resource.kind)));
            }
            let fallback = args.scope.namespace(&remote.namespace).unwrap_or(&remote.namespace);
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(fallback);
            let bytes = object.to_string().into_bytes();
            let (method, path, media) = if args.create {
                (
                    Method::POST,
                    format!("{}?fieldManager=dogwatch", resource.path(Some(namespace), None)),
                    "application/json",
                )
            } else {
                let path = resource.path(Some(namespace), Some(name));
                let path = format!("{path}?fieldManager=dogwatch&force={}", args.force);
                (Method::PATCH, path, "application/apply-patch+yaml")
            };
            let response = remote.call_ok(method, &path, "application/json", Some((media, bytes))).await?;
            let what = if response.code == 201 { "created" } else { "applied" };
            println!("{} {what}", resource.display(name));
        }
    }
    Ok(())
}
