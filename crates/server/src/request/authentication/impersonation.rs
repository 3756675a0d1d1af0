//! `Impersonate-*` headers: one user speaking as another.

use std::collections::BTreeMap;

use http::HeaderMap;
use machinery::status::Status;
use percent_encoding::percent_decode_str;

use crate::identity::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// What the headers ask to be, before the groups that come with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The headers' wish, none if there is none. Anything without a user is 400.
pub fn wanted(headers: &HeaderMap) -> Result<Option<Wanted>, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        // Header names are lower-case here, as the keys are to be.
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
        extra.entry(key).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
    }
    let groups: Vec<String> =
        headers.get_all(GROUP).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    let wanted = Wanted { name: text(USER), uid: text(UID), groups, extra };
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == Wanted::default() {
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

impl Wanted {
    /// The user that results, with the groups every such user has.
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

    fn ask(pairs: &[(&'static str, &str)]) -> Result<Option<User>, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        wanted(&headers).map(|wanted| wanted.map(Wanted::into_user)).map_err(|status| status.code)
    }

    #[test]
    fn users_come_with_their_groups() {
        assert_eq!(ask(&[]), Ok(None));
        let alice = ask(&[(USER, "alice"), (GROUP, "devs"), (GROUP, "ops")]).unwrap().unwrap();
        assert_eq!(alice.groups, ["devs", "ops", "system:authenticated"]);
        let account = ask(&[(USER, "system:serviceaccount:ns:sa")]).unwrap().unwrap();
        assert_eq!(account.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
        let nobody = ask(&[(USER, "system:anonymous")]).unwrap().unwrap();
        assert_eq!(nobody.groups, ["system:unauthenticated"]);
        let extra = ask(&[(USER, "a"), (UID, "7"), ("impersonate-extra-acme.org%2fscope", "x")]).unwrap().unwrap();
        assert_eq!(extra.uid, "7");
        assert_eq!(extra.extra["acme.org/scope"], ["x"]);
    }

    #[test]
    fn nothing_without_a_user() {
        assert_eq!(ask(&[(GROUP, "devs")]), Err(400));
        assert_eq!(ask(&[(UID, "7")]), Err(400));
        assert_eq!(ask(&[("impersonate-extra-x", "7")]), Err(400));
    }
}
