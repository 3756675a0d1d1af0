//! Writes objects to the store: a new one, or a change to one that is made again on its newest state after each conflict.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use cache::{Item, PendingWrite};
use machinery::json::Value;
use machinery::{Revision, Status};
use store::{Entry, Key, WriteError};

use crate::failure;
use crate::meta;
use crate::read::view::View;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::reserve::Reservation;
use crate::storage;
use crate::versions;

/// The outcome of a change.
pub(crate) enum Committed {
    /// The object as it is now, also where nothing had to change.
    Kept(Arc<Item>),
    Removed(LastState),
    /// The state that a dry run would have led to; `removed` if the object would be gone.
    DryRun {
        object: Value,
        removed: bool,
    },
}

/// The last state of an object that was removed.
pub(crate) enum LastState {
    /// As it was written right before it was removed.
    Written(Arc<Item>),
    Known(Value),
}

/// The next state of a stored object.
pub(crate) enum Next {
    Keep,
    /// Write `new`. With `old`, usage that shrinks is released from quotas. `shown` is the object in the version of the
    /// request, where a webhook converted it.
    Write {
        old: Option<Value>,
        new: Value,
        shown: Option<Value>,
    },
    /// Write the object, and remove it right after.
    WriteThenRemove(Value),
    /// Remove `old`; `last` is what the client is shown.
    Remove {
        old: Value,
        last: Value,
    },
}

/// Computes the next state of an object; called again with the newest state after each conflict.
pub(crate) trait Change: Send {
    fn next(
        &mut self,
        item: &Arc<Item>,
        reservation: &mut Reservation<'_>,
    ) -> impl Future<Output = Result<Next, Status>> + Send;
}

/// One attempt to write over a state that was read.
enum Attempt<T> {
    Made(T),
    /// Another write was first; this is what it left, if anything.
    Conflict(Option<Entry>),
}

/// Why a new object was not stored.
pub(crate) enum CreateFailed {
    NameTaken,
    Refused(Status),
}

impl From<Status> for CreateFailed {
    fn from(status: Status) -> Self {
        CreateFailed::Refused(status)
    }
}

impl Committed {
    pub(crate) fn is_removed(&self) -> bool {
        matches!(self, Committed::Removed(_) | Committed::DryRun { removed: true, .. })
    }

    pub(crate) fn into_view(self, target: &Target) -> Result<View, Status> {
        let kind = Arc::clone(&target.kind);
        Ok(match self {
            Committed::Kept(item) | Committed::Removed(LastState::Written(item)) => View::Stored { kind, item },
            Committed::Removed(LastState::Known(mut value)) | Committed::DryRun { object: mut value, .. } => {
                versions::show(&kind, &mut value)?;
                View::Made { kind: Some(kind), value }
            }
        })
    }
}

/// Makes a change to the target's object, again and again until no other write is made in between.
pub(crate) async fn change(
    registry: &Registry,
    (target, ctx): (&Target, &Context),
    dry_run: bool,
    change: &mut impl Change,
) -> Result<Committed, Status> {
    let missing = || Status::not_found(&target.gr(), target.name());
    let writer = Writer { registry, target, ctx, key: registry.key(target)? };
    let mut item = registry.storage().current(&writer.key).await?.ok_or_else(missing)?;
    loop {
        let mut reservation = registry.reservations().open();
        let attempt = match change.next(&item, &mut reservation).await? {
            Next::Keep => return Ok(Committed::Kept(item)),
            Next::Write { new, shown, .. } if dry_run => {
                return Ok(Committed::DryRun { object: shown.unwrap_or(new), removed: false });
            }
            Next::WriteThenRemove(object) | Next::Remove { last: object, .. } if dry_run => {
                return Ok(Committed::DryRun { object, removed: true });
            }
            Next::Write { old, new, .. } => writer.update(&item, old.as_ref(), &new, &mut reservation).await?,
            Next::WriteThenRemove(marked) => writer.update_and_remove(&item, &marked).await?,
            Next::Remove { old, last } => writer.remove(item.revision(), &old, last).await?,
        };
        match attempt {
            Attempt::Made(committed) => return Ok(committed),
            Attempt::Conflict(current) => {
                reservation.release().await;
                item = registry.storage().item(&current.ok_or_else(missing)?)?;
            }
        }
    }
}

