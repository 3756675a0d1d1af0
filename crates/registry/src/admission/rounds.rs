//! The two rounds of the mutating phase: which policies and webhooks run again after others changed the object.
//!
//! ```text
//!   round 1   plugins ─► policies ─► webhooks          everything that matches
//!   round 2   plugins ─► policies ─► webhooks          only if a policy or webhook changed the object; of them, those with
//!                                                      `reinvocationPolicy: IfNeeded` whose object changed after their run
//! ```

use std::collections::BTreeSet;

use machinery::json::Value;

/// What the mutating steps of one request have done so far.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    second: bool,
    /// A policy or webhook changed the object, so that there is a second round.
    changed: bool,
    pub(crate) policies: Invoked,
    pub(crate) webhooks: Invoked,
}

/// What the policies, or the webhooks, of one request have done so far.
#[derive(Debug, Default)]
pub(crate) struct Invoked {
    /// The object as they left it.
    output: Option<Value>,
    /// Those that may run again and have seen the newest object.
    ran: BTreeSet<String>,
    /// Those that run again.
    again: BTreeSet<String>,
}

impl Rounds {
    pub(crate) fn is_second(&self) -> bool {
        self.second
    }

    /// The number of the round in audit annotations.
    pub(crate) fn number(&self) -> usize {
        usize::from(self.second)
    }

    /// Begins the second round if there is one.
    pub(crate) fn begin_second(&mut self) -> bool {
        let begins = self.changed && !self.second;
        self.second |= begins;
        begins
    }

    /// Notes that a policy or webhook changed the object.
    pub(crate) fn note_change(&mut self) {
        self.changed = true;
    }
}

impl Invoked {
    /// Begins a run over all policies or webhooks. In the second round, an object that other steps changed makes all run
    /// again that may.
    pub(crate) fn begin(&mut self, second: bool, object: &Value) {
        if second && self.output.as_ref().is_some_and(|output| output != object) {
            self.invalidate();
        }
    }

    /// Whether a policy or webhook runs: in the first round all do, in the second only those that ran before and saw an
    /// older object.
    pub(crate) fn runs(&self, second: bool, id: &str) -> bool {
        !second || self.again.contains(id)
    }

    /// Notes that the object changed: those that ran saw an older one.
    pub(crate) fn invalidate(&mut self) {
        self.again.append(&mut self.ran);
    }

    /// Notes the run of one that may run again.
    pub(crate) fn note_run(&mut self, id: &str) {
        self.ran.insert(id.to_owned());
    }

    /// Ends a run over all.
    pub(crate) fn end(&mut self, object: &Value) {
        self.output = Some(object.clone());
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn ad_10_those_run_again_whose_object_changed_after_their_run() {
        let mut rounds = Rounds::default();
        let hooks = &mut rounds.webhooks;
        hooks.begin(false, &json!(0));
        assert!(hooks.runs(false, "a") && hooks.runs(false, "b"));
        hooks.note_run("a");
        hooks.invalidate();
        hooks.note_run("b");
        hooks.end(&json!(1));
        rounds.note_change();
        assert!(rounds.begin_second());
        let hooks = &mut rounds.webhooks;
        hooks.begin(true, &json!(1));
        assert!(hooks.runs(true, "a") && !hooks.runs(true, "b") && !hooks.runs(true, "new"));
        assert!(!rounds.begin_second(), "there is no third round");
    }

    #[test]
    fn ad_10_a_plugin_that_changes_the_object_makes_all_run_again() {
        let mut hooks = Invoked::default();
        hooks.begin(false, &json!(0));
        hooks.note_run("a");
        hooks.end(&json!(0));
        hooks.begin(true, &json!(2));
        assert!(hooks.runs(true, "a") && !hooks.runs(true, "never ran"));
        assert!(!Rounds::default().begin_second(), "nothing changed");
    }
}
