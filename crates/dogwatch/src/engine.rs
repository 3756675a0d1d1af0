//! The choice of the storage engine. No other module of the program names one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use store::embedded::{EmbeddedOptions, EmbeddedStore};
use store::error::OpenError;
use store::etcd::{EtcdCredentials, EtcdIdentity, EtcdOptions, EtcdStore, EtcdTls};
use store::memory::MemoryStore;
use store::{Retention, Store};

use crate::args;
use crate::failure::Failure;

/// Opens the engine chosen on the command line.
pub async fn open(
    data_dir: &Path,
    memory: bool,
    etcd: &args::Etcd,
    durability: args::Durability,
    retention: Retention,
) -> Result<Arc<dyn Store>, Failure> {
    if memory {
        return Ok(Arc::new(MemoryStore::new(retention)));
    }
    if !etcd.endpoints.is_empty() {
        let mut options = etcd_options(etcd)?;
        options.retention = retention;
        let store = EtcdStore::connect(options).await.map_err(explain)?;
        return Ok(Arc::new(store));
    }
    let mut options = EmbeddedOptions::new(data_dir);
    options.retention = retention;
    options.durability = match durability {
        args::Durability::Full => store::embedded::Durability::Full,
        args::Durability::Relaxed => store::embedded::Durability::Relaxed,
    };
    // Opening reads the file and may recover a log, which would block an async thread.
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(options)).await;
    let store = opened.map_err(|error| Failure::new(format!("opening the store failed: {error}")))?;
    Ok(Arc::new(store.map_err(explain)?))
}

/// The retention of history chosen on the command line.
pub fn retention(limits: &args::Limits) -> Retention {
    let mut retention = Retention::default();
    if let Some(seconds) = limits.history_age {
        retention.age_min = Duration::from_secs(seconds);
        // A short history must also be compacted often.
        retention.interval = retention.interval.min(retention.age_min.max(Duration::from_secs(1)));
    }
    retention.changes_min = limits.history_changes.unwrap_or(retention.changes_min);
    retention.history_bytes_max = limits.history_bytes.unwrap_or(retention.history_bytes_max);
    retention
}

/// Writes a copy of a store to `file`; a server may be running on it.
pub async fn backup(data_dir: &Path, etcd: &args::Etcd, file: &Path) -> Result<(), Failure> {
    if !etcd.endpoints.is_empty() {
        let store = open(data_dir, false, etcd, args::Durability::Full, Retention::default()).await?;
        let written = store.backup(file).await;
        store.close().await;
        return written.map_err(Failure::new);
    }
    let (data_dir, file) = (data_dir.to_owned(), file.to_owned());
    let written = tokio::task::spawn_blocking(move || store::embedded::backup_directory(&data_dir, &file)).await;
    let written = written.map_err(|error| Failure::new(format!("the backup failed: {error}")))?;
    written.map_err(|error| Failure::new(error).hint("name the data directory with --data-dir"))
}

/// Creates a data directory from a backup; returns the number of its objects.
pub async fn restore(file: &Path, data_dir: &Path) -> Result<u64, Failure> {
    let (file, data_dir) = (file.to_owned(), data_dir.to_owned());
    let restored = tokio::task::spawn_blocking(move || store::embedded::restore(&file, &data_dir)).await;
    let restored = restored.map_err(|error| Failure::new(format!("restoring failed: {error}")))?;
    Ok(restored.map_err(explain)?.objects)
}

fn etcd_options(etcd: &args::Etcd) -> Result<EtcdOptions, Failure> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))
    };
    let mut options = EtcdOptions::new(etcd.endpoints.clone());
    options.prefix.clone_from(&etcd.prefix);
    if let Some(ca) = &etcd.ca {
        let identity = match (&etcd.cert, &etcd.key) {
            (Some(cert), Some(key)) => Some(EtcdIdentity { cert: read(cert)?, key: read(key)? }),
            _ => None,
        };
        options.tls = Some(EtcdTls { ca: read(ca)?, identity, domain: None });
    }
    if let Some(username) = &etcd.user {
        let password = std::env::var("DOGWATCH_ETCD_PASSWORD")
            .map_err(|_| Failure::new("--etcd-user needs a password").hint("set DOGWATCH_ETCD_PASSWORD"))?;
        options.credentials = Some(EtcdCredentials { username: username.clone(), password });
    }
    Ok(options)
}

fn explain(error: OpenError) -> Failure {
    let hint = match &error {
        OpenError::Unreachable { .. } => Some("is etcd running there? --etcd takes URLs such as http://127.0.0.1:2379"),
        OpenError::Inaccessible { .. } => Some("choose another directory with --data-dir"),
        _ => None,
    };
    let failure = Failure::new(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
