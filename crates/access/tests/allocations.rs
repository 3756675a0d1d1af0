//! Decisions that allocate nothing. Alone in its process, since it looks at the memory of all threads.

use access::authorizer::{Attributes, Authorizer, ResourceAttributes, Verdict, What};
use access::rbac::objects::{Binding, Name, Role};
use access::{Rbac, User};
use machinery::json::json;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes that were allocated at most, beyond what was there, while a request is decided.
fn allocated(rbac: &Rbac, user: &User, verb: &str) -> usize {
    let about = ResourceAttributes {
        resource: "pods",
        subresource: "log",
        namespace: "n5",
        name: "p",
        ..ResourceAttributes::default()
    };
    let attributes = Attributes { user, verb, what: What::Resource(about) };
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let Verdict::Now(decision) = rbac.authorize(&attributes) else { panic!("decided at once") };
    let peak = MEMORY.peak_usage();
    assert_eq!(decision.allowed, verb == "get");
    peak.saturating_sub(before)
}

#[test]
fn masters_and_users_with_bindings_are_decided_on_without_an_allocation() {
    let rbac = Rbac::default();
    rbac.change(|index| {
        for n in 0..10 {
            let rules = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]}]);
            let namespace = format!("n{n}");
            index.set_role(Role::from_value(Name::new(namespace.as_str(), "r"), &json!({"rules": rules})));
            let subjects = json!([{"kind": "User", "name": "alice"}]);
            let binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": subjects});
            index.set_binding(Binding::from_value(Name::new(namespace.as_str(), "b"), &binding));
        }
    });
    // The thread that runs the tests may allocate at the same time, but not each time.
    let least = |user: &User, verb: &str| (0..10).map(|_| allocated(&rbac, user, verb)).min();
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    let master = User { name: "root".to_owned(), groups, ..User::default() };
    assert_eq!(least(&master, "get"), Some(0));
    let groups = vec!["devs".to_owned(), "system:authenticated".to_owned()];
    let alice = User { name: "alice".to_owned(), groups, ..User::default() };
    assert!(allocated(&rbac, &alice, "get") > 0, "the first decision resolves the roles");
    assert_eq!(least(&alice, "get"), Some(0));
    assert_eq!(least(&alice, "delete"), Some(0), "also a refusal that names no missing role");
}
