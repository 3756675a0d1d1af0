//! The kinds as data: names, scope, verbs, fields, defaults, validation, columns; and the functions that follow from
//! it.
//!
//! - [`decode`]: decodes request bodies
//! - [`facts`]: the fields of the kinds: order, types, merging
//! - [`kind`]: a served kind
//! - [`columns`]: table columns
//! - [`custom`]: kinds that a CustomResourceDefinition adds, and the processing of their objects
//! - [`defaults`]: default values
//! - [`discovery`]: discovery documents
//! - [`kinds`]: the set of served kinds: the table of the built-in ones, and those of custom resources
//! - [`managed`]: field ownership and server-side apply
//! - [`openapi`]: OpenAPI documents
//! - [`patch`]: JSON patch, merge patch, strategic merge
//! - [`protobuf`]: objects as protobuf messages
//! - [`strategy`]: preparation of objects before they are stored
//! - [`validation`]: validation of objects
//! - [`warnings`]: warnings about objects

pub mod columns;
pub mod custom;
pub mod decode;
pub mod defaults;
pub mod discovery;
pub mod facts;
pub mod kind;
pub mod kinds;
pub mod managed;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod strategy;
pub mod validation;
pub mod warnings;

mod walk;
