//! The shape of an object as a graph of nodes: objects, lists, scalars.
//!
//! Nodes are numbered, because types refer to themselves (a JSON schema holds JSON schemas). One graph holds all built-in
//! kinds; a custom kind has a small graph of its own. Decoding, ownership and patches only ever see nodes.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use machinery::json::Value;

use crate::protobuf::Layout;

/// The number of a node in its [`Shapes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub(crate) u32);

/// A graph of nodes.
#[derive(Debug, Default)]
pub struct Shapes {
    pub(crate) nodes: Vec<Node>,
    /// How the objects look in protobuf, by the number of their node; made when somebody first asks.
    pub(crate) layouts: OnceLock<Vec<Layout>>,
}

/// One type, as it stands in one or more places.
#[derive(Clone, Debug)]
pub struct Node {
    /// What decoding errors call it: `v1.Container`, `[]string`.
    pub name: Cow<'static, str>,
    pub form: Form,
}

/// What a value of the type looks like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Scalar(Scalar),
    List(List),
    Object(Object),
    /// An object of any content, kept as it came (`RawExtension`).
    Raw,
    /// Any JSON. Below an atomic one nobody owns parts.
    Any {
        atomic: bool,
    },
    /// An object or, in short, something else: only inside JSON schemas.
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
    /// Any number: of a schema that does not say more.
    Number,
    /// A string, a number or a bool.
    Untyped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    pub item: NodeId,
    pub listing: Listing,
    /// In protobuf the list is a message with the items in it, not a repeated field.
    pub wrapped: bool,
}

/// How a list merges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listing {
    /// As one value.
    Atomic,
    /// Item by item, where an item is its value.
    Set,
    /// Item by item, where an item is known by these fields.
    Map(Vec<Cow<'static, str>>),
}

/// A struct (fields only), a map (`rest` only), or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Object {
    /// In the order of the wire.
    pub fields: Vec<Field>,
    /// The type of what is not among the fields; none refuses it.
    pub rest: Option<NodeId>,
    /// Owned as one value.
    pub atomic: bool,
    /// Where a field stands, by its name: one more than its index in `fields`, at a place given by [`place`] or the next
    /// free ones after it; zero is free. Every key of every document is looked up here, so it is worth a table.
    pub(crate) by_name: Vec<u16>,
    /// Indices of the fields that are shown also when nobody sent them.
    pub(crate) always: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub name: Cow<'static, str>,
    pub node: NodeId,
    /// Absent and zero are different.
    pub pointer: bool,
    /// Left out when empty.
    pub omit_empty: bool,
    /// Left out when zero, structs included.
    pub omit_zero: bool,
    /// Shown also when nobody set it.
    pub(crate) shown: bool,
    /// The field's number; behind the number of the message it is embedded in, if it is. Empty: not in the message.
    pub protobuf: Box<[u32]>,
    /// None for most fields, of which custom resources bring many.
    pub(crate) special: Option<Box<Special>>,
}

/// What few fields have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Special {
    /// The embedded structs it stands in, which decoding errors name: `VolumeSource`.
    pub(crate) within: Cow<'static, str>,
    pub(crate) strategy: Strategy,
    /// What the field is when an item of a list leaves this key out.
    pub(crate) preset: Option<Value>,
}

impl Special {
    /// Kept only where it says something.
    pub(crate) fn kept(self) -> Option<Box<Special>> {
        (self != Special::default()).then(|| Box::new(self))
    }
}

impl Hash for Special {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Presets need not be told apart here: few fields have one.
        (&self.within, &self.strategy).hash(state);
    }
}

impl Field {
    /// The embedded structs it stands in, which decoding errors name: `VolumeSource`.
    #[must_use]
    pub fn within(&self) -> &str {
        self.special.as_ref().map_or("", |special| &special.within)
    }

    #[must_use]
    pub fn strategy(&self) -> &Strategy {
        static NONE: Strategy = Strategy { merge: false, replace: false, retain_keys: false, merge_key: None };
        self.special.as_ref().map_or(&NONE, |special| &special.strategy)
    }

    /// What the field is when an item of a list leaves this key out.
    #[must_use]
    pub fn preset(&self) -> Option<&Value> {
        self.special.as_ref()?.preset.as_ref()
    }
}

/// What strategic merge does with a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Strategy {
    /// Lists merge item by item.
    pub merge: bool,
    pub replace: bool,
    /// `$retainKeys` says which keys stay.
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
    /// Sorts the lookup tables out; called once all fields are there.
    pub(crate) fn index(&mut self, is_shown: impl Fn(&Field) -> bool) {
        let count = u16::try_from(self.fields.len()).expect("an object has fewer than 65535 declared fields");
        self.by_name = vec![0; (self.fields.len() * 2).next_power_of_two()];
        for at in 0..count {
            let mut slot = place(&self.fields[at as usize].name, self.by_name.len());
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

    /// Where a field stands, by its name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        // At most half of the places are taken, so a free one ends every search.
        let mut slot = place(name, self.by_name.len());
        loop {
            let at = *self.by_name.get(slot)?;
            let at = usize::from(at.checked_sub(1)?);
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

    /// The node of a field or, for any other key, of the rest.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<NodeId> {
        self.field(name).map(|f| f.node).or(self.rest)
    }
}

/// A place in a table of a power of two places, from the length of a name and three of its bytes: fields of one object differ
/// in those, mostly.
fn place(name: &str, places: usize) -> usize {
    let bytes = name.as_bytes();
    let byte = |at: usize| usize::from(bytes.get(at).copied().unwrap_or_default());
    let mixed =
        byte(0) ^ (byte(bytes.len() / 2) << 3) ^ (byte(bytes.len().saturating_sub(1)) << 5) ^ (bytes.len() << 1);
    mixed & places.wrapping_sub(1)
}

/// A node with its graph: what the rest of the program holds.
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

    /// Empty lists that are always shown stay empty lists; elsewhere they become null.
    #[must_use]
    pub fn stored_as_json(&self) -> bool {
        self.stored_as_json
    }

    /// The type of a field, or of any other key of a map.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Type> {
        let Form::Object(object) = &self.node().form else { return None };
        Some(Type { root: object.child(name)?, ..self.clone() })
    }

    /// The type of a list's items.
    #[must_use]
    pub fn item(&self) -> Option<Type> {
        let Form::List(list) = &self.node().form else { return None };
        Some(Type { root: list.item, ..self.clone() })
    }
}
