//! Authentication: finds the user of a request.
//!
//! Credentials are tried in this order, and the first that is good decides; one that is not good is a 401 if no other is,
//! also where anonymous requests are allowed:
//!
//! 1. [`front_proxy`]: headers of a proxy that authenticates users itself
//! 2. [`certificate`]: the subject of a client certificate, which [`authorities`] verify
//! 3. [`bearer`]: a token in a header, of [`tokens`] (the static file), [`accounts`] (service accounts), [`bootstrap`] (nodes
//!    that join), [`issuers`] (other issuers of JSON Web Tokens), [`webhook`] (another server), [`Page`] (visitors of the web page)
//! 4. [`anonymous`]: no credentials
//!
//! [`objections`] joins the reasons of a refusal.

pub mod accounts;
pub mod anonymous;
pub mod authorities;
pub mod bearer;
pub mod bootstrap;
pub mod certificate;
pub mod front_proxy;
pub mod issuers;
pub mod objections;
pub mod tokens;
pub mod webhook;

use std::sync::Arc;

use access::identity::User;
use http::HeaderMap;
use jiff::Timestamp;
use machinery::status::Status;
use registry::{Annotations, Registry, Warnings};

use accounts::AccountTokens;
use anonymous::Anonymous;
use bearer::{Bearer, websocket_token};
pub use bearer::{WEBSOCKET_BEARER, subprotocols};
use bootstrap::BootstrapTokens;
use front_proxy::FrontProxy;
use issuers::Issuers;
use objections::{INVALID_TOKEN, Objections};
use tokens::Tokens;
use webhook::WebhookTokens;

use crate::page::Page;
use crate::wire::peer::Peer;

/// The user of a token and the audiences it is valid for.
pub type TokenUser = (Arc<User>, Vec<String>);

/// The answer of one source of tokens: none for a token that it does not know.
pub type TokenVerdict = Option<Result<TokenUser, String>>;

/// Finds the user of a request. Shared by all connections.
#[derive(Debug, Default)]
pub struct Authenticator {
    pub front_proxy: Option<FrontProxy>,
    pub tokens: Tokens,
    pub accounts: Option<AccountTokens>,
    pub bootstrap: Option<BootstrapTokens>,
    pub issuers: Option<Arc<Issuers>>,
    pub webhook: Option<Arc<WebhookTokens>>,
    /// The server's web page.
    pub page: Option<Arc<dyn Page>>,
    pub anonymous: Anonymous,
    /// The audiences of this server; those of its service accounts if none are given.
    pub audiences: Vec<String>,
    /// Whether the 401 names the reason.
    pub explains: bool,
}

/// Why a request has no user.
#[derive(Clone, Debug, PartialEq)]
pub struct Unauthorized {
    /// The 401.
    pub status: Status,
    /// False if it had none, and anonymous requests are refused.
    pub has_credentials: bool,
}

/// A request before its user is known.
#[derive(Clone, Copy)]
pub struct Unauthenticated<'a> {
    pub headers: &'a HeaderMap,
    pub path: &'a str,
    pub peer: &'a Peer,
    /// The time that tokens are judged by.
    pub now: Timestamp,
    /// The time that certificates are judged by.
    pub machine: Timestamp,
    pub notes: Notes<'a>,
}

/// Where authentication leaves what the client and the audit log learn.
#[derive(Clone, Copy)]
pub struct Notes<'a> {
    pub warnings: &'a Warnings,
    pub annotations: &'a Annotations,
}

