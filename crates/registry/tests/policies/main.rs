//! Admission policies over a memory store.

mod examples;
mod mutating;
mod projects;
mod timing;
mod types;
mod validating;
mod world;
