//! `dogwatch up`: opens the store, listens, prints its address, and runs until a signal.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use console::Console;
use controllers::{Order, Selection, Signer, Stages};
use lab::worlds::Address;
use machinery::clock::Clock;
use registry::PluginSelection;
use server::certs::{Leaf, Pki, write_private};
use server::kubeconfig::{Credential, kubeconfig};
use server::limits::Limits;
use server::shutdown::{self, Trigger};
use server::signing::Authority;
use store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args;
use crate::authentication::{self, Authentication, Reloading};
use crate::authorization::Authorization;
use crate::background::{self, Controllers};
use crate::cluster::{Access, Cluster};
use crate::engine;
use crate::failure::Failure;
use crate::lab_role;
use crate::page::AdminPage;

/// Exit code of a server with a fault that did not do what is expected of it.
const UNMET: u8 = 3;

/// Runs until a signal. The first one drains, the second one aborts.
pub async fn run(args: args::Up) -> Result<(), Failure> {
    start(args, Given::default()).await?.wait().await
}

/// What a caller has in place of what the arguments choose.
#[derive(Default)]
pub(crate) struct Given {
    /// The store. Nothing writes to it by itself: no controller runs.
    pub(crate) store: Option<Arc<dyn Store>>,
    /// What the lab shows of a recording.
    pub(crate) recorded: Option<Arc<lab::Rows>>,
    /// Prints nothing.
    pub(crate) is_silent: bool,
}

/// A server that runs.
pub(crate) struct Running {
    pub(crate) cluster: Cluster,
    pub(crate) kubeconfig: PathBuf,
    signals: Signals,
    trigger: Trigger,
    serving: tokio::task::JoinHandle<()>,
    controllers: Option<Controllers>,
}

impl Running {
    /// Waits for a signal and stops.
    pub(crate) async fn wait(self) -> Result<(), Failure> {
        wait_for_signals(self.signals, self.trigger, self.serving, self.controllers).await?;
        let unmet = self.cluster.unmet_expectations();
        self.cluster.stop().await;
        if unmet.is_empty() { Ok(()) } else { Err(Failure::with_code(UNMET, unmet.join("; "))) }
    }

    /// Stops without a signal.
    pub(crate) async fn stop(self) {
        if let Some(controllers) = self.controllers {
            controllers.stop().await;
        }
        self.trigger.signal();
        self.trigger.abort();
        let _ = self.serving.await;
        self.cluster.stop().await;
    }
}

