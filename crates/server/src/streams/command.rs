//! Commands and attachments: `exec` and `attach`, over WebSocket channels or SPDY streams.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use machinery::json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::containers::{CommandResult, ContainerRef, Containers, Reader, Session};
use super::pipes::{
    Closed, Outgoing, PIPE_BYTES_MAX, STREAM_CLOSE_MAX, STREAM_CREATION_MAX, StreamWriter, frames, pipe,
};
use super::spdy::{self, NewStream, headers::value};
use super::websocket::{self, ChannelProtocol};

/// The channels of a command.
const STDIN: u32 = 0;
const STDOUT: u32 = 1;
const STDERR: u32 = 2;
const RESULT: u32 = 3;
const RESIZE: u32 = 4;
/// Sizes of a terminal that wait for the command.
const RESIZES_WAITING_MAX: usize = 4;
/// Longest description of a terminal's size.
const RESIZE_BYTES_MAX: usize = 256;

/// What a client asks for.
#[derive(Clone)]
pub(super) struct CommandRequest {
    pub(super) containers: Arc<dyn Containers>,
    pub(super) of: ContainerRef,
    /// None to join the container's own process.
    pub(super) command: Option<Vec<String>>,
    pub(super) wants: Wants,
}

/// The streams that a client wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) terminal: bool,
}

/// The streams of a command on a connection.
struct Streams {
    stdin: Option<Reader>,
    stdout: Option<StreamWriter>,
    stderr: Option<StreamWriter>,
    resizes: Option<Reader>,
    result: StreamWriter,
    /// Whether the result is a `Status` and not a text.
    has_status: bool,
}

/// A version of the protocol over SPDY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamProtocol {
    pub(super) name: &'static str,
    version: u8,
}

/// The versions over SPDY, the best first.
pub(super) const STREAM_PROTOCOLS: [StreamProtocol; 4] = [
    StreamProtocol { name: "v4.channel.k8s.io", version: 4 },
    StreamProtocol { name: "v3.channel.k8s.io", version: 3 },
    StreamProtocol { name: "v2.channel.k8s.io", version: 2 },
    StreamProtocol { name: "channel.k8s.io", version: 1 },
];

/// Runs a command over a WebSocket.
pub(super) async fn over_websocket(request: CommandRequest, upgraded: Upgraded, protocol: ChannelProtocol) {
    let socket = websocket::socket(upgraded).await;
    let (sender, waiting) = frames();
    let writer = |stream: u32| StreamWriter { stream, frames: sender.clone() };
    let wants = request.wants;
    let (stdin, stdin_writer) = pipe();
    let (resizes, resizes_writer) = pipe();
    let mut channels: Vec<Option<_>> = (0..=RESIZE).map(|_| None).collect();
    channels[STDIN as usize] = wants.stdin.then_some(stdin_writer);
    channels[RESIZE as usize] = Some(resizes_writer);
    let streams = Streams {
        stdin: wants.stdin.then(|| Box::new(stdin) as Reader),
        stdout: wants.stdout.then(|| writer(STDOUT)),
        stderr: (wants.stderr && !wants.terminal).then(|| writer(STDERR)),
        resizes: Some(Box::new(resizes)),
        result: writer(RESULT),
        has_status: protocol.has_status,
    };
    let session = async move {
        // Clients wait for a first message, which is empty.
        let first = if wants.stdout {
            STDOUT
        } else if wants.stderr {
            STDERR
        } else {
            RESULT
        };
        StreamWriter { stream: first, ..streams.result.clone() }.write(Bytes::new()).await?;
        run(request, streams).await
    };
    let carrying = websocket::carry_channels(socket, waiting, channels, protocol);
    until_closed(session, carrying, sender).await;
}

/// Runs a command over SPDY.
pub(super) async fn over_spdy(request: CommandRequest, upgraded: Upgraded, protocol: StreamProtocol) {
    let (carrying, mut opened, sender) = spdy::serve(TokioIo::new(upgraded));
    let session = async move {
        let collecting = collect_streams(&mut opened, request.wants, protocol);
        let streams = timeout(STREAM_CREATION_MAX, collecting).await.ok().flatten().ok_or(Closed)?;
        // Streams that the client opens later are dropped.
        let later = async { while opened.recv().await.is_some() {} };
        tokio::select! {
            result = run(request, streams) => result,
            () = async { later.await; std::future::pending().await } => Ok(()),
        }
    };
    until_closed(session, async { drop(carrying.await) }, sender).await;
}

/// Runs a session on a connection; after it the connection is closed, and without a connection the session ends.
async fn until_closed(
    session: impl Future<Output = Result<(), Closed>>,
    carrying: impl Future<Output = ()>,
    frames: mpsc::Sender<Outgoing>,
) {
    let mut carrying = std::pin::pin!(carrying);
    tokio::select! {
        _ = session => {}
        () = &mut carrying => return,
    }
    let closing = async {
        let _ = frames.send(Outgoing::Close).await;
        std::future::pending::<()>().await;
    };
    let _ = timeout(STREAM_CLOSE_MAX, async {
        tokio::select! {
            () = closing => {}
            () = &mut carrying => {}
        }
    })
    .await;
}

