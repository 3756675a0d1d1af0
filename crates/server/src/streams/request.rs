//! From an authorized request to a log, a command or a port forward.

use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use machinery::Status;
use parking_lot::Mutex;
use registry::NodeConnection;

use super::command::{self, CommandRequest, STREAM_PROTOCOLS, Wants};
use super::containers::{ContainerRef, Containers, Refusal};
use super::forward::{self, FORWARD_PROTOCOL, ForwardRequest};
use super::log::{self, Kept, LogBody};
use super::pipes::pipe;
use super::websocket::{self, COMMAND_PROTOCOLS, FORWARD_PROTOCOLS, TUNNEL};
use crate::request::handlers::Call;
use crate::request::reply::{self, Reply};
use crate::wire::body::{Held, ResponseBody, WatchBody};
use crate::wire::connection::Lease;

/// The collection of pods.
const PODS: &str = "core/pods";
const SPDY: HeaderValue = HeaderValue::from_static("SPDY/3.1");
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_PROTOCOLS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

/// Keeps a value for as long as an upgraded connection is open. It is in the extensions of the response.
#[derive(Clone, Default)]
pub(crate) struct UntilClosed(Arc<Mutex<Held>>);

impl UntilClosed {
    pub(crate) fn keep(&self, value: impl std::any::Any + Send) {
        *self.0.lock() = Some(Box::new(value));
    }
}

/// Refuses a connection that does not ask for another protocol.
pub(crate) fn needs_upgrade(headers: &HeaderMap) -> Result<(), Status> {
    let tokens = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = tokens.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    if asks { Ok(()) } else { Err(Status::bad_request("Upgrade request required")) }
}

/// Answers a request about a container whose node is answered for here.
pub(crate) fn answer(
    call: &Call<'_>,
    containers: &Arc<dyn Containers>,
    connection: NodeConnection,
    subresource: &str,
    extensions: Extensions,
) -> Result<Reply, Status> {
    let metadata = |name: &str| connection.object["metadata"][name].as_str().unwrap_or_default().to_owned();
    let (namespace, name, uid) = (metadata("namespace"), metadata("name"), metadata("uid"));
    let of = ContainerRef {
        pod: Bytes::from(connection.object.to_string()),
        container: connection.container.clone(),
        current: current_pod(call, namespace, name.clone(), uid.clone()),
    };
    let containers = Arc::clone(containers);
    match subresource {
        "log" => answer_log(call, &*containers, of),
        "portforward" => {
            let request = ForwardRequest { containers, of, pod: name, uid };
            answer_forward(call, request, extensions)
        }
        _ => answer_command(call, containers, of, subresource == "attach", extensions),
    }
}

/// Reads a pod as it is now, unless another one has its name.
fn current_pod(
    call: &Call<'_>,
    namespace: String,
    name: String,
    uid: String,
) -> Arc<dyn Fn() -> Option<Bytes> + Send + Sync> {
    let registry = Arc::clone(&call.server.registry);
    Arc::new(move || {
        let pod = registry.cached_object(PODS, Some(&namespace), &name)?;
        (pod["metadata"]["uid"] == uid.as_str()).then(|| Bytes::from(pod.to_string()))
    })
}

fn answer_log(call: &Call<'_>, containers: &dyn Containers, of: ContainerRef) -> Result<Reply, Status> {
    let options = log::options(call.query, call.server.clock.now())?;
    let slot = slot(call)?;
    let (reader, writer) = pipe();
    let writing = containers.log(of, options, Box::new(writer)).map_err(|refusal| match refusal {
        Refusal::BadRequest(why) => Status::bad_request(why),
        Refusal::Internal(why) => Status::internal(why),
    })?;
    let source = LogBody { writing: Some(writing), reader };
    let bytes_max = call.server.limits.watch_batch_bytes_max;
    let body = WatchBody::new(Box::new(source), Box::new(Kept(slot)), call.server.drain.ticket(), bytes_max);
    Ok(reply::with_body(200, HeaderValue::from_static("text/plain"), ResponseBody::watch(body)))
}

/// A slot among the open streams.
fn slot(call: &Call<'_>) -> Result<crate::limits::Slot, Status> {
    let open = &call.server.metrics.streams_open;
    let slot = match call.share() {
        Some(user) => open.take_for(user, 1),
        None => open.take(),
    };
    slot.ok_or_else(|| {
        call.server.metrics.refused(open.name());
        Status::too_many_requests("too many logs and connections to containers are open, please try again later", 1)
    })
}

