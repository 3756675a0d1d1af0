//! Backup of etcd: its streamed snapshot, written to a new file and verified by its checksum.
//!
//! The file has etcd's own format, byte for byte as `etcdctl snapshot save` writes it: the database of one member and its
//! SHA-256. It has the whole cluster, not only the prefix, with every kept revision; `etcdutl snapshot restore` creates a
//! new cluster from it. With authentication enabled, etcd requires the role `root` for it.

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

/// Length of the checksum at the end of the stream.
const SUM_BYTES: usize = 32;

/// The database before the checksum has whole pages, whose size is a multiple of this.
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
        // A snapshot may take long and fill the flow-control window, so it has its own connection.
        let channel = self.cluster.dial(member).await.inspect_err(|_| self.cluster.mark_failed(member))?.channel;
        // The snapshot is of one member. A read that a majority confirms makes this member catch up first, so that the
        // backup has every write acknowledged before it.
        let read = RangeRequest { key: self.keyspace.progress_record(), count_only: true, ..RangeRequest::default() };
        let read = unary::<_, RangeResponse>(url, channel.clone(), path::RANGE, with_metadata(read, token.clone()));
        let time_limit = self.cluster.request_timeout();
        tokio::time::timeout(time_limit, read).await.map_err(|_| failed(format!("{url}: no answer in time")))??;

        let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| failed(fault::chain(&error)))?;
        let codec = ProstCodec::<SnapshotRequest, SnapshotResponse>::default();
        let path = http::uri::PathAndQuery::from_static(path::SNAPSHOT);
        let blocks = grpc.server_streaming(with_metadata(SnapshotRequest {}, token), path, codec).await;
        let refused = |status: tonic::Status| failed(fault::from_status(url, &status).to_string());
        let mut blocks = blocks.map_err(refused)?.into_inner();
        loop {
            // etcd sends without pauses, so a pause means that the member has stopped.
            let block = tokio::time::timeout(time_limit, blocks.message())
                .await
                .map_err(|_| failed(format!("{url}: the snapshot stopped")))?;
            let Some(block) = block.map_err(refused)? else { break };
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

/// A partial snapshot on disk, readable by its owner only. It gets its final name once it is complete.
struct SnapshotFile {
    file: NamedTempFile,
    sum: Sha256,
    /// The last bytes received: the checksum, at the end of the stream.
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
        // Fails if the file was created in the meantime.
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
