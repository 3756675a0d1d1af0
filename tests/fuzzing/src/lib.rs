//! Everything that reads what a client sends, as functions of bytes; and bytes to feed them with.
//!
//! - [`parsing`]: what stands in a URL or a header
//! - [`bodies`]: objects and patches, through all that is done to them before they are stored
//! - [`rules`]: expressions that a definition carries
//! - [`definitions`]: schemas of custom resources, and objects by them
//! - [`seeds`]: requests as clients make them, to begin from
//! - [`mutation`]: what becomes of a seed
//!
//! Each target must return, whatever it is given: a panic is a finding. `tests/short_run.rs` feeds them with a fixed
//! sequence of inputs in every test run; the programs in `fuzz/` let cargo-fuzz look for more.

pub mod bodies;
pub mod definitions;
pub mod mutation;
pub mod parsing;
pub mod rules;
pub mod seeds;

/// A target: its name, and what it does with an input.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

pub const TARGETS: [Target; 12] = [
    Target { name: "label_selector", run: parsing::label_selector },
    Target { name: "field_selector", run: parsing::field_selector },
    Target { name: "query", run: parsing::query },
    Target { name: "continue_token", run: parsing::continue_token },
    Target { name: "accept", run: parsing::accept },
    Target { name: "path", run: parsing::path },
    Target { name: "body", run: bodies::body },
    Target { name: "patch", run: bodies::patch },
    Target { name: "delete_options", run: bodies::delete_options },
    Target { name: "cel", run: rules::cel },
    Target { name: "definition", run: definitions::definition },
    Target { name: "json_path", run: definitions::json_path },
];
