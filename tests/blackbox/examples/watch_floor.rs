//! The floor of `informers`: a watch on all pods that one thread reads from a blocking socket, decrypts and discards.
//!
//! Its cost is that of a wake-up for each event and of TLS, on this machine at this time. It only looks for line ends, to
//! count events and measure their latency: no HTTP beyond its request, no JSON, no store. It never opens a second watch, so
//! it cannot be made to relist.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use blackbox::wire::{tls_of, value_of};
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use testkit::gauge::{Gauge, due};

/// The request of the informers, with a timeout longer than any measurement.
const WATCH: &str = "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
    &resourceVersion=&resourceVersionMatch=NotOlderThan&timeoutSeconds=3600";
/// A text that only the last line of the initial events contains.
const SET_ENDS: &[u8] = b"k8s.io/initial-events-end";
/// Two TLS records. Grows for a longer line.
const BUFFER: usize = 32 * 1024;

fn open() -> StreamOwned<ClientConnection, TcpStream> {
    let file = PathBuf::from(std::env::var_os("KUBECONFIG").expect("KUBECONFIG names a file"));
    let kubeconfig = std::fs::read_to_string(&file).expect("the kubeconfig can be read");
    let address = value_of(&kubeconfig, "server:").strip_prefix("https://").expect("it serves TLS");
    let host = address.rsplit_once(':').expect("an address has a port").0.to_owned();
    let name = ServerName::try_from(host).expect("the address is an IP address");
    let session = ClientConnection::new(Arc::new(tls_of(&file).0), name).expect("TLS can begin");
    let socket = TcpStream::connect(address).expect("the server accepts connections");
    let mut tls = StreamOwned::new(session, socket);
    let request = format!("GET {WATCH} HTTP/1.1\r\nHost: {address}\r\nAccept: application/json\r\n\r\n");
    tls.write_all(request.as_bytes()).expect("the server reads");
    tls
}

/// Calls `each` with every event, until the connection ends. JSON has no line ends of its own, and those of HTTP have a
/// carriage return before them.
fn lines(mut tls: impl Read, mut each: impl FnMut(&[u8])) {
    let mut buffer = vec![0; BUFFER];
    let mut end = 0;
    loop {
        let read = tls.read(&mut buffer[end..]).unwrap_or(0);
        if read == 0 {
            return;
        }
        let (from, mut start) = (end, 0);
        end += read;
        for at in memchr::memchr_iter(b'\n', &buffer[from..end]).map(|at| from + at) {
            if at == 0 || buffer[at - 1] != b'\r' {
                each(&buffer[start..at]);
                start = at + 1;
            }
        }
        buffer.copy_within(start..end, 0);
        end -= start;
        if end == buffer.len() {
            buffer.resize(2 * end, 0);
        }
    }
}

fn main() {
    let gauge = Arc::new(Gauge::default());
    let objects = Arc::new(AtomicUsize::new(0));
    let (synced, wait) = mpsc::channel();
    let (seen, counted) = (gauge.clone(), objects.clone());
    std::thread::spawn(move || {
        let mut live = false;
        lines(open(), |line| match live {
            // A bookmark has no time.
            true => drop(due(line).map(|due| seen.event(Some(due)))),
            false if memchr::memmem::find(line, SET_ENDS).is_some() => {
                live = true;
                seen.set();
                let _ = synced.send(());
            }
            false => {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        // A floor that stopped early must not pass for a low one.
        eprintln!("the watch ended");
        std::process::exit(1);
    });
    wait.recv().expect("the initial events arrive");
    gauge.serve(|| objects.load(Ordering::Relaxed), || None);
}
