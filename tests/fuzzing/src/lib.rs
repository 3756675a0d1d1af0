//! Fuzz targets: everything that parses bytes from a peer, as functions of bytes.
//!
//! - [`parsing`]: URLs and headers
//! - [`access`]: credentials, and files about users
//! - [`bodies`]: objects and patches, through all steps before they are stored
//! - [`rules`]: expressions of a custom resource definition
//! - [`definitions`]: schemas of custom resources, and objects of them
//! - [`responses`]: responses of a server, as the client reads them
//! - [`streams`]: the protocols of commands and port forwards
//! - [`nodes`]: commands of containers and stages of simulated nodes
//! - [`webhooks`]: answers of admission webhooks
//! - [`seeds`]: typical inputs
//! - [`mutation`]: random changes of a seed
//!
//! Each target must return for every input, and soon: a panic is a bug, and so is an input that keeps the processor busy.
//! `tests/short_run.rs` runs them on a fixed sequence of inputs in every test run; the programs in `fuzz/` let cargo-fuzz search for more.

pub mod access;
pub mod bodies;
pub mod definitions;
pub mod mutation;
pub mod nodes;
pub mod parsing;
pub mod responses;
pub mod rules;
pub mod seeds;
pub mod streams;
pub mod webhooks;

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

pub const TARGETS: [Target; 24] = [
    Target { name: "label_selector", run: parsing::label_selector },
    Target { name: "field_selector", run: parsing::field_selector },
    Target { name: "query", run: parsing::query },
    Target { name: "continue_token", run: parsing::continue_token },
    Target { name: "accept", run: parsing::accept },
    Target { name: "path", run: parsing::path },
    Target { name: "body", run: bodies::body },
    Target { name: "patch", run: bodies::patch },
    Target { name: "delete_options", run: bodies::delete_options },
    Target { name: "certificate_request", run: bodies::certificate_request },
    Target { name: "cel", run: rules::cel },
    Target { name: "definition", run: definitions::definition },
    Target { name: "json_path", run: definitions::json_path },
    Target { name: "headers", run: access::headers },
    Target { name: "token", run: access::token },
    Target { name: "audit_policy", run: access::audit_policy },
    Target { name: "authorization_file", run: access::authorization_file },
    Target { name: "authentication_file", run: access::authentication_file },
    Target { name: "watch_response", run: responses::watch_response },
    Target { name: "spdy", run: streams::spdy },
    Target { name: "stream_message", run: streams::stream_message },
    Target { name: "script", run: nodes::script },
    Target { name: "stages", run: nodes::stages },
    Target { name: "webhook_answer", run: webhooks::answer },
];
