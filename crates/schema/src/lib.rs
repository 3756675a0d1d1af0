//! What the kinds look like, as data: names, scope, verbs, fields, defaults, columns; and what follows from it.
//!
//! - [`decode`]: a request's body to an object
//! - [`facts`]: the fields of the kinds: order, types, how they merge
//! - [`kind`]: one served kind
//! - [`columns`]: how a table shows them
//! - [`custom`]: kinds that a CustomResourceDefinition adds, and what their schema says of their objects
//! - [`defaults`]: what is filled in
//! - [`discovery`]: how a server tells clients which kinds it serves
//! - [`kinds`]: all of them: the table of the built-in ones, and the registry that custom resources join
//! - [`managed`]: who owns which field
//! - [`openapi`]: documents that describe them to programs
//! - [`patch`]: JSON patch, merge patch, strategic merge
//! - [`protobuf`]: objects in the binary form that Go programs prefer
//! - [`strategy`]: what a kind does with an object on its way in
//! - [`validation`]: what is wrong with one
//! - [`warnings`]: what is doubtful about one

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
