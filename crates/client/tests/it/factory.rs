//! Informers of a process.

use client::Encoded;
use client::informer::InformerFactory;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use testkit::fake_server::*;

use super::*;

fn synced_answer(version: u64) -> Answer {
    Answer::watch().line(bookmark_end(version)).hold()
}

#[tokio::test]
async fn fa_01_one_informer_for_each_kind_with_the_factorys_options() {
    let server = FakeServer::start().await;
    server.answer(synced_answer(5));
    let factory = InformerFactory::new(client_of(&server))
        .namespaces(["team"])
        .tweak(|params| params.label_selector = Some("app=x".into()));
    let (one, two) = (factory.informer::<Pod>(), factory.informer::<Pod>());
    let stop = CancellationToken::new();
    factory.start(&stop);
    assert!(one.wait_synced().await && two.has_synced(), "they are the same");
    assert_eq!(server.requests().len(), 1);
    let request = server.requests().remove(0);
    assert_eq!(
        (request.path.as_str(), request.query("labelSelector")),
        ("/api/v1/namespaces/team/pods", Some("app=x"))
    );
    stop.cancel();
    factory.shutdown().await;
}

#[tokio::test]
async fn fa_01_an_informer_has_the_factorys_configuration_or_its_own() {
    let server = FakeServer::start().await;
    server.answer_with(|request| match request.query("watch") {
        Some(_) => synced_answer(5),
        None => Answer::list(5, vec![]),
    });
    let config = InformerConfig { reflector: listing(), ..InformerConfig::default() };
    let factory = InformerFactory::new(client_of(&server)).config(config);
    factory.informer::<Pod>();
    factory.informer_with::<ConfigMap>(&(), |config| InformerConfig { reflector: quick(), ..config });
    factory.start(&CancellationToken::new());
    assert!(factory.wait_synced().await.all());
    let kinds: Vec<(String, bool)> =
        server.requests().iter().map(|r| (r.path.clone(), r.query("sendInitialEvents").is_some())).collect();
    assert!(kinds.contains(&("/api/v1/pods".into(), false)) && !kinds.contains(&("/api/v1/pods".into(), true)));
    assert!(kinds.contains(&("/api/v1/configmaps".into(), true)), "{kinds:?}");
}

#[tokio::test]
async fn fa_02_start_is_idempotent_and_starts_what_is_new() {
    let server = FakeServer::start().await;
    server.answer(synced_answer(5));
    server.answer(synced_answer(6));
    let factory = InformerFactory::new(client_of(&server));
    let pods = factory.informer::<Pod>();
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.start(&stop);
    assert!(pods.wait_synced().await);
    let maps = factory.informer::<ConfigMap>();
    assert!(!maps.is_started());
    factory.start(&stop);
    assert!(maps.wait_synced().await);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn fa_03_waiting_is_for_started_informers_and_reports_each() {
    let server = FakeServer::start().await;
    server.answer(synced_answer(5));
    let factory = InformerFactory::new(client_of(&server));
    factory.informer::<Pod>();
    factory.start(&CancellationToken::new());
    factory.informer::<Secret>();
    let report = factory.wait_synced().await;
    assert!(report.all());
    assert_eq!(report.synced, [("/api/v1/pods".to_owned(), true)]);
}

#[tokio::test]
async fn fa_03_a_stopped_informer_is_reported_as_not_synced() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().hold());
    let factory = InformerFactory::new(client_of(&server));
    factory.informer::<Pod>();
    let stop = CancellationToken::new();
    factory.start(&stop);
    server.wait_for_requests(1).await;
    stop.cancel();
    assert!(!factory.wait_synced().await.all());
}

#[tokio::test]
async fn fa_04_a_synced_informer_may_have_a_busy_handler() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(added(&pod("a", 1))).line(bookmark_end(5)).hold());
    let factory = InformerFactory::new(client_of(&server));
    let pods = factory.informer::<Pod>();
    let handle = pods.add_handler(SubscriptionOptions::default(), |_| std::future::pending()).unwrap();
    factory.start(&CancellationToken::new());
    assert!(factory.wait_synced().await.all());
    assert!(!handle.has_synced());
}

#[tokio::test]
async fn fa_05_shutdown_waits_for_all_and_may_be_called_by_several() {
    let server = FakeServer::start().await;
    server.answer(synced_answer(5));
    let factory = Arc::new(InformerFactory::new(client_of(&server)));
    let pods = factory.informer::<Pod>();
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_synced().await;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (factory, pods) = (factory.clone(), pods.clone());
            tokio::spawn(async move {
                factory.shutdown().await;
                pods.is_stopped()
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(waiting.iter().all(|task| !task.is_finished()), "the caller has not stopped anything yet");
    stop.cancel();
    for task in waiting {
        assert!(task.await.unwrap());
    }
    factory.shutdown().await;
    factory.informer::<Secret>();
    factory.start(&CancellationToken::new());
    assert_eq!(server.requests().len(), 1, "nothing starts after a shutdown");
}

#[tokio::test]
async fn fa_06_forms_are_distinct_and_metadata_is_requested_as_such() {
    let server = FakeServer::start().await;
    for _ in 0..4 {
        server.answer(synced_answer(5));
    }
    let factory = InformerFactory::new(client_of(&server));
    let resource = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", kind));
    factory.informer_of::<DynamicObject>(&resource("Foo"));
    factory.informer_of::<DynamicObject>(&resource("Foo"));
    factory.informer_of::<DynamicObject>(&resource("Bar"));
    factory.informer_of::<PartialObjectMeta<DynamicObject>>(&resource("Foo"));
    factory.informer::<Encoded<Pod>>();
    factory.start(&CancellationToken::new());
    assert!(factory.wait_synced().await.all());
    let mut asked: Vec<(String, bool)> = server
        .requests()
        .iter()
        .map(|r| (r.path.clone(), r.header("accept").unwrap().contains("as=PartialObjectMetadata;g=meta.k8s.io;v=v1")))
        .collect();
    asked.sort();
    let path = |name: &str| format!("/apis/example.com/v1/{name}");
    assert_eq!(
        asked,
        [("/api/v1/pods".to_owned(), false), (path("bars"), false), (path("foos"), false), (path("foos"), true)]
    );
}
