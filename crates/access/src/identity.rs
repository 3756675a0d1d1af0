//! Users: the result of authentication, and the subject of authorization.

use std::collections::BTreeMap;

/// Group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of all other users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group whose members may do everything.
pub const MASTERS: &str = "system:masters";

/// A user with its groups.
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

    /// Adds the group of all authenticated users.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.in_group(AUTHENTICATED) && !self.in_group(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// `userInfo` of the review kinds; empty members are omitted.
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
