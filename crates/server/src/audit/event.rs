//! An audit event: `audit.k8s.io/v1` Event, its members in the reference's order.
//!
//! ```json
//! {"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"…","stage":"ResponseComplete",
//!  "requestURI":"/api/v1/…","verb":"get","user":{…},"sourceIPs":["127.0.0.1"],"userAgent":"…","objectRef":{…},
//!  "responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"…","stageTimestamp":"…","annotations":{…}}
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use access::identity::User;
use bytes::Bytes;
use http::HeaderMap;
use http::header::USER_AGENT;
use jiff::Timestamp;
use machinery::Status;
use machinery::json::{Value, write, write_text};
use registry::AuditLevel;

use crate::audit::stage::Stage;

/// The members that every line begins with. The items of an EventList do not have them.
pub(crate) const TYPE: &[u8] = br#""kind":"Event","apiVersion":"audit.k8s.io/v1","#;
/// Longest user agent, in bytes; the rest is cut.
const USER_AGENT_MAX: usize = 1024;
const CUT: &str = "...TRUNCATED";

/// An event as one line.
#[derive(Clone, Debug)]
pub struct Line(pub Bytes);

impl Line {
    /// The event as an item of an EventList: without its type and the end of the line.
    pub(crate) fn write_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(self.0.get(1 + TYPE.len()..self.0.len() - 1).unwrap_or_default());
    }

    /// The event without the end of the line.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        self.0.strip_suffix(b"\n").unwrap_or(&self.0)
    }
}

/// What is known of a request from its head, encoded once for all its events.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// From `auditID` on, without the stage.
    id: Vec<u8>,
    /// From `requestURI` to `user`.
    request: Vec<u8>,
    /// From `sourceIPs` to `userAgent`.
    source: Vec<u8>,
    pub(crate) object: Option<ObjectRef>,
    pub(crate) received: Timestamp,
}

/// The parts of a head.
pub(crate) struct HeadParts<'a> {
    pub(crate) audit_id: &'a str,
    pub(crate) uri: &'a str,
    pub(crate) verb: &'a str,
    /// None if authentication failed.
    pub(crate) user: Option<&'a User>,
    pub(crate) source_ips: &'a [IpAddr],
    pub(crate) user_agent: &'a str,
    pub(crate) object: Option<ObjectRef>,
    pub(crate) received: Timestamp,
}

