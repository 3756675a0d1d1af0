//! CertificateSigningRequests: the requester is the user who creates it, whatever the object states.

use access::User;
use machinery::json::{Value, json};

use super::KindBehaviour;

pub(super) struct CertificateSigningRequests;

impl KindBehaviour for CertificateSigningRequests {
    fn complete_new(&self, request: &mut Value, user: &User) {
        let spec = &mut request["spec"];
        spec["username"] = json!(user.name);
        spec["groups"] = json!(user.groups);
        for (member, value) in [("uid", json!(user.uid)), ("extra", json!(user.extra))] {
            let empty = value == json!("") || value == json!({});
            if !empty {
                spec[member] = value;
            } else if let Some(spec) = spec.as_object_mut() {
                spec.shift_remove(member);
            }
        }
    }
}
