//! Resource quotas: how much the objects of a namespace may take together.
//!
//! - this file: a write takes its share before it is made and releases what it did not use
//! - `usage`: what an object takes, and which quotas count it
//! - [`recount`]: corrects the figures of a quota by what is there
//!
//! The figures are in the quota's own status. They are written only over the revision they were computed from, so that two
//! writes never take the same last unit. A quota whose status has no `hard` yet counts nothing: [`recount`] (or another
//! controller) must have looked at it first.

pub mod recount;
mod usage;

pub(crate) use usage::storage_class;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use cache::Item;
use machinery::json::{Value, json};
use machinery::{GroupResource, Status};
use store::{Entry, WriteError};

use self::usage::Evaluator;
use crate::collections::RESOURCE_QUOTAS;
use crate::failure;
use crate::meta;
use crate::read::view;
use crate::request::Target;
use crate::reserve::amounts::Amounts;
use crate::storage::{self, Storage};

/// How often a share is taken again when other servers change the figures in between.
const ATTEMPTS: usize = 50;

/// The quotas of a cluster.
pub(crate) struct Quota {
    storage: Storage,
    turns: Turns,
}

/// One lock for each of 64 sets of namespaces. All writes of a namespace change the same figures: without turns, all but
/// one would have to try again, each time.
#[derive(Debug)]
struct Turns([tokio::sync::Mutex<()>; 64]);

impl Turns {
    fn new() -> Self {
        Turns(std::array::from_fn(|_| tokio::sync::Mutex::default()))
    }

    /// Namespaces may share a lock; they only wait for each other.
    async fn take(&self, item: &Item) -> tokio::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        item.namespace().hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % self.0.len() as u64).unwrap_or_default();
        self.0[at].lock().await
    }
}

/// What a write has taken, by quota.
#[derive(Debug, Default)]
pub(crate) struct Share(Vec<(Arc<Item>, Amounts)>);

impl Share {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A write as quotas see it.
pub(crate) struct QuotaUse<'a> {
    pub(crate) target: &'a Target,
    pub(crate) subresource: Option<&'a str>,
    /// None for a create.
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
    /// Only checks whether there is enough.
    pub(crate) dry_run: bool,
}

/// The outcome of a write to a quota.
enum QuotaWrite {
    Written(Arc<Item>),
    /// Another write was first; this is the quota now.
    Moved(Arc<Item>),
    Gone,
    Failed(Status),
}

impl Quota {
    pub(crate) fn new(storage: Storage) -> Self {
        Quota { storage, turns: Turns::new() }
    }

    /// Takes what a write needs from the quotas of its namespace, or names the one that has not enough. What was taken by
    /// then is in `share` either way.
    ///
    /// Dropped while it writes a figure, it leaves that figure too high until the next recount.
    pub(crate) async fn reserve(&self, wanted: &QuotaUse<'_>, share: &mut Share) -> Result<(), Status> {
        let QuotaUse { target, subresource, old, new, .. } = *wanted;
        let namespace = target.namespace.as_deref().unwrap_or_default();
        if let Err(damaged) = self.storage.refuse_damaged(RESOURCE_QUOTAS, Some(namespace))
            && Evaluator::new(&target.kind).is_some_and(|evaluator| evaluator.handles(subresource, old, new))
        {
            return Err(damaged);
        }
        let Some(evaluator) = self.evaluator(target).filter(|evaluator| evaluator.handles(subresource, old, new))
        else {
            return Ok(());
        };
        for quota in self.quotas_of(target) {
            share.0.extend(self.reserve_from(&evaluator, quota, wanted).await?);
        }
        Ok(())
    }

    /// Releases what a write took that was not made.
    pub(crate) async fn release(&self, share: Share) {
        for (quota, amounts) in share.0 {
            self.lower(quota, &amounts).await;
        }
    }

    /// Releases what an object no longer takes: it is gone (`new` is none), or takes less than before.
    pub(crate) async fn shrink_usage(&self, target: &Target, old: &Value, new: Option<&Value>) {
        let Some(evaluator) = self.evaluator(target) else { return };
        for item in self.quotas_of(target) {
            let Ok(quota) = view::parse(&item) else { continue };
            let taken = |object: &Value| match evaluator.counts(&quota, object) {
                true => evaluator.usage(object),
                false => Amounts::default(),
            };
            let hard = Amounts::from_value(&quota["status"]["hard"]);
            let before = taken(old).only(|name| hard.0.contains_key(name));
            let less = before.beyond(&new.map(taken).unwrap_or_default());
            if !less.is_empty() {
                self.lower(item, &less).await;
            }
        }
    }

