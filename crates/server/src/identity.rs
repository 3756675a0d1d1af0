//! Who asks: a user, as authentication found it and authorization judges it.

use std::collections::BTreeMap;

/// Group of everybody who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of everybody who is not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Members may do everything.
pub const MASTERS: &str = "system:masters";

/// A user and what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    #[must_use]
    pub fn anonymous() -> Self {
        User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
    }

    #[must_use]
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }

    #[must_use]
    pub fn is_master(&self) -> bool {
        self.in_group(MASTERS)
    }

    /// Adds the group that every known user has.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.in_group(AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// `userInfo` as the review kinds show it; empty members are left out.
    #[must_use]
    pub fn to_value(&self) -> machinery::json::Value {
        let mut info = machinery::json::Map::new();
        if !self.name.is_empty() {
            info.insert("username", self.name.as_str().into());
        }
        if !self.uid.is_empty() {
            info.insert("uid", self.uid.as_str().into());
        }
        if !self.groups.is_empty() {
            info.insert("groups", self.groups.clone().into());
        }
        if !self.extra.is_empty() {
            let extra =
                self.extra.iter().map(|(key, values)| (key.clone(), machinery::json::Value::from(values.clone())));
            info.insert("extra", extra.collect::<machinery::json::Map>().into());
        }
        info.into()
    }
}
