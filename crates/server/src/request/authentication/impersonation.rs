//! `Impersonate-*` headers: requests on behalf of another user.

use std::collections::BTreeMap;

use http::HeaderMap;
use machinery::status::Status;
use percent_encoding::percent_decode_str;

use access::identity::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that the headers name, before default groups are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonated {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Parses the headers; none without any. Headers without a user are a 400.
pub fn parse(headers: &HeaderMap) -> Result<Option<Impersonated>, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        // Header names are already lower-case, as the keys must be.
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
        extra.entry(key).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
    }
    let groups: Vec<String> =
        headers.get_all(GROUP).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    let wanted = Impersonated { name: text(USER), uid: text(UID), groups, extra };
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == Impersonated::default() {
        return Ok(None);
    }
    Err(Status::bad_request(format!(
        "requested {} without impersonating a user",
        if !wanted.groups.is_empty() {
            "impersonating groups"
        } else if wanted.uid.is_empty() {
            "impersonating extra"
        } else {
            "impersonating a uid"
        }
    )))
}

impl Impersonated {
    /// The impersonated user, with the default groups.
    #[must_use]
    pub fn into_user(mut self) -> User {
        if self.groups.is_empty()
            && let Some(account) = self.name.strip_prefix(SERVICE_ACCOUNT)
            && let Some((namespace, _)) = account.split_once(':')
        {
            self.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        let fitting = if self.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        let given = self.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        if !given {
            self.groups.push(fitting.to_owned());
        }
        User { name: self.name, uid: self.uid, groups: self.groups, extra: self.extra }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(pairs: &[(&'static str, &str)]) -> Result<Option<User>, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        parse(&headers).map(|wanted| wanted.map(Impersonated::into_user)).map_err(|status| status.code)
    }

    #[test]
    fn users_have_their_default_groups() {
        assert_eq!(user(&[]), Ok(None));
        let alice = user(&[(USER, "alice"), (GROUP, "devs"), (GROUP, "ops")]).unwrap().unwrap();
        assert_eq!(alice.groups, ["devs", "ops", "system:authenticated"]);
        let account = user(&[(USER, "system:serviceaccount:ns:sa")]).unwrap().unwrap();
        assert_eq!(account.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
        let anonymous = user(&[(USER, "system:anonymous")]).unwrap().unwrap();
        assert_eq!(anonymous.groups, ["system:unauthenticated"]);
        let extra = user(&[(USER, "a"), (UID, "7"), ("impersonate-extra-acme.org%2fscope", "x")]).unwrap().unwrap();
        assert_eq!(extra.uid, "7");
        assert_eq!(extra.extra["acme.org/scope"], ["x"]);
    }

    #[test]
    fn nothing_without_a_user() {
        assert_eq!(user(&[(GROUP, "devs")]), Err(400));
        assert_eq!(user(&[(UID, "7")]), Err(400));
        assert_eq!(user(&[("impersonate-extra-x", "7")]), Err(400));
    }
}