fn answer_command(
    call: &Call<'_>,
    containers: Arc<dyn Containers>,
    of: ContainerRef,
    is_attach: bool,
    extensions: Extensions,
) -> Result<Reply, Status> {
    let truth = |name: &str| call.query.truth(name).unwrap_or_default();
    let wants =
        Wants { stdin: truth("stdin"), stdout: truth("stdout"), stderr: truth("stderr"), terminal: truth("tty") };
    if !(wants.stdin || wants.stdout || wants.stderr) {
        return Ok(plain(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr"));
    }
    if let Err(refusal) = containers.check_command(&of, is_attach) {
        return Ok(refused(refusal));
    }
    let command = (!is_attach).then(|| call.query.all("command").map(str::to_owned).collect());
    let request = CommandRequest { containers, of, command, wants };
    if crate::wire::websocket::is_upgrade(call.headers) {
        let offered = websocket::offered(call.headers);
        let chosen = offered.iter().find_map(|name| COMMAND_PROTOCOLS.iter().find(|known| known.name == *name));
        let protocol = match (chosen, offered.is_empty()) {
            (Some(protocol), _) => *protocol,
            (None, true) => COMMAND_PROTOCOLS[0],
            (None, false) => return Ok(plain(StatusCode::FORBIDDEN, "")),
        };
        let named = chosen.map(|protocol| protocol.name);
        return Ok(match websocket::accept(call.headers, named) {
            Ok(headers) => upgrade(call, headers, extensions, move |upgraded| {
                command::over_websocket(request, upgraded, protocol)
            })?,
            Err(code) => plain(code, ""),
        });
    }
    let names: Vec<&str> = STREAM_PROTOCOLS.iter().map(|protocol| protocol.name).collect();
    match spdy_handshake(call.headers, &names) {
        Ok((headers, chosen)) => {
            // A client that names no version speaks the first.
            let chosen = STREAM_PROTOCOLS.iter().find(|protocol| Some(protocol.name) == chosen);
            let protocol = *chosen.unwrap_or(&STREAM_PROTOCOLS[STREAM_PROTOCOLS.len() - 1]);
            upgrade(call, headers, extensions, move |upgraded| command::over_spdy(request, upgraded, protocol))
        }
        Err(refusal) => Ok(refusal),
    }
}

fn answer_forward(call: &Call<'_>, request: ForwardRequest, extensions: Extensions) -> Result<Reply, Status> {
    let is_websocket = crate::wire::websocket::is_upgrade(call.headers);
    let offered = websocket::offered(call.headers);
    let is_tunnel = is_websocket && offered.contains(&TUNNEL);
    let ports = match is_websocket && !is_tunnel {
        true => match forward::ports(call.query.all("ports")) {
            Ok(ports) => ports,
            Err(why) => return Ok(plain(StatusCode::BAD_REQUEST, &why)),
        },
        false => Vec::new(),
    };
    if let Err(refusal) = request.containers.check_forward(&request.of) {
        return Ok(refused(refusal));
    }
    if !is_websocket {
        return match spdy_handshake(call.headers, &[FORWARD_PROTOCOL]) {
            Ok((headers, _)) => {
                upgrade(call, headers, extensions, move |upgraded| forward::over_spdy(request, upgraded))
            }
            Err(refusal) => Ok(refusal),
        };
    }
    let chosen = offered.iter().find_map(|name| FORWARD_PROTOCOLS.iter().find(|known| known.name == *name));
    let named = if is_tunnel { Some(TUNNEL) } else { chosen.map(|protocol| protocol.name) };
    if named.is_none() && !offered.is_empty() {
        return Ok(plain(StatusCode::FORBIDDEN, ""));
    }
    let headers = match websocket::accept(call.headers, named) {
        Ok(headers) => headers,
        Err(code) => return Ok(plain(code, "")),
    };
    if is_tunnel {
        return upgrade(call, headers, extensions, move |upgraded| forward::over_tunnel(request, upgraded));
    }
    let protocol = *chosen.unwrap_or(&FORWARD_PROTOCOLS[0]);
    upgrade(call, headers, extensions, move |upgraded| forward::over_channels(request, upgraded, ports, protocol))
}

/// The headers of the response to a SPDY handshake with the protocol that both sides know, or its refusal.
fn spdy_handshake<'p>(headers: &HeaderMap, known: &[&'p str]) -> Result<(HeaderMap, Option<&'p str>), Reply> {
    let asks = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !asks.to_ascii_lowercase().contains("spdy/3.1") {
        let why = format!("unable to upgrade: missing upgrade headers in request: {asks}");
        return Err(plain(StatusCode::BAD_REQUEST, &why));
    }
    let offered: Vec<&str> = headers
        .get_all(&STREAM_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    let chosen = known.iter().copied().find(|name| offered.contains(name));
    if chosen.is_none() && !offered.is_empty() {
        let (offered, accepted) = (offered.join(" "), known.join(" "));
        let why = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{offered}], server accepts [{accepted}]"
        );
        let mut refusal = plain(StatusCode::FORBIDDEN, &why);
        for name in known {
            if let Ok(name) = HeaderValue::from_str(name) {
                refusal.headers_mut().append(ACCEPTED_PROTOCOLS, name);
            }
        }
        return Err(refusal);
    }
    let mut response = HeaderMap::new();
    response.insert(header::UPGRADE, SPDY);
    response.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(Ok(chosen)) = chosen.map(HeaderValue::from_str) {
        response.insert(STREAM_PROTOCOL, chosen);
    }
    Ok((response, chosen))
}