    /// How the objects of a target are counted; none where no quota could count them.
    fn evaluator<'a>(&self, target: &'a Target) -> Option<Evaluator<'a>> {
        if !target.kind.namespaced || self.storage.cache().collection(RESOURCE_QUOTAS).is_empty() {
            return None;
        }
        Evaluator::new(&target.kind)
    }

    fn quotas_of(&self, target: &Target) -> Vec<Arc<Item>> {
        let Some(namespace) = target.namespace.as_deref() else { return Vec::new() };
        let cache = self.storage.cache();
        let snapshot = cache.snapshot(&cache.collection(RESOURCE_QUOTAS));
        snapshot.scan(RESOURCE_QUOTAS, Some(namespace), None).cloned().collect()
    }

    async fn reserve_from(
        &self,
        evaluator: &Evaluator<'_>,
        mut item: Arc<Item>,
        wanted: &QuotaUse<'_>,
    ) -> Result<Option<(Arc<Item>, Amounts)>, Status> {
        let QuotaUse { target, old, new, dry_run, .. } = *wanted;
        let mut turn = None;
        for _ in 0..ATTEMPTS {
            let quota = view::parse(&item)?;
            let amounts = match evaluator.wanted(&quota, old, new) {
                Ok(Some(amounts)) => amounts,
                Ok(None) => return Ok(None),
                Err(why) => return Err(Status::forbidden(&target.gr(), meta::name(new), why)),
            };
            if dry_run {
                return Ok(None);
            }
            if turn.is_none() {
                turn = Some(self.turns.take(&item).await);
                // It may have changed while others had their turn.
                match self.storage.cached(RESOURCE_QUOTAS, Some(item.namespace()), item.name()) {
                    Some(newer) if newer.revision() > item.revision() => {
                        item = newer;
                        continue;
                    }
                    _ => {}
                }
            }
            let mut used = Amounts::from_value(&quota["status"]["used"]);
            used.add(&amounts);
            match self.write_used(&item, quota, &used).await {
                QuotaWrite::Written(written) => return Ok(Some((written, amounts))),
                QuotaWrite::Moved(current) => item = current,
                // A quota that is gone limits nothing.
                QuotaWrite::Gone => return Ok(None),
                QuotaWrite::Failed(status) => return Err(status),
            }
        }
        Err(Status::internal("resource quota evaluation timed out"))
    }

    /// Lowers the figures of a quota, never below zero. A failure leaves them too high until the next recount.
    async fn lower(&self, mut item: Arc<Item>, by: &Amounts) {
        let _turn = self.turns.take(&item).await;
        for _ in 0..ATTEMPTS {
            let Ok(quota) = view::parse(&item) else { return };
            let mut used = Amounts::from_value(&quota["status"]["used"]);
            for (name, amount) in &by.0 {
                if let Some(before) = used.get(name) {
                    let rest = before.minus(amount);
                    used.set(name.as_str(), if rest.is_negative() { amount.minus(amount) } else { rest });
                }
            }
            match self.write_used(&item, quota, &used).await {
                QuotaWrite::Moved(current) => item = current,
                QuotaWrite::Failed(error) => {
                    tracing::warn!(quota = %item.key(), %error, "a quota counts too much until it is recounted");
                    return;
                }
                QuotaWrite::Written(_) | QuotaWrite::Gone => return,
            }
        }
    }

    async fn write_used(&self, item: &Arc<Item>, mut quota: Value, used: &Amounts) -> QuotaWrite {
        if !quota["status"].is_object() {
            quota["status"] = json!({});
        }
        quota["status"]["used"] = used.to_value();
        self.write(item, &quota).await
    }

    /// Writes a quota if it is still the one that was read.
    async fn write(&self, item: &Arc<Item>, quota: &Value) -> QuotaWrite {
        let (key, revision) = (item.key().clone(), item.revision());
        let written = async {
            let value = storage::encode(quota)?;
            Ok(match self.storage.store().update(key.clone(), value.clone(), revision).await {
                Ok(revision) => QuotaWrite::Written(self.storage.item(&Entry { key, revision, value })?),
                Err(WriteError::Conflict { current: Some(entry), .. }) => QuotaWrite::Moved(self.storage.item(&entry)?),
                Err(WriteError::Conflict { current: None, .. }) => QuotaWrite::Gone,
                Err(error) => {
                    QuotaWrite::Failed(failure::write(&error, &GroupResource::new("", "resourcequotas"), item.name()))
                }
            })
        };
        written.await.unwrap_or_else(QuotaWrite::Failed)
    }
}
