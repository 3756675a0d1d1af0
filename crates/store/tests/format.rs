//! The worked example of `docs/storage-format.md`, created by the engine and compared with the page.

use std::path::Path;

use rusqlite::types::ValueRef;
use store::embedded::{EmbeddedOptions, EmbeddedStore};
use store::{Key, Revision, Store};

const PAGE: &str = include_str!("../../../docs/storage-format.md");

/// The lines of the page below the marker.
fn shown(marker: &str) -> Vec<String> {
    let start = PAGE.find(&format!("{marker} -->")).unwrap_or_else(|| panic!("the page has no example {marker}"));
    let lines = PAGE[start..].lines().skip(1).skip_while(|line| line.is_empty());
    lines.take_while(|line| line.starts_with("    ")).map(|line| line.trim().to_owned()).collect()
}

/// The rows of the file, in the format of the page.
fn stored(dir: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(dir.join("store.db")).expect("opens");
    let mut lines = Vec::new();
    for (table, columns) in [
        ("changes", "revision key previous prior size value"),
        ("history", "collection revision previous bytes deletes"),
        ("collections", "id name floor"),
        ("state", "revision floor rows"),
    ] {
        lines.push(format!("{table}: {columns}"));
        let columns: Vec<&str> = columns.split(' ').collect();
        let select = format!("SELECT {} FROM {table} ORDER BY 1, 2", columns.join(", "));
        let mut statement = connection.prepare(&select).expect("the columns are there");
        let rows = statement.query_map((), |row| {
            let cell = |column| {
                Ok(match row.get_ref(column)? {
                    ValueRef::Integer(number) => number.to_string(),
                    ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
                    _ => "-".to_owned(),
                })
            };
            let cells: rusqlite::Result<Vec<String>> = (0..columns.len()).map(cell).collect();
            cells.map(|cells| cells.join(" "))
        });
        lines.extend(rows.expect("readable").map(|row| row.expect("readable")));
    }
    lines
}

#[tokio::test]
async fn the_page_shows_what_is_stored() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = EmbeddedStore::open(EmbeddedOptions::new(dir.path())).expect("opens");
    let key = |text: &str| Key::new(text).expect("well formed");
    let web = || key("core/pods/a/web");
    store.create(web(), "1".into()).await.expect("free");
    store.create(key("core/nodes/n1"), "n".into()).await.expect("free");
    store.update(web(), "22".into(), Revision(1)).await.expect("current");
    store.delete(web(), Revision(3)).await.expect("current");
    store.create(web(), "333".into()).await.expect("free again");
    assert_eq!(stored(dir.path()), shown("after-writes"));
    store.compact(Revision(3)).await.expect("retained");
    assert_eq!(stored(dir.path()), shown("after-compaction-at-3"));
    store.compact(Revision(5)).await.expect("retained");
    assert_eq!(stored(dir.path()), shown("after-compaction-at-5"));
}