/// Waits for the streams that the client has announced; none if it disconnects before.
async fn collect_streams(
    opened: &mut mpsc::Receiver<NewStream>,
    wants: Wants,
    protocol: StreamProtocol,
) -> Option<Streams> {
    let resizes = wants.terminal && protocol.version >= 3;
    let expected = 1 + [wants.stdin, wants.stdout, wants.stderr, resizes].into_iter().filter(|wanted| *wanted).count();
    let mut found: [Option<NewStream>; 5] = [const { None }; 5];
    let mut count = 0;
    while count < expected {
        let stream = opened.recv().await?;
        let place = match value(&stream.headers, "streamtype") {
            "stdin" => STDIN,
            "stdout" => STDOUT,
            "stderr" => STDERR,
            "error" => RESULT,
            "resize" => RESIZE,
            _ => continue,
        };
        count += 1;
        found[place as usize] = Some(stream);
    }
    let [stdin, stdout, stderr, result, resizes] = found;
    let reader = |stream: Option<NewStream>| stream.map(|stream| Box::new(stream.reader) as Reader);
    Some(Streams {
        stdin: reader(stdin),
        stdout: stdout.map(|stream| stream.writer),
        stderr: stderr.map(|stream| stream.writer),
        resizes: reader(resizes),
        result: result?.writer,
        has_status: protocol.version >= 4,
    })
}

/// Runs the command, sends what it writes, and then its result.
async fn run(request: CommandRequest, streams: Streams) -> Result<(), Closed> {
    let Streams { stdin, stdout, stderr, resizes, result, has_status } = streams;
    let (sizes, received) = mpsc::channel(RESIZES_WAITING_MAX);
    let (stdout_reader, stdout_writer) = pipe();
    let (stderr_reader, stderr_writer) = pipe();
    let session = Session {
        stdin,
        stdout: stdout.is_some().then(|| Box::new(stdout_writer) as _),
        stderr: stderr.is_some().then(|| Box::new(stderr_writer) as _),
        is_terminal: request.wants.terminal,
        resizes: received,
    };
    let CommandRequest { containers, of, command, .. } = request;
    let command: BoxFuture<'static, CommandResult> = match command {
        Some(command) => containers.exec(of, command, session),
        None => containers.attach(of, session),
    };
    let sending = |to: Option<StreamWriter>, from| async move {
        let Some(to) = to else { return Ok(()) };
        to.send_all(from).await?;
        to.end().await
    };
    let outputs = async { tokio::join!(command, sending(stdout, stdout_reader), sending(stderr, stderr_reader)) };
    let ended = tokio::select! {
        ended = outputs => ended,
        never = read_sizes(resizes, sizes) => match never {},
    };
    let (ended, sent, sent_errors) = ended;
    sent.and(sent_errors)?;
    let text = if has_status { status(&ended).to_string() } else { plain_result(&ended) };
    if !text.is_empty() {
        result.write(text).await?;
    }
    result.end().await
}

/// The result as the `Status` that versions 4 and 5 send.
fn status(result: &CommandResult) -> Value {
    match result {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {}, "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(why) => {
            let why = format!("error executing command in container: {why}");
            json!({
                "metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {why}"),
                "reason": "InternalError", "details": {"causes": [{"message": why}]}, "code": 500,
            })
        }
    }
}

/// The result as the text that versions 1 to 3 send; empty for success.
fn plain_result(result: &CommandResult) -> String {
    match result {
        Ok(0) => String::new(),
        other => status(other)["message"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Reads the sizes of the client's terminal: `{"Width":80,"Height":24}`, one after the other.
async fn read_sizes(from: Option<Reader>, to: mpsc::Sender<(u16, u16)>) -> std::convert::Infallible {
    if let Some(mut from) = from {
        let mut text = Vec::new();
        let mut byte = [0; PIPE_BYTES_MAX / 64];
        while let Ok(len) = from.read(&mut byte).await {
            if len == 0 || text.len() > RESIZE_BYTES_MAX * 4 {
                break;
            }
            text.extend_from_slice(byte.get(..len).unwrap_or_default());
            while let Some(end) = text.iter().position(|byte| *byte == b'}') {
                let one: Vec<u8> = text.drain(..=end).collect();
                if let Ok(size) = machinery::json::from_slice(&one) {
                    let number =
                        |name: &str| size[name].as_u64().and_then(|n| u16::try_from(n).ok()).unwrap_or_default();
                    // A command that does not read sizes misses them.
                    let _ = to.try_send((number("Width"), number("Height")));
                }
            }
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sp_6_results_are_a_status_with_the_exit_code() {
        assert_eq!(status(&Ok(0)), json!({"metadata": {}, "status": "Success"}));
        let failed = status(&Ok(3));
        assert_eq!(failed["reason"], "NonZeroExitCode");
        assert_eq!(failed["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
        assert_eq!(plain_result(&Ok(0)), "");
        assert_eq!(plain_result(&Ok(3)), "command terminated with non-zero exit code: exit status 3");
        let broken = status(&Err("no such thing".to_owned()));
        assert_eq!(broken["message"], "Internal error occurred: error executing command in container: no such thing");
    }

    #[tokio::test]
    async fn sizes_of_terminals_are_read_one_after_the_other() {
        let text: &[u8] = b"{\"Width\":80,\"Height\":24}{\"Width\":100}\nnonsense}";
        let (to, mut sizes) = mpsc::channel(8);
        let reading = read_sizes(Some(Box::new(text)), to);
        let received = async { [sizes.recv().await, sizes.recv().await] };
        tokio::select! {
            received = received => assert_eq!(received, [Some((80, 24)), Some((100, 0))]),
            never = reading => match never {},
        }
    }
}
