//! Resource quotas: how much of what the objects of a namespace may take together.
//!
//! - this file: a write takes its share before it is made, and gives back what it did not use after all
//! - `usage`: what an object takes, and which quotas count it
//! - [`recount`]: brings a quota's figures into line with what is there
//!
//! The figures are in the quota's own status. They are changed only if nobody changed them in between, so that two writes
//! never take the same last place. A quota whose status has no `hard` yet counts nothing: [`recount`] (or somebody else)
//! must have looked at it first.

pub mod recount;
mod usage;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use cache::Item;
use machinery::json::{Value, json};
use machinery::{GroupResource, Status};
use store::{Entry, WriteError};

use self::usage::Counted;
use crate::admission::amounts::Amounts;
use crate::failure;
use crate::meta;
use crate::registry::Registry;
use crate::request::Target;
use crate::view;

const QUOTAS: &str = "core/resourcequotas";
/// How often a share is taken again when other servers take theirs in between.
const ATTEMPTS: usize = 50;

/// Writes to the quotas of a namespace take turns: all of them change the same figures, and without turns all but one
/// would have to try again, each time.
#[derive(Debug)]
pub(crate) struct Turns([tokio::sync::Mutex<()>; 64]);

impl Default for Turns {
    fn default() -> Self {
        Turns(std::array::from_fn(|_| tokio::sync::Mutex::default()))
    }
}

impl Turns {
    /// Namespaces may share a turn; they only wait for each other.
    async fn take(&self, item: &Item) -> tokio::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        item.namespace().hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % self.0.len() as u64).unwrap_or_default();
        self.0[at].lock().await
    }
}

/// What a write has taken from quotas, by their names.
#[derive(Debug, Default)]
#[must_use = "what a failed write has taken must be given back"]
pub(crate) struct Share(Vec<(Arc<Item>, Amounts)>);

impl Registry {
    /// Takes what a write needs from the quotas of its namespace, or says which of them has not enough.
    pub(crate) async fn take_share(
        &self,
        target: &Target,
        door: Option<&str>,
        old: Option<&Value>,
        new: &Value,
        dry_run: bool,
    ) -> Result<Share, Status> {
        let mut share = Share::default();
        let Some(counted) = self.counted(target).filter(|counted| counted.handles(door, old, new)) else {
            return Ok(share);
        };
        for quota in self.quotas_of(target) {
            match self.take_from(&counted, target, quota, old, new, dry_run).await {
                Ok(taken) => share.0.extend(taken),
                Err(status) => {
                    self.give_back(share).await;
                    return Err(status);
                }
            }
        }
        Ok(share)
    }

    /// Gives back what a write took that was not made.
    pub(crate) async fn give_back(&self, share: Share) {
        for (quota, amounts) in share.0 {
            self.lower(quota, &amounts).await;
        }
    }

    /// Gives back what an object no longer takes: it is gone (`new` is none), or takes less than before.
    pub(crate) async fn settle(&self, target: &Target, old: &Value, new: Option<&Value>) {
        let Some(counted) = self.counted(target) else { return };
        for item in self.quotas_of(target) {
            let Ok(quota) = view::parse(&item) else { continue };
            let taken = |object: &Value| match counted.interest(&quota, object) {
                true => counted.usage(object),
                false => Amounts::default(),
            };
            let hard = Amounts::of(&quota["status"]["hard"]);
            let before = taken(old).only(|name| hard.0.contains_key(name));
            let less = before.beyond(&new.map(taken).unwrap_or_default());
            if !less.is_empty() {
                self.lower(item, &less).await;
            }
        }
    }

