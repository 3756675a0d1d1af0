//! One SPDY connection: its frames become streams, what is written to streams becomes frames.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::frame::{self, Control, HEAD_BYTES, Head, Malformed};
use super::headers::{Deflater, Headers, Inflater};
use crate::streams::pipes::{
    Outgoing, PipeReader, PipeWriter, STREAM_IDLE_MAX, STREAM_STALL_MAX, StreamWriter, feed, frames, pipe,
};

/// Streams that a client may have open on one connection.
pub(in crate::streams) const STREAMS_MAX: usize = 256;
/// Bytes of a data frame that are read at once.
const PIECE_BYTES: usize = 8 * 1024;
/// The status of a stream that is refused or given up.
const REFUSED_STREAM: u32 = 3;
const CANCEL: u32 = 5;

/// A stream that the client has opened.
pub(in crate::streams) struct NewStream {
    pub(in crate::streams) headers: Headers,
    /// What the client sends.
    pub(in crate::streams) reader: PipeReader,
    pub(in crate::streams) writer: StreamWriter,
    /// Ends when the client gives up the stream. Until it is dropped the stream has its place among those of the client.
    pub(in crate::streams) cancelled: oneshot::Receiver<()>,
}

/// A stream as its reader knows it.
struct Open {
    /// None once the client has ended its half.
    writer: Option<PipeWriter>,
    /// Dropped when the client gives up the stream.
    cancels: oneshot::Sender<()>,
}

/// Whether all places are taken. Streams that both sides have ended have none.
fn is_full(streams: &mut HashMap<u32, Open>) -> bool {
    if streams.len() >= STREAMS_MAX {
        streams.retain(|_, open| open.writer.is_some() || !open.cancels.is_closed());
    }
    streams.len() >= STREAMS_MAX
}

/// Serves a connection. The future ends with the connection, after [`Outgoing::Close`] or when the client disconnects.
pub(in crate::streams) fn serve<IO>(
    io: IO,
) -> (impl Future<Output = io::Result<()>>, mpsc::Receiver<NewStream>, mpsc::Sender<Outgoing>)
where
    IO: AsyncRead + AsyncWrite + Send + 'static,
{
    let (frames, waiting) = frames();
    let (opened, new_streams) = mpsc::channel(1);
    let sender = frames.clone();
    let running = async move {
        let (reader, writer) = tokio::io::split(io);
        let reading = read(reader, opened, frames);
        tokio::select! {
            result = reading => result,
            result = write(writer, waiting) => result,
        }
    };
    (running, new_streams, sender)
}

