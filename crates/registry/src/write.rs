//! Commits a change to an object if nothing came in between; otherwise makes it again on what is there now.

use std::sync::Arc;

use cache::Item;
use machinery::Status;
use machinery::json::Value;
use store::{Entry, WriteError};

use crate::failure;
use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::reserve::quota::QuotaUse;
use crate::storage;
use crate::update::Author;
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
                crate::versions::show(&kind, &mut value)?;
                View::Made { kind: Some(kind), value }
            }
        })
    }
}

impl Registry {
    /// Makes `change` of the target's object, again and again until no other write is made in between. `change` gets the
    /// stored object and returns the new one, in the version of the target where a webhook converts and else as stored; an
    /// error ends the attempt. With an author the change is a client's and is revised by the rules of the kind.
    pub(crate) async fn rewrite(
        &self,
        target: &Target,
        dry_run: bool,
        author: Option<(&Author<'_>, &Context)>,
        mut change: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let key = self.key(target)?;
        let missing = || Status::not_found(&target.gr(), target.name());
        let mut item = self.current(&key).await?.ok_or_else(missing)?;
        loop {
            let mut reservation = self.reservations().open();
            let old = view::parse_for_write(&item)?;
            // An object that a webhook converts is changed in the version it is shown in, and shown so afterwards.
            let converted = self.converter().converted(&target.kind, &item).await?;
            let before = converted.as_ref().unwrap_or(&old);
            let mut new = change(before)?;
            if let Some((author, ctx)) = author {
                new = self.revise(target, before, new, author, &mut reservation, ctx)?;
            }
            let shown = converted.is_some().then(|| new.clone());
            if shown.is_some() {
                new = self.converter().to_storage(&target.kind, new).await?;
            }
            meta::of_mut(&mut new).insert("resourceVersion", item.revision().to_string().into());
            if new == old {
                return Ok(Written::Kept(item));
            }
            let leaves = leaves_with(&old, &new);
            if !leaves {
                let subresource = target.subresource.as_deref();
                let wanted = QuotaUse { target, subresource, old: Some(&old), new: &new, dry_run };
                reservation.reserve_quota(&wanted).await?;
            }
            if dry_run {
                let new = shown.unwrap_or(new);
                return Ok(if leaves { Written::Removed(new) } else { Written::Imagined(new) });
            }
            let (store, revision) = (self.store(), item.revision());
            reservation.write_begins(&key, revision);
            let (outcome, value) = if leaves {
                (store.delete(key.clone(), revision).await, None)
            } else {
                let value = storage::encode(&new)?;
                let before = (!target.kind.custom).then_some((&old, &*item));
                let _foretold = self.cache().foretell(key.collection(), &value, &new, before);
                (store.update(key.clone(), value.clone(), revision).await, Some(value))
            };
            reservation.write_ended(&outcome);
            match (outcome, value) {
                (Ok(revision), Some(value)) => {
                    self.quota().shrink_usage(target, &old, Some(&new)).await;
                    return Ok(Written::Kept(self.storage().committed(Entry { key, revision, value }).await?));
                }
                (Ok(revision), None) => {
                    self.storage().wait_until_visible(revision).await;
                    self.quota().shrink_usage(target, &old, None).await;
                    return Ok(Written::Removed(shown.unwrap_or(new)));
                }
                (Err(error), _) => {
                    reservation.release().await;
                    match error {
                        WriteError::Conflict { current: Some(entry), .. } => item = self.storage().item(&entry)?,
                        WriteError::Conflict { current: None, .. } => return Err(missing()),
                        error => return Err(failure::write(&error, &target.gr(), target.name())),
                    }
                }
            }
        }
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
