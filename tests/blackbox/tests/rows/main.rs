//! The rows of the specification, each as a test over real sockets against the built binary.
//!
//! A test is named after its row: `list_watch_15_06_…` is row 6 of the checklist of list and watch,
//! `list_watch_t_05_…` a test idea of its section 5, `verbs_14_07_…` row 7 of the checklist of the verbs, `de_3_…` rule DE-3.
//!
//! - `world.rs`: the shared server, and a namespace for each test
//! - `list_watch_15/`: the checklist of list and watch
//! - `list_watch_t/`: the test ideas in its sections
//! - `verbs_14/`, `verbs_t.rs`: the same for the verbs
//! - `deletion.rs`, `workload.rs`: behaviour that nodes, the scheduler and controllers rely on
//! - `hostile.rs`: malformed requests
//! - `holds.rs`: heavy, unfinished and refused requests beside those of others
//! - `restarted.rs`: the rows that need a server of their own, which is stopped, killed or started with other flags

mod deletion;
mod holds;
mod hostile;
mod list_watch_15;
mod list_watch_t;
mod restarted;
mod verbs_14;
mod verbs_t;
mod workload;
mod world;
