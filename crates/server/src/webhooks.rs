//! Calls webhooks over HTTPS.
//!
//! - [`call`]: one call: the URL, the address of a Service, trust, credentials, and the texts of failures
//! - [`credentials`]: which client certificate or token a webhook is sent
//! - `answer`: what an answer means that is not a review
//! - `own`: calls of the server itself
//!
//! Conversion and admission webhooks are called in the same way; only the time limit and the credentials differ.

mod answer;
pub mod call;
pub mod credentials;
pub(crate) mod own;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use machinery::json::Value;
use outbound::{Budget, Charge, Client, ClientLimits, ServiceAddresses};
use registry::admission::webhooks::client::{CallFailure, HookAnswer, HookCaller, HookClient};
use registry::{Registry, Webhooks};

use crate::limits::{Limits, Slot};
use crate::metrics::Metrics;
use crate::service::Server;
use crate::services::Services;
use crate::webhooks::call::Caller;
use crate::webhooks::credentials::HookCredentials;

/// Time limit of a conversion.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// What a webhook that nothing serves does to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingWebhooks {
    /// Its failure policy decides; conversions fail.
    #[default]
    Fail,
    /// Conversions change only the version, admission webhooks are skipped with a warning.
    Skip,
}

/// Settings of webhook calls.
#[derive(Clone, Debug, Default)]
pub struct WebhookSettings {
    /// Addresses of Services that have no pods.
    pub services: ServiceAddresses,
    pub credentials: HookCredentials,
    pub missing: MissingWebhooks,
    /// Time for which a loopback address that refuses the connection is tried again.
    pub refused_wait: Duration,
    /// Authorities for webhooks behind Services whose configuration has no `caBundle`, as PEM. Empty for those of the system.
    pub services_ca: Bytes,
}

/// Calls the webhooks of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpsWebhooks(Arc<Caller>);

impl HttpsWebhooks {
    #[must_use]
    pub fn new(limits: &Limits, metrics: &Arc<Metrics>, settings: WebhookSettings) -> Self {
        let client_limits =
            ClientLimits { answer_bytes_max: limits.webhook_response_bytes_max, ..ClientLimits::default() };
        let client = Client::new(client_limits).with_budget(Arc::new(AnswerBudget(Arc::clone(metrics))));
        let services = Arc::new(Services::new(settings.services.clone()));
        HttpsWebhooks(Arc::new(Caller::new(client, services, settings, Arc::clone(metrics))))
    }

    /// Names the registry in which Services are looked up. Until then only URLs can be called.
    pub fn read_services_from(&self, registry: &Arc<Registry>) {
        self.0.services.read_from(registry);
    }

    /// Names the server that calls of `kubernetes.default.svc` reach.
    pub fn reach_own(&self, server: &Server) {
        self.0.own.set(server);
    }

    /// The addresses of Services.
    #[must_use]
    pub fn services(&self) -> &Arc<Services> {
        &self.0.services
    }

    /// The client that all calls share.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }
}

impl HookCaller for HttpsWebhooks {
    fn call<'a>(&'a self, hook: &'a HookClient, review: Bytes, timeout: Duration) -> HookAnswer<'a> {
        Box::pin(async move {
            let credentials = Some(&self.0.settings.credentials);
            let result = self.0.post(hook, review, timeout, credentials).await;
            self.0.metrics.webhook_calls.count("admission", result.as_ref().err().map(|failure| failure.kind));
            result.map_err(|failure| failure.into_reported(self.0.settings.missing))
        })
    }
}

impl Webhooks for HttpsWebhooks {
    fn post(&self, client: &Value, review: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, CallFailure>> + Send>> {
        let (caller, hook) = (Arc::clone(&self.0), HookClient::new(client));
        Box::pin(async move {
            let began = Instant::now();
            let result = caller.post(&hook, review, CONVERSION_TIMEOUT, None).await;
            let failure = result.as_ref().err().map(|failure| failure.kind);
            caller.metrics.webhook_calls.count("conversion", failure);
            caller.metrics.webhook_calls.conversion(failure.is_none(), began.elapsed());
            result.map_err(|failure| failure.into_reported(caller.settings.missing))
        })
    }
}

/// Charges answers to the limit on the bytes of all webhook answers.
#[derive(Debug)]
struct AnswerBudget(Arc<Metrics>);

impl Budget for AnswerBudget {
    fn charge(&self) -> Box<dyn Charge> {
        Box::new(AnswerCharge(self.0.webhook_bytes.force(0)))
    }
}

struct AnswerCharge(Slot);

impl Charge for AnswerCharge {
    fn grow(&mut self, bytes: usize) -> bool {
        self.0.grow(bytes)
    }
}
