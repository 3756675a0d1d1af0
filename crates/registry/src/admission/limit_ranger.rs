//! LimitRanger: gives containers the defaults of the limit ranges of their namespace, and refuses containers, pods and claims
//! that request too little or too much.

use std::collections::BTreeMap;

use machinery::Status;
use machinery::json::{Text, Value, json};
use machinery::quantity::Quantity;

use super::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::collections::{LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS};
use crate::meta;
use crate::reserve::amounts::{Amounts, Half, of_pod};
use crate::storage::Storage;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The most defaults that limit ranges set in one pod. Each container gets all of them, so that two objects of a permitted
/// size could make one a thousand times as large.
const FILLED_MAX: usize = 32 * 1024;

pub(super) struct LimitRanger {
    storage: Storage,
}

impl LimitRanger {
    pub(super) fn new(storage: Storage) -> Self {
        LimitRanger { storage }
    }

    /// The ranges of the namespace; an error if one of them cannot be read.
    fn ranges(&self, attributes: &Attributes<'_>) -> Result<Vec<Value>, Status> {
        self.storage.refuse_damaged(LIMIT_RANGES, Some(attributes.namespace()))?;
        Ok(self.storage.values(LIMIT_RANGES, attributes.target.namespace.as_deref()))
    }

    fn check(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        for range in self.ranges(attributes)? {
            if let Some(why) = joined(violations(&range, &attributes.target.kind.plural, object)) {
                return Err(attributes.forbidden(object, why));
            }
        }
        Ok(())
    }
}

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        matches!(
            (attributes.target.kind.collection.as_str(), attributes.operation, attributes.subresource()),
            (PODS, Operation::Create, None)
                | (PODS, Operation::Update, Some("resize"))
                | (PERSISTENT_VOLUME_CLAIMS, Operation::Create | Operation::Update, None)
        )
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Decision<'a> {
        if attributes.writes(Operation::Create, PODS) {
            let ranges = match self.ranges(attributes) {
                Ok(ranges) => ranges,
                Err(damaged) => return Decision::Now(Err(damaged)),
            };
            for range in ranges {
                let defaults = Defaults::new(&range);
                if defaults.len().saturating_mul(containers(object).count()) > FILLED_MAX {
                    let why = format_args!("the limit range sets more than {FILLED_MAX} defaults in this pod");
                    return Decision::Now(Err(Status::request_entity_too_large(why)));
                }
                defaults.fill(object);
            }
        }
        Decision::ADMIT
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        match states {
            // An object that is being deleted must be able to lose its finalizers.
            States { old: Some(old), .. } if meta::is_deleting(old) => Decision::ADMIT,
            States { new: Some(new), .. } => Decision::Now(self.check(attributes, new)),
            States { new: None, .. } => Decision::ADMIT,
        }
    }
}

/// Several reasons as one text.
fn joined(mut reasons: Vec<String>) -> Option<String> {
    let mut seen = std::collections::HashSet::new();
    reasons.retain(|reason| seen.insert(reason.clone()));
    match reasons.len() {
        0 => None,
        1 => reasons.pop(),
        _ => Some(format!("[{}]", reasons.join(", "))),
    }
}

fn limits<'a>(range: &'a Value, of: &'a str) -> impl Iterator<Item = &'a Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |limit| limit["type"] == of)
}

/// The containers that limits apply to.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"].into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
}

/// The defaults that a range has for each container.
struct Defaults {
    requests: BTreeMap<Text, Value>,
    limits: BTreeMap<Text, Value>,
}

impl Defaults {
    fn new(range: &Value) -> Self {
        let mut defaults = Defaults { requests: BTreeMap::new(), limits: BTreeMap::new() };
        for limit in limits(range, "Container") {
            defaults.requests.extend(limit["defaultRequest"].as_object().cloned().unwrap_or_default());
            defaults.limits.extend(limit["default"].as_object().cloned().unwrap_or_default());
        }
        defaults
    }

    fn len(&self) -> usize {
        self.requests.len() + self.limits.len()
    }

    fn fill(&self, pod: &mut Value) {
        let mut filled = Vec::new();
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let name = container["name"].as_str().unwrap_or_default().to_owned();
                if !container.is_object() {
                    continue;
                }
                for (half, shown, defaults) in
                    [("requests", "request", &self.requests), ("limits", "limit", &self.limits)]
                {
                    let set = fill_half(container, half, defaults);
                    if !set.is_empty() {
                        filled.push(format!("{} {shown} for {what} {name}", set.join(", ")));
                    }
                }
            }
        }
        if filled.is_empty() {
            return;
        }
        let annotations = meta::of_mut(pod).entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(ANNOTATION.to_owned(), json!(format!("LimitRanger plugin set: {}", filled.join("; "))));
        }
    }
}

/// Adds the defaults that are missing in one half of a container's resources; returns their names.
fn fill_half(container: &mut Value, half: &str, defaults: &BTreeMap<Text, Value>) -> Vec<String> {
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if container["resources"][half].get(name).is_some() {
            continue;
        }
        if !container["resources"].is_object() {
            container["resources"] = json!({});
        }
        if !container["resources"][half].is_object() {
            container["resources"][half] = json!({});
        }
        container["resources"][half][name.as_str()] = amount.clone();
        set.push(name.to_string());
    }
    set
}

