//! A certificate is asked for by whoever sends the request, whatever it says.

use machinery::json::{Value, json};

use crate::request::Context;

pub(super) fn sign_with(request: &mut Value, ctx: &Context) {
    let spec = &mut request["spec"];
    spec["username"] = json!(ctx.user.name);
    spec["groups"] = json!(ctx.user.groups);
    for (member, value) in [("uid", json!(ctx.user.uid)), ("extra", json!(ctx.user.extra))] {
        let empty = value == json!("") || value == json!({});
        if !empty {
            spec[member] = value;
        } else if let Some(spec) = spec.as_object_mut() {
            spec.shift_remove(member);
        }
    }
}
