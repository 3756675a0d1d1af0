//! What an audit log is made from: a policy, a log file, a webhook.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use machinery::clock::Clock;

use super::metrics::AuditMetrics;
use super::policy::Policy;
use super::sinks::batch::{Batch, BatchSettings};
use super::sinks::log::Log;
use super::sinks::rotation::Rotation;
use super::sinks::webhook::Webhook;
use super::sinks::{Mode, Sink};
use super::{Auditor, Output, policy_file};

/// Settings of the audit log. Without a policy nothing is recorded, whatever the sinks.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    pub policy: PolicySource,
    pub log: Option<LogSettings>,
    pub webhook: Option<WebhookSettings>,
    /// Whether events are recorded for streams alone, without another sink.
    pub streams: bool,
}

/// Where the policy comes from.
#[derive(Clone, Debug, Default)]
pub enum PolicySource {
    #[default]
    None,
    /// Metadata of everything and objects of writes, but never of secrets and tokens.
    Preset,
    File(PathBuf),
}

#[derive(Clone, Debug)]
pub struct LogSettings {
    /// `-` is standard output.
    pub path: PathBuf,
    pub rotation: Rotation,
    pub mode: Mode,
    pub batch: BatchSettings,
    pub truncate_bytes: Option<usize>,
}

impl LogSettings {
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        LogSettings {
            path,
            rotation: Rotation::default(),
            mode: Mode::Blocking,
            batch: BatchSettings::log(),
            truncate_bytes: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// A kubeconfig.
    pub config: PathBuf,
    pub initial_backoff: Duration,
    pub mode: Mode,
    pub batch: BatchSettings,
    pub truncate_bytes: Option<usize>,
}

impl AuditSettings {
    /// Reads the files and opens the sinks. An error is one sentence. Must be called on a runtime.
    pub fn open(&self, clock: &Clock, metrics: &Arc<AuditMetrics>) -> Result<Option<Arc<Auditor>>, String> {
        let policy = match &self.policy {
            PolicySource::None => {
                if self.log.is_some() || self.webhook.is_some() {
                    tracing::warn!("no audit policy is given, so that no audit events are recorded");
                }
                return Ok(None);
            }
            PolicySource::Preset => Policy::preset(),
            PolicySource::File(path) => {
                let (policy, unknown) = policy_file::read(path)?;
                for field in unknown {
                    tracing::warn!(file = %path.display(), field, "the audit policy has a field that is not known");
                }
                policy
            }
        };
        let mut outputs = Vec::new();
        if let Some(log) = &self.log {
            let sink = Log::open(&log.path, log.rotation, clock.clone())
                .map_err(|error| format!("cannot open the audit log {}: {error}", log.path.display()))?;
            let sink: Arc<dyn Sink> = match log.mode {
                Mode::Batch => Arc::new(Batch::start(Arc::new(sink), log.batch, Arc::clone(metrics))),
                Mode::Blocking | Mode::BlockingStrict => Arc::new(sink),
            };
            let strict = log.mode == Mode::BlockingStrict;
            outputs.push(Output { sink, strict, truncate_bytes: log.truncate_bytes });
        }
        if let Some(webhook) = &self.webhook {
            let sink = Webhook::read(&webhook.config, webhook.initial_backoff)
                .map_err(|why| format!("cannot use the audit webhook's configuration {why}"))?;
            let sink: Arc<dyn Sink> = match webhook.mode {
                Mode::Batch => Arc::new(Batch::start(Arc::new(sink), webhook.batch, Arc::clone(metrics))),
                Mode::Blocking | Mode::BlockingStrict => Arc::new(sink),
            };
            let strict = webhook.mode == Mode::BlockingStrict;
            outputs.push(Output { sink, strict, truncate_bytes: webhook.truncate_bytes });
        }
        if outputs.is_empty() && !self.streams {
            return Ok(None);
        }
        Ok(Some(Auditor::new(policy, outputs, Arc::clone(metrics), clock.clone())))
    }
}
