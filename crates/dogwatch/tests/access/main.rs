//! Rights of ordinary users against a whole server in this process.

mod accounts;
mod attributes;
mod certificates;
mod explain;
mod further;
mod modes;
mod node_restriction;
mod nodes;
mod plugins;
mod watches;
mod webhook;
mod world;