/// Starts a server and returns when it is ready.
pub(crate) async fn start(args: args::Up, given: Given) -> Result<Running, Failure> {
    let say = |line: String| {
        if !given.is_silent {
            println!("{line}");
        }
    };
    let (started, clock) = (Instant::now(), Clock::system());
    log_to_stderr(&args.log)?;
    // First, so that a signal during the start is handled once the server can stop.
    let signals = Signals::new()?;
    let webhooks = args.webhooks.settings(&clock)?;
    let pod_security = args.webhooks.pod_security()?;
    let review_recorder = args.explain.recorder()?;
    let mut authorization = Authorization::from_args(&args.authorization)?;
    let mut plugins = PluginSelection::new(&args.enable_admission_plugins, &args.disable_admission_plugins)
        .map_err(Failure::usage)?;
    if !args.no_controllers && args.nodes > 0 {
        authorization = authorization.with_nodes();
        // The rights of a node rest on both: one lets it write pods, the other only its own.
        plugins = plugins.with("NodeRestriction");
    }
    let authentication = Authentication::from_args(&args.authentication, args.no_anonymous).await?;
    let stages = args.stages.as_deref().map(read_stages).transpose()?.unwrap_or_default();
    let auditor = args.audit.settings().open(&clock, &Arc::default()).map_err(Failure::usage)?;
    create_data_dir(&args.data_dir)?;
    // Bound first, so that a port in use is reported before anything is opened.
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        Failure::new(format!("cannot listen on {}: {error}", args.listen))
            .hint("another program may have that port; --listen 127.0.0.1:0 picks a free one")
    })?;
    let address = listener.local_addr().map_err(Failure::new)?;
    // Keys and certificates are read or generated while the store opens.
    let open_store = async {
        match given.store.clone() {
            Some(store) => Ok(store),
            None => {
                let retention = engine::retention(&args.limits);
                engine::open(&args.data_dir, args.memory, &args.etcd, args.durability, retention).await
            }
        }
    };
    let (store, pki) = tokio::join!(open_store, open_pki(&args, &clock));
    let (store, pki) = (store?, pki?);
    say(format!("data        {}", describe_data(&args)));

    let pki_dir = args.data_dir.join("pki");
    let front_proxy = args.webhooks.front_proxy((!args.memory).then_some(&*pki_dir), &clock)?;
    let console = Arc::new(Console::new(pki.accounts_key_pem.as_bytes(), args.tls_san.clone()));
    let access = Access {
        token_file: args.token_file.clone(),
        anonymous: !args.no_anonymous,
        accounts_key_pem: Some(pki.accounts_key_pem.clone()),
        auditor,
        webhooks,
        front_proxy,
        authentication,
        authorization,
        traced_writes: args.explain.trace_admission,
        explain_refusals: args.explain.explain_refusals,
        page: Some(Arc::new(AdminPage::new(Arc::clone(&console)))),
        lab: args.lab.requests(),
        recorded: given.recorded.clone(),
    };
    let serving_leaf = authentication::serving(&args.authentication, &pki.serving)?;
    let tls = authentication::tls(&args.authentication, &pki)?;
    let mut controllers = controller_settings(&args, &pki, stages)?;
    controllers.ca_pem = trusted_pem(&args, &pki, &serving_leaf);
    let settings = registry::Settings {
        kinds: background::kinds(&controllers),
        service_accounts: controllers.keeps_service_accounts() && plugins.includes("ServiceAccount"),
        policy_types: !args.no_controllers,
        plugins,
        pod_security,
        review_recorder,
        own_mutations: args.explain.own_mutations,
        service_range: args.service_cluster_ip_range.0,
        service_range_bits: args.service_cluster_ip_range.1,
        node_ports: args.service_node_port_range.0..=args.service_node_port_range.1,
        ..registry::Settings::default()
    };
    let mut cluster = Cluster::start(store, &access, limits(&args.limits), settings).await?;
    if access.lab.is_some() && given.store.is_none() {
        lab_role::seed(cluster.registry()).await;
    }
    if given.store.is_none() {
        cluster.follow_files(Reloading::new(&args.authentication, &pki, &cluster, &tls));
    }
    if !args.no_controllers && given.store.is_none() {
        cluster.maintain_quotas();
    }

    let url = format!("https://{}", reachable(address));
    let kubeconfig_path = args.kubeconfig.clone().unwrap_or_else(|| args.data_dir.join("kubeconfig"));
    let text = kubeconfig(&url, Some(&trusted_pem(&args, &pki, &serving_leaf)), Credential::Certificate(&pki.admin));
    write_private(&kubeconfig_path, text.as_bytes()).map_err(Failure::new)?;
    let address = Address { url: url.clone(), ca_pem: controllers.ca_pem.clone() };
    cluster.set_worlds(Some(address), world_controllers(&args, &controllers));
    say(format!("export KUBECONFIG={}", absolute(&kubeconfig_path).display()));
    say(format!("url         {url}"));
    let code = console.visitors().issue_code(clock.now().as_second());
    say(format!("console     {url}{}#code={code}", console::PATH));

    let (trigger, shutdown) = shutdown::channel();
    let serving = tokio::spawn(cluster.server().serve(listener, Some(tls), shutdown));
    cluster.wait_until_ready().await;
    say(format!("ready in {} ms", started.elapsed().as_millis()));
    controllers.queues = cluster.queues().clone();
    let controllers = given.store.is_none().then(|| Controllers::start(cluster.server(), cluster.clock(), controllers));
    Ok(Running { cluster, kubeconfig: absolute(&kubeconfig_path), signals, trigger, serving, controllers })
}

/// What clients trust: the server's own authority, and a serving certificate that is given.
fn trusted_pem(args: &args::Up, pki: &Pki, serving: &Leaf) -> String {
    let given = if args.authentication.tls_cert_file.is_some() { serving.cert_pem.as_str() } else { "" };
    format!("{}{given}", pki.ca_pem)
}

async fn open_pki(args: &args::Up, clock: &Clock) -> Result<Pki, Failure> {
    let (memory, dir, mut names) = (args.memory, args.data_dir.join("pki"), args.tls_san.clone());
    if !args.listen.ip().is_unspecified() {
        names.push(args.listen.ip().to_string());
    }
    if args.lab.requests().is_some() {
        // By this name the lab can be reached while a fault refuses connections.
        names.push(lab::SERVER_NAME.to_owned());
    }
    let now = clock.now();
    let open = move || if memory { Pki::in_memory(&names, now) } else { Pki::open(&dir, &names, now) };
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|error| Failure::new(format!("making certificates failed: {error}")))?.map_err(Failure::new)
}

/// The controllers of worlds: those of the server, or all of them if the server itself has none.
fn world_controllers(args: &args::Up, own: &controllers::Settings) -> controllers::Settings {
    let selection = if args.no_controllers { Selection::default() } else { own.selection.clone() };
    controllers::Settings { selection, ..own.clone() }
}

