//! Admission as clients see it: webhooks that are real TLS servers on loopback, policies, and both together with plugins.
//!
//! - [`world`]: the server under test; [`hook`]: a webhook that records what it is sent
//! - `webhooks`, `policies`: the tests of the whole chain
//! - `faults`: webhooks that hang, flood, redirect or call back
//! - `explained`: traces and full refusals

mod explained;
mod faults;
mod hook;
mod policies;
mod webhooks;
mod world;
