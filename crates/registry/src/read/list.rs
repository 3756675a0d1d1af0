//! LIST: objects of a kind at one revision, all of them or page by page.

use std::sync::Arc;

use cache::{Collection, ExactError, Filter, Item, Snapshot};
use machinery::Status;
use machinery::continue_token::ContinueToken;
use machinery::options::{ListMode, ListOptions};

use super::view::ListView;
use crate::failure;
use crate::registry::Registry;
use crate::request::Target;

/// How long a list can be continued after its first page, in seconds. The reference forgets old revisions every five minutes.
const CONTINUED_MAX: i64 = 300;

pub(crate) async fn list(registry: &Registry, target: &Target, options: &ListOptions) -> Result<ListView, Status> {
    let filter = registry.filter(target, options)?;
    let collection = registry.collection(&target.kind);
    let (mut from, mut left) = (None, None);
    let mut listed = registry.now().as_second();
    let limit = options.page_size();
    let snapshot = match options.list_mode()? {
        ListMode::Fresh => {
            registry.storage().fresh().await?;
            registry.cache().snapshot(&collection)
        }
        ListMode::Any => registry.cache().snapshot(&collection),
        ListMode::NotOlderThan(revision) => {
            registry.storage().reach(revision).await?;
            registry.cache().snapshot(&collection)
        }
        ListMode::Exact(revision) => {
            registry.cache().snapshot_at(&collection, revision).await.map_err(failure::exact)?
        }
        ListMode::Continue(token) => {
            from = Some(token.start.clone());
            left = token.left;
            if let Some(first) = token.listed {
                if first + CONTINUED_MAX < listed {
                    return Err(Status::continue_expired(token.at_latest().encode()));
                }
                listed = first;
            }
            match token.revision {
                Some(revision) => match registry.cache().snapshot_at(&collection, revision).await {
                    Ok(snapshot) => snapshot,
                    Err(ExactError::Compacted { .. }) => {
                        return Err(Status::continue_expired(token.at_latest().encode()));
                    }
                    Err(error) => return Err(failure::exact(error)),
                },
                None => {
                    registry.storage().fresh().await?;
                    registry.cache().snapshot(&collection)
                }
            }
        }
    };
    refuse_damaged(&snapshot, &collection, &filter)?;
    let prefix = match target.namespace.as_deref().filter(|_| target.kind.namespaced) {
        Some(namespace) => format!("{}/{namespace}/", collection.name()),
        None => format!("{}/", collection.name()),
    };
    let from = from.map(|start| format!("{prefix}{start}"));
    // Objects from the page on, where that is known without a walk.
    let left = match from {
        None => Some(snapshot.len_in(filter.namespace()) as u64),
        Some(_) => left,
    };
    let (list, looked_at) = page(target, &snapshot, &filter, &prefix, from.as_deref(), limit, (left, listed));
    registry.converter().prepare(&target.kind, &list.items).await?;
    let tally = collection.tally();
    tally.lists.add(1);
    tally.looked_at.add(looked_at);
    tally.returned.add(list.items.len());
    Ok(list)
}

/// Fails if an object that cannot be read may belong to the list: leaving it out would be wrong, and what a selector would say
/// of it is unknown.
pub(crate) fn refuse_damaged(snapshot: &Snapshot, collection: &Collection, filter: &Filter) -> Result<(), Status> {
    snapshot
        .damaged_in(collection.name(), filter.namespace(), filter.name())
        .map_or(Ok(()), |object| Err(failure::damaged(object)))
}

/// The objects from `from` on that the filter admits, at most `limit` of them; and how many were looked at. `left` is the
/// number of objects from `from` on, selected or not; without it the objects behind the page are counted. `listed` is the second
/// of the first page.
fn page(
    target: &Target,
    snapshot: &Snapshot,
    filter: &Filter,
    prefix: &str,
    from: Option<&str>,
    limit: Option<usize>,
    (left, listed): (Option<u64>, i64),
) -> (ListView, usize) {
    let mut looked_at = 0;
    let mut items: Vec<Arc<Item>> = Vec::new();
    let (mut continue_token, mut remaining) = (None, None);
    // Then everything that the scan finds is selected.
    let all = filter.is_open();
    let mut rest = snapshot.scan(&target.kind.collection, filter.namespace(), from);
    while let Some(item) = rest.next() {
        if limit == Some(items.len()) {
            let last = items.last().map_or("", |last| &last.key().as_str()[prefix.len()..]);
            remaining = all.then(|| match left {
                Some(left) => left.saturating_sub(items.len() as u64).max(1),
                None => 1 + rest.count() as u64,
            });
            let token = ContinueToken::after(last, snapshot.revision).with_left(remaining).with_listed(listed);
            continue_token = Some(token.encode());
            break;
        }
        looked_at += 1;
        if all || filter.admits(item) {
            items.push(Arc::clone(item));
        }
    }
    let list =
        ListView { kind: Arc::clone(&target.kind), items, revision: snapshot.revision, continue_token, remaining };
    (list, looked_at)
}
