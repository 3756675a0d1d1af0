//! A backup of etcd: the snapshot it streams, written to a new file and checked against its own sum.
//!
//! The file is etcd's own format, byte for byte what `etcdctl snapshot save` writes: the database of one member and the
//! SHA-256 of it. It holds the whole cluster, not only the prefix, with every revision kept; `etcdutl snapshot restore`
//! makes a new cluster of it. With users switched on, etcd gives it only to one with the role `root`.

use std::io::Write;
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use tonic_prost::ProstCodec;

use super::EtcdStore;
use super::cluster::{unary, with_metadata};
use super::fault;
use super::messages::{RangeRequest, RangeResponse, SnapshotRequest, SnapshotResponse, path};
use crate::error::EngineError;

/// The sum at the end of the stream.
const SUM_BYTES: usize = 32;

/// What precedes the sum is whole pages of the database, whose size is a multiple of this.
const PAGE_UNIT: u64 = 512;

impl EtcdStore {
    pub(super) async fn save_snapshot(&self, to: &Path) -> Result<(), EngineError> {
        let failed = |reason: String| EngineError::new(format!("backup to {}: {reason}", to.display()));
        if to.exists() {
            return Err(failed("the file exists already".to_owned()));
        }
        let mut file = SnapshotFile::new(to).map_err(|error| failed(error.to_string()))?;

        let member = self.cluster.preferred();
        let url = self.cluster.url(member);
        let token = self.cluster.token().await?;
        // A snapshot may take long and fill the window; it gets its own connection.
        let channel = self.cluster.dial(member).await.inspect_err(|_| self.cluster.pass_over(member))?.channel;
        // The snapshot is one member's. A read that a majority confirms makes this member catch up first, so that
        // everything acknowledged before the backup is in it.
        let read = RangeRequest { key: self.keyspace.progress_record(), count_only: true, ..RangeRequest::default() };
        let read = unary::<_, RangeResponse>(url, channel.clone(), path::RANGE, with_metadata(read, token.clone()));
        let patience = self.cluster.request_timeout();
        tokio::time::timeout(patience, read).await.map_err(|_| failed(format!("{url}: no answer in time")))??;

        let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| failed(fault::chain(&error)))?;
        let codec = ProstCodec::<SnapshotRequest, SnapshotResponse>::default();
        let path = http::uri::PathAndQuery::from_static(path::SNAPSHOT);
        let blocks = grpc.server_streaming(with_metadata(SnapshotRequest {}, token), path, codec).await;
        let told = |status: tonic::Status| failed(fault::from_status(url, &status).to_string());
        let mut blocks = blocks.map_err(told)?.into_inner();
        loop {
            // etcd sends as fast as it reads; a member that stops is noticed by the pause.
            let block = tokio::time::timeout(patience, blocks.message())
                .await
                .map_err(|_| failed(format!("{url}: the snapshot stopped")))?;
            let Some(block) = block.map_err(told)? else { break };
            file = tokio::task::spawn_blocking(move || file.write(&block.blob).map(|()| file))
                .await
                .map_err(|_| failed("writing stopped".to_owned()))?
                .map_err(|error| failed(error.to_string()))?;
        }
        let to = to.to_owned();
        tokio::task::spawn_blocking(move || file.finish(&to))
            .await
            .map_err(|_| failed("writing stopped".to_owned()))?
            .map_err(failed)
    }
}

/// A snapshot on its way to disk. It has its name only once it is whole; only its owner may read it.
struct SnapshotFile {
    file: NamedTempFile,
    sum: Sha256,
    /// The last bytes seen: the sum, once there are no more.
    tail: Vec<u8>,
    bytes: u64,
}

impl SnapshotFile {
    fn new(to: &Path) -> std::io::Result<Self> {
        let folder = match to.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new().prefix(".snapshot-").suffix(".part").tempfile_in(folder)?;
        Ok(SnapshotFile { file, sum: Sha256::new(), tail: Vec::new(), bytes: 0 })
    }

    fn write(&mut self, block: &[u8]) -> std::io::Result<()> {
        self.file.write_all(block)?;
        self.bytes += block.len() as u64;
        self.tail.extend_from_slice(block);
        let summed = self.tail.len().saturating_sub(SUM_BYTES);
        self.sum.update(&self.tail[..summed]);
        self.tail.drain(..summed);
        Ok(())
    }

    fn finish(self, to: &Path) -> Result<(), String> {
        let database = self.bytes.saturating_sub(SUM_BYTES as u64);
        if database == 0 || !database.is_multiple_of(PAGE_UNIT) {
            return Err(format!("the snapshot is cut off after {} bytes", self.bytes));
        }
        if self.sum.finalize()[..] != self.tail[..] {
            return Err("the snapshot does not match its checksum".to_owned());
        }
        self.file.as_file().sync_all().map_err(|error| error.to_string())?;
        // Refuses to replace a file that somebody made meanwhile.
        self.file.persist_noclobber(to).map_err(|error| error.error.to_string())?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(database: &[u8], sum: &[u8], blocks: usize) -> Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("copy.db");
        let mut file = SnapshotFile::new(&to).unwrap();
        for block in [database, sum].concat().chunks(blocks) {
            file.write(block).unwrap();
        }
        file.finish(&to)?;
        Ok(std::fs::read(&to).unwrap())
    }

    #[test]
    fn a_snapshot_is_kept_if_its_sum_matches() {
        let database = vec![7; 2048];
        let sum = Sha256::digest(&database);
        for blocks in [1, 31, 33, 500, 4096] {
            assert_eq!(snapshot(&database, &sum, blocks).unwrap(), [&database[..], &sum[..]].concat());
        }
    }

    #[test]
    fn a_damaged_or_cut_snapshot_is_refused() {
        let database = vec![7; 2048];
        assert!(snapshot(&database, &[0; 32], 100).unwrap_err().contains("checksum"));
        assert!(snapshot(&database[..2000], &[], 100).unwrap_err().contains("cut off"));
        assert!(snapshot(&[], &[], 100).unwrap_err().contains("cut off"));
    }
}
