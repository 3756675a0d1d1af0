//! Option checks, media types and methods: the tables of sections 2, 4, 10, 11 and 12.

use serde_json::json;

use crate::world::{Namespace, message, names};

#[tokio::test]
async fn list_watch_t_02_watch_is_true_unless_it_says_no() {
    let ns = Namespace::new("t02-watch").await;
    ns.config_map("a").await;
    for parameter in ["watch", "watch=", "watch=no", "watch=True", "watch=1", "watch=true&watch=false"] {
        let mut watch = ns.watch(ns.path(&format!("configmaps?{parameter}&timeoutSeconds=60"))).await;
        assert_eq!(watch.summary().await.as_deref(), Some("ADDED a"), "{parameter}");
    }
    for parameter in ["", "watch=0", "watch=false", "watch=FALSE", "unknown=1", "watch=false&watch=true"] {
        assert_eq!(names(&ns.read(&format!("configmaps?{parameter}")).await), ["a"], "{parameter}");
    }
}

#[tokio::test]
async fn list_watch_t_02_values_that_are_none() {
    let ns = Namespace::new("t02-values").await;
    for parameters in ["limit=x", "timeoutSeconds=x", "continue=x", "resourceVersion=abc", "resourceVersion=-1"] {
        ns.get_response(&format!("configmaps?{parameters}")).await.refused(400, "BadRequest");
    }
    let status = ns.get_response("configmaps?resourceVersion=abc").await.json();
    let start = "invalid resource version: resourceVersion: Invalid value: \"abc\": ";
    assert!(message(&status).starts_with(start), "{status}");
    let status = ns.get_response("configmaps?continue=x").await.json();
    assert!(message(&status).starts_with("invalid continue token: continue key is not valid"), "{status}");
    let status = ns.get_response("configmaps?timeout=x").await.refused(400, "BadRequest");
    assert!(message(&status).starts_with("invalid timeout specified in the request URL - "), "{status}");
}