/// The settings of the controllers. With `--no-controllers`, only certificates are signed.
fn controller_settings(args: &args::Up, pki: &Pki, stages: Stages) -> Result<controllers::Settings, Failure> {
    let authority = Authority::new(&pki.ca).map_err(Failure::new)?;
    let sign =
        move |order: &Order<'_>| authority.sign(order.request, order.usages, order.expiration_seconds, order.now);
    let selection = if args.no_controllers {
        Selection::certificates(args.approve_csrs)
    } else {
        args.controllers.clone().unwrap_or_default()
    };
    Ok(controllers::Settings {
        selection,
        nodes: args.nodes,
        identity: format!("dogwatch_{:016x}", rand::random::<u64>()),
        // Only an etcd can be shared with other servers, whose controllers must not run at the same time. Certificates may be
        // signed by each of them.
        elect: !args.etcd.endpoints.is_empty() && !args.no_controllers,
        ca_pem: pki.ca_pem.clone(),
        stages,
        signer: Some(Signer::new(sign)),
        approve_all: args.approve_csrs,
        ..controllers::Settings::default()
    })
}

fn read_stages(file: &Path) -> Result<Stages, Failure> {
    let wrong = |why: String| Failure::new(format!("--stages {}: {why}", file.display())).hint("see docs/nodes.md");
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    Stages::from_text(&text).map_err(wrong)
}

/// The signals that ask the process to end. Those that arrive after this value was made are not lost.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let terminate = signal(SignalKind::terminate()).map_err(Failure::new)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(Failure::new)?;
        Ok(Signals { terminate, interrupt })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits until the server ends. The first signal stops the controllers and drains, the second one aborts.
async fn wait_for_signals(
    mut signals: Signals,
    trigger: Trigger,
    mut serving: tokio::task::JoinHandle<()>,
    mut controllers: Option<Controllers>,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            ended = &mut serving => return ended.map_err(|error| Failure::new(format!("the server failed: {error}"))),
            () = signals.next() => {}
        };
        // Before the server drains, so that controllers finish their work and release their lease for another replica.
        if let Some(controllers) = controllers.take() {
            tokio::select! {
                () = controllers.stop() => {}
                () = signals.next() => { trigger.abort(); }
            }
        }
        trigger.signal();
    }
}

fn log_to_stderr(filter: &str) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        Failure::new(format!("--log {filter}: {error}")).hint("try --log info, or --log server=debug,store=info")
    })?;
    // Colours only for people: a file or a pipe gets none.
    let colours = std::io::stderr().is_terminal();
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).try_init();
    Ok(())
}

/// Creates the data directory, readable by its owner only.
fn create_data_dir(dir: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| {
        Failure::new(format!("the data directory {} cannot be made: {error}", dir.display()))
            .hint("choose another one with --data-dir")
    })
}

fn describe_data(args: &args::Up) -> String {
    if args.memory {
        "in memory only".to_owned()
    } else if args.etcd.endpoints.is_empty() {
        absolute(&args.data_dir).display().to_string()
    } else {
        format!("etcd {} below {}", args.etcd.endpoints.join(","), args.etcd.prefix)
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// An address to connect to: loopback for a server that listens on all addresses.
fn reachable(address: std::net::SocketAddr) -> std::net::SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        let loopback: std::net::IpAddr =
            if address.is_ipv4() { std::net::Ipv4Addr::LOCALHOST.into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        address.set_ip(loopback);
    }
    address
}

fn limits(given: &args::Limits) -> Limits {
    let mut limits = Limits::default();
    let set = |limit: &mut usize, given: Option<usize>| {
        if let Some(given) = given {
            *limit = given;
        }
    };
    set(&mut limits.body_bytes_max, given.max_body_bytes);
    set(&mut limits.connections_max, given.max_connections);
    set(&mut limits.inflight_reads_max, given.max_requests_inflight);
    set(&mut limits.inflight_writes_max, given.max_mutating_requests_inflight);
    set(&mut limits.watches_max, given.max_watches);
    set(&mut limits.body_bytes_total_max, given.max_body_bytes_total);
    set(&mut limits.unsent_bytes_max, given.max_unsent_bytes);
    set(&mut limits.watch_selector_bytes_max, given.max_watch_selector_bytes);
    set(&mut limits.webhook_bytes_total_max, given.max_webhook_bytes);
    set(&mut limits.heavy_bytes_max, given.max_heavy_bytes);
    if let Some(seconds) = given.response_stall_timeout {
        limits.response_stall_timeout = Duration::from_secs(seconds);
    }
    if let Some(seconds) = given.request_timeout {
        limits.request_timeout = Duration::from_secs(seconds);
    }
    if let Some(seconds) = given.drain_timeout {
        limits.drain_timeout = Duration::from_secs(seconds);
    }
    limits
}
