//! One etcd watch stream to one member, from the first request to the confirmation.

use futures::channel::mpsc;
use machinery::Revision;
use tokio::time::Instant;
use tonic::Streaming;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::QUIET;
use crate::etcd::cluster::{Cluster, Connection, unary, with_metadata};
use crate::etcd::fault::{self, Fault};
use crate::etcd::keyspace::{Keyspace, number, revision};
use crate::etcd::messages::{
    Event, Operation, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse, WatchCreateRequest,
    WatchOrder, WatchProgressRequest, WatchRequest, WatchResponse, path,
};
use crate::key::Prefix;

/// How a stream learns that nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The member is asked and its answer is trusted.
    Asked,
    /// The current revision is read, and a record written if it is ahead of the stream.
    Marked,
}

impl Progress {
    /// What a member of this version can be trusted with.
    fn of(version: &str) -> Progress {
        let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
        let mut number = || numbers.next().flatten();
        let trusted = match (number(), number(), number()) {
            (Some(3), Some(4), Some(patch)) => patch >= 31,
            (Some(3), Some(5), Some(patch)) => patch >= 13,
            (Some(3), Some(minor), _) => minor >= 6,
            (Some(major), ..) => major > 3,
            _ => false,
        };
        if trusted { Progress::Asked } else { Progress::Marked }
    }
}

/// An open stream.
pub(super) struct Line {
    channel: Channel,
    orders: mpsc::Sender<WatchRequest>,
    pub(super) answers: Streaming<WatchResponse>,
    pub(super) token: Option<MetadataValue<Ascii>>,
    pub(super) progress: Progress,
    /// The parts so far of a response that came in several.
    pub(super) fragments: Vec<Event>,
    /// When it last got us further.
    pub(super) heard: Instant,
    /// When to ask how far it is.
    pub(super) ask_at: Instant,
    /// The log was ahead of the stream when last asked.
    pub(super) behind: bool,
}

impl Line {
    /// Opens a stream that delivers everything after `reached`, and possibly what was before.
    pub(super) async fn open(
        cluster: &Cluster,
        keyspace: &Keyspace,
        prefix: &Prefix,
        member: usize,
        reached: Revision,
    ) -> Result<Line, Fault> {
        let url = cluster.url(member);
        let token = cluster.token().await?;
        let Connection { channel, version } = cluster.dial(member).await?;
        let progress = Progress::of(&version);
        let current = current(url, &channel, token.clone(), keyspace).await?;
        if current < reached {
            return Err(Fault::Corrupt(format!(
                "etcd is at revision {current}, but revision {reached} was there before; it seems to be restored from an \
                 older backup"
            )));
        }
        let (key, range_end) = match progress {
            Progress::Asked => keyspace.objects(prefix, None),
            Progress::Marked => keyspace.everything(),
        };
        let create = |start: Revision| WatchCreateRequest {
            key: key.clone(),
            range_end: range_end.clone(),
            start_revision: number(start).max(1),
            prev_kv: true,
            fragment: true,
        };
        let start = if current == reached { reached.next() } else { reached };
        let mut stream = Stream::open(cluster, member, &channel, token.clone(), create(start)).await?;
        if start > reached && stream.current > reached {
            // Something happened meanwhile: what looked live is history now, and starts where history does.
            stream = Stream::open(cluster, member, &channel, token.clone(), create(reached)).await?;
        }
        let now = Instant::now();
        Ok(Line {
            channel,
            orders: stream.orders,
            answers: stream.answers,
            token,
            progress,
            fragments: Vec::new(),
            heard: now,
            ask_at: now + QUIET,
            behind: false,
        })
    }

    /// Asks for progress. A full queue means that it has been asked already.
    pub(super) fn ask_progress(&mut self) {
        let order = WatchRequest { order: Some(WatchOrder::Progress(WatchProgressRequest {})) };
        let _ = self.orders.try_send(order);
    }

    /// The current revision of the cluster, through this stream's member.
    pub(super) async fn current(&self, url: &str, keyspace: &Keyspace) -> Result<Revision, Fault> {
        current(url, &self.channel, self.token.clone(), keyspace).await
    }

