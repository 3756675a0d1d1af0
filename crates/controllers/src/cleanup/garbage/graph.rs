//! Owners and dependents, as far as watches have shown them.
//!
//! A node is an object, found by its UID. Its owners are its owner references; its dependents are the nodes that name it. An
//! owner that no watch has shown yet has a *virtual* node, at the coordinates that its dependents name, until a watch shows
//! it or a live read finds nothing there.
//!
//! ```text
//!   Deployment web ◄── ReplicaSet web-1 ◄── Pod web-1-a
//!                                       ◄── Pod web-1-b
//! ```
//!
//! The graph decides nothing. It returns the nodes to process after a change ([`Wake`]); whether something is deleted
//! is decided on a live read (GC-5).

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use client::Key;
use lru::LruCache;

use super::tracked::{Owner, Tracked, Uid};

/// Number of owners remembered as absent (GC-4).
const ABSENT_MAX: NonZeroUsize = NonZeroUsize::new(500).expect("it is not zero");

/// The resource of one watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) api_version: Arc<str>,
    pub(super) name: Arc<str>,
}

impl Kind {
    pub(super) fn new(api_version: &str, name: &str) -> Self {
        Self { api_version: api_version.into(), name: name.into() }
    }
}

/// The coordinates of an object, and its UID.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) kind: Kind,
    /// Namespace and name.
    pub(super) key: Key,
    pub(super) uid: Uid,
}

impl Identity {
    /// The owner that an object in this namespace refers to.
    pub(super) fn of_owner(owner: &Owner, namespace: Option<&str>) -> Self {
        let kind = Kind { api_version: owner.api_version.clone(), name: owner.kind.clone() };
        Self { kind, key: Key::new(namespace, &owner.name), uid: owner.uid.clone() }
    }

    /// True if a reference names these coordinates; the namespace is not part of one.
    fn is_named_by(&self, owner: &Owner) -> bool {
        owner.uid == self.uid
            && owner.api_version == self.kind.api_version
            && owner.kind == self.kind.name
            && *owner.name == *self.key.name()
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let namespace = self.key.namespace().unwrap_or_default();
        let (version, kind, name) = (&self.kind.api_version, &self.kind.name, self.key.name());
        write!(f, "[{version}/{kind}, namespace: {namespace}, name: {name}, uid: {}]", self.uid)
    }
}

#[derive(Debug, Clone)]
struct Node {
    identity: Identity,
    owners: Arc<[Owner]>,
    dependents: BTreeSet<Uid>,
    being_deleted: bool,
    /// It waits for the deletion of its dependents.
    deleting_dependents: bool,
    /// No watch has shown it.
    is_virtual: bool,
}

/// The nodes to process after a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wake {
    /// May have to be deleted.
    pub(super) delete: Vec<Uid>,
    /// The same, not at once.
    pub(super) delete_later: Vec<Uid>,
    /// Has dependents to orphan.
    pub(super) orphan: Vec<Uid>,
    /// Objects, and an owner they name that is in another namespace.
    pub(super) misplaced: Vec<(Identity, Owner)>,
}

/// One node as it is now.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) identity: Identity,
    pub(super) owners: Arc<[Owner]>,
    pub(super) being_deleted: bool,
    pub(super) deleting_dependents: bool,
    pub(super) is_virtual: bool,
    pub(super) has_dependents: bool,
}

/// The nodes, and the owners that are known to be absent.
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    absent: LruCache<Identity, ()>,
}

impl Default for Graph {
    fn default() -> Self {
        Self { nodes: HashMap::new(), absent: LruCache::new(ABSENT_MAX) }
    }
}

impl Graph {
    /// Adds an object that a watch showed, or its new state.
    pub(super) fn observe(&mut self, kind: &Kind, old: Option<&Tracked>, new: &Tracked) -> Wake {
        let mut wake = Wake::default();
        let identity = Identity { kind: kind.clone(), key: new.key().clone(), uid: new.uid().clone() };
        if self.nodes.get(new.uid()).is_some_and(|node| node.is_virtual) {
            self.make_real(identity.clone(), &mut wake);
        }
        match self.nodes.get_mut(new.uid()) {
            None => {
                let node = Node {
                    identity,
                    owners: new.owners().clone(),
                    dependents: BTreeSet::new(),
                    being_deleted: new.is_deleting(),
                    deleting_dependents: new.is_waiting(),
                    is_virtual: false,
                };
                self.nodes.insert(new.uid().clone(), node);
                self.add_to_owners(new.uid(), new.owners(), &mut wake);
            }
            Some(node) => {
                node.being_deleted |= new.is_deleting();
                let before = std::mem::replace(&mut node.owners, new.owners().clone());
                if before != *new.owners() {
                    self.change_owners(new.uid(), &before, new.owners(), &mut wake);
                }
            }
        }
        self.begin_waits(old, new, &mut wake);
        wake
    }

