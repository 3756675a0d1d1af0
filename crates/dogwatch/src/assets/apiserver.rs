//! `kube-apiserver`: the flags of that program, turned into those of `dogwatch up`.
//!
//! A flag that `dogwatch up` has under the same name is passed on. Some have another name or form here and are
//! translated. Any other is accepted with one warning, because a harness passes flags that change nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};

use super::flags::Flags;
use super::{etcd, parent};
use crate::args::{Cli, Command};
use crate::failure::Failure;

/// How long the etcd of a harness may take to answer.
const ETCD_TIMEOUT: Duration = Duration::from_secs(2);

/// Flags that are accepted without a warning: what they ask for holds here anyway, or cannot be seen by a test.
const SILENT: [&str; 14] = [
    "advertise-address",
    "allow-privileged",
    "cert-dir",
    "enable-priority-and-fairness",
    "etcd-compaction-interval",
    "etcd-count-metric-poll-period",
    "logtostderr",
    "profiling",
    "service-account-lookup",
    "shutdown-delay-duration",
    "storage-backend",
    "storage-media-type",
    "watch-cache",
    "watch-cache-sizes",
];

/// Flags that have another name here: theirs and ours. Their values have the same form.
const RENAMED: [(&str, &str); 4] = [
    ("etcd-cafile", "etcd-ca"),
    ("etcd-certfile", "etcd-cert"),
    ("etcd-keyfile", "etcd-key"),
    ("token-auth-file", "token-file"),
];

