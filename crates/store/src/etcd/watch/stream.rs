//! One etcd watch stream to one member: opening, confirmation, progress.

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
use crate::etcd::keyspace::{Keyspace, header_revision, number, revision};
use crate::etcd::messages::{
    Event, Operation, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse, WatchCommand,
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse, path,
};
use crate::key::Prefix;

/// How a stream finds out that there were no changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It requests progress from the member.
    Requested,
    /// It reads the current revision, and writes a record if that is ahead of the stream.
    Written,
}

impl Progress {
    /// The mode for a member of this version.
    fn for_version(version: &str) -> Progress {
        let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
        let mut number = || numbers.next().flatten();
        let trusted = match (number(), number(), number()) {
            (Some(3), Some(4), Some(patch)) => patch >= 31,
            (Some(3), Some(5), Some(patch)) => patch >= 13,
            (Some(3), Some(minor), _) => minor >= 6,
            (Some(major), ..) => major > 3,
            _ => false,
        };
        if trusted { Progress::Requested } else { Progress::Written }
    }
}

/// An open watch stream.
pub(super) struct WatchStream {
    channel: Channel,
    requests: mpsc::Sender<WatchRequest>,
    pub(super) answers: Streaming<WatchResponse>,
    pub(super) token: Option<MetadataValue<Ascii>>,
    pub(super) progress: Progress,
    /// The parts received so far of a fragmented response.
    pub(super) fragments: Vec<Event>,
    /// When the stream last delivered changes or progress.
    pub(super) advanced_at: Instant,
    /// When to check its progress.
    pub(super) check_at: Instant,
    /// The log was ahead of the stream at the last check.
    pub(super) behind: bool,
}

impl WatchStream {
    /// Opens a stream that delivers every change after `reached`, and possibly the one at `reached` again.
    pub(super) async fn open(
        cluster: &Cluster,
        keyspace: &Keyspace,
        prefix: &Prefix,
        member: usize,
        reached: Revision,
    ) -> Result<WatchStream, Fault> {
        let url = cluster.url(member);
        let token = cluster.token().await?;
        let Connection { channel, version } = cluster.dial(member).await?;
        let progress = Progress::for_version(&version);
        let current = current_revision(url, &channel, token.clone(), keyspace).await?;
        if current < reached {
            return Err(Fault::Corrupt(format!(
                "etcd is at revision {current}, but revision {reached} was there before; it seems to be restored from an \
                 older backup"
            )));
        }
        let (key, range_end) = match progress {
            Progress::Requested => keyspace.objects(prefix, None),
            Progress::Written => keyspace.everything(),
        };
        let create = |start: Revision| WatchCreateRequest {
            key: key.clone(),
            range_end: range_end.clone(),
            start_revision: number(start).max(1),
            prev_kv: true,
            fragment: true,
        };
        let start = if current == reached { reached.next() } else { reached };
        let mut stream = Confirmed::open(cluster, member, &channel, token.clone(), create(start)).await?;
        if start > reached && stream.current > reached {
            // There was a change in the meantime, so the start is history now; see `watch` for where that starts.
            stream = Confirmed::open(cluster, member, &channel, token.clone(), create(reached)).await?;
        }
        let now = Instant::now();
        Ok(WatchStream {
            channel,
            requests: stream.requests,
            answers: stream.answers,
            token,
            progress,
            fragments: Vec::new(),
            advanced_at: now,
            check_at: now + QUIET,
            behind: false,
        })
    }

    /// Requests progress. A full queue means that a request is waiting already.
    pub(super) fn request_progress(&mut self) {
        let request = WatchRequest { command: Some(WatchCommand::Progress(WatchProgressRequest {})) };
        let _ = self.requests.try_send(request);
    }

    /// The current revision of the cluster, by this stream's member.
    pub(super) async fn current_revision(&self, url: &str, keyspace: &Keyspace) -> Result<Revision, Fault> {
        current_revision(url, &self.channel, self.token.clone(), keyspace).await
    }

    /// Writes the record that advances the log below the prefix.
    pub(super) async fn write_progress_record(&self, url: &str, keyspace: &Keyspace) -> Result<(), Fault> {
        let put = PutRequest { key: keyspace.progress_record(), ..PutRequest::default() };
        let request =
            TxnRequest { success: vec![RequestOp { operation: Some(Operation::Put(put)) }], ..TxnRequest::default() };
        let request = with_metadata(request, self.token.clone());
        unary::<_, TxnResponse>(url, self.channel.clone(), path::TXN, request).await.map(|_| ())
    }
}

/// The revision at which etcd is compacted, from the answer to a watch that starts below it.
pub(super) async fn compacted_revision(
    cluster: &Cluster,
    keyspace: &Keyspace,
    member: usize,
) -> Result<Revision, Fault> {
    let token = cluster.token().await?;
    let channel = cluster.connection(member).await?.channel;
    let create =
        WatchCreateRequest { key: keyspace.progress_record(), start_revision: 1, ..WatchCreateRequest::default() };
    let mut stream = match Confirmed::open(cluster, member, &channel, token, create).await {
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
struct Confirmed {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    /// The member's revision when it confirmed.
    current: Revision,
}

impl Confirmed {
    async fn open(
        cluster: &Cluster,
        member: usize,
        channel: &Channel,
        token: Option<MetadataValue<Ascii>>,
        create: WatchCreateRequest,
    ) -> Result<Confirmed, Fault> {
        let url = cluster.url(member);
        let (mut requests, received) = mpsc::channel(2);
        requests
            .try_send(WatchRequest { command: Some(WatchCommand::Create(create)) })
            .map_err(|_| Fault::Unsent(format!("{url}: the watch took no request")))?;
        let mut grpc = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| Fault::Unsent(format!("{url}: {}", fault::chain(&error))))?;
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let path = http::uri::PathAndQuery::from_static(path::WATCH);
        let answers = grpc.streaming(with_metadata(received, token), path, codec).await;
        let mut answers = answers.map_err(|status| fault::from_status(url, &status))?.into_inner();
        let confirmed = answers.message().await.map_err(|status| fault::from_status(url, &status))?;
        let Some(confirmed) = confirmed else {
            return Err(Fault::Lost(format!("{url}: the watch ended before it began")));
        };
        if confirmed.canceled {
            return Err(fault::from_answer(url, tonic::Code::Unknown, &confirmed.cancel_reason));
        }
        let current = header_revision(confirmed.header.as_ref())?;
        Ok(Confirmed { requests, answers, current })
    }
}

async fn current_revision(
    url: &str,
    channel: &Channel,
    token: Option<MetadataValue<Ascii>>,
    keyspace: &Keyspace,
) -> Result<Revision, Fault> {
    let key = keyspace.progress_record();
    let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
    let answer: RangeResponse = unary(url, channel.clone(), path::RANGE, with_metadata(request, token)).await?;
    header_revision(answer.header.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_members_get_no_progress_requests() {
        for version in ["3.5.1", "3.5.12", "3.4.23", "3.4.30", "3.3.99", "2.3.8", "", "new"] {
            assert_eq!(Progress::for_version(version), Progress::Written, "{version}");
        }
        for version in ["3.5.13", "3.4.31", "3.6.0", "3.6.0-rc.1", "3.10.2", "4.0.0"] {
            assert_eq!(Progress::for_version(version), Progress::Requested, "{version}");
        }
    }
}
