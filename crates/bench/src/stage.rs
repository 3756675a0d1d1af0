//! The environment of a scenario: the server, its processes and objects, the floor, and the report.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::floor::Floor;
use crate::frames::Field;
use crate::load_driver::{Load, LoadDriver};
use crate::own_server::OwnServer;
use crate::pod;
use crate::process::{Peak, Processes, Usage};
use crate::progress::Progress;
use crate::report::{Case, Report, ServerFigures};
use crate::sample::processor_time;
use crate::sizes::Sizes;
use crate::target::Target;
use crate::trouble::Trouble;
use crate::wire::{Answer, Connection, Protocol, Request};

/// Number of objects that are patched; enough that concurrent patches rarely conflict.
const PATCHED: u64 = 500;

/// The origin of the due times in [`pod`]s.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since that origin.
pub(crate) fn clock(moment: Instant) -> u64 {
    u64::try_from(moment.saturating_duration_since(*BEGINNING).as_nanos()).unwrap_or(u64::MAX)
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// This program, which can also run as our own server and as the floor.
    pub program: PathBuf,
    /// `None` starts our own server.
    pub kubeconfig: Option<PathBuf>,
    pub pids: Vec<u32>,
    pub protocol: Protocol,
    /// Parent of the folders of servers and stores.
    pub dir: PathBuf,
    pub sizes: Sizes,
}

/// Called with each result.
pub type Sink = Arc<dyn Fn(&Case) + Send + Sync>;

pub(crate) struct Stage {
    pub(crate) options: Options,
    report: Arc<Mutex<Report>>,
    sink: Sink,
    server: Option<Server>,
    floor: Option<Floor>,
}

/// The server that is measured.
pub(crate) struct Server {
    pub(crate) own: Option<OwnServer>,
    pub(crate) target: Target,
    pub(crate) processes: Processes,
    pub(crate) namespace: String,
    /// Pods 0 to this exist.
    made: u64,
    /// Number of different specs of the pods.
    specs: u64,
    filler: usize,
}

impl Stage {
    pub(crate) fn new(options: Options, report: Arc<Mutex<Report>>, sink: Sink) -> Self {
        LazyLock::force(&BEGINNING);
        Stage { options, report, sink, server: None, floor: None }
    }

    pub(crate) fn sizes(&self) -> &Sizes {
        &self.options.sizes
    }

    /// Adds a result to the report and passes it to the sink.
    pub(crate) fn record(&self, case: Case) {
        (self.sink)(&case);
        self.report.lock().cases.push(case);
    }

    /// Records a result that may be incomplete, and returns its failure.
    pub(crate) fn record_until(&self, case: Case, trouble: Option<Trouble>) -> Result<(), Trouble> {
        match trouble {
            None => {
                self.record(case);
                Ok(())
            }
            Some(trouble) => {
                self.record(case.failed(&trouble));
                Err(trouble)
            }
        }
    }

    /// The server, found or started, with a namespace of ours in it.
    pub(crate) async fn server(&mut self) -> Result<&mut Server, Trouble> {
        if self.server.is_none() {
            let server = Server::find(&self.options).await?;
            self.report.lock().url = server.target.url.clone();
            self.server = Some(server);
            if let Err(trouble) = self.greet().await {
                self.server = None;
                return Err(trouble);
            }
        }
        self.server.as_mut().ok_or_else(|| Trouble::impossible("there is no server"))
    }

    async fn greet(&mut self) -> Result<(), Trouble> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let mut connection = Connection::open(&server.target, self.options.protocol).await?;
        let answer = connection.must("tell its version", &Request::get("/version")).await?;
        let version: serde_json::Value = serde_json::from_slice(&answer.kept).unwrap_or_default();
        self.report.lock().server = version["gitVersion"].as_str().unwrap_or("unknown").to_owned();
        server.settle(&mut connection, self.options.sizes.size).await
    }

    /// Stops the floor and our own server: new ones have no freed memory that they could use again.
    pub(crate) fn renew(&mut self) {
        self.floor = None;
        self.server.take_if(|server| server.own.is_some());
    }

    /// Creates pods until there are at least `objects`.
    pub(crate) async fn populate(&mut self, objects: u64) -> Result<(), Trouble> {
        let (protocol, callers) = (self.options.protocol, self.sizes().callers);
        let server = self.server().await?;
        if server.made >= objects {
            return Ok(());
        }
        let (first, count) = (server.made, objects - server.made);
        let driver = LoadDriver::open(&server.target, protocol, callers.max(16)).await?;
        let progress = Progress::new("making objects", count);
        let result = driver.drive(Load { first, count, rate: None }, &progress, server.create()).await;
        server.made = objects;
        result.trouble.map_or(Ok(()), Err)
    }

    pub(crate) async fn floor(&mut self) -> Result<&mut Floor, Trouble> {
        if self.floor.is_none() {
            self.floor = Some(Floor::start(&self.options.program).await?);
        }
        self.floor.as_mut().ok_or_else(|| Trouble::impossible("there is no floor"))
    }

    /// Processor time in microseconds of the floor for each of `requests` responses of `bytes`.
    pub(crate) async fn floor_of_answers(&mut self, callers: usize, requests: u64, bytes: u64) -> Result<f64, Trouble> {
        let floor = self.floor().await?;
        let driver = LoadDriver::open(&floor.target, Protocol::Http1, callers).await?;
        let make = move |_, _| Request::get(format!("/bytes/{bytes}"));
        let progress = Progress::new("the floor", requests + 1);
        // The first request allocates the content of all responses.
        let warm = driver.drive(Load { first: 0, count: 1, rate: None }, &progress, Arc::new(make)).await;
        let driver = warm.into_driver()?;
        let before = floor.cpu().await?;
        let result = driver.drive(Load { first: 0, count: requests, rate: None }, &progress, Arc::new(make)).await;
        result.into_driver()?;
        Ok((floor.cpu().await? - before).as_secs_f64() * 1e6 / requests.max(1) as f64)
    }

    /// Removes our objects from a server that is not our own.
    pub(crate) async fn leave(&mut self) {
        let Some(server) = &self.server else { return };
        if server.own.is_some() {
            return;
        }
        let pods = format!("{}?gracePeriodSeconds=0", server.pods());
        let namespace = format!("/api/v1/namespaces/{}", server.namespace);
        if let Ok(mut connection) = Connection::open(&server.target, Protocol::Http1).await {
            // If the server is gone there is nothing to clean, and a refusal was reported before.
            let _ = connection.ask(&Request::delete(pods)).await;
            let _ = connection.ask(&Request::delete(namespace)).await;
        }
    }
}

