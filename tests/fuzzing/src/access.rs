//! Credentials and headers about users, and the files that decide about them.

use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use machinery::json::Value;
use machinery::yaml;
use server::authentication::accounts::TokenKeys;
use server::authentication::bearer::{Bearer, subprotocols, websocket_token};
use server::authentication::issuers::claims::Compiled;
use server::authentication::issuers::{Compile, config};
use server::authentication::tokens::Tokens;
use server::{audit, authorization, impersonation};

/// Lines of `name: value`, as a request has them.
pub fn headers(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        // What is no header does not get this far.
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii_start()))
        {
            headers.append(name, value);
        }
    }
    if let Bearer::Token(token) = Bearer::of(&headers) {
        assert!(!token.is_empty() && !token.contains(' '), "{token:?}");
    }
    let _ = websocket_token(&headers);
    subprotocols(&headers).for_each(drop);
    match impersonation::parse(&headers) {
        Ok(Some(wanted)) => assert!(!wanted.name.is_empty(), "no user is impersonated without a name"),
        Ok(None) => {}
        Err(status) => assert_eq!(status.code, 400),
    }
}

/// A token as it is sent, and as the claims of a token that is signed.
pub fn token(data: &[u8]) {
    static KEYS: OnceLock<Option<TokenKeys>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| TokenKeys::new(&server::certs::make_key().ok()?, &[]).ok());
    let Some(keys) = keys else { panic!("a key can be made") };
    let verified = keys.verify(&String::from_utf8_lossy(data));
    assert!(!matches!(verified, Some(Ok(_))), "no other program has the key");
    if let Ok(claims) = serde_json::from_slice::<Value>(data)
        && let Ok(token) = keys.sign(&claims)
    {
        assert!(matches!(keys.verify(&token), Some(Ok(_) | Err(_))), "{token}");
        assert!(keys.verify(&format!("{token}x")).is_none_or(|verified| verified.is_err()), "{token}");
    }
}

pub fn audit_policy(data: &[u8]) {
    if let Err(errors) = audit::policy_file::parse(data) {
        assert!(!errors.is_empty());
        errors.iter().for_each(|why| drop(yaml::with_line(data, why)));
    }
}

pub fn authorization_file(data: &[u8]) {
    match authorization::file::parse(data) {
        Ok(authorizers) => assert!(!authorizers.is_empty()),
        Err(why) => drop(yaml::with_line(data, &why)),
    }
}

pub fn authentication_file(data: &[u8]) {
    struct Known;
    impl Compiled for Known {
        fn evaluate(&self, variable: &Value) -> Result<Value, String> {
            Ok(variable.clone())
        }
    }
    let compile: Compile = Arc::new(|_, text| match text.len() % 7 {
        0 => Err("compilation failed".to_owned()),
        _ => Ok(Box::new(Known) as Box<dyn Compiled>),
    });
    if let Err(why) = config::parse(data, &compile, &["https://kubernetes.default.svc".to_owned()]) {
        drop(yaml::with_line(data, &why));
    }
    let _ = Tokens::parse(&String::from_utf8_lossy(data), std::path::Path::new("tokens.csv"));
}