    /// How the objects of a target are counted; none where there are no quotas to count them.
    fn counted<'a>(&self, target: &'a Target) -> Option<Counted<'a>> {
        if !target.kind.namespaced || self.cache.collection(QUOTAS).is_empty() {
            return None;
        }
        Counted::new(&target.kind)
    }

    fn quotas_of(&self, target: &Target) -> Vec<Arc<Item>> {
        let Some(namespace) = target.namespace.as_deref() else { return Vec::new() };
        let collection = self.cache.collection(QUOTAS);
        let snapshot = self.cache.snapshot(&collection);
        snapshot.scan(collection.name(), Some(namespace), None).cloned().collect()
    }

    async fn take_from(
        &self,
        counted: &Counted<'_>,
        target: &Target,
        mut item: Arc<Item>,
        old: Option<&Value>,
        new: &Value,
        dry_run: bool,
    ) -> Result<Option<(Arc<Item>, Amounts)>, Status> {
        let mut turn = None;
        for _ in 0..ATTEMPTS {
            let quota = view::parse(&item)?;
            let wanted = match counted.wanted(&quota, old, new) {
                Ok(Some(wanted)) => wanted,
                Ok(None) => return Ok(None),
                Err(why) => return Err(Status::forbidden(&target.gr(), meta::name(new), why)),
            };
            if dry_run {
                return Ok(None);
            }
            if turn.is_none() {
                turn = Some(self.quota_turns.take(&item).await);
                // It has changed while others had their turn.
                match self.cached(QUOTAS, Some(item.namespace()), item.name()) {
                    Some(newer) if newer.revision() > item.revision() => {
                        item = newer;
                        continue;
                    }
                    _ => {}
                }
            }
            let mut used = Amounts::of(&quota["status"]["used"]);
            used.add(&wanted);
            match self.write_used(&item, quota, &used).await {
                Written::Yes(written) => return Ok(Some((written, wanted))),
                Written::Moved(current) => item = current,
                // The quota is gone, and with it the question.
                Written::Gone => return Ok(None),
                Written::No(status) => return Err(status),
            }
        }
        Err(Status::internal("resource quota evaluation timed out"))
    }

    /// Lowers a quota's figures, never below zero. A failure leaves them too high until the next recount.
    async fn lower(&self, mut item: Arc<Item>, by: &Amounts) {
        let _turn = self.quota_turns.take(&item).await;
        for _ in 0..ATTEMPTS {
            let Ok(quota) = view::parse(&item) else { return };
            let mut used = Amounts::of(&quota["status"]["used"]);
            for (name, amount) in &by.0 {
                if let Some(before) = used.get(name) {
                    let rest = before.minus(amount);
                    used.set(name.as_str(), if rest.is_negative() { amount.minus(amount) } else { rest });
                }
            }
            match self.write_used(&item, quota, &used).await {
                Written::Moved(current) => item = current,
                Written::No(error) => {
                    tracing::warn!(quota = %item.key(), %error, "a quota counts more than is there until it is recounted");
                    return;
                }
                Written::Yes(_) | Written::Gone => return,
            }
        }
    }

    async fn write_used(&self, item: &Arc<Item>, mut quota: Value, used: &Amounts) -> Written {
        if !quota["status"].is_object() {
            quota["status"] = json!({});
        }
        quota["status"]["used"] = used.to_value();
        self.write_quota(item, &quota).await
    }

    /// Writes a quota if it is still the one that was read.
    async fn write_quota(&self, item: &Arc<Item>, quota: &Value) -> Written {
        let (key, revision) = (item.key().clone(), item.revision());
        let written = async {
            let value = self.stored(quota)?;
            Ok(match self.store.update(key.clone(), value.clone(), revision).await {
                Ok(revision) => Written::Yes(self.item(&Entry { key, revision, value })?),
                Err(WriteError::Conflict { current: Some(entry), .. }) => Written::Moved(self.item(&entry)?),
                Err(WriteError::Conflict { current: None, .. }) => Written::Gone,
                Err(error) => {
                    Written::No(failure::write(&error, &GroupResource::new("", "resourcequotas"), item.name()))
                }
            })
        };
        written.await.unwrap_or_else(Written::No)
    }
}

/// What became of a write to a quota.
enum Written {
    Yes(Arc<Item>),
    /// Somebody else wrote it; this is what it is now.
    Moved(Arc<Item>),
    Gone,
    No(Status),
}