impl Server {
    async fn find(options: &Options) -> Result<Self, Trouble> {
        let own = match options.kubeconfig {
            Some(_) => None,
            None => Some(OwnServer::start(&options.program, &options.dir, &["--no-controllers"]).await?),
        };
        let target = match (&own, &options.kubeconfig) {
            (Some(own), _) => own.target.clone(),
            (None, Some(path)) => Target::from_kubeconfig(path)?,
            (None, None) => return Err(Trouble::impossible("there is no server")),
        };
        let pids = own.as_ref().and_then(OwnServer::pid).into_iter().chain(options.pids.iter().copied()).collect();
        let namespace = format!("bench-{:x}-{:x}", std::process::id(), clock(Instant::now()) % 0xfff_ffff);
        Ok(Server {
            own,
            target,
            processes: Processes::new(pids)?,
            namespace,
            made: 0,
            specs: options.sizes.specs,
            filler: 0,
        })
    }

    /// Creates a namespace and a service account for its pods, and determines the filler of a pod.
    async fn settle(&mut self, connection: &mut Connection, size: usize) -> Result<(), Trouble> {
        let namespace = &self.namespace;
        let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
        connection.must("create a namespace", &Request::post("/api/v1/namespaces", body)).await?;
        // A controller may create it first.
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
        let answer = connection.ask(&Request::post(accounts, account)).await?;
        if !answer.succeeded() && answer.status != 409 {
            return Err(Trouble::refused("create a service account", answer.status, &answer.kept));
        }
        let created = connection.must("create a pod", &Request::post(self.pods(), pod::body(0, self.specs, 0))).await?;
        let path = format!("{}/{}?gracePeriodSeconds=0", self.pods(), pod::name(0));
        connection.must("delete a pod", &Request::delete(path)).await?;
        self.filler = size.saturating_sub(usize::try_from(created.bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    pub(crate) fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Reserves the numbers of new pods; returns the first.
    pub(crate) fn making(&mut self, count: u64) -> u64 {
        let first = self.made;
        self.made += count;
        first
    }

    pub(crate) fn create(&self) -> Arc<dyn Fn(u64, Instant) -> Request + Send + Sync> {
        let (pods, specs, filler) = (self.pods(), self.specs, self.filler);
        Arc::new(move |number, _| Request::post(pods.clone(), pod::body(number, specs, filler)))
    }

    /// Patches that write their due time.
    pub(crate) fn patch(&self) -> Arc<dyn Fn(u64, Instant) -> Request + Send + Sync> {
        let (pods, among) = (self.pods(), self.made.clamp(1, PATCHED));
        Arc::new(move |number, due| {
            let path = format!("{pods}/{}", pod::name(number % among));
            Request::merge_patch(path, pod::due_patch(clock(due)))
        })
    }

    /// The current revision.
    pub(crate) async fn revision(&self, protocol: Protocol) -> Result<String, Trouble> {
        let mut connection = Connection::open(&self.target, protocol).await?;
        let path = format!("{}?limit=1", self.pods());
        revision(&connection.must("list", &Request::get(path)).await?)
    }

    /// Resident memory after the server has freed what the last measurement used.
    pub(crate) async fn quiet_memory(&self) -> Option<u64> {
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.processes.usage().map(|usage| usage.memory)
    }
}

/// The revision of a list, which is written before its items.
pub(crate) fn revision(list: &Answer) -> Result<String, Trouble> {
    let found = Field::new("resourceVersion").text(&list.kept).map(str::to_owned);
    found.ok_or_else(|| Trouble::refused("list", list.status, b"its list has no resourceVersion"))
}

/// Measures the cost of a scenario to the server and to the generator.
pub(crate) struct Meter {
    processes: Processes,
    before: Option<Usage>,
    generator: Duration,
    started: Instant,
    peak: Peak,
}

impl Meter {
    pub(crate) fn start(processes: &Processes) -> Self {
        Meter {
            processes: processes.clone(),
            before: processes.usage(),
            generator: processor_time(),
            started: Instant::now(),
            peak: processes.watch_memory(),
        }
    }

    /// Fills in the cost of each of `operations`.
    pub(crate) fn end(self, case: &mut Case, operations: u64) {
        let took = self.started.elapsed();
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / operations.max(1) as f64;
        case.operations = operations;
        case.seconds = took.as_secs_f64();
        case.per_second = operations as f64 / took.as_secs_f64();
        case.generator_cpu_us_each = each(processor_time().saturating_sub(self.generator));
        if let (Some(before), Some(after)) = (self.before, self.processes.usage()) {
            case.server = Some(ServerFigures {
                cpu_us_each: each(after.cpu.saturating_sub(before.cpu)),
                memory_mb: megabytes(after.memory),
                memory_peak_mb: self.peak.end().map(megabytes),
            });
        }
    }
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
