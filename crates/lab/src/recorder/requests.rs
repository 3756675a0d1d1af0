//! The requests of the recent past.

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use machinery::json::{Value, json};
use machinery::{Revision, timestamp};
use server::observation::{Answered, Written};

use super::clients::{Client, shortened};

/// Bytes of bodies of writes that are kept; the oldest are dropped.
pub(crate) const BODIES_BYTES_MAX: usize = 16 << 20;

/// A request that was answered.
#[derive(Clone)]
pub(crate) struct Request {
    /// Part of its name. A write has its number from its beginning.
    pub(crate) number: u64,
    /// Its place in the order of answers.
    pub(crate) sequence: u64,
    at: Timestamp,
    client: Arc<Client>,
    verb: &'static str,
    /// Group, resource, subresource, namespace and name one after the other: one allocation for each request, not five.
    text: Box<str>,
    /// Where the first four end.
    ends: [u16; 4],
    is_resource: bool,
    code: u16,
    took_us: u32,
    bytes: Option<u32>,
    faults: Option<Box<[String]>>,
    write: Option<Box<Write>>,
}

/// What a write did.
#[derive(Clone)]
struct Write {
    revisions: Vec<Revision>,
    /// None once it is dropped.
    body: Option<Bytes>,
    body_bytes: usize,
}

impl Request {
    pub(crate) fn new(answered: Answered<'_>, written: Option<Written>, client: Arc<Client>, at: Timestamp) -> Self {
        let (mut text, mut ends) = (String::new(), [0; 4]);
        let verb = match answered.resource {
            Some(resource) => {
                let name = if resource.name.is_empty() { &resource.selected_name } else { &resource.name };
                let parts: [&str; 5] =
                    [&resource.group, &resource.resource, &resource.subresource, &resource.namespace, name]
                        .map(|part| shortened(part));
                text.reserve_exact(parts.iter().map(|part| part.len()).sum());
                for (part, end) in parts.iter().zip(&mut ends) {
                    text.push_str(part);
                    // Five parts of at most 256 bytes.
                    *end = text.len() as u16;
                }
                text.push_str(parts[4]);
                resource.verb.as_str()
            }
            None => {
                text.push_str(shortened(answered.path));
                method(answered.method)
            }
        };
        let write = written.map(|written| {
            let body_bytes = written.body.len();
            // A copy: the bytes of a connection are part of a larger buffer.
            let body = (body_bytes > 0).then(|| Bytes::copy_from_slice(&written.body));
            Box::new(Write { revisions: written.revisions, body, body_bytes })
        });
        Request {
            number: 0,
            sequence: 0,
            at,
            client,
            verb,
            text: text.into(),
            ends,
            is_resource: answered.resource.is_some(),
            code: answered.code,
            took_us: answered.took.as_micros().try_into().unwrap_or(u32::MAX),
            bytes: answered.bytes.map(|bytes| bytes.try_into().unwrap_or(u32::MAX)),
            faults: (!answered.faults.is_empty()).then(|| answered.faults.into()),
            write,
        }
    }

    /// A request from its name and status, as another server showed it. None if it is not one.
    pub(crate) fn restored(name: &str, status: &Value, client: Arc<Client>) -> Option<Self> {
        let (mut text, mut ends) = (String::new(), [0; 4]);
        let member = |name: &str| shortened(status[name].as_str().unwrap_or_default());
        let is_resource = status["path"].is_null();
        if is_resource {
            for (part, end) in ["group", "resource", "subresource", "namespace"].into_iter().zip(&mut ends) {
                text.push_str(member(part));
                *end = text.len() as u16;
            }
        }
        text.push_str(member(if is_resource { "name" } else { "path" }));
        let revisions = status["revisions"].as_array().into_iter().flatten().filter_map(Value::as_u64).map(Revision);
        let mut revisions: Vec<Revision> = revisions.collect();
        if revisions.is_empty() {
            revisions.extend(status["revision"].as_u64().map(Revision));
        }
        let body = match (&status["body"], &status["bodyBase64"]) {
            (Value::Null, Value::Null) => None,
            (Value::Null, encoded) => STANDARD.decode(encoded.as_str()?).ok().map(Bytes::from),
            (body, _) => Some(Bytes::copy_from_slice(body.as_str()?.as_bytes())),
        };
        let body_bytes = status["bodyBytes"].as_u64().unwrap_or_default() as usize;
        let is_write = body_bytes > 0 || !revisions.is_empty();
        let faults: Vec<String> =
            status["faults"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Request {
            number: number(name)?,
            sequence: 0,
            at: status["time"].as_str()?.parse().ok()?,
            client,
            verb: VERBS.into_iter().find(|verb| status["verb"] == **verb).unwrap_or("other"),
            text: text.into(),
            ends,
            is_resource,
            code: status["code"].as_u64()?.try_into().ok()?,
            took_us: status["latencyMicroseconds"].as_u64().unwrap_or_default().try_into().unwrap_or(u32::MAX),
            bytes: status["bytes"].as_u64().map(|bytes| bytes.try_into().unwrap_or(u32::MAX)),
            faults: (!faults.is_empty()).then(|| faults.into()),
            write: is_write.then(|| Box::new(Write { revisions, body, body_bytes })),
        })
    }