    /// Writes the record that moves the log on below the prefix.
    pub(super) async fn mark(&self, url: &str, keyspace: &Keyspace) -> Result<(), Fault> {
        let put = PutRequest { key: keyspace.progress_record(), ..PutRequest::default() };
        let request =
            TxnRequest { success: vec![RequestOp { operation: Some(Operation::Put(put)) }], ..TxnRequest::default() };
        let request = with_metadata(request, self.token.clone());
        unary::<_, TxnResponse>(url, self.channel.clone(), path::TXN, request).await.map(|_| ())
    }
}

/// Waits for the answer to a watch that starts below the compaction.
pub(super) async fn floor(cluster: &Cluster, keyspace: &Keyspace, member: usize) -> Result<Revision, Fault> {
    let token = cluster.token().await?;
    let channel = cluster.connection(member).await?.channel;
    let create =
        WatchCreateRequest { key: keyspace.progress_record(), start_revision: 1, ..WatchCreateRequest::default() };
    let mut stream = match Stream::open(cluster, member, &channel, token, create).await {
        Err(Fault::Compacted) => return Err(Fault::Lost("the compaction has no revision".to_owned())),
        opened => opened?,
    };
    loop {
        match stream.answers.message().await {
            Ok(Some(answer)) if answer.compact_revision > 0 => return Ok(revision(answer.compact_revision)),
            Ok(Some(_)) => {}
            Ok(None) => return Err(Fault::Lost(format!("{}: the stream ended", cluster.url(member)))),
            Err(status) => return Err(fault::from_status(cluster.url(member), &status)),
        }
    }
}

/// A stream whose watch etcd has confirmed.
struct Stream {
    orders: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    /// The member's revision when it confirmed.
    current: Revision,
}

impl Stream {
    async fn open(
        cluster: &Cluster,
        member: usize,
        channel: &Channel,
        token: Option<MetadataValue<Ascii>>,
        create: WatchCreateRequest,
    ) -> Result<Stream, Fault> {
        let url = cluster.url(member);
        let (mut orders, requests) = mpsc::channel(2);
        orders
            .try_send(WatchRequest { order: Some(WatchOrder::Create(create)) })
            .map_err(|_| Fault::Unsent(format!("{url}: the watch took no request")))?;
        let mut grpc = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| Fault::Unsent(format!("{url}: {}", fault::chain(&error))))?;
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let path = http::uri::PathAndQuery::from_static(path::WATCH);
        let answers = grpc.streaming(with_metadata(requests, token), path, codec).await;
        let mut answers = answers.map_err(|status| fault::from_status(url, &status))?.into_inner();
        let confirmed = answers.message().await.map_err(|status| fault::from_status(url, &status))?;
        let Some(confirmed) = confirmed else {
            return Err(Fault::Lost(format!("{url}: the watch ended before it began")));
        };
        if confirmed.canceled {
            return Err(fault::from_answer(url, tonic::Code::Unknown, &confirmed.cancel_reason));
        }
        let current = confirmed.header.map_or(Revision::ZERO, |header| revision(header.revision));
        Ok(Stream { orders, answers, current })
    }
}

async fn current(
    url: &str,
    channel: &Channel,
    token: Option<MetadataValue<Ascii>>,
    keyspace: &Keyspace,
) -> Result<Revision, Fault> {
    let key = keyspace.progress_record();
    let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
    let answer: RangeResponse = unary(url, channel.clone(), path::RANGE, with_metadata(request, token)).await?;
    Ok(answer.header.map_or(Revision::ZERO, |header| revision(header.revision)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_members_are_not_asked_for_progress() {
        for version in ["3.5.1", "3.5.12", "3.4.23", "3.4.30", "3.3.99", "2.3.8", "", "new"] {
            assert_eq!(Progress::of(version), Progress::Marked, "{version}");
        }
        for version in ["3.5.13", "3.4.31", "3.6.0", "3.6.0-rc.1", "3.10.2", "4.0.0"] {
            assert_eq!(Progress::of(version), Progress::Asked, "{version}");
        }
    }
}
