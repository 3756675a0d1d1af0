//! The controllers that run, and their end.

use controllers::{Selection, Settings};
use dogwatch::testing::Server;

#[tokio::test]
async fn controllers_start_and_end_with_their_server() {
    let server = Server::with_controllers(Settings::default()).await;
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_controller_is_refused_by_name() {
    let error = Selection::parse("-nosuch").unwrap_err();
    assert!(error.to_string().starts_with(r#"there is no controller "nosuch"; there are:"#), "{error}");
}
