//! Follows the store of a running server and writes each change to a file.

use std::path::Path;

use kube::Client;
use machinery::Revision;
use machinery::clock::Clock;
use machinery::json::Value;
use serde_json::value::RawValue;
use store::{Prefix, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::file::{Header, RecordedChange, Writer};

/// Records a server until it is finished.
pub(crate) struct Recorder {
    /// The revision after which the recording ends.
    until: watch::Sender<Option<Revision>>,
    writing: JoinHandle<Result<Writer, String>>,
}

impl Recorder {
    /// Records all changes of a store that still has all of them.
    pub(crate) async fn start(path: &Path, header: &Header, store: &dyn Store) -> Result<Self, String> {
        let mut writer = Writer::create(path, header).map_err(|error| cannot_write(path, &error))?;
        let everything = Prefix::everything();
        let mut changes = store.watch(everything, Revision::ZERO).await.map_err(|error| error.to_string())?;
        let (until, mut limit) = watch::channel(None);
        let path = path.to_owned();
        let writing = tokio::spawn(async move {
            let mut reached = Revision::ZERO;
            loop {
                if limit.borrow_and_update().is_some_and(|limit| reached >= limit) {
                    return Ok(writer);
                }
                let batch = tokio::select! {
                    batch = changes.next() => batch,
                    _ = limit.changed() => continue,
                };
                let Some(batch) = batch else { return Err("the store was closed too early".to_owned()) };
                let batch = batch.map_err(|error| error.to_string())?;
                let time = Clock::system().now();
                for change in batch.changes {
                    let store::Change { key, revision, value, .. } = change;
                    let change = RecordedChange { revision, time, key, value };
                    writer.change(&change).map_err(|error| cannot_write(&path, &error))?;
                }
                reached = batch.revision;
            }
        });
        Ok(Recorder { until, writing })
    }

    /// Ends the recording with what the store has now, and with the requests and writers that the lab still has.
    pub(crate) async fn finish(self, path: &Path, store: &dyn Store, client: &Client, code: i32) -> Result<(), String> {
        let revision = store.current_revision().await.map_err(|error| error.to_string())?;
        self.until.send_replace(Some(revision));
        let writing = self.writing.await.map_err(|error| error.to_string())?;
        let mut writer = writing?;
        for (kind, plural) in [("writer", "changes"), ("request", "requests")] {
            for (name, status) in rows(client, plural).await? {
                writer.row(kind, &name, &status).map_err(|error| cannot_write(path, &error))?;
            }
        }
        writer.finish(revision, code).map_err(|error| cannot_write(path, &error))
    }
}

/// The objects of the lab of this kind, by name.
async fn rows(client: &Client, plural: &str) -> Result<Vec<(String, Value)>, String> {
    let request = http::Request::get(format!("/apis/lab.dogwatch.dev/v1/{plural}")).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    // As text, which our own values are read from.
    let listed: Box<RawValue> = client.request(request).await.map_err(|error| error.to_string())?;
    let listed = machinery::json::from_slice(listed.get().as_bytes()).map_err(|error| error.to_string())?;
    let items = listed["items"].as_array().into_iter().flatten();
    Ok(items
        .map(|item| (item["metadata"]["name"].as_str().unwrap_or_default().to_owned(), item["status"].clone()))
        .collect())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("the recording {} cannot be written: {error}", path.display())
}