    /// Handles the beginning of a deletion: Background, Foreground or Orphan.
    fn begin_waits(&mut self, old: Option<&Tracked>, new: &Tracked, wake: &mut Wake) {
        if new.is_orphaning() && !old.is_some_and(Tracked::is_orphaning) {
            wake.orphan.push(new.uid().clone());
        } else if new.is_waiting()
            && !old.is_some_and(Tracked::is_waiting)
            && let Some(node) = self.nodes.get_mut(new.uid())
        {
            node.deleting_dependents = true;
            wake.delete.extend(node.dependents.iter().cloned());
            wake.delete.push(new.uid().clone());
        }
    }

    /// Makes a virtual node real. Dependents that name other coordinates are processed.
    fn make_real(&mut self, observed: Identity, wake: &mut Wake) {
        let Some(node) = self.nodes.get_mut(&observed.uid) else { return };
        node.is_virtual = false;
        if node.identity == observed {
            return;
        }
        node.identity = observed.clone();
        let (_, others) = self.by_coordinates(&observed);
        for uid in others {
            if let Some(dependent) = self.nodes.get(&uid)
                && observed.key.namespace().is_some_and(|ns| dependent.identity.key.namespace() != Some(ns))
            {
                self.note_misplaced(&uid, &observed.uid, wake);
            }
            wake.delete.push(uid);
        }
    }

    fn note_misplaced(&self, dependent: &Uid, owner: &Uid, wake: &mut Wake) {
        let Some(node) = self.nodes.get(dependent) else { return };
        if let Some(reference) = node.owners.iter().find(|reference| reference.uid == *owner) {
            wake.misplaced.push((node.identity.clone(), reference.clone()));
        }
    }

    /// Adds a node to the dependents of its owners. An unknown owner gets a virtual node.
    fn add_to_owners(&mut self, uid: &Uid, owners: &[Owner], wake: &mut Wake) {
        let Some(namespace) = self.nodes.get(uid).map(|node| node.identity.key.clone()) else { return };
        let namespace = namespace.namespace();
        let mut doubtful = false;
        for owner in owners {
            let Some(node) = self.nodes.get_mut(&owner.uid) else {
                let node = Node {
                    identity: Identity::of_owner(owner, namespace),
                    owners: Arc::default(),
                    dependents: BTreeSet::from([uid.clone()]),
                    being_deleted: false,
                    deleting_dependents: false,
                    is_virtual: true,
                };
                self.nodes.insert(owner.uid.clone(), node);
                wake.delete.push(owner.uid.clone());
                continue;
            };
            node.dependents.insert(uid.clone());
            if doubtful {
                continue;
            }
            let is_virtual = node.is_virtual;
            let elsewhere = node.identity.key.namespace().is_some_and(|ns| namespace != Some(ns));
            doubtful = elsewhere || !node.identity.is_named_by(owner);
            if elsewhere && !is_virtual {
                self.note_misplaced(uid, &owner.uid, wake);
            }
        }
        if doubtful {
            wake.delete.push(uid.clone());
        }
    }

    fn change_owners(&mut self, uid: &Uid, before: &[Owner], after: &[Owner], wake: &mut Wake) {
        let find = |owners: &[Owner], wanted: &Owner| owners.iter().find(|owner| owner.uid == wanted.uid).cloned();
        // An owner that waits for its dependents may have one less to wait for.
        for old in before {
            let unblocked = match find(after, old) {
                None => true,
                Some(new) => old.blocks && !new.blocks,
            };
            if unblocked && self.nodes.get(&old.uid).is_some_and(|owner| owner.deleting_dependents) {
                wake.delete.push(old.uid.clone());
            }
        }
        let added: Vec<Owner> = after.iter().filter(|new| find(before, new).is_none()).cloned().collect();
        self.add_to_owners(uid, &added, wake);
        for old in before.iter().filter(|old| find(after, old).is_none()) {
            self.remove_from_owner(uid, old);
        }
    }

    fn remove_from_owner(&mut self, uid: &Uid, owner: &Owner) {
        if let Some(node) = self.nodes.get_mut(&owner.uid) {
            node.dependents.remove(uid);
            // No dependent names it any more.
            if node.is_virtual && node.dependents.is_empty() {
                self.nodes.remove(&owner.uid);
            }
        }
    }