pub(super) async fn run(words: Vec<String>) -> Result<(), Failure> {
    if words.iter().any(|word| matches!(word.as_str(), "--help" | "-h")) {
        print!("{}", help());
        return Ok(());
    }
    if words.iter().any(|word| word == "--version" || word.starts_with("--version=")) {
        println!("Kubernetes {} (dogwatch {})", server::version::GIT_VERSION, env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let environment = Environment::read();
    let mut flags = Flags::read(&words);
    let endpoints = flags.take_all("etcd-servers").join(",");
    let directory = match &environment.data {
        Some(directory) => Some(directory.clone()),
        None => tokio::task::spawn_blocking({
            let endpoints = endpoints.clone();
            move || directory_of(&endpoints)
        })
        .await
        .unwrap_or_default(),
    };
    let storage = match directory {
        Some(directory) => Storage::Directory(directory),
        None if endpoints.is_empty() => Storage::Memory,
        None => Storage::Etcd(endpoints),
    };
    let translated = translate(flags, &storage, &environment)?;
    for flag in &translated.ignored {
        eprintln!("warning: --{flag} has no effect in dogwatch");
    }
    let cli = Cli::try_parse_from(&translated.words).map_err(|error| Failure::usage(first_line(&error.to_string())))?;
    let Command::Up(args) = cli.command else { return Err(Failure::new("the flags do not start a server")) };
    tokio::select! {
        ended = crate::up::run(args) => ended,
        () = parent::ended() => Ok(()),
    }
}

/// Where the objects are stored.
#[derive(Debug, PartialEq, Eq)]
enum Storage {
    /// In the directory of an `etcd` that is this program too, or one that was chosen.
    Directory(PathBuf),
    Etcd(String),
    Memory,
}

/// What a user chooses by variables, because a harness fixes the flags.
#[derive(Debug, Default)]
struct Environment {
    /// `DOGWATCH_CONTROLLERS`: the controllers to run; none by default, as a harness expects.
    controllers: Option<String>,
    /// `DOGWATCH_NODES`: the number of simulated nodes.
    nodes: Option<String>,
    /// `DOGWATCH_DATA`: the directory for the objects.
    data: Option<PathBuf>,
    /// `DOGWATCH_LAB`: faults, worlds and the other powers.
    lab: bool,
}

impl Environment {
    fn read() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Environment {
            controllers: text("DOGWATCH_CONTROLLERS"),
            nodes: text("DOGWATCH_NODES"),
            data: text("DOGWATCH_DATA").map(PathBuf::from),
            lab: text("DOGWATCH_LAB").is_some_and(|value| value != "0"),
        }
    }
}

/// A command line of `dogwatch up`, and the flags that it has no place for.
#[derive(Debug)]
struct Translated {
    words: Vec<String>,
    ignored: Vec<String>,
}

fn translate(mut flags: Flags, storage: &Storage, environment: &Environment) -> Result<Translated, Failure> {
    let mut words: Vec<String> = ["dogwatch", "up"].map(str::to_owned).into();
    let mut add = |name: &str, value: &str| words.push(format!("--{name}={value}"));
    let certificates = flags.take("cert-dir").map(PathBuf::from);
    match storage {
        Storage::Directory(directory) => {
            add("data-dir", &directory.join("dogwatch").display().to_string());
            // What a harness stores need not survive a power failure; it survives a kill.
            add("durability", "relaxed");
        }
        Storage::Etcd(endpoints) => {
            add("etcd", endpoints);
            add("data-dir", &own_directory(certificates.as_deref()).display().to_string());
            if let Some(prefix) = flags.take("etcd-prefix") {
                add("etcd-prefix", &format!("{}/", prefix.trim_end_matches('/')));
            }
        }
        Storage::Memory => {
            add("data-dir", &own_directory(certificates.as_deref()).display().to_string());
            words.push("--memory".to_owned());
        }
    }
    let mut add = |name: &str, value: &str| words.push(format!("--{name}={value}"));
    let host = flags.take("bind-address").unwrap_or_else(|| "0.0.0.0".to_owned());
    let port = flags.take("secure-port").unwrap_or_else(|| "6443".to_owned());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    add("listen", &format!("{host}:{port}"));
    let given = (flags.take("tls-cert-file"), flags.take("tls-private-key-file"));
    if let Some((cert, key)) = serving_pair(given, certificates.as_deref()) {
        add("tls-cert-file", &cert);
        add("tls-private-key-file", &key);
    }
    if let Some(timeout) = flags.take("request-timeout") {
        add("request-timeout", &seconds("request-timeout", &timeout)?.to_string());
    }
    // A harness ends the server after its tests, and waits for it.
    add("drain-timeout", "0");
    if flags.take_switch("anonymous-auth") == Some(false) {
        words.push("--no-anonymous".to_owned());
    }
    match environment.controllers.as_deref() {
        None if environment.nodes.is_none() => words.push("--no-controllers".to_owned()),
        None | Some("all") => {}
        Some(names) => words.push(format!("--controllers={}", controller_names(names))),
    }
    match &environment.nodes {
        Some(nodes) => words.push(format!("--nodes={nodes}")),
        // Controllers that a suite asks for do not bring nodes with them.
        None => words.push("--nodes=0".to_owned()),
    }
    if environment.lab {
        words.push("--lab".to_owned());
    }
    for (theirs, ours) in RENAMED {
        words.extend(flags.take(theirs).map(|value| format!("--{ours}={value}")));
    }
    let known = up_flags();
    let mut ignored = Vec::new();
    for (name, values) in flags.rest() {
        if let Some(flag) = known.get(&name) {
            // The last value of a flag that has one counts.
            let unused = if flag.repeats { 0 } else { values.len().saturating_sub(1) };
            words.extend(values.iter().skip(unused).map(|value| passed_on(&name, value, flag.takes_values)));
        } else if !SILENT.contains(&name.as_str()) {
            ignored.push(name);
        }
    }
    Ok(Translated { words, ignored })
}

/// A flag of the same name. Switches of Go programs may have a value.
fn passed_on(name: &str, value: &str, takes_values: bool) -> String {
    if value.is_empty() || value == "true" && !takes_values { format!("--{name}") } else { format!("--{name}={value}") }
}

/// A flag of `dogwatch up`.
struct UpFlag {
    takes_values: bool,
    /// Whether all values of a repeated flag count.
    repeats: bool,
}

/// All flags of `dogwatch up` by name.
fn up_flags() -> BTreeMap<String, UpFlag> {
    let mut command = Cli::command();
    let up = command.find_subcommand_mut("up").map(std::mem::take).unwrap_or_default();
    up.get_arguments()
        .filter_map(|flag| {
            let action = flag.get_action();
            let repeats = matches!(action, clap::ArgAction::Append);
            Some((flag.get_long()?.to_owned(), UpFlag { takes_values: action.takes_values(), repeats }))
        })
        .collect()
}

/// The serving certificate and its key: as given, else those that the harness wrote to its folder.
fn serving_pair(given: (Option<String>, Option<String>), folder: Option<&Path>) -> Option<(String, String)> {
    if let (Some(cert), Some(key)) = given {
        return Some((cert, key));
    }
    let (cert, key) = (folder?.join("apiserver.crt"), folder?.join("apiserver.key"));
    (cert.exists() && key.exists()).then(|| (cert.display().to_string(), key.display().to_string()))
}

/// A directory for what the server itself needs, beside the certificates of the harness.
fn own_directory(certificates: Option<&Path>) -> PathBuf {
    match certificates {
        Some(folder) => folder.join("dogwatch"),
        None => std::env::temp_dir().join(format!("dogwatch-{}", std::process::id())),
    }
}

/// Short names of controllers that people use.
fn controller_names(names: &str) -> String {
    let long = |name: &str| match name.trim() {
        "gc" => "garbagecollector".to_owned(),
        "-gc" => "-garbagecollector".to_owned(),
        other => other.to_owned(),
    };
    names.split(',').map(long).collect::<Vec<_>>().join(",")
}

/// Seconds of a duration as Go writes them: `90s`, `1m30s`, `2h`.
fn seconds(flag: &str, text: &str) -> Result<u64, Failure> {
    let wrong = || Failure::usage(format!("--{flag} {text}: a duration is like 60s or 1m30s"));
    let (mut total, mut number) = (0_u64, String::new());
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(wrong()),
        };
        let value: u64 = number.parse().map_err(|_| wrong())?;
        total = value.checked_mul(unit).and_then(|value| total.checked_add(value)).ok_or_else(wrong)?;
        number.clear();
    }
    if number.is_empty() && total > 0 { Ok(total) } else { Err(wrong()) }
}

