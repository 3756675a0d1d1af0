//! Arguments of the audit log, under the names that kube-apiserver has for them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use server::audit::settings::{AuditSettings, LogSettings, PolicySource, WebhookSettings};
use server::audit::sinks::Mode;
use server::audit::sinks::batch::BatchSettings;
use server::audit::sinks::rotation::Rotation;

/// The audit log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Audit")]
pub struct Audit {
    /// Record who did what in this file: metadata of all requests, objects of writes, but never of secrets and tokens.
    #[arg(long = "audit", id = "audit", value_name = "FILE", conflicts_with_all = ["audit_policy_file", "audit_log_path"])]
    pub preset: Option<PathBuf>,
    /// File of the audit policy: which requests are recorded, and how much of them.
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// File of the audit log; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,
    /// Size of the audit log after which it is replaced; 0 is never.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100)]
    pub audit_log_maxsize: u64,
    /// Number of old audit logs that are kept; 0 keeps all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub audit_log_maxbackup: usize,
    /// Age after which old audit logs are removed; 0 keeps all.
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    pub audit_log_maxage: u64,
    /// Compress old audit logs with gzip.
    #[arg(long)]
    pub audit_log_compress: bool,
    /// Format of the audit log.
    #[arg(long, value_enum, default_value_t = AuditFormat::Json)]
    pub audit_log_format: AuditFormat,
    /// Whether a request waits until its event is in the audit log.
    #[arg(long, value_enum, default_value_t = AuditMode::Blocking)]
    pub audit_log_mode: AuditMode,
    /// Events that are buffered in mode `batch`; more are dropped.
    #[arg(long, value_name = "N", default_value_t = BatchSettings::log().buffer_events_max)]
    pub audit_log_batch_buffer_size: usize,
    /// Leave the objects out of events that are larger than `--audit-log-truncate-max-event-size`.
    #[arg(long)]
    pub audit_log_truncate_enabled: bool,
    /// Largest event of the audit log with objects, if it is truncated.
    #[arg(long, value_name = "BYTES", default_value_t = 102_400)]
    pub audit_log_truncate_max_event_size: usize,
    /// Kubeconfig of a server that audit events are sent to.
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// Pause before a failed delivery to the webhook is repeated for the first time.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub audit_webhook_initial_backoff: u64,
    /// Whether a request waits until its event is delivered to the webhook.
    #[arg(long, value_enum, default_value_t = AuditMode::Batch)]
    pub audit_webhook_mode: AuditMode,
    /// Events that are buffered for the webhook in mode `batch`; more are dropped.
    #[arg(long, value_name = "N", default_value_t = BatchSettings::webhook().buffer_events_max)]
    pub audit_webhook_batch_buffer_size: usize,
    /// Events that are sent to the webhook together.
    #[arg(long, value_name = "N", default_value_t = BatchSettings::webhook().events_max)]
    pub audit_webhook_batch_max_size: usize,
    /// Longest time that an event waits for others, to be sent to the webhook together.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub audit_webhook_batch_max_wait: f64,
    /// Deliveries to the webhook a second.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub audit_webhook_batch_throttle_qps: f64,
    /// Deliveries to the webhook at once after a pause.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub audit_webhook_batch_throttle_burst: usize,
    /// Leave the objects out of events that are larger than `--audit-webhook-truncate-max-event-size`.
    #[arg(long)]
    pub audit_webhook_truncate_enabled: bool,
    /// Largest event with objects that is sent to the webhook, if events are truncated.
    #[arg(long, value_name = "BYTES", default_value_t = 102_400)]
    pub audit_webhook_truncate_max_event_size: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditMode {
    /// A request waits until its event is written.
    Blocking,
    /// A request whose event cannot be written is refused.
    BlockingStrict,
    /// Events are buffered.
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    /// One JSON object a line.
    Json,
}

impl From<AuditMode> for Mode {
    fn from(mode: AuditMode) -> Self {
        match mode {
            AuditMode::Blocking => Mode::Blocking,
            AuditMode::BlockingStrict => Mode::BlockingStrict,
            AuditMode::Batch => Mode::Batch,
        }
    }
}

impl Audit {
    #[must_use]
    pub fn settings(&self) -> AuditSettings {
        let policy = match (&self.preset, &self.audit_policy_file) {
            (Some(_), _) => PolicySource::Preset,
            (None, Some(path)) => PolicySource::File(path.clone()),
            (None, None) => PolicySource::None,
        };
        let log = self.preset.as_ref().or(self.audit_log_path.as_ref()).map(|path| LogSettings {
            rotation: Rotation {
                bytes_max: self.audit_log_maxsize.saturating_mul(1 << 20),
                files_max: self.audit_log_maxbackup,
                days_max: self.audit_log_maxage,
                compress: self.audit_log_compress,
            },
            mode: self.audit_log_mode.into(),
            batch: BatchSettings { buffer_events_max: self.audit_log_batch_buffer_size, ..BatchSettings::log() },
            truncate_bytes: self.audit_log_truncate_enabled.then_some(self.audit_log_truncate_max_event_size),
            ..LogSettings::new(path.clone())
        });
        let webhook = self.audit_webhook_config_file.as_ref().map(|config| WebhookSettings {
            config: config.clone(),
            initial_backoff: Duration::from_secs(self.audit_webhook_initial_backoff),
            mode: self.audit_webhook_mode.into(),
            batch: BatchSettings {
                buffer_events_max: self.audit_webhook_batch_buffer_size,
                events_max: self.audit_webhook_batch_max_size.max(1),
                wait: Duration::try_from_secs_f64(self.audit_webhook_batch_max_wait).unwrap_or_default(),
                rate: Some((self.audit_webhook_batch_throttle_qps, self.audit_webhook_batch_throttle_burst)),
                ..BatchSettings::webhook()
            },
            truncate_bytes: self.audit_webhook_truncate_enabled.then_some(self.audit_webhook_truncate_max_event_size),
        });
        AuditSettings { policy, log, webhook, streams: false }
    }
}