impl Authenticator {
    /// The user of a connection whose certificate is known to be good: the common case, without an allocation. None says
    /// nothing.
    #[inline]
    pub(crate) fn of_connection<'p>(&self, peer: &'p Peer, now: Timestamp) -> Option<&'p Arc<User>> {
        if self.front_proxy.is_some() { None } else { peer.known_user(now) }
    }

    /// Returns the user of a request, or 401.
    pub async fn authenticate(&self, request: Unauthenticated<'_>) -> Result<Arc<User>, Unauthorized> {
        let mut objections = Objections::default();
        if let Some(user) = self.find(request, &mut objections).await {
            return Ok(user);
        }
        let has_credentials = !objections.is_empty();
        if !has_credentials {
            if let Some(user) = self.anonymous.user(request.path) {
                return Ok(user);
            }
            objections.push("no credentials were given");
        }
        tracing::debug!(path = request.path, why = objections.joined(), "unauthorized");
        let mut status = Status::unauthorized();
        if self.explains {
            status = status.with_cause("Unauthorized", objections.joined(), "");
        }
        Err(Unauthorized { status, has_credentials })
    }

    async fn find(&self, request: Unauthenticated<'_>, objections: &mut Objections) -> Option<Arc<User>> {
        let Unauthenticated { headers, peer, now, machine, notes, .. } = request;
        match self.front_proxy.as_ref().map_or(Ok(None), |proxy| proxy.user(headers, peer, machine)) {
            Ok(Some(user)) => return Some(Arc::new(user)),
            Ok(None) => {}
            Err(why) => objections.push(why),
        }
        match peer.user(machine) {
            Ok(Some(user)) => return Some(user),
            Ok(None) => {}
            Err(why) => objections.push(why),
        }
        match Bearer::of(headers) {
            Bearer::Token(token) => match self.token(&token, None, now, notes).await {
                Ok((user, _)) => return Some(user),
                Err(why) => objections.append(why),
            },
            Bearer::ExtraSpace => notes.warnings.push(bearer::EXTRA_SPACE),
            Bearer::None => {}
        }
        match websocket_token(headers) {
            Some(Ok(token)) => match self.token(&token, None, now, notes).await {
                Ok((user, _)) => return Some(user),
                Err(why) => objections.append(why),
            },
            Some(Err(why)) => objections.push(why),
            None => {}
        }
        None
    }

    /// The authenticator of another world: the same credentials are good, and one more token. A service account exists where its
    /// object does.
    #[must_use]
    pub fn beside(&self, registry: &Arc<Registry>, world: &str, token: &str, owner: User) -> Self {
        let mut tokens = self.tokens.clone();
        tokens.add(token, owner);
        Authenticator {
            front_proxy: self.front_proxy.clone(),
            tokens,
            accounts: self.accounts.as_ref().map(|accounts| accounts.beside(Arc::clone(registry), world)),
            bootstrap: self.bootstrap.as_ref().map(|_| BootstrapTokens::new(Arc::clone(registry))),
            issuers: self.issuers.clone(),
            webhook: self.webhook.clone(),
            page: self.page.clone(),
            anonymous: self.anonymous.clone(),
            audiences: self.audiences.clone(),
            explains: self.explains,
        }
    }

    /// The audiences of this server.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        if !self.audiences.is_empty() {
            return &self.audiences;
        }
        self.accounts.as_ref().map(AccountTokens::audiences).unwrap_or_default()
    }

    /// Returns the user of a bearer token, and for which of the audiences (this server's, if none are given) it is valid;
    /// otherwise the reasons why it is not.
    pub async fn token(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        now: Timestamp,
        notes: Notes<'_>,
    ) -> Result<TokenUser, Objections> {
        let own = self.audiences();
        let wanted = audiences.unwrap_or(own);
        // These are valid for this server only.
        let common: Vec<String> = wanted.iter().filter(|one| own.contains(one)).cloned().collect();
        let is_ours = wanted.is_empty() || !common.is_empty();
        let mut objections = Objections::default();
        objections.push(INVALID_TOKEN);
        if is_ours && let Some(user) = self.tokens.user(token) {
            return Ok((user, common));
        }
        if is_ours && let Some(user) = self.page.as_ref().and_then(|page| page.user(token)) {
            return Ok((user, common));
        }
        match self.accounts.as_ref().and_then(|accounts| accounts.user(token, wanted, now, notes)) {
            Some(Ok(found)) => return Ok(found),
            Some(Err(why)) => objections.push(why),
            None => {}
        }
        if is_ours && let Some(user) = self.bootstrap.as_ref().and_then(|bootstrap| bootstrap.user(token, now)) {
            return Ok((user, common));
        }
        if is_ours && let Some(issuers) = &self.issuers {
            match issuers.user(token, now).await {
                Some(Ok(user)) => return Ok((user, common)),
                Some(Err(why)) => objections.push(why),
                None => {}
            }
        }
        if let Some(webhook) = &self.webhook {
            match webhook.user(token, wanted).await {
                Some(Ok(found)) => return Ok(found),
                Some(Err(why)) => objections.push(why),
                None => {}
            }
        }
        Err(objections)
    }
}

#[cfg(test)]
mod tests;
