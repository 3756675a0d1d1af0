//! Certificate requests and certificates as values: the part of X.509 that the certificates API needs.
//!
//! - [`pem`]: PEM blocks
//! - [`request`]: a certificate request, its subject, its names, and the check of its signature
//! - [`usages`]: the words for key usages
//! - [`signers`]: the requests that each signer of Kubernetes accepts
//! - [`certificate`]: the certificate that answers a request; the content of a stored certificate
//! - `der`: the encoding of values; `signature`: signatures that the parser does not verify

pub mod certificate;
mod der;
pub mod pem;
pub mod request;
mod signature;
pub mod signers;
pub mod usages;

pub use certificate::{Lifetime, Template};
pub use request::CertificateRequest;