    /// Removes an object whose deletion a watch showed.
    pub(super) fn observe_deletion(&mut self, kind: &Kind, last: &Tracked) -> Wake {
        let mut wake = Wake::default();
        let identity = Identity { kind: kind.clone(), key: last.key().clone(), uid: last.uid().clone() };
        self.remove(identity, &mut wake);
        wake
    }

    /// Handles a live read that found nothing at the coordinates of a node (GC-3).
    pub(super) fn found_absent(&mut self, identity: &Identity) -> Wake {
        let mut wake = Wake::default();
        let Some(node) = self.nodes.get(&identity.uid) else { return wake };
        let (is_virtual, known_there) = (node.is_virtual, node.identity == *identity);
        let (matching, others) = self.by_coordinates(identity);
        let keep = if is_virtual { !others.is_empty() } else { !known_there };
        if !keep {
            self.remove(identity.clone(), &mut wake);
            return wake;
        }
        if !matching.is_empty() {
            self.absent.put(identity.clone(), ());
            wake.delete.extend(matching);
        }
        if is_virtual && known_there {
            // Others name other coordinates: these are read next.
            let elsewhere = others.iter().find_map(|uid| self.named_otherwise(uid, identity));
            if let (Some(elsewhere), Some(node)) = (elsewhere, self.nodes.get_mut(&identity.uid)) {
                node.identity = elsewhere;
                wake.delete_later.push(identity.uid.clone());
            }
        }
        wake
    }

    /// Other coordinates that a dependent names for its owner.
    fn named_otherwise(&self, dependent: &Uid, there: &Identity) -> Option<Identity> {
        let node = self.nodes.get(dependent)?;
        let owner = node.owners.iter().find(|owner| owner.uid == there.uid)?;
        let said = Identity::of_owner(owner, node.identity.key.namespace());
        (said != *there).then_some(said)
    }

    fn remove(&mut self, identity: Identity, wake: &mut Wake) {
        let Some(node) = self.nodes.remove(&identity.uid) else { return };
        if !node.dependents.is_empty() {
            self.absent.put(identity, ());
        }
        for owner in node.owners.iter() {
            self.remove_from_owner(&node.identity.uid, owner);
            if self.nodes.get(&owner.uid).is_some_and(|owner| owner.deleting_dependents) {
                wake.delete.push(owner.uid.clone());
            }
        }
        // A dependent may name this UID again before it is processed: the live read decides.
        wake.delete.extend(node.dependents);
    }

    /// The dependents of a node that name these coordinates, and the others.
    fn by_coordinates(&self, identity: &Identity) -> (Vec<Uid>, Vec<Uid>) {
        let Some(node) = self.nodes.get(&identity.uid) else { return Default::default() };
        let namespace = identity.key.namespace();
        node.dependents.iter().cloned().partition(|uid| {
            self.nodes.get(uid).is_some_and(|dependent| {
                namespace.is_none_or(|ns| dependent.identity.key.namespace() == Some(ns))
                    && dependent.owners.iter().any(|owner| identity.is_named_by(owner))
            })
        })
    }

    pub(super) fn view(&self, uid: &Uid) -> Option<View> {
        let node = self.nodes.get(uid)?;
        Some(View {
            identity: node.identity.clone(),
            owners: node.owners.clone(),
            being_deleted: node.being_deleted,
            deleting_dependents: node.deleting_dependents,
            is_virtual: node.is_virtual,
            has_dependents: !node.dependents.is_empty(),
        })
    }

    /// The dependents of a node.
    pub(super) fn dependents(&self, uid: &Uid) -> Vec<View> {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|node| &node.dependents);
        dependents.filter_map(|dependent| self.view(dependent)).collect()
    }

    /// The dependents that block the deletion of their owner (GC-7), without the owner itself.
    pub(super) fn blocking_dependents(&self, uid: &Uid) -> Vec<View> {
        let blocks = |dependent: &View| dependent.owners.iter().any(|owner| owner.uid == *uid && owner.blocks);
        let dependents = self.dependents(uid).into_iter();
        dependents.filter(|dependent| dependent.identity.uid != *uid && blocks(dependent)).collect()
    }

    /// Records that a live read did not find an owner.
    pub(super) fn note_absent(&mut self, owner: Identity) {
        self.absent.put(owner, ());
    }

    /// True if a live read did not find an owner. UIDs are never used again, so this stays true.
    pub(super) fn is_absent(&mut self, owner: &Owner, namespace: Option<&str>) -> bool {
        self.absent.get(&Identity::of_owner(owner, None)).is_some()
            || self.absent.get(&Identity::of_owner(owner, namespace)).is_some()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}
