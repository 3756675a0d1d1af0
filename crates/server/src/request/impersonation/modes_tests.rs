//! Modes of impersonation with lists of rights.

use super::*;
use access::authorizer::{RuleList, Verdict};

/// Allows what is in its list: `verb group/resource[/subresource] [namespace/]name`, with `*` for any name.
struct Listed(Vec<&'static str>);

impl Authorizer for Listed {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let text = match attributes.what {
            What::Path(path) => format!("{} {path}", attributes.verb),
            What::Resource(about) => {
                let resource = if about.subresource.is_empty() {
                    format!("{}/{}", about.group, about.resource)
                } else {
                    format!("{}/{}/{}", about.group, about.resource, about.subresource)
                };
                let place = if about.namespace.is_empty() { String::new() } else { format!("{}/", about.namespace) };
                format!("{} {resource} {place}{}", attributes.verb, about.name)
            }
        };
        let matches = |allowed: &&&str| match allowed.strip_suffix("ANY") {
            Some(prefix) => text.starts_with(prefix),
            None => **allowed == text,
        };
        let allowed = self.0.iter().any(|allowed| matches(&allowed));
        Verdict::Now(if allowed { Decision::allow("") } else { Decision::no_opinion() })
    }

    fn rules_for(&self, _: &User, _: &str) -> RuleList {
        RuleList::default()
    }
}

fn wanted(name: &str, groups: &[&str]) -> Wanted {
    Wanted {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..Wanted::default()
    }
}

fn pods() -> ResourceAttributes<'static> {
    ResourceAttributes { version: "v1", resource: "pods", namespace: "n", ..ResourceAttributes::default() }
}

