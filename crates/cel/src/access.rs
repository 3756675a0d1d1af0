//! The `authorizer` of admission expressions: values that describe a check, and the decisions about them.

use std::sync::Arc;

use machinery::names;

use crate::library::{Implementation, string_arg};
use crate::types::Extra;
use crate::value::{Fault, Outcome, Val};

/// Whose access is checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The user of the request.
    Requester,
    ServiceAccount {
        namespace: String,
        name: String,
    },
}

/// What access is checked to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckTarget {
    Path(String),
    Resource(ResourceCheck),
}

/// A resource in the parts that rules name. Absent parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceCheck {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

/// A question to the authorizer. Equal questions have equal answers within one request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    pub subject: Subject,
    pub verb: String,
    pub target: CheckTarget,
}

/// The answer of the authorizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// Answers the checks of an evaluation.
pub trait Decisions {
    /// Returns the decision if it is known. An evaluation that meets an unknown one stops and names it; it is repeated once
    /// the decision is known.
    fn decide(&self, check: &Check) -> Option<Decision>;
}

/// A value of the authorizer library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Authorizer(Subject),
    Path(Subject, String),
    Group(Subject, String),
    Resource(Subject, ResourceCheck),
    Decision(Decision),
}

impl Access {
    pub(crate) fn ty(&self) -> Extra {
        match self {
            Access::Authorizer(_) => Extra::Authorizer,
            Access::Path(..) => Extra::PathCheck,
            Access::Group(..) => Extra::GroupCheck,
            Access::Resource(..) => Extra::ResourceCheck,
            Access::Decision(_) => Extra::Decision,
        }
    }
}

/// Returns the question that `target.check(verb)` asks.
pub(crate) fn question(args: &[Val<'_>]) -> Outcome<Check> {
    let [Val::Access(access), Val::String(verb)] = args else {
        return Err(Fault::overload());
    };
    let (subject, target) = match &**access {
        Access::Path(subject, path) => (subject.clone(), CheckTarget::Path(path.clone())),
        Access::Resource(subject, resource) => (subject.clone(), CheckTarget::Resource(resource.clone())),
        _ => return Err(Fault::overload()),
    };
    Ok(Check { subject, verb: verb.to_string(), target })
}

/// Functions of the library; `check` is a part of the evaluator.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "path" => |args, _| {
            let (subject, path) = authorizer(args)?;
            if path.trim().is_empty() {
                return Err(Fault::from_static("path must not be empty"));
            }
            Ok(value(Access::Path(subject, path)))
        },
        "group" => |args, _| authorizer(args).map(|(subject, group)| value(Access::Group(subject, group))),
        "serviceAccount" => service_account,
        "resource" => resource,
        "subresource" => |args, _| narrowed(args, |check, text| check.subresource = text),
        "namespace" => |args, _| narrowed(args, |check, text| check.namespace = text),
        "name" => |args, _| narrowed(args, |check, text| check.name = text),
        "fieldSelector" => |args, _| narrowed(args, |check, text| check.field_selector = text),
        "labelSelector" => |args, _| narrowed(args, |check, text| check.label_selector = text),
        // The evaluator answers it; this marks the function as callable.
        "check" => |_, _| Err(Fault::overload()),
        "allowed" => |args, _| decision(args).map(|decision| Val::Bool(decision.allowed)),
        "reason" => |args, _| decision(args).map(|decision| Val::string(decision.reason.as_str())),
        "errored" => |args, _| decision(args).map(|decision| Val::Bool(decision.error.is_some())),
        "error" => |args, _| decision(args).map(|decision| Val::string(decision.error.as_deref().unwrap_or_default())),
        _ => return None,
    })
}

fn value<'a>(access: Access) -> Val<'a> {
    Val::Access(Arc::new(access))
}

/// The arguments `(authorizer, text)`.
fn authorizer(args: &[Val<'_>]) -> Outcome<(Subject, String)> {
    match args {
        [Val::Access(access), rest @ ..] => match &**access {
            Access::Authorizer(subject) => Ok((subject.clone(), string_arg(rest)?.to_owned())),
            _ => Err(Fault::overload()),
        },
        _ => Err(Fault::overload()),
    }
}

fn service_account<'a>(args: &[Val<'a>], _: &mut crate::cost::Meter) -> Outcome<Val<'a>> {
    let [Val::Access(access), Val::String(namespace), Val::String(name)] = args else {
        return Err(Fault::overload());
    };
    if !matches!(**access, Access::Authorizer(_)) {
        return Err(Fault::overload());
    }
    if !names::dns1123_subdomain(name).is_empty() {
        return Err(Fault::from_static("Invalid service account name"));
    }
    if !names::dns1123_label(namespace).is_empty() {
        return Err(Fault::from_static("Invalid service account namespace"));
    }
    let subject = Subject::ServiceAccount { namespace: namespace.to_string(), name: name.to_string() };
    Ok(value(Access::Authorizer(subject)))
}

fn resource<'a>(args: &[Val<'a>], _: &mut crate::cost::Meter) -> Outcome<Val<'a>> {
    let [Val::Access(access), Val::String(resource)] = args else {
        return Err(Fault::overload());
    };
    let Access::Group(subject, group) = &**access else {
        return Err(Fault::overload());
    };
    if resource.trim().is_empty() {
        return Err(Fault::from_static("resource must not be empty"));
    }
    let check = ResourceCheck { group: group.clone(), resource: resource.to_string(), ..ResourceCheck::default() };
    Ok(value(Access::Resource(subject.clone(), check)))
}

fn narrowed<'a>(args: &[Val<'a>], set: fn(&mut ResourceCheck, String)) -> Outcome<Val<'a>> {
    let [Val::Access(access), Val::String(text)] = args else {
        return Err(Fault::overload());
    };
    let Access::Resource(subject, check) = &**access else {
        return Err(Fault::overload());
    };
    let mut check = check.clone();
    set(&mut check, text.to_string());
    Ok(value(Access::Resource(subject.clone(), check)))
}

fn decision<'v>(args: &'v [Val<'_>]) -> Outcome<&'v Decision> {
    match args {
        [Val::Access(access)] => match &**access {
            Access::Decision(decision) => Ok(decision),
            _ => Err(Fault::overload()),
        },
        _ => Err(Fault::overload()),
    }
}
