//! Requests without credentials.

use std::sync::Arc;

use access::identity::User;
use arc_swap::ArcSwap;

/// Which requests without credentials are `system:anonymous`; others are refused.
#[derive(Debug)]
pub struct Anonymous {
    user: Arc<User>,
    paths: ArcSwap<Paths>,
}

#[derive(Debug)]
enum Paths {
    None,
    All,
    /// Exactly these.
    Some(Vec<String>),
}

impl Anonymous {
    fn new(paths: Paths) -> Self {
        Anonymous { user: Arc::new(User::anonymous()), paths: ArcSwap::from_pointee(paths) }
    }

    /// Allowed on every path, or refused on every path.
    #[must_use]
    pub fn allowed(allowed: bool) -> Self {
        Self::new(if allowed { Paths::All } else { Paths::None })
    }

    /// Allowed on these paths only.
    #[must_use]
    pub fn on_paths(paths: Vec<String>) -> Self {
        Self::new(Paths::Some(paths))
    }

    /// Decides as `other` does from now on.
    pub fn replace(&self, other: &Anonymous) {
        self.paths.store(other.paths.load_full());
    }

    pub(crate) fn user(&self, path: &str) -> Option<Arc<User>> {
        let allowed = match &**self.paths.load() {
            Paths::None => false,
            Paths::All => true,
            Paths::Some(paths) => paths.iter().any(|allowed| allowed == path),
        };
        allowed.then(|| Arc::clone(&self.user))
    }
}

impl Clone for Anonymous {
    fn clone(&self) -> Self {
        Anonymous { user: Arc::clone(&self.user), paths: ArcSwap::new(self.paths.load_full()) }
    }
}

impl Default for Anonymous {
    fn default() -> Self {
        Self::allowed(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn au_64_only_the_exact_paths_are_anonymous() {
        let anonymous = Anonymous::on_paths(vec!["/livez".to_owned()]);
        assert_eq!(anonymous.user("/livez").unwrap().name, "system:anonymous");
        assert_eq!(anonymous.user("/livez").unwrap().groups, ["system:unauthenticated"]);
        assert!(anonymous.user("/livez/ping").is_none());
        assert!(anonymous.user("/").is_none());
        assert!(Anonymous::allowed(true).user("/api").is_some());
        assert!(Anonymous::default().user("/livez").is_none());
        let copy = anonymous.clone();
        anonymous.replace(&Anonymous::allowed(true));
        assert!(anonymous.user("/").is_some());
        assert!(copy.user("/").is_none());
    }
}
