//! Rights of ordinary users against a whole server in this process.

mod attributes;
mod explain;
mod further;
mod modes;
mod nodes;
mod watches;
mod webhook;
mod world;
