//! A model of a whole server, with every fault of the specification, against whole informers: whatever the faults, in the end
//! the store and every subscriber must have exactly the objects of the server.
//!
//! The model keeps a history of changes and forgets its beginning now and then; it cuts streams, refuses connections,
//! is busy, withholds the end of an initial stream, answers 410 in both forms, and sometimes is restored from a backup.
//! Time is virtual, faults are drawn from a seed, so a failing seed can be run again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::list_watch::{Bookmark, ListEnd, ListItem, ListStream, ListerWatcher, WatchItem, WatchStream};
use crate::reflector::ReflectorConfig;
use crate::scripted::{busy, failure, gone, object, refused, too_large};
use crate::wire::Params;
use crate::{Error, Key, RawObject};

#[derive(Clone, PartialEq, Debug)]
struct Stored {
    uid: u64,
    version: u64,
}

#[derive(Clone)]
enum Change {
    Added,
    Modified,
    Deleted,
}

struct World {
    rng: StdRng,
    version: u64,
    next_uid: u64,
    objects: BTreeMap<String, Stored>,
    /// (version, change, name, uid)
    history: Vec<(u64, Change, String, u64)>,
    /// History up to here is forgotten.
    compacted: u64,
    outage: bool,
    backup: Option<(BTreeMap<String, Stored>, u64)>,
    faults: bool,
}

#[derive(Clone)]
struct Model {
    world: Arc<Mutex<World>>,
    /// Counts changes of the world, to wake streams.
    moved: Arc<watch::Sender<u64>>,
    /// Streams opened under an older number are cut.
    generation: Arc<watch::Sender<u64>>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let world = World {
            rng: StdRng::seed_from_u64(seed),
            version: 10,
            next_uid: 1,
            objects: BTreeMap::new(),
            history: Vec::new(),
            compacted: 10,
            outage: false,
            backup: None,
            faults: true,
        };
        Self {
            world: Arc::new(Mutex::new(world)),
            moved: Arc::new(watch::Sender::new(0)),
            generation: Arc::new(watch::Sender::new(0)),
        }
    }

    fn chance(&self, percent: u32) -> bool {
        let mut world = self.world.lock();
        world.faults && world.rng.random_ratio(percent, 100)
    }

    fn write(&self) {
        let mut guard = self.world.lock();
        let world = &mut *guard;
        let name = format!("o{}", world.rng.random_range(0..12));
        world.version += 1;
        let version = world.version;
        let exists = world.objects.contains_key(&name);
        let (change, uid) = match world.objects.get_mut(&name) {
            None => {
                let uid = world.next_uid;
                world.next_uid += 1;
                world.objects.insert(name.clone(), Stored { uid, version });
                (Change::Added, uid)
            }
            Some(stored) if world.rng.random_ratio(1, 3) => {
                let uid = stored.uid;
                world.objects.remove(&name);
                (Change::Deleted, uid)
            }
            Some(stored) => {
                stored.version = version;
                (Change::Modified, stored.uid)
            }
        };
        debug_assert_eq!(exists, !matches!(change, Change::Added));
        world.history.push((version, change, name, uid));
        drop(guard);
        self.moved.send_modify(|n| *n += 1);
    }

    fn compact(&self) {
        let mut world = self.world.lock();
        let upto = world.version - world.rng.random_range(0..5).min(world.version - world.compacted);
        world.compacted = upto;
        world.history.retain(|(version, ..)| *version > upto);
    }

    fn cut_all(&self) {
        self.generation.send_modify(|n| *n += 1);
    }

    fn restore(&self) {
        {
            let mut world = self.world.lock();
            let Some((objects, version)) = world.backup.take() else { return };
            world.objects = objects;
            world.version = version;
            world.compacted = version;
            world.history.clear();
        }
        self.cut_all();
    }

    fn admit(&self) -> Result<(), Error> {
        if self.world.lock().outage {
            return Err(refused());
        }
        match () {
            () if self.chance(5) => Err(failure(500, "InternalError")),
            () if self.chance(5) => Err(busy(1)),
            () => Ok(()),
        }
    }

    /// The next change after `cursor`, or what is wrong with it.
    fn after(&self, cursor: u64) -> Result<Option<(u64, WatchItem)>, Error> {
        let world = self.world.lock();
        if cursor < world.compacted {
            return Err(gone());
        }
        let next = world.history.iter().find(|(version, ..)| *version > cursor);
        Ok(next.map(|(version, change, name, uid)| {
            let raw = state(name, *uid, *version);
            let item = match change {
                Change::Added => WatchItem::Added(raw),
                Change::Modified => WatchItem::Modified(raw),
                Change::Deleted => WatchItem::Deleted(raw),
            };
            (*version, item)
        }))
    }

    fn set(&self) -> (Vec<RawObject>, u64) {
        let world = self.world.lock();
        let objects = world.objects.iter().map(|(name, stored)| state(name, stored.uid, stored.version)).collect();
        (objects, world.version)
    }

    /// The objects of the server, as (uid, version) by name.
    fn truth(&self) -> BTreeMap<String, Stored> {
        self.world.lock().objects.clone()
    }

    fn check_version(&self, params: &Params) -> Result<(), Error> {
        let asked = params.version.as_ref().map_or("", |v| v.as_str()).parse::<u64>().unwrap_or(0);
        if asked > self.world.lock().version { Err(too_large()) } else { Ok(()) }
    }

    /// Changes after `cursor`, with a bookmark a minute, until the stream is cut.
    fn changes(&self, cursor: u64) -> WatchStream {
        let model = self.clone();
        let mine = *self.generation.borrow();
        stream::unfold((model, cursor, false), move |(model, cursor, ended)| async move {
            if ended || model.chance(2) {
                return None;
            }
            let mut moved = model.moved.subscribe();
            let mut generation = model.generation.subscribe();
            loop {
                match model.after(cursor) {
                    Err(error) => return Some((Ok(WatchItem::Error(error)), (model, cursor, true))),
                    Ok(Some((version, item))) => return Some((Ok(item), (model, version, false))),
                    Ok(None) => {}
                }
                tokio::select! {
                    _ = moved.changed() => {}
                    _ = generation.wait_for(|now| *now != mine) => return Some((Err(refused()), (model, cursor, true))),
                    () = sleep(Duration::from_secs(60)) => {
                        let version = model.world.lock().version;
                        // A change may have happened in the same instant; a bookmark must not skip it.
                        if matches!(model.after(cursor), Ok(None)) && version >= cursor {
                            let bookmark = Bookmark { version: version.to_string().into(), initial_events_end: false };
                            return Some((Ok(WatchItem::Bookmark(bookmark)), (model, version, false)));
                        }
                    }
                }
            }
        })
        .boxed()
    }
}

