//! The operation of a request for a resource: decided once, from its verb and target. Handlers match on it.

use registry::{NODE_SUBRESOURCES, Target};

use crate::request::request_info::Verb;

/// An operation on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// The `scale` subresource of a workload.
    GetScale,
    UpdateScale,
    PatchScale,
    /// Assigns a pod to a node: POST to `pods/binding` or to `bindings`.
    Bind,
    /// POST to `pods/eviction`.
    Evict,
    /// POST to `serviceaccounts/token`.
    RequestToken,
    /// POST to a subresource of the lab, such as `checkpoints/rewind`.
    Lab,
    /// POST to a kind that is computed and not stored.
    Review(Review),
    /// A subresource that the node of a pod serves: logs and connections.
    Node,
}

/// A kind that is computed from the user and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    SelfSubject,
    Token,
    SelfSubjectAccess,
    SubjectAccess,
    LocalSubjectAccess,
    SelfSubjectRules,
}

impl Operation {
    /// Decides the operation; none where the server has no such method.
    #[must_use]
    pub fn decide(verb: Verb, target: &Target) -> Option<Self> {
        let Some(subresource) = target.subresource.as_deref() else {
            return Self::on_resource(verb, target);
        };
        Some(match verb {
            Verb::Get | Verb::Create if NODE_SUBRESOURCES.contains(&subresource) => Operation::Node,
            Verb::Create => return Self::post_to(subresource, target),
            Verb::Get if subresource == "scale" => Operation::GetScale,
            Verb::Update if subresource == "scale" => Operation::UpdateScale,
            Verb::Patch if subresource == "scale" => Operation::PatchScale,
            Verb::Get => Operation::Get,
            Verb::Update => Operation::Update,
            Verb::Patch => Operation::Patch,
            Verb::List | Verb::Watch | Verb::Delete | Verb::DeleteCollection | Verb::Proxy | Verb::None => return None,
        })
    }

    fn on_resource(verb: Verb, target: &Target) -> Option<Self> {
        Some(match verb {
            Verb::Get => Operation::Get,
            Verb::List => Operation::List,
            Verb::Watch => Operation::Watch,
            Verb::Create if target.kind.stored() => Operation::Create,
            Verb::Create => return Self::post_to_unstored(target),
            Verb::Update => Operation::Update,
            Verb::Patch => Operation::Patch,
            Verb::Delete => Operation::Delete,
            Verb::DeleteCollection => Operation::DeleteCollection,
            Verb::Proxy | Verb::None => return None,
        })
    }

    fn post_to(subresource: &str, target: &Target) -> Option<Self> {
        match (target.kind.gvk.group.as_str(), target.kind.plural.as_str(), subresource) {
            ("", "pods", "binding") => Some(Operation::Bind),
            ("", "pods", "eviction") => Some(Operation::Evict),
            ("", "serviceaccounts", "token") => Some(Operation::RequestToken),
            ("lab.dogwatch.dev", "checkpoints", "rewind") => Some(Operation::Lab),
            _ => None,
        }
    }

    fn post_to_unstored(target: &Target) -> Option<Self> {
        let review = match (target.kind.gvk.group.as_str(), target.kind.gvk.kind.as_str()) {
            ("", "Binding") => return Some(Operation::Bind),
            ("authentication.k8s.io", "SelfSubjectReview") => Review::SelfSubject,
            ("authentication.k8s.io", "TokenReview") => Review::Token,
            ("authorization.k8s.io", "SelfSubjectAccessReview") => Review::SelfSubjectAccess,
            ("authorization.k8s.io", "SubjectAccessReview") => Review::SubjectAccess,
            ("authorization.k8s.io", "LocalSubjectAccessReview") => Review::LocalSubjectAccess,
            ("authorization.k8s.io", "SelfSubjectRulesReview") => Review::SelfSubjectRules,
            _ => return None,
        };
        Some(Operation::Review(review))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn operation(verb: Verb, path: &str) -> Option<Operation> {
        let (group, rest) = path.split_once(':').unwrap_or(("", path));
        let (plural, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        let kind = registry::kinds::builtin().get(group, "v1", plural).unwrap();
        let target = Target {
            kind: Arc::clone(kind),
            namespace: None,
            name: Some("x".to_owned()),
            subresource: Some(subresource.to_owned()).filter(|name| !name.is_empty()),
        };
        Operation::decide(verb, &target)
    }

    #[test]
    fn operations_of_verbs_and_targets() {
        for (verb, path, expected) in [
            (Verb::Get, "pods", Some(Operation::Get)),
            (Verb::Create, "pods", Some(Operation::Create)),
            (Verb::Create, "pods/binding", Some(Operation::Bind)),
            (Verb::Create, "bindings", Some(Operation::Bind)),
            (Verb::Create, "pods/eviction", Some(Operation::Evict)),
            (Verb::Create, "serviceaccounts/token", Some(Operation::RequestToken)),
            (Verb::Get, "pods/log", Some(Operation::Node)),
            (Verb::Create, "pods/exec", Some(Operation::Node)),
            (Verb::Get, "nodes/proxy", Some(Operation::Node)),
            (Verb::Get, "apps:deployments/scale", Some(Operation::GetScale)),
            (Verb::Update, "apps:deployments/scale", Some(Operation::UpdateScale)),
            (Verb::Patch, "apps:deployments/scale", Some(Operation::PatchScale)),
            (Verb::Update, "apps:deployments/status", Some(Operation::Update)),
            (Verb::Get, "apps:deployments/status", Some(Operation::Get)),
            (Verb::Patch, "pods/resize", Some(Operation::Patch)),
            (Verb::Delete, "pods/status", None),
            (Verb::Create, "pods/status", None),
            (Verb::None, "pods", None),
            (Verb::Create, "authentication.k8s.io:tokenreviews", Some(Operation::Review(Review::Token))),
            (
                Verb::Create,
                "authorization.k8s.io:localsubjectaccessreviews",
                Some(Operation::Review(Review::LocalSubjectAccess)),
            ),
        ] {
            assert_eq!(operation(verb, path), expected, "{verb:?} {path}");
        }
    }
}
