//! Types as a graph of nodes: objects, lists, scalars.
//!
//! Nodes refer to each other by number, because types are recursive (a JSON schema contains JSON schemas). One graph
//! has all built-in kinds; a custom kind has a small graph of its own. Decoding, ownership and patches work on nodes
//! only.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock, OnceLock};

use machinery::json::Value;

use crate::protobuf::Layout;

/// The number of a node in its [`Shapes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub(crate) u32);

/// A graph of nodes.
#[derive(Debug, Default)]
pub struct Shapes {
    pub(crate) nodes: Vec<Node>,
    /// Protobuf layouts by node number, built on first use.
    pub(crate) layouts: OnceLock<Vec<Layout>>,
}

/// A type.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name in decoding errors: `v1.Container`, `[]string`.
    pub name: Cow<'static, str>,
    pub form: Form,
}

/// The structure of a type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Scalar(Scalar),
    List(List),
    Object(Object),
    /// An object of any content, preserved (`RawExtension`).
    Raw,
    /// Any JSON. An atomic one is owned as a whole.
    Any {
        atomic: bool,
    },
    /// An object, or a short form of another type: only inside JSON schemas.
    Either(Either),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Float64,
    /// base64 in JSON
    Bytes,
    /// whole seconds, UTC
    Time,
    /// six digits of a second, UTC
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// Any number, for a schema without a format.
    Number,
    /// A string, a number or a bool.
    Untyped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    pub item: NodeId,
    pub listing: Listing,
    /// In protobuf the list is a message that contains the items, not a repeated field.
    pub wrapped: bool,
}

/// The merge behaviour of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listing {
    /// As one value.
    Atomic,
    /// Item by item; items are identified by value.
    Set,
    /// Item by item; items are identified by these fields.
    Map(Vec<Cow<'static, str>>),
}

/// A struct (fields only), a map (`rest` only), or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Object {
    /// In wire order.
    pub fields: Vec<Field>,
    /// The type of other keys; `None` if they are not allowed.
    pub rest: Option<NodeId>,
    /// Owned as one value.
    pub atomic: bool,
    /// Hash table of field names: one more than the index in `fields`, at the slot given by [`slot_of`] or the next
    /// free one; zero is free. Every key of every document is looked up here.
    pub(crate) by_name: Vec<u32>,
    /// Indices of the fields that are always present.
    pub(crate) always: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub name: Cow<'static, str>,
    pub node: NodeId,
    /// A Go pointer: absent and zero are different.
    pub pointer: bool,
    /// `omitempty`: omitted when empty.
    pub omit_empty: bool,
    /// `omitzero`: omitted when zero, also structs.
    pub omit_zero: bool,
    /// Present even if it is not set.
    pub(crate) shown: bool,
    /// The protobuf number, after that of the message it is embedded in, if any. Empty if the field is not in the
    /// message.
    pub protobuf: Box<[u32]>,
    /// `None` for most fields; custom resources have many.
    pub(crate) special: Option<Box<Special>>,
}

/// Properties that few fields have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Special {
    /// The embedded Go structs that contain the field; decoding errors name them: `VolumeSource`.
    pub(crate) within: Cow<'static, str>,
    pub(crate) strategy: Strategy,
    /// The value of this key for list items without it.
    pub(crate) preset: Option<Value>,
}

impl Special {
    /// Returns `None` if all properties have their defaults.
    pub(crate) fn kept(self) -> Option<Box<Special>> {
        (self != Special::default()).then(|| Box::new(self))
    }
}

impl Hash for Special {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Presets are not hashed: few fields have one.
        (&self.within, &self.strategy).hash(state);
    }
}

impl Field {
    /// The embedded Go structs that contain the field; decoding errors name them: `VolumeSource`.
    #[must_use]
    pub fn within(&self) -> &str {
        self.special.as_ref().map_or("", |special| &special.within)
    }

    #[must_use]
    pub fn strategy(&self) -> &Strategy {
        static NONE: Strategy = Strategy { merge: false, replace: false, retain_keys: false, merge_key: None };
        self.special.as_ref().map_or(&NONE, |special| &special.strategy)
    }

