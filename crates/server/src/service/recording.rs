//! What a lab records of an answered request.

use std::time::Duration;

use http::request::Parts;

use super::Lab;
use super::record::RequestRecord;
use crate::observation::Answered;
use crate::request::disturbed_watch::agent;
use crate::request::reply::Reply;
use crate::request::request_info::ResourceInfo;

impl Lab {
    /// Records a request that was answered. Requests for the lab itself are not recorded, or looking would change what is seen.
    pub(super) fn record(
        &self,
        parts: &Parts,
        resource: Option<&ResourceInfo>,
        reply: &Reply,
        record: &mut RequestRecord,
        took: Duration,
    ) {
        let path = parts.uri.path();
        let is_own = match resource {
            Some(resource) => resource.group == self.group,
            None => path.strip_prefix("/apis/").is_some_and(|rest| rest.starts_with(self.group)),
        };
        if is_own {
            return;
        }
        let granted = record.impersonation.as_ref().map(|granted| &granted.user);
        self.recorder.answered(Answered {
            resource,
            method: parts.method.as_str(),
            path,
            user: granted.or(record.user.as_ref()).map_or("", |user| &user.name),
            agent: agent(&parts.headers),
            code: reply.status().as_u16(),
            took,
            bytes: reply.body().whole_len(),
            faults: std::mem::take(&mut record.faults),
            write: record.write.take(),
        });
    }
}
