//! The time of a decision by roles, for an administrator and for users with few and many bindings.
//!
//! `cargo run --release -p dogwatch-access --example decisions`

use std::time::Instant;

use access::authorizer::{Attributes, Authorizer, ResourceAttributes, Verdict, What};
use access::rbac::objects::{Binding, Name, Role};
use access::{Rbac, User};
use machinery::json::json;

const BINDINGS: [usize; 4] = [1, 10, 100, 1000];
const DECISIONS: u32 = 200_000;

/// A user with this many bindings in one namespace, each of a role of its own. The last one allows what is asked.
fn grant(rbac: &Rbac, count: usize) -> User {
    let name = format!("user-{count}");
    rbac.change(|index| {
        for n in 0..count {
            let resource = if n + 1 == count { "pods".to_owned() } else { format!("things{n}") };
            let object = format!("{name}-{n:04}");
            let rules = json!([{"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": [resource, format!("{resource}/log")]}]);
            index.set_role(Role::from_value(Name::new("n", object.as_str()), &json!({"rules": rules})));
            let subjects = json!([{"kind": "User", "name": name}]);
            let binding = json!({"roleRef": {"kind": "Role", "name": object}, "subjects": subjects});
            index.set_binding(Binding::from_value(Name::new("n", object.as_str()), &binding));
        }
    });
    User { name, groups: vec!["system:authenticated".to_owned()], ..User::default() }
}

fn measure(rbac: &Rbac, user: &User, verb: &str, allowed: bool) -> f64 {
    let about = ResourceAttributes { resource: "pods", namespace: "n", name: "p", ..ResourceAttributes::default() };
    let attributes = Attributes { user, verb, what: What::Resource(about) };
    let decide = || match rbac.authorize(&attributes) {
        Verdict::Now(decision) => decision.allowed,
        Verdict::Later(_) => false,
    };
    assert_eq!(decide(), allowed);
    let started = Instant::now();
    let same = (0..DECISIONS).filter(|_| decide() == allowed).count();
    assert_eq!(same, DECISIONS as usize);
    started.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS)
}

fn main() {
    let rbac = Rbac::default();
    let master = User { name: "root".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() };
    let users = BINDINGS.map(|count| (count, grant(&rbac, count)));
    println!("{:>20}  allowed ns  refused ns", "");
    println!("{:>20}  {:>10.0}", "system:masters", measure(&rbac, &master, "get", true));
    for (count, user) in users {
        let (allowed, refused) = (measure(&rbac, &user, "get", true), measure(&rbac, &user, "delete", false));
        println!("{:>20}  {allowed:>10.0}  {refused:>10.0}", format!("{count} bindings"));
    }
}