async fn ask(modes: &Modes, rights: &[&'static str], user: &User, wanted: &Wanted) -> Result<(User, Mode), String> {
    let request = Attributes { user, verb: "list", what: What::Resource(pods()) };
    let granted = modes.impersonate(&Listed(rights.to_vec()), wanted, &request).await;
    granted.map(|granted| ((*granted.user).clone(), granted.mode)).map_err(|status| status.message)
}

fn alice() -> User {
    User { name: "alice".to_owned(), ..User::default() }
}

#[tokio::test]
async fn im_3_the_old_form_needs_each_part() {
    let modes = Modes::default();
    let rights = ["impersonate /users bob", "impersonate /groups devs", "impersonate authentication.k8s.io/uids 7"];
    let (bob, mode) = ask(&modes, &rights, &alice(), &wanted("bob", &["devs"])).await.unwrap();
    assert_eq!(
        (bob.name.as_str(), bob.groups, mode),
        ("bob", vec!["devs".to_owned(), AUTHENTICATED.to_owned()], Mode::Legacy)
    );
    let with_uid = Wanted { uid: "7".to_owned(), ..wanted("bob", &[]) };
    assert_eq!(ask(&modes, &rights, &alice(), &with_uid).await.unwrap().0.uid, "7");
    assert_eq!(
        ask(&modes, &rights, &alice(), &wanted("eve", &[])).await.unwrap_err(),
        "users \"eve\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
    let extra = Wanted { extra: [("scopes".to_owned(), vec!["a".to_owned()])].into(), ..wanted("bob", &[]) };
    assert_eq!(
        ask(&modes, &rights, &alice(), &extra).await.unwrap_err(),
        "userextras.authentication.k8s.io \"a\" is forbidden: User \"alice\" cannot impersonate resource \
         \"userextras/scopes\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
}

#[tokio::test]
async fn im_4_12_a_constrained_mode_needs_both_rights() {
    let on = "impersonate-on:user-info:list /pods n/";
    let identity = "impersonate:user-info authentication.k8s.io/users bob";
    let bob = wanted("bob", &[]);
    let (_, mode) = ask(&Modes::default(), &[on, identity], &alice(), &bob).await.unwrap();
    assert_eq!((mode, mode.constraint()), (Mode::UserInfo, Some("impersonate:user-info")));
    assert_eq!(
        ask(&Modes::default(), &[identity], &alice(), &bob).await.unwrap_err(),
        "pods is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the \
         namespace \"n\""
    );
    assert_eq!(
        ask(&Modes::default(), &[on], &alice(), &bob).await.unwrap_err(),
        "users.authentication.k8s.io \"bob\" is forbidden: User \"alice\" cannot impersonate:user-info resource \"users\" in \
         API group \"authentication.k8s.io\" at the cluster scope"
    );
}

#[tokio::test]
async fn im_2_12_the_mode_of_the_last_success_is_tried_first() {
    let (modes, rights) = (Modes::default(), ["impersonate /users bob"]);
    let eve = wanted("eve", &[]);
    assert!(ask(&modes, &rights, &alice(), &eve).await.unwrap_err().starts_with("pods is forbidden"));
    ask(&modes, &rights, &alice(), &wanted("bob", &[])).await.unwrap();
    assert!(ask(&modes, &rights, &alice(), &eve).await.unwrap_err().starts_with("users \"eve\" is forbidden"));
    let carol = User { name: "carol".to_owned(), ..User::default() };
    assert!(
        ask(&modes, &rights, &carol, &eve).await.unwrap_err().starts_with("pods is forbidden"),
        "others are others"
    );
}

#[tokio::test]
async fn im_5_6_nodes() {
    let rights = [
        "impersonate-on:arbitrary-node:list /pods n/",
        "impersonate:arbitrary-node authentication.k8s.io/nodes n1",
        "impersonate-on:associated-node:list /pods n/",
        "impersonate:associated-node authentication.k8s.io/nodes *",
    ];
    let node = wanted("system:node:n1", &[]);
    let (user, mode) = ask(&Modes::default(), &rights[..2], &alice(), &node).await.unwrap();
    assert_eq!((user.groups, mode), (vec!["system:nodes".to_owned(), AUTHENTICATED.to_owned()], Mode::ArbitraryNode));
    let mut agent = User { name: "system:serviceaccount:kube-system:agent".to_owned(), ..User::default() };
    assert!(ask(&Modes::default(), &rights[2..], &agent, &node).await.is_err(), "its token names no node");
    agent.extra.insert(NODE_NAME.to_owned(), vec!["n1".to_owned()]);
    assert_eq!(ask(&Modes::default(), &rights[2..], &agent, &node).await.unwrap().1, Mode::AssociatedNode);
    assert!(ask(&Modes::default(), &rights[2..], &agent, &wanted("system:node:n2", &[])).await.is_err());
    // With groups only the old form applies.
    assert_eq!(
        ask(&Modes::default(), &rights, &alice(), &wanted("system:node:n1", &["system:nodes"])).await.unwrap_err(),
        "users \"system:node:n1\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the \
         cluster scope"
    );
}

#[tokio::test]
async fn im_7_12_service_accounts() {
    let rights = [
        "impersonate-on:serviceaccount:list /pods n/",
        "impersonate:serviceaccount authentication.k8s.io/serviceaccounts ns/sa",
    ];
    let account = wanted("system:serviceaccount:ns:sa", &[]);
    let (user, mode) = ask(&Modes::default(), &rights, &alice(), &account).await.unwrap();
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED]);
    assert_eq!(mode, Mode::ServiceAccount);
    assert!(
        ask(&Modes::default(), &[], &alice(), &account)
            .await
            .unwrap_err()
            .contains("impersonate-on:serviceaccount:list")
    );
    assert_eq!(
        ask(&Modes::default(), &rights, &alice(), &wanted("system:serviceaccount:ns:sa", &["g"])).await.unwrap_err(),
        "serviceaccounts \"sa\" is forbidden: User \"alice\" cannot impersonate resource \"serviceaccounts\" in API group \"\" \
         in the namespace \"ns\""
    );
    // Not a well-formed account: an ordinary user.
    let odd = ask(&Modes::default(), &[], &alice(), &wanted("system:serviceaccount:a:b:c", &[])).await.unwrap_err();
    assert!(odd.contains("impersonate-on:user-info"), "{odd}");
}

#[tokio::test]
async fn im_8_constrained_modes_refuse_some_identities_outright() {
    let rights = ["impersonate-on:user-info:ANY", "impersonate:user-info ANY"];
    let refused = async |wanted: Wanted| ask(&Modes::default(), &rights, &alice(), &wanted).await.unwrap_err();
    assert_eq!(
        refused(wanted("bob", &[MASTERS])).await,
        "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"alice\" cannot impersonate:user-info resource \
         \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the system:masters group is not \
         allowed"
    );
    assert!(refused(wanted("bob", &[""])).await.ends_with("impersonating the empty string group is not allowed"));
    let extra = |key: &str, value: &str| Wanted {
        extra: [(key.to_owned(), vec![value.to_owned()])].into(),
        ..wanted("bob", &[])
    };
    assert!(refused(extra("", "x")).await.ends_with("impersonating the empty string key in extra is not allowed"));
    assert!(refused(extra("scopes", "x")).await.ends_with(
        "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"scopes\": must be a domain-prefixed \
         path (such as \"acme.io/foo\")"
    ));
    assert!(
        refused(extra("acme.io/a", "")).await.ends_with("impersonating the empty string value in extra is not allowed")
    );
    assert!(ask(&Modes::default(), &rights, &alice(), &extra("acme.io/a", "x")).await.is_ok());
    let masters_by_the_old_form = ["impersonate /users bob", "impersonate /groups system:masters"];
    let granted = ask(&Modes::default(), &masters_by_the_old_form, &alice(), &wanted("bob", &[MASTERS])).await;
    assert!(granted.unwrap().0.is_master());
}

#[tokio::test]
async fn im_8_one_right_may_stand_for_many_groups() {
    let rights = [
        "impersonate-on:user-info:ANY",
        "impersonate:user-info authentication.k8s.io/users bob",
        "impersonate:user-info authentication.k8s.io/groups *",
    ];
    assert!(ask(&Modes::default(), &rights, &alice(), &wanted("bob", &["a", "b", "c", "d"])).await.is_ok());
    assert!(ask(&Modes::default(), &rights, &alice(), &wanted("bob", &["a", "b", "c"])).await.is_err());
}

#[tokio::test]
async fn im_9_default_groups() {
    let rights = ["impersonate ANY"];
    let groups = async |name: &str, groups: &[&str]| {
        ask(&Modes::default(), &rights, &alice(), &wanted(name, groups)).await.unwrap().0.groups
    };
    assert_eq!(groups("bob", &["devs"]).await, ["devs", AUTHENTICATED]);
    assert_eq!(groups("bob", &[UNAUTHENTICATED]).await, [UNAUTHENTICATED]);
    assert_eq!(groups("system:anonymous", &[]).await, [UNAUTHENTICATED]);
    assert_eq!(groups("system:anonymous", &[AUTHENTICATED]).await, [AUTHENTICATED, UNAUTHENTICATED]);
    assert_eq!(
        groups("system:serviceaccount:ns:sa", &[]).await,
        ["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED]
    );
    assert_eq!(groups("system:serviceaccount:ns:sa", &["g"]).await, ["g", AUTHENTICATED]);
}
