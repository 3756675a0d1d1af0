//! Roles and bindings: writing one may grant rights.

use super::KindBehaviour;

pub(crate) struct Roles;

impl KindBehaviour for Roles {
    fn grants_rights(&self) -> bool {
        true
    }
}
