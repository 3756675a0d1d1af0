//! The Node authorizer: what a node may do, from the pods that are bound to it.
//!
//! - [`graph`]: which objects a node's pods lead to
//! - [`references`]: the objects that a pod or a volume names
//! - [`authorizer`]: the decision

pub mod authorizer;
pub mod graph;
pub mod references;

pub use authorizer::{NODES, NodeAuthorizer, node_name};
pub use graph::Graph;