fn malformed(what: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Reads frames until the client disconnects.
async fn read(
    mut from: impl AsyncRead + Unpin,
    opened: mpsc::Sender<NewStream>,
    frames: mpsc::Sender<Outgoing>,
) -> io::Result<()> {
    let mut inflater = Inflater::default();
    let mut streams: HashMap<u32, Open> = HashMap::new();
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    loop {
        let mut head = [0; HEAD_BYTES];
        within(STREAM_IDLE_MAX, from.read_exact(&mut head)).await?;
        match Head::parse(head).map_err(malformed)? {
            Head::Data { stream, ends, bytes } => {
                let mut writer = streams.get_mut(&stream).map(|open| &mut open.writer);
                copy_data(&mut from, writer.as_deref_mut().and_then(Option::as_mut), bytes).await?;
                if ends && let Some(mut writer) = writer.and_then(Option::take) {
                    let _ = writer.shutdown().await;
                }
            }
            Head::Control { kind, flags, bytes } => {
                let mut payload = vec![0; bytes];
                within(STREAM_STALL_MAX, from.read_exact(&mut payload)).await?;
                match Control::parse(kind, flags, &payload, &mut inflater).map_err(malformed)? {
                    Control::Open { stream, .. } if is_full(&mut streams) => {
                        frames.send(Outgoing::Reset(stream)).await.map_err(gone)?;
                    }
                    Control::Open { stream, ends, headers } => {
                        let (reader, writer) = pipe();
                        let (cancels, cancelled) = oneshot::channel();
                        streams.insert(stream, Open { writer: (!ends).then_some(writer), cancels });
                        frames.send(Outgoing::Accept(stream)).await.map_err(gone)?;
                        let writer = StreamWriter { stream, frames: frames.clone() };
                        opened
                            .send(NewStream { headers, reader, writer, cancelled })
                            .await
                            .map_err(|_| io::ErrorKind::BrokenPipe)?;
                    }
                    Control::Reset { stream } => drop(streams.remove(&stream)),
                    // Even numbers are answers to pings of this side, which sends none.
                    Control::Ping(id) if id % 2 == 1 => frames.send(Outgoing::Pong(id)).await.map_err(gone)?,
                    Control::GoAway | Control::Ping(_) | Control::Other => {}
                }
            }
        }
    }
}

/// Copies the payload of a data frame to its stream. What has no reader any more is dropped.
async fn copy_data(
    mut from: impl AsyncRead + Unpin,
    mut to: Option<&mut PipeWriter>,
    mut bytes: usize,
) -> io::Result<()> {
    let mut piece = [0; PIECE_BYTES];
    while bytes > 0 {
        let len = bytes.min(PIECE_BYTES);
        let piece = piece.get_mut(..len).unwrap_or_default();
        let read = within(STREAM_STALL_MAX, from.read(piece)).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes -= read;
        if let Some(writer) = &mut to
            && let Err(error) = feed(writer, piece.get(..read).unwrap_or_default()).await
        {
            if error.kind() == io::ErrorKind::TimedOut {
                return Err(error);
            }
            to = None;
        }
    }
    Ok(())
}

/// Sends frames until the connection is closed.
async fn write(mut to: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Outgoing>) -> io::Result<()> {
    let mut deflater = Deflater::default();
    let mut last = 0;
    while let Some(frame) = frames.recv().await {
        let bytes = match frame {
            Outgoing::Accept(stream) => {
                last = stream;
                frame::reply(stream, &mut deflater)
            }
            Outgoing::Data(stream, bytes) => {
                let mut whole = frame::data_head(stream, false, bytes.len()).to_vec();
                whole.extend_from_slice(&bytes);
                whole
            }
            Outgoing::End(stream) => frame::data_head(stream, true, 0).to_vec(),
            Outgoing::Reset(stream) => frame::reset(stream, if stream > last { REFUSED_STREAM } else { CANCEL }),
            Outgoing::Pong(id) => frame::ping(id),
            Outgoing::Close => {
                within(STREAM_STALL_MAX, to.write_all(&frame::go_away(last))).await?;
                return within(STREAM_STALL_MAX, to.shutdown()).await;
            }
        };
        within(STREAM_STALL_MAX, to.write_all(&bytes)).await?;
        within(STREAM_STALL_MAX, to.flush()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::spdy::headers::value;

    async fn next(client: &mut (impl AsyncRead + Unpin)) -> (Head, Vec<u8>) {
        let mut head = [0; HEAD_BYTES];
        client.read_exact(&mut head).await.unwrap();
        let head = Head::parse(head).unwrap();
        let (Head::Data { bytes, .. } | Head::Control { bytes, .. }) = head;
        let mut payload = vec![0; bytes];
        client.read_exact(&mut payload).await.unwrap();
        (head, payload)
    }

    #[tokio::test]
    async fn sp_3_streams_have_data_in_both_directions_and_ends() {
        let (mut client, io) = tokio::io::duplex(1024);
        let (running, mut opened, frames) = serve(io);
        let running = tokio::spawn(running);
        let mut deflater = Deflater::default();
        client.write_all(&frame::open(1, &[("streamType", "stdin")], &mut deflater)).await.unwrap();
        client.write_all(&frame::ping(9)).await.unwrap();
        let mut stream = opened.recv().await.unwrap();
        assert_eq!(value(&stream.headers, "streamtype"), "stdin");
        assert!(matches!(next(&mut client).await.0, Head::Control { kind: 2, .. }), "the stream is accepted");
        assert!(matches!(next(&mut client).await.0, Head::Control { kind: 6, .. }), "pings are answered");
        let hello = [&frame::data_head(1, true, 5)[..], b"hello"].concat();
        client.write_all(&hello).await.unwrap();
        let mut read = String::new();
        stream.reader.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "hello");
        stream.writer.write("world").await.unwrap();
        stream.writer.end().await.unwrap();
        assert_eq!(next(&mut client).await, (Head::Data { stream: 1, ends: false, bytes: 5 }, b"world".to_vec()));
        assert_eq!(next(&mut client).await.0, Head::Data { stream: 1, ends: true, bytes: 0 });
        frames.send(Outgoing::Close).await.unwrap();
        assert!(matches!(next(&mut client).await.0, Head::Control { kind: 7, .. }), "the end is announced");
        running.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn sp_2_more_streams_than_allowed_are_refused() {
        let (mut client, io) = tokio::io::duplex(64 * 1024);
        let (running, mut opened, _frames) = serve(io);
        let running = tokio::spawn(running);
        let draining = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Some(stream) = opened.recv().await {
                kept.push(stream);
            }
            kept.len()
        });
        let mut deflater = Deflater::default();
        for number in 0..=STREAMS_MAX as u32 {
            client.write_all(&frame::open(number * 2 + 1, &[], &mut deflater)).await.unwrap();
            let (Head::Control { kind, .. }, _) = next(&mut client).await else { panic!("a data frame") };
            assert_eq!(kind, if number < STREAMS_MAX as u32 { 2 } else { 3 }, "{number}");
        }
        drop(client);
        assert!(running.await.unwrap().is_err());
        assert_eq!(draining.await.unwrap(), STREAMS_MAX);
    }

    #[tokio::test]
    async fn sp_2_streams_that_the_client_has_ended_keep_their_places() {
        let (mut client, io) = tokio::io::duplex(64 * 1024);
        let (running, mut opened, _frames) = serve(io);
        let running = tokio::spawn(running);
        let mut deflater = Deflater::default();
        let mut kept = Vec::new();
        for number in 0..STREAMS_MAX as u32 {
            client.write_all(&frame::open(number * 2 + 1, &[], &mut deflater)).await.unwrap();
            client.write_all(&frame::data_head(number * 2 + 1, true, 0)).await.unwrap();
            kept.push(opened.recv().await.unwrap());
            assert!(matches!(next(&mut client).await.0, Head::Control { kind: 2, .. }));
        }
        client.write_all(&frame::open(1001, &[], &mut deflater)).await.unwrap();
        assert!(matches!(next(&mut client).await.0, Head::Control { kind: 3, .. }), "no place");
        client.write_all(&frame::reset(1, CANCEL)).await.unwrap();
        let given_up = kept.remove(0);
        assert!(given_up.cancelled.await.is_err(), "the stream is cancelled");
        drop(kept);
        client.write_all(&frame::open(1003, &[], &mut deflater)).await.unwrap();
        assert!(matches!(next(&mut client).await.0, Head::Control { kind: 2, .. }), "a place again");
        drop(client);
        assert!(running.await.unwrap().is_err());
    }
}