    /// Group, resource, subresource, namespace or name.
    fn part(&self, at: usize) -> &str {
        let from = if at == 0 { 0 } else { self.ends.get(at - 1).copied().unwrap_or_default() };
        let to = self.ends.get(at).map_or(self.text.len(), |end| usize::from(*end));
        self.text.get(usize::from(from)..to).filter(|_| self.is_resource).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> String {
        name(self.number)
    }

    /// The value of a field that requests are selected by.
    pub(crate) fn field(&self, label: &str) -> Option<String> {
        Some(match label {
            "userAgent" => self.client.agent.to_string(),
            "user" => self.client.user.to_string(),
            "verb" => self.verb.to_owned(),
            "resource" => self.part(1).to_owned(),
            "subresource" => self.part(2).to_owned(),
            "namespace" => self.part(3).to_owned(),
            "name" => self.part(4).to_owned(),
            "code" => self.code.to_string(),
            _ => return None,
        })
    }

    /// The status of the object that shows it.
    pub(crate) fn status(&self) -> Value {
        let micros = u64::from(self.took_us);
        let mut status = json!({
            "time": timestamp::micros(self.at),
            "verb": self.verb,
            "code": self.code,
            "latency": latency(micros),
            "latencyMicroseconds": micros,
        });
        let path = if self.is_resource { "" } else { &*self.text };
        let texts = [
            ("group", self.part(0)),
            ("resource", self.part(1)),
            ("subresource", self.part(2)),
            ("namespace", self.part(3)),
            ("name", self.part(4)),
            ("path", path),
            ("user", &*self.client.user),
            ("userAgent", &*self.client.agent),
        ];
        for (member, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            status[member] = json!(text);
        }
        if let Some(bytes) = self.bytes {
            status["bytes"] = json!(bytes);
        }
        if let Some(faults) = &self.faults {
            status["faults"] = json!(faults.to_vec());
        }
        if let Some(write) = &self.write {
            write.show(&mut status);
        }
        status
    }

    pub(crate) fn created(&self) -> Timestamp {
        self.at
    }

    fn body_bytes(&self) -> usize {
        self.write.as_ref().and_then(|write| write.body.as_ref()).map_or(0, Bytes::len)
    }

    /// Bytes of the row without its body.
    fn row_bytes(&self) -> usize {
        let faults = self.faults.iter().flat_map(|faults| faults.iter()).map(|name| name.len() + size_of::<String>());
        let write = self
            .write
            .as_ref()
            .map_or(0, |write| size_of::<Write>() + write.revisions.capacity() * size_of::<Revision>());
        size_of::<Request>() + self.text.len() + faults.sum::<usize>() + write
    }
}

impl Write {
    fn show(&self, status: &mut Value) {
        if let Some(last) = self.revisions.last() {
            status["revision"] = json!(last.0);
        }
        if self.revisions.len() > 1 {
            status["revisions"] = json!(self.revisions.iter().map(|revision| revision.0).collect::<Vec<_>>());
        }
        if self.body_bytes > 0 {
            status["bodyBytes"] = json!(self.body_bytes);
        }
        match self.body.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => status["body"] = json!(text),
            Some(Err(_)) => status["bodyBase64"] = json!(STANDARD.encode(self.body.as_deref().unwrap_or_default())),
            None => {}
        }
    }
}

