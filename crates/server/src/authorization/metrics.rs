//! Metrics of authorizers, under the names of the reference.

use std::fmt;
use std::sync::Arc;

use access::union::Union;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Counts the decisions of each authorizer. Members of `system:masters` are allowed before any of them.
pub struct DecisionCounts(Arc<dyn Fn() -> Arc<Union> + Send + Sync>);

impl DecisionCounts {
    /// `current` returns the authorizers of the moment.
    pub fn new(current: impl Fn() -> Arc<Union> + Send + Sync + 'static) -> Self {
        DecisionCounts(Arc::new(current))
    }
}

impl fmt::Debug for DecisionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecisionCounts")
    }
}

impl Collector for DecisionCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "apiserver_authorization_decisions",
            "Requests that an authorizer allowed or denied",
            None,
            MetricType::Counter,
        )?;
        for member in (self.0)().members() {
            let (allowed, denied) = member.decisions();
            for (decision, count) in [("allowed", allowed), ("denied", denied)] {
                let labels = [("type", member.mode), ("name", member.name.as_str()), ("decision", decision)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use access::authorizer::{AlwaysAllow, Attributes, Authorizer as _, What};
    use access::identity::User;
    use access::union::Member;

    use super::*;

    #[test]
    fn az_10_decisions_are_counted_by_authorizer() {
        let union = Arc::new(Union::new(vec![Member::new("AlwaysAllow", "alwaysallow", Arc::new(AlwaysAllow))]));
        let user = User { name: "alice".to_owned(), ..User::default() };
        drop(union.authorize(&Attributes { user: &user, verb: "get", what: What::Path("/") }));
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(DecisionCounts::new(move || Arc::clone(&union))));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series =
            "apiserver_authorization_decisions_total{type=\"AlwaysAllow\",name=\"alwaysallow\",decision=\"allowed\"} 1";
        assert!(text.contains(series), "{text}");
    }
}
