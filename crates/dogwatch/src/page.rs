//! The console as the web page of a server: who opens it acts as the administrator of the kubeconfig.

use std::sync::Arc;

use access::identity::User;
use bytes::Bytes;
use console::Console;
use http::{Request, Response};
use machinery::Clock;
use server::certs::{ADMIN_GROUP, ADMIN_USER};
use server::page::Page;

#[derive(Debug)]
pub(crate) struct AdminPage {
    console: Arc<Console>,
    user: Arc<User>,
}

impl AdminPage {
    pub(crate) fn new(console: Arc<Console>) -> Self {
        let user = User { name: ADMIN_USER.to_owned(), groups: vec![ADMIN_GROUP.to_owned()], ..User::default() };
        AdminPage { console, user: Arc::new(user.authenticated()) }
    }
}

impl Page for AdminPage {
    fn has(&self, path: &str) -> bool {
        console::is_own_path(path)
    }

    fn answer(&self, request: &Request<Bytes>) -> Response<Bytes> {
        self.console.answer(request, now())
    }

    fn user(&self, token: &str) -> Option<Arc<User>> {
        self.console.visitors().is_valid(token, now()).then(|| Arc::clone(&self.user))
    }

    fn body_bytes_max(&self) -> usize {
        console::TOKEN_REQUEST_BYTES_MAX
    }
}

/// Visitors stay, however a lab moves the time of the cluster: their tokens go by the machine's.
fn now() -> i64 {
    Clock::system().now().as_second()
}