impl Head {
    pub(crate) fn new(parts: HeadParts<'_>) -> Self {
        let mut id = Writer { out: Vec::with_capacity(64) };
        id.raw(br#","auditID":"#);
        id.text(parts.audit_id);
        let mut request = Writer { out: Vec::with_capacity(256) };
        request.raw(br#","requestURI":"#);
        request.text(parts.uri);
        request.raw(br#","verb":"#);
        request.text(parts.verb);
        request.raw(br#","user":"#);
        request.user(parts.user);
        let mut source = Writer { out: Vec::with_capacity(128) };
        if !parts.source_ips.is_empty() {
            source.raw(br#","sourceIPs":"#);
            source.list(parts.source_ips.iter(), |out, ip| out.text(&ip.to_string()));
        }
        if !parts.user_agent.is_empty() {
            source.raw(br#","userAgent":"#);
            source.text(parts.user_agent);
        }
        Head { id: id.out, request: request.out, source: source.out, object: parts.object, received: parts.received }
    }
}

/// The object that a request is about. Absent parts are empty.
#[derive(Debug, Default)]
pub(crate) struct ObjectRef {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource_version: String,
    pub(crate) subresource: String,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: u16,
    /// The answer, if it is a Status.
    pub(crate) status: Option<Status>,
}

/// What an event has beyond the head of its request.
pub(crate) struct Event<'a> {
    pub(crate) level: AuditLevel,
    pub(crate) stage: Stage,
    pub(crate) head: &'a Head,
    pub(crate) impersonated: Option<&'a User>,
    pub(crate) constraint: &'a str,
    pub(crate) response: Option<&'a Response>,
    pub(crate) request_object: Option<&'a Value>,
    /// JSON text in slices.
    pub(crate) response_object: Option<&'a [Bytes]>,
    pub(crate) stage_time: Timestamp,
    pub(crate) annotations: &'a BTreeMap<String, String>,
}

impl Event<'_> {
    /// Writes the event as one line.
    pub(crate) fn line(&self) -> Line {
        let objects = self.response_object.map_or(0, |slices| slices.iter().map(Bytes::len).sum());
        let mut out = Writer { out: Vec::with_capacity(1024 + objects) };
        let head = self.head;
        out.raw(b"{");
        out.raw(TYPE);
        out.raw(br#""level":""#);
        out.raw(self.level.as_str().as_bytes());
        out.raw(b"\"");
        out.raw(&head.id);
        out.raw(br#","stage":""#);
        out.raw(self.stage.as_str().as_bytes());
        out.raw(b"\"");
        out.raw(&head.request);
        if let Some(user) = self.impersonated {
            out.raw(br#","impersonatedUser":"#);
            out.user(Some(user));
        }
        if !self.constraint.is_empty() {
            out.raw(br#","authenticationMetadata":{"impersonationConstraint":"#);
            out.text(self.constraint);
            out.raw(b"}");
        }
        out.raw(&head.source);
        if let Some(object) = &head.object {
            out.raw(br#","objectRef":"#);
            out.object_ref(object);
        }
        if let Some(response) = self.response {
            out.raw(br#","responseStatus":"#);
            out.response(response);
        }
        if let Some(object) = self.request_object {
            out.raw(br#","requestObject":"#);
            write(object, &mut out.out);
        }
        if let Some(slices) = self.response_object {
            out.raw(br#","responseObject":"#);
            slices.iter().for_each(|slice| out.raw(slice));
        }
        out.raw(br#","requestReceivedTimestamp":"#);
        out.time(head.received);
        out.raw(br#","stageTimestamp":"#);
        out.time(self.stage_time);
        if !self.annotations.is_empty() {
            out.raw(br#","annotations":{"#);
            for (at, (key, value)) in self.annotations.iter().enumerate() {
                out.raw(if at == 0 { b"" } else { b"," });
                out.text(key);
                out.raw(b":");
                out.text(value);
            }
            out.raw(b"}");
        }
        out.raw(b"}\n");
        Line(out.out.into())
    }
}

struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn raw(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    fn text(&mut self, text: &str) {
        write_text(text, &mut self.out);
    }

    /// Writes a time to the microsecond. By hand, since an event has two and formatting took a third of its time.
    fn time(&mut self, time: Timestamp) {
        let micros = time.as_microsecond();
        let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // The civil date of a number of days, in years that begin in March.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        self.raw(b"\"");
        for (value, width, after) in [
            (year, 4, b'-'),
            (month, 2, b'-'),
            (day, 2, b'T'),
            (second / 3600, 2, b':'),
            (second / 60 % 60, 2, b':'),
            (second % 60, 2, b'.'),
            (micros, 6, b'Z'),
        ] {
            let mut digits = [b'0'; 6];
            let mut rest = value.unsigned_abs();
            for digit in digits.iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            self.raw(digits.get(6 - width..).unwrap_or_default());
            self.out.push(after);
        }
        self.raw(b"\"");
    }

    fn list<T>(&mut self, items: impl Iterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.raw(b"[");
        for (at, item) in items.enumerate() {
            self.raw(if at == 0 { b"" } else { b"," });
            each(self, item);
        }
        self.raw(b"]");
    }

    /// Writes members that are not empty, with commas between.
    fn members(&mut self, members: &[(&str, &str)], mut first: bool) -> bool {
        for (name, value) in members.iter().filter(|(_, value)| !value.is_empty()) {
            self.raw(if first { b"" } else { b"," });
            first = false;
            self.text(name);
            self.raw(b":");
            self.text(value);
        }
        first
    }

    fn user(&mut self, user: Option<&User>) {
        self.raw(b"{");
        if let Some(user) = user {
            let mut first = self.members(&[("username", &user.name), ("uid", &user.uid)], true);
            if !user.groups.is_empty() {
                self.raw(if first { br#""groups":"# } else { br#","groups":"# });
                first = false;
                self.list(user.groups.iter(), |out, group| out.text(group));
            }
            if !user.extra.is_empty() {
                self.raw(if first { br#""extra":{"# } else { br#","extra":{"# });
                for (at, (key, values)) in user.extra.iter().enumerate() {
                    self.raw(if at == 0 { b"" } else { b"," });
                    self.text(key);
                    self.raw(b":");
                    self.list(values.iter(), |out, value| out.text(value));
                }
                self.raw(b"}");
            }
        }
        self.raw(b"}");
    }

    fn object_ref(&mut self, object: &ObjectRef) {
        self.raw(b"{");
        self.members(
            &[
                ("resource", &object.resource),
                ("namespace", &object.namespace),
                ("name", &object.name),
                ("uid", &object.uid),
                ("apiGroup", &object.group),
                ("apiVersion", &object.version),
                ("resourceVersion", &object.resource_version),
                ("subresource", &object.subresource),
            ],
            true,
        );
        self.raw(b"}");
    }

    fn response(&mut self, response: &Response) {
        self.raw(br#"{"metadata":{}"#);
        if let Some(status) = &response.status {
            self.members(
                &[("status", status.outcome.as_str()), ("message", &status.message), ("reason", status.reason())],
                false,
            );
            if let Some(details) = status.to_value().get("details") {
                self.raw(br#","details":"#);
                write(details, &mut self.out);
            }
        }
        self.raw(br#","code":"#);
        self.raw(response.code.to_string().as_bytes());
        self.raw(b"}");
    }
}

/// The user agent of a request, cut to its bound.
pub(crate) fn user_agent(headers: &HeaderMap) -> String {
    let Some(agent) = headers.get(USER_AGENT) else { return String::new() };
    let agent = String::from_utf8_lossy(agent.as_bytes());
    if agent.len() <= USER_AGENT_MAX {
        return agent.into_owned();
    }
    format!("{}{CUT}", &agent[..agent.floor_char_boundary(USER_AGENT_MAX)])
}

/// The addresses that a request came through: those that proxies name, then the one of the connection.
pub(crate) fn source_ips(headers: &HeaderMap, remote: Option<IpAddr>) -> Vec<IpAddr> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut ips: Vec<IpAddr> =
        header("x-forwarded-for").split(',').filter_map(|part| part.trim().parse().ok()).collect();
    if let Ok(ip) = header("x-real-ip").trim().parse()
        && !ips.contains(&ip)
    {
        ips.push(ip);
    }
    if let Some(remote) = remote.map(|ip| ip.to_canonical())
        && ips.last() != Some(&remote)
    {
        ips.push(remote);
    }
    ips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aud_11_source_addresses_and_user_agents() {
        let mut headers = HeaderMap::new();
        let remote: IpAddr = "::ffff:10.0.0.9".parse().unwrap();
        let shown = |headers: &HeaderMap| -> Vec<String> {
            source_ips(headers, Some(remote)).iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown(&headers), ["10.0.0.9"]);
        headers.insert("x-forwarded-for", "1.1.1.1, nonsense,10.0.0.9".parse().unwrap());
        assert_eq!(shown(&headers), ["1.1.1.1", "10.0.0.9"], "the last is not repeated");
        headers.insert("x-real-ip", "2.2.2.2".parse().unwrap());
        assert_eq!(shown(&headers), ["1.1.1.1", "10.0.0.9", "2.2.2.2", "10.0.0.9"]);
        headers.insert("x-real-ip", "1.1.1.1".parse().unwrap());
        assert_eq!(shown(&headers), ["1.1.1.1", "10.0.0.9"]);
        assert!(source_ips(&HeaderMap::new(), None).is_empty(), "a call in the same process has none");
        headers.insert(USER_AGENT, "a".repeat(1024).parse().unwrap());
        assert_eq!(user_agent(&headers).len(), 1024);
        headers.insert(USER_AGENT, "a".repeat(1025).parse().unwrap());
        assert_eq!(user_agent(&headers), format!("{}...TRUNCATED", "a".repeat(1024)));
    }

    #[test]
    fn aud_11_times_are_those_of_the_protocol() {
        for micros in [0, 1, -1, 951_782_400_000_000, 951_868_799_999_999, 1_709_164_800_123_456, 4_107_542_399_000_001]
        {
            let time = Timestamp::from_microsecond(micros).unwrap();
            let mut out = Writer { out: Vec::new() };
            out.time(time);
            assert_eq!(String::from_utf8(out.out).unwrap(), format!("\"{}\"", machinery::timestamp::micros(time)));
        }
    }

    #[test]
    fn aud_11_14_members_are_in_order_and_empty_ones_are_left_out() {
        let user = User {
            name: "alice".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["dev".to_owned()],
            extra: [("k".to_owned(), vec!["v\"".to_owned()])].into(),
        };
        let head = Head::new(HeadParts {
            audit_id: "id",
            uri: "/api/v1/namespaces/n/pods?x=1",
            verb: "create",
            user: Some(&user),
            source_ips: &["127.0.0.1".parse().unwrap()],
            user_agent: "curl",
            object: Some(ObjectRef {
                resource: "pods".to_owned(),
                namespace: "n".to_owned(),
                version: "v1".to_owned(),
                ..ObjectRef::default()
            }),
            received: Timestamp::UNIX_EPOCH,
        });
        let annotations = [("a".to_owned(), "b".to_owned())].into();
        let (object, answer) =
            (machinery::json::json!({"x": 1}), [Bytes::from_static(b"{\"y\":"), Bytes::from_static(b"2}")]);
        let response = Response { code: 201, status: None };
        let mut event = Event {
            level: AuditLevel::RequestResponse,
            stage: Stage::ResponseComplete,
            head: &head,
            impersonated: Some(&User { name: "bob".to_owned(), ..User::default() }),
            constraint: "impersonate:user-info",
            response: Some(&response),
            request_object: Some(&object),
            response_object: Some(&answer),
            stage_time: Timestamp::from_microsecond(1).unwrap(),
            annotations: &annotations,
        };
        let expected = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id","#,
            r#""stage":"ResponseComplete","requestURI":"/api/v1/namespaces/n/pods?x=1","verb":"create","#,
            r#""user":{"username":"alice","uid":"7","groups":["dev"],"extra":{"k":["v\""]}},"#,
            r#""impersonatedUser":{"username":"bob"},"#,
            r#""authenticationMetadata":{"impersonationConstraint":"impersonate:user-info"},"#,
            r#""sourceIPs":["127.0.0.1"],"userAgent":"curl","#,
            r#""objectRef":{"resource":"pods","namespace":"n","apiVersion":"v1"},"#,
            r#""responseStatus":{"metadata":{},"code":201},"requestObject":{"x":1},"responseObject":{"y":2},"#,
            r#""requestReceivedTimestamp":"1970-01-01T00:00:00.000000Z","#,
            r#""stageTimestamp":"1970-01-01T00:00:00.000001Z","annotations":{"a":"b"}}"#,
            "\n"
        );
        let line = event.line();
        assert_eq!(String::from_utf8_lossy(&line.0), expected);
        let mut item = Vec::new();
        line.write_item(&mut item);
        assert!(item.starts_with(b"{\"level\":") && item.ends_with(b"\"b\"}}"));
        let refused = Response { code: 400, status: Some(Status::bad_request("no")) };
        event.response = Some(&refused);
        assert!(
            String::from_utf8_lossy(&event.line().0).contains(r#""responseStatus":{"metadata":{},"status":"Failure","#)
        );
        let empty = Head::new(HeadParts {
            audit_id: "",
            uri: "",
            verb: "",
            user: None,
            source_ips: &[],
            user_agent: "",
            object: None,
            received: Timestamp::UNIX_EPOCH,
        });
        let bare = Event {
            level: AuditLevel::Metadata,
            stage: Stage::RequestReceived,
            head: &empty,
            impersonated: None,
            constraint: "",
            response: None,
            request_object: None,
            response_object: None,
            stage_time: Timestamp::UNIX_EPOCH,
            annotations: &BTreeMap::new(),
        };
        let text = String::from_utf8_lossy(&bare.line().0).into_owned();
        assert!(text.contains(r#""verb":"","user":{},"requestReceivedTimestamp""#), "{text}");
    }
}