/// The data directory of an `etcd` that is this program. None for a real etcd, or if nothing answers.
fn directory_of(endpoints: &str) -> Option<PathBuf> {
    let address = endpoints.split(',').next()?.strip_prefix("http://")?.trim_end_matches('/');
    let address = address.to_socket_addrs().ok()?.next()?;
    let mut connection = TcpStream::connect_timeout(&address, ETCD_TIMEOUT).ok()?;
    connection.set_read_timeout(Some(ETCD_TIMEOUT)).ok()?;
    let path = etcd::DIRECTORY_PATH;
    write!(connection, "GET {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    // More than any path: what is longer is not our answer.
    connection.take(16 * 1024).read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let directory = PathBuf::from(body);
    (head.starts_with("HTTP/1.1 200") && directory.is_absolute()).then_some(directory)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// The help: which flags are honoured. A harness only looks whether it is there.
fn help() -> String {
    let mut names: BTreeSet<String> = up_flags().into_keys().collect();
    names.extend(RENAMED.map(|(theirs, _)| theirs.to_owned()));
    names.extend(["bind-address", "secure-port", "etcd-servers", "anonymous-auth"].map(str::to_owned));
    names.extend(SILENT.map(str::to_owned));
    let mut text =
        "kube-apiserver: dogwatch under the name of kube-apiserver, for test suites that start a control plane.\n\n\
                    These flags are honoured or need no effect here; any other is accepted with a warning.\n\n"
            .to_owned();
    for name in names {
        text.push_str(&format!("      --{name}\n"));
    }
    text.push_str(
        "\nVariables: DOGWATCH_CONTROLLERS=gc,namespace (or all), DOGWATCH_NODES=3, DOGWATCH_LAB=1, DOGWATCH_DATA=DIR, DOGWATCH_KEEP=1\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Flags {
        Flags::read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn translated(line: &str, environment: &Environment) -> Translated {
        translate(words(line), &Storage::Directory("/tmp/e".into()), environment).unwrap()
    }

    #[test]
    fn the_flags_of_envtest_start_a_server_without_controllers() {
        let line = "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 --cert-dir=/nowhere \
                    --disable-admission-plugins=ServiceAccount --secure-port=40123 --unknown-flag=x";
        let Translated { words, ignored } = translated(line, &Environment::default());
        assert_eq!(ignored, ["unknown-flag"]);
        for word in ["--listen=127.0.0.1:40123", "--data-dir=/tmp/e/dogwatch", "--no-controllers", "--drain-timeout=0"]
        {
            assert!(words.iter().any(|found| found == word), "{word} in {words:?}");
        }
        let Command::Up(up) = Cli::try_parse_from(&words).unwrap().command else { panic!("{words:?}") };
        assert_eq!(up.listen.port(), 40123);
    }

    #[test]
    fn a_repeated_flag_is_as_in_go_the_last_value_or_a_list() {
        let line = "--service-account-signing-key-file /a --service-account-signing-key-file /b --service-account-issuer \
                    https://localhost --service-account-issuer /c --secure-port 1 --allow-privileged";
        let words = translated(line, &Environment::default()).words;
        let given = |name: &str| words.iter().filter(|word| word.starts_with(name)).cloned().collect::<Vec<_>>();
        assert_eq!(given("--service-account-signing-key-file"), ["--service-account-signing-key-file=/b"]);
        assert_eq!(given("--service-account-issuer").len(), 2);
        Cli::try_parse_from(&words).unwrap();
    }

    #[test]
    fn controllers_and_nodes_are_a_variable_away() {
        let chosen = Environment { controllers: Some("gc,namespace".to_owned()), ..Environment::default() };
        let words = translated("--secure-port 1", &chosen).words;
        assert!(words.contains(&"--controllers=garbagecollector,namespace".to_owned()), "{words:?}");
        assert!(words.contains(&"--nodes=0".to_owned()));
        Cli::try_parse_from(&words).unwrap();
        let all =
            Environment { controllers: Some("all".to_owned()), nodes: Some("2".to_owned()), ..Environment::default() };
        let words = translated("--secure-port 1", &all).words;
        assert!(!words.iter().any(|word| word.contains("controllers")), "{words:?}");
        assert!(words.contains(&"--nodes=2".to_owned()));
    }

    #[test]
    fn the_lab_is_a_variable_away() {
        let words = translated("--secure-port 1", &Environment { lab: true, ..Environment::default() }).words;
        let Command::Up(up) = Cli::try_parse_from(&words).unwrap().command else { panic!("{words:?}") };
        assert!(up.lab.lab);
        assert!(!translated("--secure-port 1", &Environment::default()).words.contains(&"--lab".to_owned()));
    }

    #[test]
    fn a_real_etcd_is_used_as_such() {
        let storage = Storage::Etcd("http://10.0.0.1:2379".to_owned());
        let flags = words("--etcd-prefix=/registry --etcd-cafile=/ca");
        let words = translate(flags, &storage, &Environment::default()).unwrap().words;
        for word in ["--etcd=http://10.0.0.1:2379", "--etcd-prefix=/registry/", "--etcd-ca=/ca"] {
            assert!(words.iter().any(|found| found == word), "{word} in {words:?}");
        }
    }

    #[test]
    fn durations_are_as_go_writes_them() {
        assert_eq!(seconds("t", "1m30s").unwrap(), 90);
        assert_eq!(seconds("t", "2h").unwrap(), 7200);
        for wrong in ["", "5", "s", "1d", "99999999999999999999s"] {
            assert!(seconds("t", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_help_has_no_insecure_port() {
        assert!(!help().lines().any(|line| line.trim_start().starts_with("--insecure-port")));
        assert!(help().contains("--secure-port"));
    }
}
