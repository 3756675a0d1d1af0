//! Malformed requests: lines, headers and bodies of real ones, mutated and mixed, written to the socket without encoding.
//! Each gets a response, and none makes the server panic.

use blackbox::process::DEADLINE;
use blackbox::{Server, Wire};
use fuzzing::{mutation, seeds};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const CLIENTS: u64 = 4;
const REQUESTS_EACH: usize = 150;

/// One of the target's seeds, most often mutated, without line breaks.
fn line(rng: &mut StdRng, target: &str) -> Vec<u8> {
    let seeds = seeds::for_target(target);
    let seed = &seeds[rng.random_range(0..seeds.len())];
    let mut bytes = if rng.random_range(0..3) == 0 { seed.clone() } else { mutation::bytes(rng, seed) };
    bytes.retain(|byte| !b"\r\n\0".contains(byte));
    bytes
}

fn request(rng: &mut StdRng) -> Vec<u8> {
    let method = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"][rng.random_range(0..6)];
    let forms = ["application/json", "application/merge-patch+json", "application/yaml", "application/json-patch+json"];
    // Without the bytes that select a kind in the fuzz target: the path selects it here.
    let body = if rng.random() { line(rng, "body") } else { line(rng, "patch") };
    let body = &body[body.len().min(2)..];
    let mut path = match rng.random_range(0..3) {
        0 => b"/api/v1/namespaces/default/configmaps/a".to_vec(),
        1 => b"/apis/apps/v1/namespaces/default/deployments".to_vec(),
        _ => line(rng, "path"),
    };
    path.push(if path.contains(&b'?') { b'&' } else { b'?' });
    path.extend(line(rng, "query"));
    path.retain(|byte| *byte != b' ');
    let form = match rng.random_range(0..4) {
        0 => line(rng, "accept"),
        _ => forms[rng.random_range(0..forms.len())].into(),
    };
    let accept = line(rng, "accept");
    let mut request = [method.as_bytes(), b" ", &path, b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"].concat();
    request.extend([b"Accept: ", &accept[..], b"\r\nContent-Type: ", &form, b"\r\n"].concat());
    request.extend(format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes());
    request.extend(body);
    request
}

/// Sends a request on a connection of its own. Returns the status of the response.
async fn status(wire: &Wire, request: &[u8]) -> u16 {
    let mut socket = wire.socket().await;
    let mut answer = Vec::new();
    let asked = async {
        // The server may close the connection before all of it is written.
        let _ = socket.write_all(request).await;
        let _ = socket.flush().await;
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            match socket.read_buf(&mut answer).await {
                Ok(1..) => {}
                _ => break,
            }
        }
    };
    tokio::time::timeout(DEADLINE, asked).await.expect("an answer in time");
    let head = String::from_utf8_lossy(&answer);
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    status.unwrap_or_else(|| panic!("no answer but {head:?} to {:?}", String::from_utf8_lossy(request)))
}

#[tokio::test]
async fn no_request_makes_it_panic() {
    let mut server = Server::start();
    let wire = Wire::to(&server);
    let clients = (0..CLIENTS).map(async |seed| {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut good = 0;
        for _ in 0..REQUESTS_EACH {
            let request = request(&mut rng);
            let status = status(&wire, &request).await;
            assert!((200..=599).contains(&status), "{status}");
            good += usize::from(status < 300);
        }
        good
    });
    let good: usize = futures::future::join_all(clients).await.into_iter().sum();
    assert!(good > 20, "some of them are valid: {good}");
    assert_eq!(wire.get("/readyz").send().await.text(), "ok");
    let panics: Vec<_> = server.stderr_lines().iter().filter(|line| line.contains("panicked")).collect();
    assert!(panics.is_empty(), "{panics:#?}");
    server.stop();
}
