//! A claim grows only once it is bound, and only if its class says that its volumes can.

use machinery::Status;
use machinery::json::Value;

use crate::admission::amounts::Amounts;
use crate::meta;
use crate::registry::Registry;
use crate::request::Target;
use crate::view;

impl Registry {
    pub(super) fn check_claim_resize(&self, target: &Target, old: &Value, new: &Value) -> Result<(), Status> {
        let size = |claim: &Value| Amounts::of(&claim["spec"]["resources"]["requests"]).get("storage");
        if size(new) <= size(old) {
            return Ok(());
        }
        let refuse = |why: &str| Err(Status::forbidden(&target.gr(), meta::name(new), why));
        if old["status"]["phase"] != "Bound" {
            return refuse("Only bound persistent volume claims can be expanded");
        }
        let (class, before) = (storage_class(new), storage_class(old));
        let found = if class == before { self.cached("storage.k8s.io/storageclasses", None, class) } else { None };
        let found = found.map(|class| view::parse(&class)).transpose()?;
        if found.is_some_and(|class| class["allowVolumeExpansion"] == true) {
            return Ok(());
        }
        refuse(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
             resize",
        )
    }
}

/// The class of a claim: the old annotation counts before the field.
pub(super) fn storage_class(claim: &Value) -> &str {
    let annotated = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    annotated.or_else(|| claim["spec"]["storageClassName"].as_str()).unwrap_or_default()
}
