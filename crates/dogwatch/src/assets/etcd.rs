//! `etcd`, as far as a test harness looks: it listens, is healthy, and stops on a signal.
//!
//! No object is stored here. The API server asks for the data directory at [`DIRECTORY_PATH`] and keeps its store there, so
//! that objects live as long as they would with an etcd.

use std::path::PathBuf;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::flags::Flags;
use super::parent;
use crate::failure::Failure;
use crate::up::Signals;

/// The path at which this program tells the API server its data directory.
pub(super) const DIRECTORY_PATH: &str = "/dogwatch/directory";

/// Connections at the same time; a harness has one or two.
const CONNECTIONS_MAX: usize = 64;

const HELP: &str = "etcd: dogwatch under the name of etcd, for test suites that start a control plane.

It answers health checks and stores nothing: the API server beside it has the objects.

  --data-dir 'default.etcd'
    Path to the data directory.
  --listen-client-urls 'http://localhost:2379'
    List of URLs to listen on for client traffic.
  --unsafe-no-fsync 'false'
    Accepted; nothing is written here.
";

pub(super) async fn run(words: Vec<String>) -> Result<(), Failure> {
    if words.iter().any(|word| matches!(word.as_str(), "--help" | "-h" | "help")) {
        print!("{HELP}");
        return Ok(());
    }
    if words.iter().any(|word| matches!(word.as_str(), "--version" | "version")) {
        println!("etcd Version: dogwatch {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let mut signals = Signals::new()?;
    let mut flags = Flags::read(&words);
    let directory = PathBuf::from(flags.take("data-dir").unwrap_or_else(|| "default.etcd".to_owned()));
    let urls = flags.take("listen-client-urls").unwrap_or_else(|| "http://localhost:2379".to_owned());
    let mut listeners = Vec::new();
    for url in urls.split(',') {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        if address.contains("://") {
            return Err(Failure::new(format!("--listen-client-urls {url}: only http is served here"))
                .hint("a real etcd is used if --etcd-servers of kube-apiserver names one"));
        }
        let listener = TcpListener::bind(address).await;
        listeners.push(listener.map_err(|error| Failure::new(format!("cannot listen on {address}: {error}")))?);
    }
    let directory = std::path::absolute(&directory).unwrap_or(directory);
    let answers =
        Arc::new(Answers { directory: directory.display().to_string(), places: Semaphore::new(CONNECTIONS_MAX) });
    for listener in listeners {
        tokio::spawn(serve(listener, Arc::clone(&answers)));
    }
    tokio::select! {
        () = parent::ended() => {}
        () = signals.next() => {}
    }
    Ok(())
}

struct Answers {
    directory: String,
    places: Semaphore,
}

impl Answers {
    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, body) = match path {
            "/health" => (StatusCode::OK, r#"{"health":"true","reason":""}"#.to_owned()),
            "/version" => (StatusCode::OK, r#"{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}"#.to_owned()),
            DIRECTORY_PATH => (StatusCode::OK, self.directory.clone()),
            _ => (StatusCode::NOT_FOUND, "this etcd is dogwatch and stores nothing\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response
    }
}

async fn serve(listener: TcpListener, answers: Arc<Answers>) {
    loop {
        let Ok((connection, _)) = listener.accept().await else { continue };
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            let Ok(_place) = answers.places.try_acquire() else { return };
            let service = service_fn(|request: Request<Incoming>| {
                let response = answers.answer(request.uri().path());
                async move { Ok::<_, std::convert::Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(hyper_util::rt::TokioTimer::new())
                .serve_connection(TokioIo::new(connection), service);
            let _ = connection.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_healthy_and_names_its_directory() {
        let answers = Answers { directory: "/tmp/d".to_owned(), places: Semaphore::new(1) };
        assert_eq!(answers.answer("/health").status(), 200);
        assert_eq!(answers.answer(DIRECTORY_PATH).status(), 200);
        assert_eq!(answers.answer("/v3/kv/range").status(), 404);
    }
}