fn state(name: &str, uid: u64, version: u64) -> RawObject {
    object(&format!("{name}@{version}#{uid}"))
}

impl ListerWatcher for Model {
    fn list(&self, params: Params) -> BoxFuture<'_, Result<ListStream, Error>> {
        async move {
            self.admit()?;
            self.check_version(&params)?;
            let (objects, version) = self.set();
            let broken = self.chance(10);
            let end = ListEnd { version: version.to_string().into(), continue_token: None };
            let mut items: Vec<Result<ListItem, Error>> = objects.into_iter().map(ListItem::Object).map(Ok).collect();
            items.push(if broken { Err(refused()) } else { Ok(ListItem::End(end)) });
            Ok(stream::iter(items).boxed())
        }
        .boxed()
    }

    fn watch(&self, params: Params) -> BoxFuture<'_, Result<WatchStream, Error>> {
        async move {
            self.admit()?;
            self.check_version(&params)?;
            if !params.send_initial_events {
                let cursor = params.version.as_ref().map_or("", |v| v.as_str()).parse().unwrap_or(0);
                if self.chance(30) && self.after(cursor).is_err() {
                    return Err(gone()); // as an HTTP status
                }
                return Ok(self.changes(cursor));
            }
            if self.chance(10) {
                return Err(failure(422, "Invalid"));
            }
            let (objects, version) = self.set();
            let mut items: Vec<Result<WatchItem, Error>> = objects.into_iter().map(WatchItem::Added).map(Ok).collect();
            if self.chance(10) {
                items.truncate(1);
                return Ok(stream::iter(items).boxed()); // cut
            }
            if self.chance(5) {
                return Ok(stream::iter(items).chain(stream::pending()).boxed()); // no end bookmark
            }
            items.push(Ok(WatchItem::Bookmark(Bookmark {
                version: version.to_string().into(),
                initial_events_end: true,
            })));
            Ok(stream::iter(items).chain(self.changes(version)).boxed())
        }
        .boxed()
    }
}

/// The state of a subscriber by its events, checked at every step.
#[derive(Clone, Default)]
struct Belief(Arc<Mutex<BTreeMap<String, Stored>>>);

fn stored(map: &ConfigMap) -> (String, Stored) {
    let meta = &map.metadata;
    let number = |text: &Option<String>| text.as_deref().unwrap_or_default().parse().unwrap();
    (Key::of(map).to_string(), Stored { uid: number(&meta.uid), version: number(&meta.resource_version) })
}

