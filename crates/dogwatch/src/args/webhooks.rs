//! Flags about webhooks and aggregated servers, and what they mean.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use machinery::clock::Clock;
use outbound::ServiceAddresses;
use registry::admission::pod_security::configuration::PodSecurityConfiguration;
use server::certs::Leaf;
use server::certs::front_proxy::FrontProxyClient;
use server::webhooks::credentials::HookCredentials;
use server::webhooks::{MissingWebhooks, WebhookSettings};

use crate::failure::Failure;

/// Time for which a webhook that is just starting is waited for.
const REFUSED_WAIT: Duration = Duration::from_secs(1);

/// Webhooks and aggregated servers.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Webhooks and aggregated servers")]
pub struct Webhooks {
    /// Address of a Service that has no pods, for webhooks and aggregated servers; may be repeated.
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]=HOST:PORT")]
    pub webhook_service: Vec<String>,
    /// File of such addresses, one on each line.
    #[arg(long, value_name = "FILE")]
    pub service_resolver: Option<PathBuf>,
    /// AdmissionConfiguration: credentials for admission webhooks, and levels and exemptions of PodSecurity.
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// What a webhook that nothing serves does to a request.
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = Missing::Fail)]
    pub missing_webhooks: Missing,
    /// Wait up to a second for a webhook on a loopback address that refuses connections, because it may be starting.
    #[arg(long)]
    pub await_webhooks: bool,
    /// Folder for a serving certificate of the mapped Services (tls.crt, tls.key), made if it is missing. Their webhooks need no caBundle.
    #[arg(long, value_name = "DIR")]
    pub webhook_certs: Option<PathBuf>,
    /// Client certificate for aggregated servers [default: DIR/pki/front-proxy-client.crt, of an authority of its own].
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Missing {
    /// Its failure policy decides; conversions fail.
    #[default]
    Fail,
    /// Conversions change only the version, admission webhooks are skipped with a warning.
    None,
}

impl Webhooks {
    /// The certificate by which aggregated servers recognise this one; none where nothing is kept on disk.
    pub fn front_proxy(&self, pki: Option<&Path>, clock: &Clock) -> Result<Option<FrontProxyClient>, Failure> {
        if let (Some(cert), Some(key)) = (&self.proxy_client_cert_file, &self.proxy_client_key_file) {
            let read = |flag: &str, file: &Path| {
                std::fs::read_to_string(file)
                    .map_err(|error| Failure::usage(format!("--{flag} {}: {error}", file.display())))
            };
            let client =
                Leaf { cert_pem: read("proxy-client-cert-file", cert)?, key_pem: read("proxy-client-key-file", key)? };
            client
                .chain()
                .and_then(|_| client.key())
                .map_err(|error| Failure::usage(format!("--proxy-client-cert-file {}: {error}", cert.display())))?;
            return Ok(Some(FrontProxyClient { ca_pem: String::new(), client }));
        }
        pki.map(|dir| FrontProxyClient::open(dir, clock.now())).transpose().map_err(Failure::new)
    }

    /// Levels of pods in namespaces without labels, and exemptions from them.
    pub fn pod_security(&self) -> Result<PodSecurityConfiguration, Failure> {
        let Some(file) = &self.admission_control_config_file else { return Ok(PodSecurityConfiguration::default()) };
        PodSecurityConfiguration::read(file)
            .map_err(|why| Failure::usage(format!("--admission-control-config-file {why}")))
    }

    /// Reads the files that the flags name, and makes the certificate of webhooks.
    pub fn settings(&self, clock: &Clock) -> Result<WebhookSettings, Failure> {
        let mut services = ServiceAddresses::default();
        if let Some(file) = &self.service_resolver {
            services.add_file(file).map_err(|why| Failure::usage(format!("--service-resolver {why}")))?;
        }
        for mapping in &self.webhook_service {
            services.add(mapping).map_err(|why| Failure::usage(format!("--webhook-service {why}")))?;
        }
        let credentials = match &self.admission_control_config_file {
            None => HookCredentials::default(),
            Some(file) => HookCredentials::read(file)
                .map_err(|why| Failure::usage(format!("--admission-control-config-file {why}")))?,
        };
        let services_ca = match &self.webhook_certs {
            None => String::new(),
            Some(_) if services.server_names().next().is_none() => {
                return Err(Failure::usage("--webhook-certs needs the names of Services")
                    .hint("name them with --webhook-service or --service-resolver"));
            }
            Some(dir) => server::certs::webhooks::open(dir, services.server_names(), clock.now())
                .map_err(|error| Failure::usage(format!("--webhook-certs {}: {error}", dir.display())))?,
        };
        Ok(WebhookSettings {
            services,
            services_ca: services_ca.into(),
            credentials,
            missing: match self.missing_webhooks {
                Missing::Fail => MissingWebhooks::Fail,
                Missing::None => MissingWebhooks::Skip,
            },
            refused_wait: if self.await_webhooks { REFUSED_WAIT } else { Duration::ZERO },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bd_6_the_flag_makes_a_certificate_for_the_services_that_are_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut flags = Webhooks { webhook_certs: Some(folder.path().join("certs")), ..Webhooks::default() };
        let Err(refused) = flags.settings(&Clock::system()) else { panic!("there is no name for the certificate") };
        assert!(refused.to_string().contains("--webhook-certs needs the names of Services"), "{refused}");
        flags.webhook_service = vec!["shop/hook=127.0.0.1:9443".to_owned()];
        let settings = flags.settings(&Clock::system()).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(String::from_utf8_lossy(&settings.services_ca).contains("BEGIN CERTIFICATE"));
        for file in ["tls.crt", "tls.key"] {
            assert!(folder.path().join("certs").join(file).is_file(), "{file}");
        }
    }
}
