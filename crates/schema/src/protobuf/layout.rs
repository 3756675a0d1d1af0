//! Field numbers of messages, in the order in which fields are written.

use crate::facts::{Form, NodeId, Object, Shapes};

/// The slots of a message by number. Empty for types that are not objects.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(super) slots: Vec<Slot>,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u32,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// The index of a field of the object.
    Field(u16),
    /// A struct that is embedded in Go and inlined in JSON is a nested message.
    Embedded(Layout),
}

impl Layout {
    fn new(object: &Object) -> Layout {
        let mut layout = Layout::default();
        for (at, field) in (0u16..).zip(&object.fields) {
            // kind and apiVersion have no number: they are in the envelope.
            if !field.protobuf.is_empty() {
                layout.add(&field.protobuf, at);
            }
        }
        layout
    }

    fn add(&mut self, path: &[u32], at: u16) {
        let [number, inner @ ..] = path else { return };
        let place = self.slots.binary_search_by_key(number, |slot| slot.number);
        match (place, inner) {
            (Err(place), []) => self.slots.insert(place, Slot { number: *number, content: Content::Field(at) }),
            (Err(place), inner) => {
                let mut layout = Layout::default();
                layout.add(inner, at);
                self.slots.insert(place, Slot { number: *number, content: Content::Embedded(layout) });
            }
            (Ok(place), inner) => match &mut self.slots[place].content {
                Content::Embedded(layout) if !inner.is_empty() => layout.add(inner, at),
                _ => panic!("types.tsv: two fields have the number {number}"),
            },
        }
    }

    pub(super) fn slot(&self, number: u32) -> Option<&Content> {
        let at = self.slots.binary_search_by_key(&number, |slot| slot.number).ok()?;
        Some(&self.slots[at].content)
    }
}

impl Shapes {
    /// Returns the layout of an object; all layouts of a graph are built on first use.
    pub(super) fn layout(&self, id: NodeId) -> &Layout {
        let layouts = self.layouts.get_or_init(|| {
            let of = |form: &Form| match form {
                Form::Object(object) => Layout::new(object),
                _ => Layout::default(),
            };
            self.nodes.iter().map(|node| of(&node.form)).collect()
        });
        &layouts[id.0 as usize]
    }
}
