//! The keys of service account tokens: one that signs, and those whose tokens are accepted.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use machinery::json::{Value, json};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, PublicKeyData, SignatureAlgorithm,
    SigningKey as _, SubjectPublicKeyInfo,
};
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::RSAPublicKey;

use crate::error::CertError;

/// The keys of tokens.
pub struct TokenKeys {
    signing: KeyPair,
    /// The first is that of `signing`.
    public: Vec<PublicKey>,
}

/// A key that verifies tokens.
pub struct PublicKey {
    /// `kid` in the header of a token: the digest of the key.
    pub id: String,
    pub algorithm: Algorithm,
    pub decoding: DecodingKey,
    /// The key as a member of a JSON Web Key Set.
    pub jwk: Value,
}

impl fmt::Debug for TokenKeys {
    /// Keys stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.public.iter().map(|key| &key.id)).finish()
    }
}

impl TokenKeys {
    /// `signing_pem` is a private key; `others_pem` are private or public keys or certificates whose tokens are accepted
    /// too.
    pub fn new(signing_pem: &str, others_pem: &[String]) -> Result<Self, CertError> {
        let signing = KeyPair::from_pem(signing_pem)?;
        let mut public = vec![PublicKey::new(&signing)?];
        for pem in others_pem {
            for key in public_keys(pem)? {
                if public.iter().all(|known| known.id != key.id) {
                    public.push(key);
                }
            }
        }
        Ok(TokenKeys { signing, public })
    }

    /// Checks that a text has keys that verify tokens.
    pub fn check(pem: &str) -> Result<(), CertError> {
        public_keys(pem).map(|_| ())
    }

    #[must_use]
    pub fn public(&self) -> &[PublicKey] {
        &self.public
    }

    /// The keys of a token: the one that its header names, or all.
    fn named(&self, id: Option<&str>) -> Vec<&PublicKey> {
        self.public.iter().filter(|key| id.is_none_or(|id| key.id == id)).collect()
    }

    /// Returns the claims of a token whose signature is right; none for a text that is no token. Nothing of the claims is
    /// checked: times, audiences and issuers are checked on each use.
    #[must_use]
    pub fn verify(&self, token: &str) -> Option<Result<Value, &'static str>> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        let named = self.named(header.kid.as_deref());
        if named.is_empty() {
            return Some(Err("invalid signature, no keys found"));
        }
        let claims = named.iter().filter(|key| key.algorithm == header.alg).find_map(|key| {
            let mut validation = Validation::new(key.algorithm);
            validation.validate_exp = false;
            validation.validate_aud = false;
            validation.required_spec_claims.clear();
            jsonwebtoken::decode::<Value>(token, &key.decoding, &validation).ok().map(|token| token.claims)
        });
        Some(claims.ok_or("go-jose/go-jose: error in cryptographic primitive"))
    }

    /// The compact form of a token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, String> {
        let key = self.public.first().ok_or("there is no key")?;
        let header = json!({"alg": format!("{:?}", key.algorithm), "kid": key.id});
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
        let signature = self.signing.sign(token.as_bytes()).map_err(|error| error.to_string())?;
        let signature = match key.algorithm {
            Algorithm::ES256 => fixed_signature(&signature, 32)?,
            Algorithm::ES384 => fixed_signature(&signature, 48)?,
            _ => signature,
        };
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }
}

/// The public keys of a text, at least one.
fn public_keys(pem: &str) -> Result<Vec<PublicKey>, CertError> {
    let mut keys = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()) {
        let (kind, der) = section.map_err(|error| CertError::Unreadable(error.to_string()))?;
        keys.extend(public_key(kind, &der)?);
    }
    if keys.is_empty() {
        return Err(CertError::Unreadable("there is no key in it".to_owned()));
    }
    Ok(keys)
}

fn public_key(kind: SectionKind, der: &[u8]) -> Result<Option<PublicKey>, CertError> {
    Ok(match kind {
        SectionKind::PublicKey => Some(PublicKey::new(&SubjectPublicKeyInfo::from_der(der)?)?),
        SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
            Some(PublicKey::new(&KeyPair::try_from(der)?)?)
        }
        SectionKind::Certificate => {
            let (_, certificate) =
                X509Certificate::from_der(der).map_err(|error| CertError::Unreadable(error.to_string()))?;
            Some(PublicKey::new(&SubjectPublicKeyInfo::from_der(certificate.public_key().raw)?)?)
        }
        _ => None,
    })
}

impl PublicKey {
    fn new(key: &impl PublicKeyData) -> Result<Self, CertError> {
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.subject_public_key_info()));
        let bytes = key.der_bytes();
        let is = |algorithm: &'static SignatureAlgorithm| key.algorithm() == algorithm;
        let (algorithm, decoding, mut jwk) = if is(&PKCS_RSA_SHA256) {
            let (_, parts) = RSAPublicKey::from_der(bytes).map_err(|error| CertError::Unreadable(error.to_string()))?;
            // Without the byte that DER has before a number whose first bit is set.
            let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(without_zeros(bytes));
            let jwk = json!({"kty": "RSA", "n": number(parts.modulus), "e": number(parts.exponent)});
            (Algorithm::RS256, DecodingKey::from_rsa_der(bytes), jwk)
        } else {
            let (algorithm, curve, length) = if is(&PKCS_ECDSA_P256_SHA256) {
                (Algorithm::ES256, "P-256", 32)
            } else if is(&PKCS_ECDSA_P384_SHA384) {
                (Algorithm::ES384, "P-384", 48)
            } else {
                let why = "a service account key must be of RSA or of the curves P-256 or P-384";
                return Err(CertError::Unreadable(why.to_owned()));
            };
            let point = bytes.strip_prefix(&[4]).filter(|point| point.len() == 2 * length);
            let (x, y) = point
                .ok_or_else(|| CertError::Unreadable("a point of a key is compressed".to_owned()))?
                .split_at(length);
            let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
            (algorithm, DecodingKey::from_ec_der(bytes), json!({"kty": "EC", "crv": curve, "x": x, "y": y}))
        };
        jwk["use"] = json!("sig");
        jwk["kid"] = json!(id);
        jwk["alg"] = json!(format!("{algorithm:?}"));
        Ok(PublicKey { id, algorithm, decoding, jwk })
    }
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}

/// The two numbers of an ECDSA signature in a fixed length, from their DER form.
fn fixed_signature(der: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let odd = || "a signature has an unknown form".to_owned();
    // All lengths here are below 128, so each takes one byte.
    let [0x30, _, rest @ ..] = der else { return Err(odd()) };
    let mut fixed = Vec::with_capacity(2 * length);
    let mut rest = rest;
    for _ in 0..2 {
        let [0x02, size, tail @ ..] = rest else { return Err(odd()) };
        let (number, tail) = tail.split_at_checked(usize::from(*size)).ok_or_else(odd)?;
        let number = without_zeros(number);
        let padding = length.checked_sub(number.len()).ok_or_else(odd)?;
        fixed.extend(std::iter::repeat_n(0, padding));
        fixed.extend_from_slice(number);
        rest = tail;
    }
    Ok(fixed)
}
