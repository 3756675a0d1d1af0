//! A claim grows only once it is bound, and only if its class says that its volumes can.

use machinery::Status;
use machinery::json::Value;

use crate::meta;
use crate::registry::Registry;
use crate::request::Target;
use crate::reserve::amounts::Amounts;
use crate::reserve::quota::storage_class;
use crate::view;

impl Registry {
    pub(super) fn check_claim_resize(&self, target: &Target, old: &Value, new: &Value) -> Result<(), Status> {
        let size = |claim: &Value| Amounts::from_value(&claim["spec"]["resources"]["requests"]).get("storage");
        if size(new) <= size(old) {
            return Ok(());
        }
        let refuse = |why: &str| Err(Status::forbidden(&target.gr(), meta::name(new), why));
        if old["status"]["phase"] != "Bound" {
            return refuse("Only bound persistent volume claims can be expanded");
        }
        let (class, before) = (storage_class(new), storage_class(old));
        let found =
            if class == before { self.storage().cached("storage.k8s.io/storageclasses", None, class) } else { None };
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
