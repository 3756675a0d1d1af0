//! The rules of the store, one test each.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::Expression;
use kube::core::Selector;
use serde_json::json;

use super::*;
use crate::queue::{Certainty, Deletion, Delta, Replacement, Staged};
use crate::scripted::{object, raw};

fn map(text: &str) -> Arc<ConfigMap> {
    Arc::new(ConfigMap::from_raw(&object(text)).unwrap())
}

fn labelled(name: &str, version: &str, label: &str) -> Arc<ConfigMap> {
    let value = json!({"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version, "labels": {"app": label}}});
    Arc::new(ConfigMap::from_raw(&raw(value)).unwrap())
}

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn set(texts: &[&str], version: &str) -> Delta<ConfigMap> {
    let items = texts.iter().map(|t| map(t)).map(|o| (Key::of(&*o), Staged::Object(o))).collect();
    Delta::ReplacedAll(Replacement { items, version: version.into(), history_reset: false })
}

fn gone(object: Arc<ConfigMap>) -> Delta<ConfigMap> {
    Delta::Deleted(Deletion { key: Key::of(&*object), object: Some(object), certainty: Certainty::Observed })
}

fn by_app(store: &Store<ConfigMap>) -> Index<ConfigMap, String> {
    let index = store.add_index("app", |map: &ConfigMap| {
        let labels = map.metadata.labels.as_ref();
        labels.and_then(|l| l.get("app")).map(|v| v.split('.').map(str::to_owned).collect()).unwrap_or_default()
    });
    index.unwrap()
}

fn effects(applied: &[Applied<ConfigMap>]) -> Vec<String> {
    let name = |o: &Arc<ConfigMap>| format!("{}@{}", Key::of(&**o), crate::object::version_of(&**o));
    applied
        .iter()
        .map(|change| match change {
            Applied::Added(new) => format!("+{}", name(new)),
            Applied::Updated { old, new } => format!("{}>{}", name(old), name(new)),
            Applied::Unchanged(object) => format!("={}", name(object)),
            Applied::Deleted { object, certainty: Certainty::Observed } => format!("-{}", name(object)),
            Applied::Deleted { object, certainty: Certainty::Inferred } => format!("?{}", name(object)),
            Applied::Undecodable { item, previous } => {
                format!("!{}{}", item.raw.key, if previous.is_some() { "*" } else { "" })
            }
            Applied::HistoryReset(version) => format!("reset@{version}"),
        })
        .collect()
}

#[test]
fn st_02_a_snapshot_answers_from_one_instant() {
    let (store, writer) = Store::new();
    let index = by_app(&store);
    writer.apply(&Scope::All, vec![Delta::Added(labelled("a", "1", "x"))]);
    let before = store.snapshot();
    writer.apply(&Scope::All, vec![Delta::Updated(labelled("a", "2", "y")), Delta::Added(labelled("b", "3", "x"))]);
    assert_eq!((before.len(), before.version().as_str()), (1, "1"));
    assert_eq!(index.get_in(&before, &"x".to_owned()).len(), 1);
    assert_eq!(index.get_in(&before, &"y".to_owned()).len(), 0);
    assert_eq!(index.keys(&"x".to_owned()), [key("n/b")]);
    assert_eq!(index.keys(&"y".to_owned()), [key("n/a")]);
}

#[test]
fn st_03_an_object_is_filed_under_each_value_and_under_none() {
    let (store, writer) = Store::new();
    let index = by_app(&store);
    writer.apply(&Scope::All, vec![Delta::Added(labelled("a", "1", "x.y")), Delta::Added(map("n/b@2"))]);
    assert_eq!(index.values(), ["x", "y"]);
    assert_eq!(index.get(&"x".to_owned()).len(), 1);
    assert_eq!(index.get(&"y".to_owned()).len(), 1);
}

#[test]
fn st_04_an_update_moves_the_key_and_leaves_no_empty_value() {
    let (store, writer) = Store::new();
    let index = by_app(&store);
    writer.apply(&Scope::All, vec![Delta::Added(labelled("a", "1", "x.keep"))]);
    writer.apply(&Scope::All, vec![Delta::Updated(labelled("a", "2", "y.keep"))]);
    assert_eq!(index.values(), ["keep", "y"]);
    writer.apply(&Scope::All, vec![gone(labelled("a", "3", "unrelated"))]);
    assert!(index.values().is_empty(), "the stored object decides where it was filed, not the delivered one");
}

#[test]
fn st_05_reads_by_index() {
    let (store, writer) = Store::new();
    by_app(&store);
    let a = labelled("a", "1", "x.y");
    writer.apply(
        &Scope::All,
        vec![Delta::Added(a.clone()), Delta::Added(labelled("b", "2", "y.x")), Delta::Added(labelled("c", "3", "z"))],
    );
    let snapshot = store.snapshot();
    assert_eq!(snapshot.by_index("app", &"x".to_owned()).unwrap().len(), 2);
    assert_eq!(snapshot.index_keys("app", &"y".to_owned()).unwrap(), [key("n/a"), key("n/b")]);
    assert_eq!(snapshot.index_neighbours::<String>("app", &a).unwrap().len(), 2, "each neighbour once");
    assert_eq!(snapshot.index_values::<String>("app"), ["x", "y", "z"]);
    assert_eq!(snapshot.by_index("nope", &"x".to_owned()).unwrap_err(), IndexError::Unknown("nope".into()));
    assert_eq!(snapshot.by_index("app", &7u32).unwrap_err(), IndexError::OtherType("app".into()));
    assert!(snapshot.index_values::<String>("nope").is_empty());
}

#[test]
fn st_06_an_index_may_come_after_the_objects_and_only_once() {
    let (store, writer) = Store::new();
    writer.apply(&Scope::All, vec![Delta::Added(labelled("a", "1", "x"))]);
    let index = by_app(&store);
    assert_eq!(index.keys(&"x".to_owned()), [key("n/a")]);
    let again = store.add_index("app", |_: &ConfigMap| Vec::<String>::new());
    assert_eq!(again.err(), Some(IndexError::Exists("app".into())));
}

#[test]
fn st_07_a_namespace_is_a_range_of_the_set() {
    let (store, writer) = Store::new();
    writer.apply(&Scope::All, vec![set(&["a/x@1", "a/y@2", "a-b/z@3", "b/x@4", "cluster@5"], "9")]);
    let snapshot = store.snapshot();
    let names: Vec<String> = snapshot.in_namespace("a").map(|o| Key::of(&**o).to_string()).collect();
    assert_eq!(names, ["a/x", "a/y"]);
    assert_eq!(snapshot.in_namespace("none").count(), 0);
}

#[test]
fn st_08_selectors() {
    let (store, writer) = Store::new();
    writer.apply(&Scope::All, vec![Delta::Added(labelled("a", "1", "x")), Delta::Added(map("m/b@2"))]);
    let lister = Lister::new(store, &());
    let x: Selector = Expression::Equal("app".into(), "x".into()).into();
    assert_eq!(lister.list(None, &Labels::Nothing).len(), 0);
    assert!(matches!(Labels::from(Selector::default()), Labels::Everything), "no label is evaluated");
    assert_eq!(lister.list(None, &Selector::default().into()).len(), 2);
    assert_eq!(lister.list(None, &x.clone().into()).len(), 1);
    assert_eq!(lister.list(Some("m"), &x.into()).len(), 0);
    assert_eq!(lister.list(Some("m"), &Labels::Everything).len(), 1);
}

#[test]
fn st_09_an_absent_object_is_the_apis_not_found() {
    let (store, _writer) = Store::<ConfigMap>::new();
    let error = Lister::new(store, &()).get(Some("n"), "gone").unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.status().unwrap().message, "configmaps \"gone\" not found");
}

#[test]
fn st_10_the_version_follows_sets_objects_deletions_and_bookmarks() {
    let (store, writer) = Store::new();
    let all = Scope::All;
    assert!(store.version().is_unset());
    writer.apply(&all, vec![set(&["a@3"], "10")]);
    assert_eq!(store.version().as_str(), "10");
    writer.apply(&all, vec![Delta::Added(map("b@11")), Delta::Updated(map("a@12"))]);
    assert_eq!(store.version().as_str(), "12", "of a batch, the last");
    writer.apply(&all, vec![gone(map("a@13"))]);
    assert_eq!(store.version().as_str(), "13");
    let unseen = Deletion { key: key("b"), object: None, certainty: Certainty::Inferred };
    writer.apply(&all, vec![Delta::Deleted(unseen)]);
    assert_eq!(store.version().as_str(), "13");
    writer.apply(&all, vec![Delta::Bookmark("20".into())]);
    assert_eq!(store.version().as_str(), "20");
}

#[test]
fn st_11_objects_are_shared_and_not_copied() {
    let (store, writer) = Store::new();
    let object = map("a@1");
    writer.apply(&Scope::All, vec![Delta::Added(object.clone())]);
    assert!(Arc::ptr_eq(&store.get(&key("a")).unwrap(), &object));
}

#[test]
fn st_12_presets_for_pods() {
    let pod = |name: &str, node: &str, owner: Option<&str>| {
        let owners = owner
            .map(|uid| json!([{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":uid,"controller":true}]));
        let value = json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": "1", "ownerReferences": owners.unwrap_or(json!([]))},
            "spec": {"nodeName": node, "containers": []}});
        Delta::Added(Arc::new(Pod::from_raw(&raw(value)).unwrap()))
    };
    let (store, writer) = Store::new();
    let by_node = pods_by_node(&store).unwrap();
    let by_controller = pods_by_controller(&store).unwrap();
    writer.apply(&Scope::All, vec![pod("a", "n1", Some("u1")), pod("b", "n1", None), pod("c", "", Some("u1"))]);
    assert_eq!(by_node.keys(&"n1".to_owned()), [key("n/a"), key("n/b")]);
    assert_eq!(by_node.values(), ["n1"]);
    assert_eq!(by_controller.keys(&PodController::Uid("u1".into())), [key("n/a"), key("n/c")]);
    assert_eq!(by_controller.keys(&PodController::Orphan { namespace: "n".into() }), [key("n/b")]);
}

#[test]
fn dq_01_what_the_store_has_decides_between_add_and_update() {
    let (_store, writer) = Store::new();
    let all = Scope::All;
    assert_eq!(effects(&writer.apply(&all, vec![Delta::Updated(map("a@1"))])), ["+a@1"]);
    assert_eq!(effects(&writer.apply(&all, vec![Delta::Added(map("a@2"))])), ["a@1>a@2"]);
    assert_eq!(
        effects(&writer.apply(&all, vec![gone(map("zzz@3"))])),
        ["-zzz@3"],
        "returned even if the store lacks it"
    );
}

#[test]
fn dq_05_another_uid_is_an_inferred_deletion_and_an_addition() {
    let (_store, writer) = Store::new();
    writer.apply(&Scope::All, vec![set(&["a@1#old", "b@1"], "5")]);
    let applied = writer.apply(&Scope::All, vec![set(&["a@7#new", "b@1"], "8")]);
    assert_eq!(effects(&applied), ["?a@1", "+a@7", "=b@1"]);
}

#[test]
fn a_change_that_is_stored_already_is_unchanged_and_a_snapshot_keeps_its_state() {
    let (store, writer) = Store::new();
    let first = map("a@1");
    let second = map("a@2");
    writer.apply(&Scope::All, vec![Delta::Added(first.clone())]);
    let before = store.snapshot();
    for (delta, unchanged) in [
        (Delta::Updated(first.clone()), true),
        (Delta::Added(second.clone()), false),
        (Delta::Updated(map("a@2")), true),
    ] {
        let applied = writer.apply(&Scope::All, vec![delta]);
        assert_eq!(matches!(&applied[..], [Applied::Unchanged(_)]), unchanged, "{:?}", effects(&applied));
    }
    assert!(Arc::ptr_eq(before.get(&key("a")).unwrap(), &first), "the walk that changed the set copied its way");
    assert!(Arc::ptr_eq(&store.get(&key("a")).unwrap(), &second), "the one that was there stays");
}

#[test]
fn a_relist_returns_deletions_first_and_then_the_set_in_order() {
    let (store, writer) = Store::new();
    writer.apply(&Scope::All, vec![set(&["a@1", "b@2", "c@3"], "5")]);
    let applied = writer.apply(&Scope::All, vec![set(&["b@6", "d@7"], "9")]);
    assert_eq!(effects(&applied), ["?a@1", "?c@3", "b@2>b@6", "+d@7"]);
    assert_eq!(store.len(), 2);
}

#[test]
fn several_sources_replace_only_their_own_namespace() {
    let (a, b) = (Scope::namespace("a"), Scope::namespace("b"));
    let (store, writer) = Store::of_scopes([a.clone(), b.clone()]);
    writer.apply(&a, vec![set(&["a/x@1"], "10")]);
    assert!(store.version().is_unset(), "the other source has not reported");
    writer.apply(&b, vec![set(&["b/x@2"], "20")]);
    assert_eq!(store.version().as_str(), "10");
    assert_eq!(effects(&writer.apply(&a, vec![set(&[], "30")])), ["?a/x@1"]);
    assert_eq!((store.len(), store.version().as_str()), (1, "20"));
}

#[tokio::test]
async fn better_06_wait_until_returns_when_the_store_has_caught_up() {
    let (store, writer) = Store::new();
    writer.apply(&Scope::All, vec![set(&[], "5")]);
    store.wait_until(&"5".into()).await;
    store.wait_until(&"junk".into()).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_until(&"7".into()).await }
    });
    writer.apply(&Scope::All, vec![Delta::Bookmark("6".into())]);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    writer.apply(&Scope::All, vec![Delta::Added(map("a@7"))]);
    waiting.await.unwrap();
}