#[tokio::test]
async fn list_watch_t_02_options_that_do_not_go_together() {
    let ns = Namespace::new("t02-options").await;
    let page = {
        ns.config_maps(&["a", "b"]).await;
        ns.read("configmaps?limit=1").await
    };
    let token = page["metadata"]["continue"].as_str().unwrap();
    for (parameters, field, words) in [
        (
            "resourceVersionMatch=Exact".to_owned(),
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            format!("resourceVersionMatch=Exact&resourceVersion=1&continue={token}"),
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            "resourceVersionMatch=exact&resourceVersion=1".to_owned(),
            "resourceVersionMatch",
            "supported values: \"Exact\", \"NotOlderThan\", \"\"",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0".to_owned(),
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        ("sendInitialEvents=false".to_owned(), "sendInitialEvents", "sendInitialEvents is forbidden for list"),
        (
            "watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1".to_owned(),
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let status = ns.get_response(&format!("configmaps?{parameters}")).await.refused(422, "Invalid");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{parameters}: {status}");
        assert!(message(&status).contains(words), "{parameters}: {status}");
    }
    let path = format!("configmaps?resourceVersion=1&continue={token}");
    let status = ns.get_response(&path).await.refused(400, "BadRequest");
    assert_eq!(message(&status), "specifying resource version is not allowed when using continue");
}

#[tokio::test]
async fn list_watch_t_04_fields_that_can_be_selected_on() {
    let ns = Namespace::new("t04-fields").await;
    ns.pod("free", None).await;
    ns.pod("bound", Some("n1")).await;
    let select = async |selector: &str| {
        let list = ns.read(&format!("pods?fieldSelector={selector}")).await;
        names(&list).join(" ")
    };
    assert_eq!(select("spec.nodeName%3D").await, "free");
    assert_eq!(select("spec.nodeName%3D%3Dn1,status.phase%3DPending").await, "bound");
    assert_eq!(select("spec.host%3Dn1").await, "bound");
    assert_eq!(select("metadata.name!%3Dfree").await, "bound");
    assert_eq!(select("spec.hostNetwork%3Dfalse").await, "bound free");
    assert_eq!(select("metadata.name%3Dfree,metadata.name%3Dbound").await, "");
    assert_eq!(select("metadata.namespace%3Delsewhere").await, "");
    for (selector, words) in [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("metadata.name%3D%5Cx", "invalid field selector: invalid escape sequence: \\x"),
        ("metadata.name%3Da%3Db", "invalid field selector: unescaped character in value: "),
    ] {
        let status = ns.get_response(&format!("pods?fieldSelector={selector}")).await.refused(400, "BadRequest");
        assert!(message(&status).contains(words), "{status}");
    }
    let status = ns.get_response("configmaps?fieldSelector=x%3Dy").await.refused(400, "BadRequest");
    let words = "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!(message(&status), words);
}

#[tokio::test]
async fn list_watch_t_08_refused_before_it_opens() {
    let ns = Namespace::new("t08-refused").await;
    ns.get_response("configmaps?watch=1&labelSelector=a,").await.refused(400, "BadRequest");
    ns.get_response("nothings?watch=1").await.refused(404, "NotFound");
    let path = format!("/api/v1/watch/namespaces/{}/configmaps?sendInitialEvents=true", ns.namespace());
    ns.get(path).send().await.refused(422, "Invalid");
    let path = format!("/api/v1/watch/namespaces/{}/configmaps/a?fieldSelector=metadata.name%3Db", ns.namespace());
    let status = ns.get(path).send().await.refused(400, "BadRequest");
    assert_eq!(message(&status), "fieldSelector metadata.name doesn't match requested name");
}

#[tokio::test]
async fn list_watch_t_10_head_of_a_watch_comes_before_any_event() {
    let ns = Namespace::new("t10-head").await;
    let path = ns.path("configmaps?watch=1&pretty=true&labelSelector=nobody");
    let mut watch = ns.get(path).header("Audit-Id", "row-10").header("Accept-Encoding", "gzip").open().await;
    assert_eq!(watch.code, 200);
    assert_eq!(watch.header("content-type"), "application/json");
    assert_eq!(watch.header("transfer-encoding"), "chunked");
    assert_eq!(watch.header("cache-control"), "no-cache, private");
    assert_eq!(watch.header("content-encoding"), "");
    assert_eq!(watch.header("audit-id"), "row-10", "the request's own");
    ns.labelled("a", "nobody", "").await;
    let line = watch.try_line().await.unwrap().unwrap();
    assert!(line.starts_with("{\"type\":\"ADDED\",\"object\":{"), "not indented: {line}");
}

#[tokio::test]
async fn list_watch_t_11_forms_of_lists_and_items() {
    let ns = Namespace::new("t11-forms").await;
    ns.config_map("a").await;
    let form = async |path: &str, accept: &str| ns.get_request(path).header("Accept", accept).send().await;
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let partials = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let item = form("configmaps/a", partial).await;
    assert_eq!(item.header("content-type"), "application/json");
    let item = item.expect(200);
    assert_eq!((&item["kind"], &item["apiVersion"]), (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1")));
    let list = form("configmaps", partials).await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    form("configmaps", partial).await.refused(406, "NotAcceptable");
    form("configmaps/a", partials).await.refused(406, "NotAcceptable");
    form("configmaps", "application/json;as=Chair;g=meta.k8s.io;v=v1").await.refused(406, "NotAcceptable");
    form("configmaps", "text/plain").await.refused(406, "NotAcceptable");
    let either = form("configmaps", "application/json;as=Chair;g=meta.k8s.io;v=v1,application/json").await.expect(200);
    assert_eq!(either["kind"], "ConfigMapList");
    assert_eq!(either["items"][0].get("kind"), None, "items of built-in lists do not name their kind");
    let status = form("configmaps?includeObject=x", "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let status = status.refused(400, "BadRequest");
    assert!(message(&status).contains("must be 'Metadata', 'Object', 'None', or empty"), "{status}");
}

#[tokio::test]
async fn list_watch_t_11_watched_tables_have_columns_once() {
    let ns = Namespace::new("t11-tables").await;
    ns.config_maps(&["a", "b"]).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let parameters = "configmaps?watch=1&allowWatchBookmarks=true&includeObject=None";
    let mut watch = ns.get_request(parameters).header("Accept", accept).open().await;
    let first = watch.event().await.unwrap();
    let columns: Vec<_> = first["object"]["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(first["object"]["rows"].as_array().unwrap().len(), 1);
    assert_eq!(first["object"]["rows"][0]["object"], json!(null));
    let second = watch.event().await.unwrap();
    assert_eq!(second["object"]["columnDefinitions"], json!(null), "{second}");
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
    let bookmark = watch.event().await.unwrap();
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Table")));
    let annotations = &bookmark["object"]["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true", "{bookmark}");
}

#[tokio::test]
async fn list_watch_t_12_methods_and_paths_that_are_not_served() {
    let ns = Namespace::new("t12-methods").await;
    ns.config_map("a").await;
    let body = json!({"metadata": {"name": "b"}});
    for (method, path) in
        [("PUT", "configmaps"), ("PATCH", "configmaps"), ("POST", "configmaps/a"), ("OPTIONS", "configmaps")]
    {
        let answer = ns.request(method, ns.path(path)).json(&body).send().await;
        let status = answer.refused(405, "MethodNotAllowed");
        assert_eq!(message(&status), "the server does not allow this method on the requested resource", "{method}");
        assert_eq!(answer.header("allow"), "");
    }
    assert_eq!(ns.request("HEAD", ns.path("configmaps")).send().await.code, 405);
    let status = ns.get_response("nothings").await.refused(404, "NotFound");
    assert_eq!(message(&status), "the server could not find the requested resource");
    let nowhere = ns.get("/apis/nobody.example.com/v1/things").send().await;
    assert_eq!((nowhere.code, nowhere.text().trim_end()), (404, "404 page not found"));
}
