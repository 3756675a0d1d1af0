//! Amounts of resources by name (`cpu: 500m`), and those of a pod as a whole.

use std::collections::BTreeMap;

use machinery::json::Value;
use machinery::quantity::Quantity;

/// Amounts by resource. Values that are not quantities are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts(pub(crate) BTreeMap<String, Quantity>);

impl Amounts {
    pub(crate) fn from_value(value: &Value) -> Self {
        let amounts = value.as_object().into_iter().flatten();
        Amounts(
            amounts.filter_map(|(name, amount)| Some((name.to_string(), Quantity::from_value(amount).ok()?))).collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).cloned()
    }

    pub(crate) fn set(&mut self, name: impl Into<String>, amount: Quantity) {
        self.0.insert(name.into(), amount);
    }

    pub(crate) fn add(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let sum = self.0.get(name).map_or_else(|| amount.clone(), |before| before.plus(amount));
            self.0.insert(name.clone(), sum);
        }
    }

    /// Raises each amount to at least that of `other`.
    pub(crate) fn raise_to(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            if self.0.get(name).is_none_or(|before| before < amount) {
                self.0.insert(name.clone(), amount.clone());
            }
        }
    }

    /// By how much `self` is more than `other`; resources that are not are left out.
    pub(crate) fn beyond(&self, other: &Amounts) -> Amounts {
        let more = self.0.iter().filter_map(|(name, amount)| {
            let rest = other.0.get(name).map_or_else(|| amount.clone(), |other| amount.minus(other));
            (!rest.is_zero() && !rest.is_negative()).then(|| (name.clone(), rest))
        });
        Amounts(more.collect())
    }

    pub(crate) fn only(&self, keep: impl Fn(&str) -> bool) -> Amounts {
        Amounts(
            self.0.iter().filter(|(name, _)| keep(name)).map(|(name, amount)| (name.clone(), amount.clone())).collect(),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn to_value(&self) -> Value {
        self.0.iter().map(|(name, amount)| (name, amount.to_string())).collect()
    }
}

/// `cpu=1,pods=2`
impl std::fmt::Display for Amounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, amount)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={amount}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// One half of a container's resources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Requests,
    Limits,
}

impl Half {
    pub(crate) fn of(self, resources: &Value) -> Amounts {
        Amounts::from_value(&resources[if self == Half::Requests { "requests" } else { "limits" }])
    }
}

/// What a pod takes: the sum of its containers or the largest amount during its start, whichever is more; the resources of
/// the pod as a whole override both. Sidecars run from their turn on.
pub(crate) fn of_pod(pod: &Value, half: Half) -> Amounts {
    let spec = &pod["spec"];
    let list = |name: &str| spec[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut running = Amounts::default();
    for container in list("containers") {
        running.add(&half.of(&container["resources"]));
    }
    let (mut sidecars, mut starting) = (Amounts::default(), Amounts::default());
    for container in list("initContainers") {
        let mut own = half.of(&container["resources"]);
        if container["restartPolicy"] == "Always" {
            running.add(&own);
            sidecars.add(&own);
        } else {
            // Of the sidecars' other resources no more is needed now than at the end.
            let theirs = own.0.keys().filter_map(|name| Some((name.clone(), sidecars.get(name)?)));
            let theirs = Amounts(theirs.collect());
            own.add(&theirs);
            starting.raise_to(&own);
        }
    }
    starting.raise_to(&sidecars);
    running.raise_to(&starting);
    let whole = half.of(&spec["resources"]);
    running.0.extend(whole.only(|name| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")).0);
    running
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn a_pod_takes_the_most_of_its_start_and_its_run() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("100m");
        sidecar["restartPolicy"] = json!("Always");
        let pod = json!({"spec": {"containers": [container("1"), container("500m")], "initContainers": [sidecar, container("3")]}});
        assert_eq!(of_pod(&pod, Half::Requests).to_string(), "cpu=3100m");
        let pod = json!({"spec": {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}});
        assert_eq!(of_pod(&pod, Half::Requests).to_string(), "cpu=4");
        assert!(of_pod(&pod, Half::Limits).is_empty());
        assert!(of_pod(&json!({"spec": [1]}), Half::Limits).is_empty());
    }

    #[test]
    fn the_excess_over_other_amounts() {
        let (a, b) = (
            Amounts::from_value(&json!({"x": "2", "y": "1", "z": "1"})),
            Amounts::from_value(&json!({"x": "500m", "y": "1"})),
        );
        assert_eq!(a.beyond(&b).to_string(), "x=1500m,z=1");
        assert!(b.beyond(&a).is_empty());
    }
}
