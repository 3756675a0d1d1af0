//! Forms of responses: indented, compressed, as tables and metadata, by what a client accepts.

use std::io::Read as _;

use machinery::json::json;

use crate::world::World;

const ITEM: &str = "/api/v1/namespaces/default/configmaps/a";
const LIST: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn people_get_indented_json() {
    let world = World::start().await;
    world.make_config_map("a", "v").await;
    let lines =
        async |path: &str, agent: &str| world.get_with(path, &[("user-agent", agent)]).await.text().lines().count();
    assert_eq!(lines(ITEM, "kubectl/v1.36").await, 1);
    assert!(lines(ITEM, "curl/8.5.0").await > 5);
    assert_eq!(lines(&format!("{ITEM}?pretty=0"), "curl/8.5.0").await, 1);
    assert!(lines(&format!("{ITEM}?pretty=true"), "kubectl/v1.36").await > 5);
    assert!(lines("/api/v1/namespaces/default/configmaps/none", "curl/8.5.0").await > 5, "errors too");
}

#[tokio::test]
async fn s01_15_15_large_answers_are_compressed_for_those_who_can_read_them() {
    let world = World::start().await;
    for n in 0..4 {
        world.make_config_map(&format!("big-{n}"), &"x".repeat(30_000)).await;
    }
    let gzip = [("accept-encoding", "gzip")];
    let small = world.get_with(LIST, &gzip).await;
    assert!(small.body.len() > 100_000 && small.body.len() < 131_072);
    assert_eq!((small.header("content-encoding"), small.header("vary")), ("", ""));
    world.make_config_map("more", &"y".repeat(60_000)).await;
    let plain = world.get(LIST).await;
    assert!(plain.body.len() > 131_072);
    assert_eq!(plain.header("content-encoding"), "");
    let packed = world.get_with(LIST, &gzip).await;
    assert_eq!((packed.header("content-encoding"), packed.header("vary")), ("gzip", "Accept-Encoding"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*packed.body).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
    assert_eq!(world.get_with(LIST, &[("accept-encoding", "gzip;q=1")]).await.header("content-encoding"), "");
}

#[tokio::test]
async fn s01_11_what_is_not_acceptable() {
    let world = World::start().await;
    world.make_config_map("a", "v").await;
    let ask = async |path: &str, accept: &str| world.get_with(path, &[("accept", accept)]).await;
    let routed = ask(ITEM, "text/html").await;
    assert!(routed.refusal().1.starts_with("406: Not Acceptable\n\nAvailable representations: "));
    let negotiated = ask(ITEM, "application/json;as=Nope;v=v1;g=meta.k8s.io").await.refusal();
    assert_eq!(negotiated.0, 406);
    assert!(negotiated.1.starts_with("only the following media types are accepted: "));
    assert_eq!(
        ask(LIST, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await.refusal(),
        (
            406,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)".to_owned()
        )
    );
    assert_eq!(
        ask(ITEM, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").await.refusal().1,
        "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)"
    );
    let metadata_client = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
         application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let partial = ask(ITEM, metadata_client).await;
    assert_eq!((partial.code, partial.header("content-type")), (200, "application/vnd.kubernetes.protobuf"));
    let yaml = ask("/api/v1/namespaces/default/configmaps/none", "application/yaml").await;
    assert_eq!((yaml.code, yaml.header("content-type")), (404, "application/yaml"));
    assert!(yaml.text().contains("reason: NotFound"), "{}", yaml.text());
}

#[tokio::test]
async fn s01_15_16_tables_leave_out_the_object_when_asked() {
    let world = World::start().await;
    world.make_config_map("a", "v").await;
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let none = world.get_with(&format!("{ITEM}?includeObject=None"), &table).await.json();
    assert_eq!((&none["kind"], &none["rows"][0]["object"]), (&json!("Table"), &json!(null)));
    assert_eq!(world.get_with(&format!("{ITEM}?includeObject=x"), &table).await.code, 400);
}

#[tokio::test]
async fn s02_14_12_warnings_are_headers() {
    let world = World::start().await;
    let body = json!({"metadata": {"name": "w"}, "nope": 1, "data": {}});
    let warned = world.post(LIST, &body).await;
    assert_eq!(warned.code, 201, "{}", warned.text());
    assert_eq!(warned.header("warning"), "299 - \"unknown field \\\"nope\\\"\"");
    let body = json!({"metadata": {"name": "s"}, "nope": 1, "data": {}});
    assert_eq!(world.post(&format!("{LIST}?fieldValidation=Strict"), &body).await.code, 400);
    let ignored = world.post(&format!("{LIST}?fieldValidation=Ignore"), &body).await;
    assert_eq!((ignored.code, ignored.header("warning")), (201, ""));
}

#[tokio::test]
async fn delete_options_come_in_the_body_too() {
    let world = World::start().await;
    world.make_config_map("a", "v").await;
    let ask = async |content_type: &str, body: &str| {
        world.ask(true, "DELETE", ITEM, &[("content-type", content_type)], body.to_owned()).await
    };
    assert_eq!(ask("application/json", "nope").await.code, 400);
    assert_eq!(ask("text/plain", "{}").await.code, 415);
    assert_eq!(ask("application/yaml", "kind: DeleteOptions\ndryRun: [All]\n").await.code, 200);
    assert_eq!(world.get(ITEM).await.code, 200, "that was a dry run");
    let uid = "{\"preconditions\":{\"uid\":\"other\"}}";
    assert_eq!(ask("application/json", uid).await.code, 409);
    assert_eq!(ask("application/json", "{\"propagationPolicy\":\"Background\"}").await.code, 200);
    assert_eq!(world.get(ITEM).await.code, 404);
}
