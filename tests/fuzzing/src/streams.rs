//! The protocols of logs, commands and port forwards.

use bytes::Bytes;
use server::streams::spdy::{frame, headers};
use server::streams::websocket::incoming;

/// The frames of a SPDY connection, and one header block.
pub fn spdy(data: &[u8]) {
    let _ = frame::read_all(data);
    let _ = headers::parse(data);
}

/// A message on a WebSocket channel.
pub fn stream_message(data: &[u8]) {
    for (is_base64, has_ends) in [(false, false), (false, true), (true, false)] {
        let _ = incoming(Bytes::copy_from_slice(data), is_base64, has_ends);
    }
}

/// Connections as clients open them.
#[must_use]
pub fn spdy_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut deflater = headers::Deflater::default();
    let mut connection = Vec::new();
    for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr"), (9, "resize")] {
        connection.extend(frame::open(stream, &[("streamType", kind)], &mut deflater));
        connection.extend(frame::data_head(stream, stream == 3, 4));
        connection.extend(b"data");
        seeds.push(connection.clone());
    }
    connection.extend(frame::ping(1));
    connection.extend(frame::reset(5, 5));
    connection.extend(frame::go_away(9));
    seeds.push(connection);
    let mut forward = headers::Deflater::default();
    let pair = ["error", "data"].iter().zip([1, 3]).flat_map(|(kind, stream)| {
        frame::open(stream, &[("streamType", kind), ("port", "80"), ("requestID", "0")], &mut forward)
    });
    seeds.push(pair.collect());
    seeds
}

/// Messages as clients send them.
#[must_use]
pub fn message_seeds() -> Vec<Vec<u8>> {
    let messages: [&[u8]; 7] =
        [b"\x00ls\n", b"\x04{\"Width\":80,\"Height\":24}", b"\xff\x00", b"0bHM=", b"4e30=", b"", b"\x01"];
    messages.map(<[u8]>::to_vec).to_vec()
}