    /// The value of this key for list items without it.
    #[must_use]
    pub fn preset(&self) -> Option<&Value> {
        self.special.as_ref()?.preset.as_ref()
    }
}

/// The strategic merge behaviour of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Strategy {
    /// Lists merge item by item.
    pub merge: bool,
    pub replace: bool,
    /// `$retainKeys` lists the keys to keep.
    pub retain_keys: bool,
    pub merge_key: Option<Cow<'static, str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Either {
    pub object: NodeId,
    pub other: Other,
}

/// The short form of an [`Either`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Other {
    Bool,
    Objects,
    Strings,
}

impl Shapes {
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(u32::try_from(self.nodes.len() - 1).expect("a schema has far fewer nodes than 4 thousand million"))
    }
}

impl Object {
    /// Builds the lookup tables; called once all fields are added.
    pub(crate) fn index(&mut self, is_shown: impl Fn(&Field) -> bool) {
        let count = u32::try_from(self.fields.len()).expect("a definition is smaller than 4 GiB");
        self.by_name = vec![0; (self.fields.len() * 2).next_power_of_two()];
        for at in 0..count {
            let mut slot = slot_of(&self.fields[at as usize].name, self.by_name.len());
            while self.by_name[slot] != 0 {
                slot = (slot + 1) % self.by_name.len();
            }
            self.by_name[slot] = at + 1;
        }
        for field in &mut self.fields {
            field.shown = is_shown(field);
        }
        self.always = (0..count).filter(|at| self.fields[*at as usize].shown).collect();
    }

    /// Returns the index of a field.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        // At most half of the slots are used, so every search ends at a free one.
        let mut slot = slot_of(name, self.by_name.len());
        loop {
            let at = *self.by_name.get(slot)?;
            let at = at.checked_sub(1)? as usize;
            if self.fields[at].name == name {
                return Some(at);
            }
            slot = (slot + 1) % self.by_name.len();
        }
    }

    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }

    /// Returns the node of a field or, for another key, of `rest`.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<NodeId> {
        self.field(name).map(|f| f.node).or(self.rest)
    }
}

/// Largest table whose slots are taken from three bytes of a name. A definition may have more fields, and names that were chosen
/// to have the same slot.
const SMALL_TABLE_MAX: usize = 256;

/// Returns the slot of a name in a table whose size is a power of two: from the length and three bytes of the name, which
/// usually differ between the fields of an object, or from a hash if there are many fields.
fn slot_of(name: &str, places: usize) -> usize {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    if places > SMALL_TABLE_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are used")]
        return SEED.hash_one(name) as usize & (places - 1);
    }
    let bytes = name.as_bytes();
    let byte = |at: usize| usize::from(bytes.get(at).copied().unwrap_or_default());
    let mixed =
        byte(0) ^ (byte(bytes.len() / 2) << 3) ^ (byte(bytes.len().saturating_sub(1)) << 5) ^ (bytes.len() << 1);
    mixed & places.wrapping_sub(1)
}

/// A node with its graph.
#[derive(Clone, Debug)]
pub struct Type {
    shapes: Arc<Shapes>,
    root: NodeId,
    stored_as_json: bool,
}

impl Type {
    pub(crate) fn new(shapes: Arc<Shapes>, root: NodeId, stored_as_json: bool) -> Self {
        Type { shapes, root, stored_as_json }
    }

    #[must_use]
    pub fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    #[must_use]
    pub fn root(&self) -> NodeId {
        self.root
    }

    #[must_use]
    pub fn node(&self) -> &Node {
        self.shapes.node(self.root)
    }

    /// Empty lists that are always present stay empty lists; otherwise they become null.
    #[must_use]
    pub fn stored_as_json(&self) -> bool {
        self.stored_as_json
    }

    /// Returns the type of a field or of another key of a map.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Type> {
        let Form::Object(object) = &self.node().form else { return None };
        Some(Type { root: object.child(name)?, ..self.clone() })
    }

    /// Returns the type of the items of a list.
    #[must_use]
    pub fn item(&self) -> Option<Type> {
        let Form::List(list) = &self.node().form else { return None };
        Some(Type { root: list.item, ..self.clone() })
    }
}
