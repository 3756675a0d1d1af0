//! PersistentVolumeClaimResize: a claim grows only once it is bound, and only if its class allows that.

use machinery::Status;
use machinery::json::Value;

use super::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::collections::{PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES};
use crate::read::view;
use crate::reserve::amounts::Amounts;
use crate::reserve::quota::storage_class;
use crate::storage::Storage;

pub(super) struct PersistentVolumeClaimResize {
    storage: Storage,
}

impl PersistentVolumeClaimResize {
    pub(super) fn new(storage: Storage) -> Self {
        PersistentVolumeClaimResize { storage }
    }

    fn check(&self, attributes: &Attributes<'_>, old: &Value, new: &Value) -> Result<(), Status> {
        let size = |claim: &Value| Amounts::from_value(&claim["spec"]["resources"]["requests"]).get("storage");
        if size(new) <= size(old) {
            return Ok(());
        }
        if old["status"]["phase"] != "Bound" {
            return Err(attributes.forbidden(new, "Only bound persistent volume claims can be expanded"));
        }
        let (class, before) = (storage_class(new), storage_class(old));
        let found = if class == before { self.storage.cached(STORAGE_CLASSES, None, class) } else { None };
        let found = found.map(|class| view::parse(&class)).transpose()?;
        if found.is_some_and(|class| class["allowVolumeExpansion"] == true) {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                   support resize";
        Err(attributes.forbidden(new, why))
    }
}

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Update, PERSISTENT_VOLUME_CLAIMS)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        match (states.old, states.new) {
            (Some(old), Some(new)) => Decision::Now(self.check(attributes, old, new)),
            _ => Decision::ADMIT,
        }
    }
}
