//! Several authorizers in their order: the first that allows or denies decides.
//!
//! Members of `system:masters` are allowed everything before any authorizer is called, without an allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use machinery::json::Text;

use crate::authorizer::{Attributes, Authorizer, Decision, RuleList, Verdict};
use crate::identity::User;

/// Authorizers in their order.
#[derive(Default)]
pub struct Union {
    members: Vec<Member>,
}

/// An authorizer of a union.
pub struct Member {
    /// `RBAC`, `Webhook`, …
    pub mode: &'static str,
    /// The name in the configuration file; the mode in lower case without one.
    pub name: String,
    pub authorizer: Arc<dyn Authorizer>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
}

impl Member {
    pub fn new(mode: &'static str, name: impl Into<String>, authorizer: Arc<dyn Authorizer>) -> Self {
        Member { mode, name: name.into(), authorizer, counts: Arc::default() }
    }

    /// Counts on where a member of the same mode and name stopped, if there was one.
    #[must_use]
    pub fn following(mut self, before: &Union) -> Self {
        if let Some(old) = before.members.iter().find(|old| old.mode == self.mode && old.name == self.name) {
            self.counts = Arc::clone(&old.counts);
        }
        self
    }

    /// The number of requests that this authorizer allowed, and of those that it denied.
    #[must_use]
    pub fn decisions(&self) -> (u64, u64) {
        (self.counts.allowed.load(Ordering::Relaxed), self.counts.denied.load(Ordering::Relaxed))
    }

    /// Returns the decision if it ends the search; otherwise its reason and error are collected.
    fn take(&self, decision: Decision, collected: &mut Collected) -> Option<Decision> {
        if decision.allowed {
            self.counts.allowed.fetch_add(1, Ordering::Relaxed);
            return Some(decision);
        }
        if decision.denied {
            self.counts.denied.fetch_add(1, Ordering::Relaxed);
            return Some(decision);
        }
        collected.add(decision);
        None
    }
}

impl Union {
    #[must_use]
    pub fn new(members: Vec<Member>) -> Self {
        Union { members }
    }

    /// The union in place of another one, whose counts go on.
    #[must_use]
    pub fn following(self, before: &Union) -> Self {
        Union { members: self.members.into_iter().map(|member| member.following(before)).collect() }
    }

    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Asks the authorizers from `index` on, the first of which needs time.
    async fn decide_later(&self, index: usize, mut collected: Collected, attributes: &Attributes<'_>) -> Decision {
        for member in self.members.iter().skip(index) {
            let decision = member.authorizer.authorize(attributes).get().await;
            if let Some(decision) = member.take(decision, &mut collected) {
                return decision;
            }
        }
        collected.into_decision()
    }
}

impl Authorizer for Union {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        if attributes.user.is_master() {
            return Verdict::Now(Decision::allow(""));
        }
        let mut collected = Collected::default();
        for (index, member) in self.members.iter().enumerate() {
            match member.authorizer.authorize(attributes) {
                Verdict::Now(decision) => {
                    if let Some(decision) = member.take(decision, &mut collected) {
                        return Verdict::Now(decision);
                    }
                }
                // Not polled yet, so asking again costs nothing.
                Verdict::Later(_) => return Verdict::Later(Box::pin(self.decide_later(index, collected, attributes))),
            }
        }
        Verdict::Now(collected.into_decision())
    }

    fn rules_for(&self, user: &User, namespace: &str) -> RuleList {
        let mut all = RuleList::default();
        for member in &self.members {
            all.append(member.authorizer.rules_for(user, namespace));
        }
        all
    }
}

/// Reasons and errors of authorizers without an opinion.
#[derive(Default)]
struct Collected {
    reason: Text,
    errors: Vec<Text>,
}

impl Collected {
    fn add(&mut self, decision: Decision) {
        if !decision.reason.is_empty() {
            self.reason = match self.reason.is_empty() {
                true => decision.reason,
                false => format!("{}\n{}", self.reason, decision.reason).into(),
            };
        }
        if !decision.error.is_empty() {
            self.errors.push(decision.error);
        }
    }