pub(crate) fn name(number: u64) -> String {
    format!("req-{number:010}")
}

/// The number of a request by its name.
pub(crate) fn number(name: &str) -> Option<u64> {
    name.strip_prefix("req-")?.parse().ok()
}

/// Verbs of requests, and methods of those that are not about a resource.
const VERBS: [&str; 13] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "connect",
    "head",
    "post",
    "put",
    "options",
];

/// Methods are few; a text for each that a client makes up would be kept for ever.
fn method(method: &str) -> &'static str {
    match method {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => "other",
    }
}

fn latency(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros}µs"),
        1_000..1_000_000 => format!("{:.1}ms", micros as f64 / 1e3),
        _ => format!("{:.2}s", micros as f64 / 1e6),
    }
}

/// The last requests, in the order of their answers.
pub(crate) struct Requests {
    rows: VecDeque<Request>,
    rows_max: usize,
    /// Sequences of the rows that may have a body, oldest first.
    with_body: VecDeque<u64>,
    bodies_bytes: usize,
    rows_bytes: usize,
    /// The sequence of the last row that was dropped.
    floor: u64,
}

impl Requests {
    pub(crate) fn new(rows_max: usize) -> Self {
        Requests {
            rows: VecDeque::new(),
            rows_max,
            with_body: VecDeque::new(),
            bodies_bytes: 0,
            rows_bytes: 0,
            floor: 0,
        }
    }

    /// Adds a request. With `bytes_max`, rows and bodies together take no more than that.
    pub(crate) fn push(&mut self, row: Request, bytes_max: Option<usize>) {
        if row.body_bytes() > 0 {
            self.with_body.push_back(row.sequence);
        }
        self.bodies_bytes += row.body_bytes();
        self.rows_bytes += row.row_bytes();
        self.rows.push_back(row);
        let rows_bytes_max = bytes_max.map_or(usize::MAX, |bytes| bytes / 5);
        let bodies_bytes_max = bytes_max.map_or(BODIES_BYTES_MAX, |bytes| BODIES_BYTES_MAX.min(bytes / 5 * 4));
        while (self.rows.len() > self.rows_max || self.rows_bytes > rows_bytes_max)
            && let Some(oldest) = self.rows.pop_front()
        {
            self.bodies_bytes -= oldest.body_bytes();
            self.rows_bytes -= oldest.row_bytes();
            self.floor = oldest.sequence;
        }
        while self.bodies_bytes > bodies_bytes_max
            && let Some(sequence) = self.with_body.pop_front()
        {
            let at = self.rows.partition_point(|row| row.sequence < sequence);
            let oldest = self.rows.get_mut(at).filter(|row| row.sequence == sequence);
            if let Some(body) = oldest.and_then(|row| row.write.as_mut()?.body.take()) {
                self.bodies_bytes -= body.len();
            }
        }
        while self.with_body.front().is_some_and(|sequence| *sequence <= self.floor) {
            self.with_body.pop_front();
        }
    }

    /// Bytes of all rows and bodies.
    pub(crate) fn bytes(&self) -> usize {
        self.rows_bytes + self.bodies_bytes
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Up to `max` rows after a sequence.
    pub(crate) fn after(&self, sequence: u64, max: usize) -> Vec<Request> {
        let from = self.rows.partition_point(|row| row.sequence <= sequence);
        self.rows.range(from..).take(max).cloned().collect()
    }

    /// Numbers and sequences in the order of numbers, from a number on.
    pub(crate) fn by_number(&self, from: u64) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> =
            self.rows.iter().filter(|row| row.number >= from).map(|row| (row.number, row.sequence)).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<Request> {
        let at = self.rows.partition_point(|row| row.sequence < sequence);
        self.rows.get(at).filter(|row| row.sequence == sequence).cloned()
    }

    pub(crate) fn by_name(&self, wanted: &str) -> Option<Request> {
        let number = number(wanted)?;
        self.rows.iter().find(|row| row.number == number).filter(|row| row.name() == wanted).cloned()
    }
}
