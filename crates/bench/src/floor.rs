//! The floor: a program that encrypts and writes the same bytes to as many connections, and does nothing else.
//!
//! It runs as a child process so that its processor time is its own. Its parent sends it lines:
//!
//! ```text
//! <- listening 40123 MIIB…            the port, and the certificate in base64
//! -> cpu                              <- cpu 1200000          nanoseconds of processor time
//! -> write 20 100 3600 1              20 rounds a second, 100 rounds, 3600 bytes, once on each connection
//! <- cpu 52000000                     the processor time of that
//! ```
//!
//! Its connections use HTTP: the response to `GET /bytes/N` has N bytes, `GET /stream` takes part in the rounds from then on.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::sample::processor_time;
use crate::target::Target;
use crate::trouble::Trouble;

/// Bytes that a server passes to TLS at once.
const PIECE: usize = 128 * 1024;

/// The content of responses: larger than a processor's caches, as a list of objects is.
static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| vec![b'x'; 64 << 20]);

type Tls = StreamOwned<ServerConnection, TcpStream>;
type Streams = Arc<Mutex<Vec<Tls>>>;

/// The parent's end.
pub(crate) struct Floor {
    _child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    pub(crate) target: Target,
    pub(crate) pid: u32,
}

impl Floor {
    pub(crate) async fn start(program: &Path) -> Result<Self, Trouble> {
        let mut child = Command::new(program)
            .args(["bench", "floor"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Trouble::impossible(format!("{} did not start: {error}", program.display())))?;
        let silent = || Trouble::impossible("the floor did not start");
        let (stdin, stdout) = child.stdin.take().zip(child.stdout.take()).ok_or_else(silent)?;
        let mut stdout = BufReader::new(stdout).lines();
        let line = stdout.next_line().await.map_err(Trouble::impossible)?.ok_or_else(silent)?;
        let mut words = line.strip_prefix("listening ").ok_or_else(silent)?.split(' ');
        let port: u16 = words.next().and_then(|port| port.parse().ok()).ok_or_else(silent)?;
        let certificate = words.next().and_then(|text| STANDARD.decode(text).ok()).ok_or_else(silent)?;
        let target = Target::with_certificate(SocketAddr::from(([127, 0, 0, 1], port)), certificate.into())?;
        let pid = child.id().ok_or_else(silent)?;
        Ok(Floor { _child: child, stdin, stdout, target, pid })
    }

    pub(crate) async fn cpu(&mut self) -> Result<Duration, Trouble> {
        self.ask("cpu\n").await
    }

    /// Writes `count` rounds of `bytes` to every stream, `per_connection` times each; returns the processor time.
    pub(crate) async fn write(
        &mut self,
        rate: f64,
        count: u64,
        bytes: usize,
        per_connection: usize,
    ) -> Result<Duration, Trouble> {
        self.ask(&format!("write {rate} {count} {bytes} {per_connection}\n")).await
    }

    async fn ask(&mut self, line: &str) -> Result<Duration, Trouble> {
        let gone = || Trouble::impossible("the floor ended early");
        self.stdin.write_all(line.as_bytes()).await.map_err(|_| gone())?;
        let answer = self.stdout.next_line().await.map_err(|_| gone())?.ok_or_else(gone)?;
        let nanoseconds = answer.strip_prefix("cpu ").and_then(|text| text.parse().ok()).ok_or_else(gone)?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}

/// The child: serves until its parent closes its standard input.
pub fn serve() -> Result<(), Trouble> {
    let (config, certificate) = config().map_err(Trouble::impossible)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Trouble::impossible)?;
    let port = listener.local_addr().map_err(Trouble::impossible)?.port();
    println!("listening {port} {}", STANDARD.encode(certificate));
    let streams = Streams::default();
    let accepted = Arc::clone(&streams);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (config, streams) = (Arc::clone(&config), Arc::clone(&accepted));
            // A broken connection ends its thread; there is nothing to report.
            std::thread::spawn(move || connection(socket, config, &streams).ok());
        }
    });
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let cpu = command(&line, &streams).map_err(Trouble::impossible)?;
        println!("cpu {}", cpu.as_nanos());
    }
    Ok(())
}

fn command(line: &str, streams: &Streams) -> Result<Duration, String> {
    let mut words = line.split(' ');
    match words.next() {
        Some("cpu") => Ok(processor_time()),
        Some("write") => {
            let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
            let [rate, count, bytes, per_connection] = numbers[..] else { return Err(format!("{line:?}")) };
            let before = processor_time();
            rounds(streams, rate, count as u64, bytes as usize, per_connection as usize);
            Ok(processor_time() - before)
        }
        _ => Err(format!("{line:?}")),
    }
}

fn rounds(streams: &Streams, rate: f64, count: u64, bytes: usize, per_connection: usize) {
    let mut frame = Vec::new();
    for _ in 0..per_connection.max(1) {
        let mut event = vec![b'x'; bytes.max(1)];
        event[bytes.max(1) - 1] = b'\n';
        frame.extend_from_slice(format!("{:x}\r\n", event.len()).as_bytes());
        frame.extend_from_slice(&event);
        frame.extend_from_slice(b"\r\n");
    }
    let mut streams = streams.lock();
    let started = Instant::now();
    for round in 0..count {
        let due = started + Duration::from_secs_f64(round as f64 / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        streams.retain_mut(|stream| stream.write_all(&frame).is_ok());
    }
    // The next measurement has streams of its own.
    streams.clear();
}

fn connection(socket: TcpStream, config: Arc<ServerConfig>, streams: &Streams) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut session = ServerConnection::new(config).map_err(std::io::Error::other)?;
    session.set_buffer_limit(None);
    let mut tls = StreamOwned::new(session, socket);
    let mut request = Vec::new();
    loop {
        request.clear();
        let mut piece = [0; 2048];
        while !request.ends_with(b"\r\n\r\n") {
            let read = tls.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            request.extend_from_slice(&piece[..read]);
        }
        let line = String::from_utf8_lossy(&request);
        let path = line.split(' ').nth(1).unwrap_or_default();
        if path.starts_with("/stream") {
            tls.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            streams.lock().push(tls);
            return Ok(());
        }
        let bytes: usize = path.strip_prefix("/bytes/").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
        // A small response is one write, as a server's would be.
        let first = bytes.min(PIECE);
        tls.write_all(&[head.as_bytes(), &BODY[..first]].concat())?;
        let mut at = first;
        while at < bytes {
            let from = at % BODY.len();
            let piece = PIECE.min(bytes - at).min(BODY.len() - from);
            tls.write_all(&BODY[from..from + piece])?;
            at += piece;
        }
    }
}

fn config() -> Result<(Arc<ServerConfig>, Vec<u8>), String> {
    let key = rcgen::KeyPair::generate().map_err(|error| error.to_string())?;
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).map_err(|error| error.to_string())?;
    let certificate = params.self_signed(&key).map_err(|error| error.to_string())?.der().to_vec();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate.clone())], key)
        .map_err(|error| error.to_string())?;
    Ok((Arc::new(config), certificate))
}
