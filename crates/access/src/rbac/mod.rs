//! Role-based access control: roles, bindings, and decisions by them.
//!
//! - [`rule`]: one rule of a role, and the requests it allows
//! - [`objects`]: roles, bindings and subjects as values
//! - [`index`]: all of them, by the subjects that requests name; `grants` is what one subject has in one place, `table` finds one
//!   of very many rules
//! - [`decision`]: a decision, its reason, and the rules of a user; `decisions` keeps those that were made
//! - [`covering`]: whether a user holds the rules that it is about to grant
//! - [`bootstrap`]: the roles and bindings that every cluster has
//!
//! [`Rbac`] is the authorizer: the current index and those who change it.

pub mod bootstrap;
pub mod covering;
pub mod decision;
mod decisions;
mod grants;
pub mod index;
pub mod objects;
pub mod rule;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::authorizer::{Attributes, Authorizer, Decision, RuleList, Verdict};
use crate::identity::User;
use decisions::{Decisions, Key};
pub use index::Index;

/// Authorizes by the roles and bindings of the cluster. What observes the objects changes the index; requests only read it.
#[derive(Default)]
pub struct Rbac {
    current: ArcSwap<State>,
    /// Held by those who change the index, never by those who decide.
    writer: Mutex<()>,
}

/// Roles and bindings, and the decisions by them.
#[derive(Default)]
struct State {
    index: Arc<Index>,
    decisions: Decisions,
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rbac").field(&self.current.load().index).finish()
    }
}

impl Rbac {
    /// The roles and bindings of this moment.
    #[must_use]
    pub fn index(&self) -> Arc<Index> {
        Arc::clone(&self.current.load().index)
    }

    /// Changes the index. Requests are decided by its former state until this returns.
    pub fn change(&self, change: impl FnOnce(&mut Index)) {
        let _writer = self.writer.lock();
        let mut index = (*self.index()).clone();
        change(&mut index);
        self.current.store(Arc::new(State { index: Arc::new(index), decisions: Decisions::default() }));
    }

    /// Decides by this index from now on.
    pub fn set_index(&self, index: Arc<Index>) {
        let _writer = self.writer.lock();
        self.current.store(Arc::new(State { index, decisions: Decisions::default() }));
    }

    #[must_use]
    pub fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let state = self.current.load();
        let mut key = Key::EMPTY;
        if !key.set(attributes) {
            return state.index.decide(attributes);
        }
        if let Some(reason) = state.decisions.reason(&key) {
            return Decision::allow(reason);
        }
        let decided = state.index.decided(attributes);
        if decided.decision.allowed && !decided.by_name {
            state.decisions.keep(&key, &decided.decision.reason);
        }
        decided.decision
    }
}

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        // Members of this group need no binding, so that a cluster without roles can be mended.
        if attributes.user.is_master() {
            return Verdict::Now(Decision::allow(""));
        }
        Verdict::Now(self.decide(attributes))
    }

    fn rules_for(&self, user: &User, namespace: &str) -> RuleList {
        self.current.load().index.rules_for(user, namespace)
    }
}