    fn into_decision(self) -> Decision {
        let error = match self.errors.as_slice() {
            [] => Text::default(),
            [one] => one.clone(),
            several => format!("[{}]", several.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ")).into(),
        };
        Decision { error, ..Decision::no_opinion_because(self.reason) }
    }
}

/// Refuses everything, without an opinion of its own.
#[derive(Debug, Default)]
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> Verdict<'a> {
        Verdict::Now(Decision::no_opinion_because("Everything is forbidden."))
    }

    fn rules_for(&self, _: &User, _: &str) -> RuleList {
        RuleList::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorizer::{AlwaysAllow, What, forbidden};

    /// Decides the same for every request, at once or later.
    struct Fixed(Decision, bool);

    impl Authorizer for Fixed {
        fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> Verdict<'a> {
            match self.1 {
                false => Verdict::Now(self.0.clone()),
                true => Verdict::Later(Box::pin(async { self.0.clone() })),
            }
        }

        fn rules_for(&self, _: &User, _: &str) -> RuleList {
            RuleList::unsupported("fixed")
        }
    }

    fn alice() -> User {
        User { name: "alice".to_owned(), ..User::default() }.authenticated()
    }

    async fn decide(user: &User, members: Vec<Arc<dyn Authorizer>>) -> Decision {
        let union = Union::new(members.into_iter().map(|member| Member::new("Webhook", "x", member)).collect());
        let attributes = Attributes { user, verb: "get", what: What::Path("/x") };
        union.authorize(&attributes).get().await
    }

    fn fixed(decision: Decision) -> Arc<dyn Authorizer> {
        Arc::new(Fixed(decision, false))
    }

    fn later(decision: Decision) -> Arc<dyn Authorizer> {
        Arc::new(Fixed(decision, true))
    }

    #[tokio::test]
    async fn az_1_masters_are_allowed_before_all_modes_without_a_reason() {
        let master = User { name: "m".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() };
        assert_eq!(decide(&master, vec![fixed(Decision::deny("no"))]).await, Decision::allow(""));
        assert_eq!(decide(&master, vec![]).await, Decision::allow(""));
        assert!(!decide(&alice(), vec![]).await.allowed);
    }

    #[tokio::test]
    async fn az_2_the_first_allow_or_deny_decides_and_reasons_are_joined() {
        let quiet = || fixed(Decision::no_opinion());
        let (no, yes) = (Decision::deny("no"), Decision::allow("yes"));
        assert_eq!(decide(&alice(), vec![quiet(), fixed(yes.clone()), fixed(no.clone())]).await, yes);
        assert_eq!(decide(&alice(), vec![quiet(), fixed(no.clone()), fixed(yes.clone())]).await, no);
        assert_eq!(decide(&alice(), vec![later(Decision::no_opinion()), fixed(yes.clone())]).await, yes);
        assert_eq!(decide(&alice(), vec![quiet(), later(no.clone()), fixed(yes)]).await, no);
        let reasons = [Decision::no_opinion_because("a"), Decision::no_opinion(), Decision::no_opinion_because("b")];
        let joined = Decision::no_opinion_because("a\nb");
        assert_eq!(decide(&alice(), reasons.clone().map(fixed).to_vec()).await, joined);
        assert_eq!(decide(&alice(), reasons.map(later).to_vec()).await, joined);
    }

    #[tokio::test]
    async fn az_5_errors_of_authorizers_without_an_opinion_are_kept_until_one_allows() {
        let failed = || later(Decision::failed("down"));
        assert_eq!(decide(&alice(), vec![failed(), fixed(Decision::no_opinion())]).await.error, "down");
        assert_eq!(decide(&alice(), vec![failed(), failed()]).await.error, "[down, down]");
        assert_eq!(decide(&alice(), vec![failed(), Arc::new(AlwaysAllow)]).await, Decision::allow(""));
    }

    #[tokio::test]
    async fn az_4_always_deny_is_no_opinion_with_a_reason() {
        let user = alice();
        let decision = decide(&user, vec![Arc::new(AlwaysDeny)]).await;
        assert!(!decision.denied && !decision.allowed);
        let attributes = Attributes { user: &user, verb: "get", what: What::Path("/x") };
        let message = forbidden(&attributes, &decision).message;
        assert_eq!(message, "forbidden: User \"alice\" cannot get path \"/x\": Everything is forbidden.");
        assert!(decide(&user, vec![Arc::new(AlwaysDeny), Arc::new(AlwaysAllow)]).await.allowed);
    }

    #[tokio::test]
    async fn az_10_decisions_are_counted_for_each_member() {
        let union = Union::new(vec![
            Member::new("Webhook", "first", fixed(Decision::no_opinion())),
            Member::new("Webhook", "second", later(Decision::allow(""))),
        ]);
        let user = alice();
        let attributes = Attributes { user: &user, verb: "get", what: What::Path("/x") };
        assert!(union.authorize(&attributes).get().await.allowed);
        let counts: Vec<(u64, u64)> = union.members().iter().map(Member::decisions).collect();
        assert_eq!(counts, [(0, 0), (1, 0)]);
        let next = Union::new(vec![Member::new("Webhook", "second", fixed(Decision::deny("")))]).following(&union);
        assert!(next.authorize(&attributes).get().await.denied);
        assert_eq!(next.members()[0].decisions(), (1, 1), "counts go on when the authorizers are replaced");
        assert!(union.rules_for(&user, "n").incomplete);
    }
}