/// Switches protocols, and serves the connection in a task of its own.
fn upgrade<S>(
    call: &Call<'_>,
    headers: HeaderMap,
    mut extensions: Extensions,
    serve: impl FnOnce(Upgraded) -> S + Send + 'static,
) -> Result<Reply, Status>
where
    S: Future<Output = ()> + Send,
{
    let slot = slot(call)?;
    // Absent over HTTP/2 and for callers in the same process.
    let Some(client) = extensions.remove::<OnUpgrade>() else {
        return Ok(plain(StatusCode::BAD_REQUEST, "unable to upgrade: the connection cannot be upgraded"));
    };
    let lease = extensions.remove::<Lease>();
    let mut drain = call.server.drain.ticket();
    let kept = UntilClosed::default();
    let until_closed = kept.clone();
    tokio::spawn(async move {
        // Held until the connection is closed: it still counts, and a stopping server waits for it.
        let _held = (lease, slot, until_closed);
        if let Ok(upgraded) = client.await {
            let stopping = std::future::poll_fn(|cx| {
                if drain.poll_begun(cx) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            });
            tokio::select! {
                () = serve(upgraded) => {}
                () = stopping => {}
            }
        }
    });
    let mut reply = Reply::new(ResponseBody::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *reply.headers_mut() = headers;
    reply.extensions_mut().insert(kept);
    Ok(reply)
}

/// A refusal in the words of a node agent, which answers in plain text.
fn refused(refusal: Refusal) -> Reply {
    match refusal {
        Refusal::BadRequest(why) => plain(StatusCode::BAD_REQUEST, &why),
        Refusal::Internal(why) => plain(StatusCode::INTERNAL_SERVER_ERROR, &why),
    }
}

fn plain(code: StatusCode, why: &str) -> Reply {
    reply::text(code.as_u16(), Bytes::from(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offering(versions: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::UPGRADE, SPDY);
        for name in versions {
            headers.append(STREAM_PROTOCOL, HeaderValue::from_static(name));
        }
        headers
    }

    #[test]
    fn sp_4_versions_are_negotiated() {
        let known = ["v4.channel.k8s.io", "channel.k8s.io"];
        let (headers, chosen) = spdy_handshake(&offering(&["channel.k8s.io", "v4.channel.k8s.io"]), &known).unwrap();
        assert_eq!(chosen, Some("v4.channel.k8s.io"));
        assert_eq!(headers[STREAM_PROTOCOL], "v4.channel.k8s.io");
        let (headers, chosen) = spdy_handshake(&offering(&[]), &known).unwrap();
        assert!(chosen.is_none() && !headers.contains_key(STREAM_PROTOCOL));
        let refused = spdy_handshake(&offering(&["v9"]), &known).unwrap_err();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(refused.headers().get_all(ACCEPTED_PROTOCOLS).iter().count(), 2);
        let mut other = offering(&[]);
        other.insert(header::UPGRADE, HeaderValue::from_static("h2c"));
        assert_eq!(spdy_handshake(&other, &known).unwrap_err().status(), StatusCode::BAD_REQUEST);
        assert!(needs_upgrade(&HeaderMap::new()).is_err());
    }
}
