//! Admission policies over a memory store.

mod mutating;
mod projects;
mod timing;
mod types;
mod validating;
mod world;
