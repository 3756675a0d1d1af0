//! Commits a change to an object if nothing came in between; otherwise makes it again on what is there now.

use std::sync::Arc;

use bytes::Bytes;
use cache::Item;
use machinery::encoded;
use machinery::json::Value;
use machinery::{Revision, Status};
use store::{Entry, WriteError};

use crate::admission::quota::Share;
use crate::failure;
use crate::meta;
use crate::registry::Registry;
use crate::request::Target;
use crate::view::{self, View};

/// What became of a change.
pub(crate) enum Written {
    /// The object as it is now (also when nothing had to change).
    Kept(Arc<Item>),
    /// The change let the object go; this is its last state.
    Removed(Value),
    /// A dry run: what would have become of it.
    Imagined(Value),
}

impl Written {
    pub(crate) fn into_view(self, target: &Target) -> Result<View, Status> {
        let kind = Arc::clone(&target.kind);
        Ok(match self {
            Written::Kept(item) => View::Stored { kind, item },
            Written::Removed(mut value) | Written::Imagined(mut value) => {
                crate::conversion::show(&kind, &mut value)?;
                View::Made { kind: Some(kind), value }
            }
        })
    }
}

impl Registry {
    /// Makes `change` of the target's object, again and again until no other write comes in between. `change` gets the
    /// stored object and gives the new one, both in the storage version; an error of it ends the attempt.
    pub(crate) async fn rewrite(
        &self,
        target: &Target,
        dry_run: bool,
        mut change: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let key = self.key(target)?;
        let missing = || Status::not_found(&target.gr(), target.name());
        let mut item = self.current(&target.kind, &key).await?.ok_or_else(missing)?;
        loop {
            let old = view::parse_for_write(&item)?;
            // What a webhook converts is changed in the version it is shown in, and shown so afterwards.
            let (mut new, shown) = match self.converted(&target.kind, &item).await? {
                None => (change(&old)?, None),
                Some(converted) => {
                    let shown = change(&converted)?;
                    (self.to_be_stored(&target.kind, shown.clone()).await?, Some(shown))
                }
            };
            meta::of_mut(&mut new).insert("resourceVersion", item.revision().to_string().into());
            if new == old {
                return Ok(Written::Kept(item));
            }
            let leaves = leaves_with(&old, &new);
            let share = if leaves {
                Share::default()
            } else {
                self.take_share(target, target.subresource.as_deref(), Some(&old), &new, dry_run).await?
            };
            if dry_run {
                let new = shown.unwrap_or(new);
                return Ok(if leaves { Written::Removed(new) } else { Written::Imagined(new) });
            }
            let result = if leaves {
                self.store.delete(key.clone(), item.revision()).await
            } else {
                let value = self.stored(&new)?;
                let before = (!target.kind.custom).then_some((&old, &*item));
                let _pending = self.cache.register_write(key.collection(), &value, &new, before);
                match self.store.update(key.clone(), value.clone(), item.revision()).await {
                    Ok(revision) => {
                        self.settle(target, &old, Some(&new)).await;
                        return Ok(Written::Kept(self.committed(Entry { key, revision, value }).await?));
                    }
                    Err(error) => Err(error),
                }
            };
            match result {
                Ok(revision) => {
                    self.arrived(revision).await;
                    self.settle(target, &old, None).await;
                    return Ok(Written::Removed(shown.unwrap_or(new)));
                }
                // It may have been made: what it took stays taken.
                Err(error @ WriteError::Unknown(_)) => return Err(failure::write(&error, &target.gr(), target.name())),
                Err(error) => {
                    self.give_back(share).await;
                    match error {
                        WriteError::Conflict { current: Some(entry), .. } => item = self.item(&entry)?,
                        WriteError::Conflict { current: None, .. } => return Err(missing()),
                        error => return Err(failure::write(&error, &target.gr(), target.name())),
                    }
                }
            }
        }
    }

    /// An object's bytes for the store.
    pub(crate) fn stored(&self, object: &Value) -> Result<Bytes, Status> {
        let members = object.as_object().ok_or_else(|| Status::internal("an object is not an object"))?;
        Ok(encoded::to_stored(members).into())
    }

    /// The item of a write that the store has acknowledged: the cache's own, once it is there.
    pub(crate) async fn committed(&self, entry: Entry) -> Result<Arc<Item>, Status> {
        self.arrived(entry.revision).await;
        let cached = self.cache.collection(entry.key.collection()).get(&entry.key);
        match cached.filter(|item| item.revision() == entry.revision) {
            Some(item) => Ok(item),
            None => self.item(&entry),
        }
    }

    /// Waits until a write of ours is visible here, so that whoever hears of it finds it in every read that follows, also
    /// in those that do not ask to be fresh. The write stands whether or not the cache keeps up.
    pub(crate) async fn arrived(&self, revision: Revision) {
        if let Err(late) = self.cache.reach(revision).await {
            tracing::warn!(%late, "the cache does not keep up with the store");
        }
    }

    /// The item that the cache holds (or is about to hold) for an entry.
    pub(crate) fn item(&self, entry: &Entry) -> Result<Arc<Item>, Status> {
        let spec = self.cache.collection(entry.key.collection()).spec();
        let item = Item::new(entry.key.clone(), entry.revision, &entry.value, &spec).map_err(Status::internal)?;
        Ok(Arc::new(item))
    }
}

/// Whether an update lets go of an object that only its finalizers held.
fn leaves_with(old: &Value, new: &Value) -> bool {
    let held_by_spec = || new["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    let namespace = new["kind"] == "Namespace" && new["apiVersion"] == "v1";
    meta::is_deleting(old)
        && meta::finalizers(new).is_empty()
        && meta::grace_period(old).unwrap_or_default() == 0
        && !(namespace && held_by_spec())
}