fn violations(range: &Value, plural: &str, object: &Value) -> Vec<String> {
    let mut whys = Vec::new();
    if plural == "persistentvolumeclaims" {
        let requests = Half::Requests.of(&object["spec"]["resources"]);
        let requested = Requested { of: "PersistentVolumeClaim", requests, limits: None };
        limits(range, "PersistentVolumeClaim").for_each(|limit| requested.check(&Bounds::new(limit), &mut whys));
        return whys;
    }
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        match limit["type"].as_str() {
            Some("Container") => {
                let bounds = Bounds::new(limit);
                for container in containers(object) {
                    let resources = &container["resources"];
                    let (requests, limits) = (Half::Requests.of(resources), Half::Limits.of(resources));
                    Requested { of: "Container", requests, limits: Some(limits) }.check(&bounds, &mut whys);
                }
            }
            Some("Pod") => {
                let (requests, limits) = (of_pod(object, Half::Requests), of_pod(object, Half::Limits));
                Requested { of: "Pod", requests, limits: Some(limits) }.check(&Bounds::new(limit), &mut whys);
            }
            _ => {}
        }
    }
    whys
}

/// The bounds of one limit of a range.
struct Bounds {
    min: Amounts,
    max: Amounts,
    ratio: Amounts,
}

impl Bounds {
    fn new(limit: &Value) -> Self {
        let of = |member: &str| Amounts::from_value(&limit[member]);
        Bounds { min: of("min"), max: of("max"), ratio: of("maxLimitRequestRatio") }
    }
}

/// The resources of a container, a pod or a claim (which has requests alone).
struct Requested {
    of: &'static str,
    requests: Amounts,
    limits: Option<Amounts>,
}

impl Requested {
    fn check(&self, bounds: &Bounds, whys: &mut Vec<String>) {
        whys.extend(bounds.min.0.iter().filter_map(|(name, least)| self.below(name, least)));
        whys.extend(bounds.max.0.iter().filter_map(|(name, most)| self.above(name, most)));
        whys.extend(bounds.ratio.0.iter().filter_map(|(name, most)| self.too_far_apart(name, most)));
    }

    fn limit(&self, name: &str) -> Option<Quantity> {
        self.limits.as_ref().and_then(|limits| limits.get(name))
    }

    fn below(&self, name: &str, least: &Quantity) -> Option<String> {
        let head = format!("minimum {name} usage per {} is {least}", self.of);
        match (self.requests.get(name), self.limit(name)) {
            (None, _) => Some(format!("{head}.  No request is specified")),
            (Some(request), _) if request < *least => Some(format!("{head}, but request is {request}")),
            (_, Some(limit)) if limit < *least => Some(format!("{head}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above(&self, name: &str, most: &Quantity) -> Option<String> {
        let head = format!("maximum {name} usage per {} is {most}", self.of);
        let request = self.requests.get(name);
        if self.limits.is_none() && request.is_none() {
            return Some(format!("{head}.  No request is specified"));
        }
        let limit = self.limit(name);
        if self.limits.is_some() && limit.is_none() {
            return Some(format!("{head}.  No limit is specified"));
        }
        if let Some(limit) = limit.filter(|limit| limit > most) {
            return Some(format!("{head}, but limit is {limit}"));
        }
        let request = request.filter(|request| request > most)?;
        Some(format!("{head}, but request is {request}"))
    }

    fn too_far_apart(&self, name: &str, most: &Quantity) -> Option<String> {
        let head = format!("{name} max limit to request ratio per {} is {most}", self.of);
        let Some(request) = self.requests.get(name).filter(|request| !request.is_zero()) else {
            return Some(format!("{head}, but no request is specified or request is 0"));
        };
        let Some(limit) = self.limit(name).filter(|limit| !limit.is_zero()) else {
            return Some(format!("{head}, but no limit is specified or limit is 0"));
        };
        let ratio = limit.milli_value() as f64 / request.milli_value() as f64;
        (ratio * 1000.0 > most.milli_value() as f64).then(|| format!("{head}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limits: Value) -> Value {
        json!({"spec": {"limits": limits}})
    }

    #[test]
    fn containers_get_what_they_leave_open() {
        let range = range(json!([
            {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}},
        ]));
        let mut pod = json!({"spec": {
            "containers": [{"name": "c", "resources": {"limits": {"memory": "2Gi"}}}],
            "initContainers": [{"name": "i"}],
        }});
        Defaults::new(&range).fill(&mut pod);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], json!({"memory": "2Gi", "cpu": "1"}));
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "100m"}));
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c; cpu request for init \
             container i; cpu, memory limit for init container i"
        );
        let mut again = pod.clone();
        Defaults::new(&range).fill(&mut again);
        assert_eq!(again, pod);
    }

    #[test]
    fn a_pod_is_checked_against_all_limits() {
        let range = range(json!([
            {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}},
            {"type": "Pod", "max": {"memory": "1Gi"}},
        ]));
        let why = |resources: Value| {
            joined(violations(&range, "pods", &json!({"spec": {"containers": [{"resources": resources}]}})))
        };
        assert_eq!(
            why(json!({"limits": {"cpu": "1"}, "requests": {"cpu": "10m"}})).unwrap(),
            "[minimum cpu usage per Container is 100m, but request is 10m, maximum memory usage per Pod is 1Gi.  No limit is \
             specified]"
        );
        let both = json!({"cpu": "1", "memory": "2Gi"});
        assert_eq!(
            why(json!({"limits": both, "requests": both})).unwrap(),
            "maximum memory usage per Pod is 1Gi, but limit is 2Gi"
        );
        let both = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(why(json!({"limits": both, "requests": both})), None);
    }

    #[test]
    fn ratios_and_claims() {
        let ratio = range(json!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}]));
        let pod = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}}]}});
        assert_eq!(
            violations(&ratio, "pods", &pod),
            ["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"]
        );
        let size = range(json!([{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]));
        let claim = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        assert_eq!(
            violations(&size, "persistentvolumeclaims", &claim),
            ["maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"]
        );
    }
}