impl Belief {
    fn take(&self, event: &Event<ConfigMap>) {
        let mut belief = self.0.lock();
        match event {
            Event::Added { object, .. } => {
                let (name, new) = stored(object);
                assert_eq!(belief.insert(name, new), None, "{event:?}: added what was there");
            }
            Event::Updated { old, new } => {
                let (name, new) = stored(new);
                let before = belief.insert(name, new.clone());
                assert_eq!(before, Some(stored(old).1), "{event:?}: the old state is not what was seen");
                assert_eq!(before.map(|b| b.uid), Some(new.uid), "{event:?}: another incarnation is no update");
            }
            Event::Deleted { object, .. } => {
                let (name, gone) = stored(object);
                let before = belief.remove(&name);
                assert_eq!(before.map(|b| b.uid), Some(gone.uid), "{event:?}: deleted what was not there");
            }
            Event::Lagged { snapshot, .. } => {
                *belief = snapshot.iter().map(|object| stored(object)).collect();
            }
            Event::HistoryReset { .. } => {}
            Event::Undecodable { .. } => panic!("the model sends nothing undecodable"),
        }
    }
}

fn believe(
    informer: &SharedInformer<ConfigMap>,
    delivery: Delivery,
    delay: Duration,
) -> (Belief, HandlerHandle<ConfigMap>) {
    let belief = Belief::default();
    let mine = belief.clone();
    let options = SubscriptionOptions { delivery, ..SubscriptionOptions::default() };
    let handle = informer.add_handler(options, move |event| {
        mine.take(&event);
        async move {
            if !delay.is_zero() {
                sleep(delay).await;
            }
        }
    });
    (belief, handle.unwrap())
}

async fn run(seed: u64, restores: bool, relist_in_place: bool) {
    let model = Model::new(seed);
    let reflector = ReflectorConfig { relist_in_place, ..ReflectorConfig::default() };
    let config = InformerConfig { reflector, ..InformerConfig::default() };
    let informer = SharedInformer::<ConfigMap>::new(model.clone(), config);
    let stop = CancellationToken::new();
    let task = tokio::spawn(informer.start(stop.clone()).unwrap());
    let mut believers = vec![
        believe(&informer, Delivery::Latest, Duration::ZERO),
        believe(&informer, Delivery::Latest, Duration::from_secs(3)),
        believe(&informer, Delivery::Every { capacity: 10_000 }, Duration::ZERO),
        believe(&informer, Delivery::Every { capacity: 5 }, Duration::from_secs(7)),
    ];
    let mut rng = StdRng::seed_from_u64(seed ^ 0xdead);
    for step in 0..400 {
        for _ in 0..rng.random_range(0..6) {
            model.write();
        }
        sleep(Duration::from_millis(rng.random_range(0..2000))).await;
        match rng.random_range(0..40) {
            0..4 => model.compact(),
            4..8 => model.cut_all(),
            8 => {
                model.world.lock().outage = true;
                model.cut_all();
                for _ in 0..rng.random_range(0..20) {
                    model.write();
                }
                if rng.random_ratio(1, 2) {
                    model.compact();
                }
                sleep(Duration::from_secs(rng.random_range(1..40))).await;
                model.world.lock().outage = false;
            }
            9 if restores => {
                let mut world = model.world.lock();
                world.backup = Some((world.objects.clone(), world.version));
            }
            10 if restores => {
                model.restore();
                // A restored server that has caught up with its own past before the next request cannot be noticed.
                sleep(Duration::from_secs(600)).await;
            }
            11 if step < 300 => {
                let slow = Duration::from_millis(rng.random_range(0..500));
                believers.push(believe(&informer, Delivery::Latest, slow));
            }
            _ => {}
        }
    }
    // Without faults: all must converge.
    model.world.lock().faults = false;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(3600);
    loop {
        let truth = model.truth();
        let seen: BTreeMap<String, Stored> = informer.store().snapshot().iter().map(|object| stored(object)).collect();
        let all_believe = believers.iter().all(|(belief, _)| *belief.0.lock() == truth);
        if seen == truth && all_believe {
            break;
        }
        if tokio::time::Instant::now() > deadline {
            assert_eq!(seen, truth, "seed {seed}: the store differs");
            for (at, (belief, _)) in believers.iter().enumerate() {
                assert_eq!(*belief.0.lock(), truth, "seed {seed}: subscriber {at} differs");
            }
        }
        sleep(Duration::from_secs(10)).await;
    }
    for (at, (_, handle)) in believers.iter().enumerate() {
        assert_eq!(handle.stats().panics.get(), 0, "seed {seed}: subscriber {at} was told something impossible");
    }
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_store_and_subscribers_end_equal_to_the_server() {
    for seed in 0..12 {
        run(seed, false, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn and_when_relists_happen_in_place() {
    for seed in 200..212 {
        run(seed, seed % 2 == 0, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn even_if_the_server_is_restored_from_backups() {
    for seed in 100..108 {
        run(seed, true, false).await;
    }
}
