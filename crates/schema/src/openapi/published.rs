//! Columns of the table of types that only OpenAPI documents need: definition names, enums, required fields, defaults.
//!
//! `facts` skips these columns at start-up; here the table is read again when a document is built.

use std::collections::HashMap;

use crate::facts::{NodeId, TYPES_TABLE};

/// The columns of all types, by node number.
pub(super) struct Published {
    types: Vec<Columns>,
    by_name: HashMap<&'static str, NodeId>,
}

#[derive(Clone, Default)]
struct Columns {
    name: &'static str,
    /// JSON, or empty.
    unions: &'static str,
    /// Allowed values of a string.
    values: &'static str,
    /// In field order.
    fields: Vec<&'static str>,
}

/// Properties of a field in a definition.
#[derive(Clone, Copy)]
pub(super) struct Said(&'static str);

impl Published {
    pub(super) fn read() -> Self {
        let mut types: Vec<Columns> = Vec::with_capacity(1300);
        let mut copies = Vec::new();
        for line in TYPES_TABLE.lines() {
            let mut columns = line.split('\t');
            let tag = columns.next().unwrap_or_default();
            match tag {
                "" => {
                    let said = columns.nth(9).unwrap_or_default();
                    if let Some(last) = types.last_mut() {
                        last.fields.push(said);
                    }
                }
                "O" => types.push(Columns {
                    name: columns.nth(2).unwrap_or_default(),
                    unions: columns.next().unwrap_or_default(),
                    ..Columns::default()
                }),
                "S" => {
                    types.push(Columns { values: columns.nth(2).unwrap_or_default(), ..Columns::default() });
                }
                "C" => {
                    copies.push((types.len(), columns.next().and_then(|number| number.parse::<usize>().ok())));
                    types.push(Columns::default());
                }
                "L" | "M" | "E" => types.push(Columns::default()),
                _ => {}
            }
        }
        let by_name = (0u32..).zip(&types).filter(|(_, found)| !found.name.is_empty());
        let by_name = by_name.map(|(at, found)| (found.name, NodeId(at))).collect();
        for (at, original) in copies {
            if let Some(original) = original.and_then(|original| types.get(original)) {
                types[at] = original.clone();
            }
        }
        Published { types, by_name }
    }

    /// Returns the object that a definition describes.
    pub(super) fn node(&self, definition: &str) -> Option<NodeId> {
        self.by_name.get(definition).copied()
    }

    /// Returns the definition name of an object; empty for maps and types that are not objects.
    pub(super) fn name(&self, node: NodeId) -> &'static str {
        self.types[node.0 as usize].name
    }

    pub(super) fn unions(&self, node: NodeId) -> &'static str {
        self.types[node.0 as usize].unions
    }

    /// Returns the allowed values of a string; empty if any value is allowed.
    pub(super) fn values(&self, node: NodeId) -> impl Iterator<Item = &'static str> + Clone {
        self.types[node.0 as usize].values.split('|').filter(|value| !value.is_empty())
    }

    /// Returns the properties of a field by index.
    pub(super) fn said(&self, node: NodeId, field: usize) -> Said {
        Said(self.types[node.0 as usize].fields.get(field).copied().unwrap_or_default())
    }
}

impl Said {
    fn has(self, word: &str) -> bool {
        self.0.split(' ').any(|said| said == word)
    }

    pub(super) fn required(self) -> bool {
        self.has("r")
    }

    pub(super) fn list_type(self) -> bool {
        self.has("l")
    }

    pub(super) fn map_type(self) -> bool {
        self.has("m")
    }

    pub(super) fn no_default(self) -> bool {
        self.has("n")
    }

    /// JSON.
    pub(super) fn default(self) -> Option<&'static str> {
        // The last column entry, and the only one that may contain spaces.
        self.0.split_once("d=").map(|(_, text)| text)
    }
}
