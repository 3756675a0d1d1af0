//! What the server calls: conversion webhooks, admission webhooks and aggregated servers, found by their Service. All of them are
//! real TLS servers on loopback.
//!
//! - [`world`]: the server under test

mod aggregation;
mod conversion;
mod hooks;
mod world;