/// Stores a new object under a key that must be free.
pub(crate) async fn create(
    registry: &Registry,
    (target, ctx): (&Target, &Context),
    key: Key,
    object: &Value,
    reservation: &mut Reservation<'_>,
) -> Result<Arc<Item>, CreateFailed> {
    let value = storage::encode(object)?;
    let _pending = registry.cache().register_write(key.collection(), &value, object, None);
    reservation.write_begins(&key, Revision::ZERO);
    let outcome = registry.store().create(key.clone(), value.clone()).await;
    reservation.write_ended(&outcome);
    match outcome {
        Ok(revision) => {
            let item = registry.storage().committed(Entry { key, revision, value }).await?;
            ctx.committed(revision);
            Ok(item)
        }
        Err(WriteError::Exists(_)) => Err(CreateFailed::NameTaken),
        Err(error) => Err(failure::write(&error, &target.gr(), meta::name(object)).into()),
    }
}

struct Writer<'a> {
    registry: &'a Registry,
    target: &'a Target,
    ctx: &'a Context,
    key: Key,
}

impl Writer<'_> {
    async fn update(
        &self,
        item: &Arc<Item>,
        old: Option<&Value>,
        new: &Value,
        reservation: &mut Reservation<'_>,
    ) -> Result<Attempt<Committed>, Status> {
        let (entry, _pending) = match self.put(item, old, new, reservation).await? {
            Attempt::Made(written) => written,
            Attempt::Conflict(current) => return Ok(Attempt::Conflict(current)),
        };
        if let Some(old) = old {
            self.registry.quota().shrink_usage(self.target, old, Some(new)).await;
        }
        let revision = entry.revision;
        let item = self.registry.storage().committed(entry).await?;
        self.ctx.committed(revision);
        Ok(Attempt::Made(Committed::Kept(item)))
    }

    async fn update_and_remove(&self, item: &Arc<Item>, marked: &Value) -> Result<Attempt<Committed>, Status> {
        let mut reservation = self.registry.reservations().open();
        let (entry, _pending) = match self.put(item, None, marked, &mut reservation).await? {
            Attempt::Made(written) => written,
            Attempt::Conflict(current) => return Ok(Attempt::Conflict(current)),
        };
        let written = self.registry.storage().item(&entry)?;
        let removed = self.delete(entry.revision, marked).await;
        self.ctx.committed(entry.revision);
        match removed? {
            // If another request removed it first it is gone all the same.
            Attempt::Made(()) | Attempt::Conflict(None) => {
                Ok(Attempt::Made(Committed::Removed(LastState::Written(written))))
            }
            Attempt::Conflict(current) => Ok(Attempt::Conflict(current)),
        }
    }

    async fn remove(&self, revision: Revision, old: &Value, last: Value) -> Result<Attempt<Committed>, Status> {
        Ok(match self.delete(revision, old).await? {
            Attempt::Made(()) => Attempt::Made(Committed::Removed(LastState::Known(last))),
            Attempt::Conflict(current) => Attempt::Conflict(current),
        })
    }

    /// Writes the next state over the one of `item`. `old` is that state as a value, where its fields can be reused. The
    /// pending write is held until the cache has it, so that the cache need not parse the object.
    async fn put(
        &self,
        item: &Arc<Item>,
        old: Option<&Value>,
        new: &Value,
        reservation: &mut Reservation<'_>,
    ) -> Result<Attempt<(Entry, PendingWrite)>, Status> {
        let value: Bytes = storage::encode(new)?;
        let before = old.filter(|_| !self.target.kind.custom).map(|old| (old, &**item));
        let pending = self.registry.cache().register_write(self.key.collection(), &value, new, before);
        reservation.write_begins(&self.key, item.revision());
        let outcome = self.registry.store().update(self.key.clone(), value.clone(), item.revision()).await;
        reservation.write_ended(&outcome);
        match outcome {
            Ok(revision) => Ok(Attempt::Made((Entry { key: self.key.clone(), revision, value }, pending))),
            Err(error) => self.conflict(error),
        }
    }

    /// Removes the object; returns once that is visible here and its usage is released.
    async fn delete(&self, revision: Revision, old: &Value) -> Result<Attempt<()>, Status> {
        match self.registry.store().delete(self.key.clone(), revision).await {
            Ok(revision) => {
                self.registry.storage().wait_until_visible(revision).await;
                self.ctx.committed(revision);
                self.registry.quota().shrink_usage(self.target, old, None).await;
                Ok(Attempt::Made(()))
            }
            Err(error) => self.conflict(error),
        }
    }

    fn conflict<T>(&self, error: WriteError) -> Result<Attempt<T>, Status> {
        match error {
            WriteError::Conflict { current, .. } => Ok(Attempt::Conflict(current)),
            error => Err(failure::write(&error, &self.target.gr(), self.target.name())),
        }
    }
}
