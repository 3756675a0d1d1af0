//! A web page that the server offers beside the API. Its files need no credentials; its visitors hold tokens.

use std::sync::Arc;

use access::identity::User;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use machinery::Status;

use crate::reply::Reply;
use crate::service::Inner;
use crate::wire::body::{BodyError, ReadTerms, RequestBody, ResponseBody};

/// Answers for a page.
pub trait Page: Send + Sync + std::fmt::Debug {
    /// Whether a path is one of the page.
    fn has(&self, path: &str) -> bool;

    /// Answers a request for such a path.
    fn answer(&self, request: &Request<Bytes>) -> Response<Bytes>;

    /// The user of a token that the page holds; none for other tokens.
    fn user(&self, token: &str) -> Option<Arc<User>>;

    /// Longest accepted body of a request.
    fn body_bytes_max(&self) -> usize;
}

impl Inner {
    /// Answers a request for the page, if the server has one and the path is its own.
    pub(crate) async fn answer_page(&self, parts: &Parts, body: &mut RequestBody) -> Option<Result<Reply, Status>> {
        let page = self.authenticator.page.as_ref().filter(|page| page.has(parts.uri.path()))?;
        let mut charged = self.metrics.body_bytes.force(0);
        let terms = ReadTerms {
            bytes_max: page.body_bytes_max(),
            grace: self.limits.body_grace,
            bytes_per_second_min: self.limits.body_bytes_per_second_min,
            charge: &mut |bytes| charged.grow(bytes),
        };
        let content = match body.read(terms).await {
            Ok(content) => content,
            Err(BodyError::TooLarge) => {
                let max = page.body_bytes_max();
                return Some(Err(Status::request_entity_too_large(format_args!("limit is {max}"))));
            }
            Err(_) => return Some(Err(Status::bad_request("the body of the request could not be read"))),
        };
        let mut request = Request::new(content);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        let (head, content) = page.answer(&request).into_parts();
        Some(Ok(Reply::from_parts(head, ResponseBody::whole(content))))
    }
}
