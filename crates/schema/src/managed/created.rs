//! The fields that the creator of an object owns, written as `fieldsV1` directly from the object.
//!
//! The result equals a comparison with an empty object ([`super::compare`]), without the sets of paths that other writes need
//! to move fields from one manager to another: on a create there is one manager and one text.

use machinery::json::{Map, Text, Value};
use smallvec::SmallVec;

use super::compare::{UNMANAGED, View, child_of, group, is_bare, view};
use super::element::{equal, write_field};
use crate::facts::{List, NodeId, Shapes};

/// The fields that a creator owns in one member, as recorded for another object that shares the member.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub member: &'a str,
    /// An object that has the member.
    pub of: &'a Value,
    /// The value of the member in `fieldsV1`.
    pub fields: &'a str,
}

/// Returns the `fieldsV1` of a new object; `{}` if nothing is owned. `zero` is an empty object of its type; members in `reset`
/// are not owned. `None` if it takes a comparison.
pub(super) fn fields_of_new(
    shapes: &Shapes,
    root: NodeId,
    zero: &Value,
    new: &Value,
    reset: &[&str],
    known: Option<Known<'_>>,
) -> Option<String> {
    let (Value::Object(zero), Value::Object(members)) = (zero, new) else { return None };
    let known = known.and_then(|known| Some((known.of.get(known.member)?, known.fields)));
    let mut text = Writing { shapes, known, out: String::with_capacity(2048), is_clear: true };
    let wanted = |name: &str| !matches!(name, "apiVersion" | "kind") && !reset.contains(&name);
    text.out.push('{');
    text.members(root, &view(shapes, root, new), Some(zero), members, 0, wanted, false);
    text.out.push('}');
    text.is_clear.then_some(text.out)
}

struct Writing<'a> {
    shapes: &'a Shapes,
    /// A member of the object, and its `fieldsV1`.
    known: Option<(&'a Value, &'a str)>,
    out: String,
    /// No comparison was needed so far.
    is_clear: bool,
}

impl Writing<'_> {
    /// Writes the fields below a value; returns whether it is owned or has owned fields.
    fn value(&mut self, id: NodeId, old: Option<&Value>, new: &Value, depth: usize) -> bool {
        if depth == 1
            && let Some((member, fields)) = self.known
            && new.is_same(member)
        {
            self.out.push_str(fields);
            return true;
        }
        let view = view(self.shapes, id, new);
        let Some(old) = old else { return self.added(id, &view, new, depth) };
        if matches!(view, View::Leaf) || (is_bare(Some(old)) && is_bare(Some(new))) {
            self.out.push_str("{}");
            return !equal(old, new);
        }
        self.out.push('{');
        let is_kept = match (&view, new) {
            (View::List(list), Value::Array(items)) => {
                self.is_clear &= is_bare(Some(old));
                self.items(list, items, depth, false)
            }
            (View::Object(_), Value::Object(members)) => {
                let wanted = self.wanted(id, depth);
                self.members(id, &view, old.as_object(), members, depth, wanted, false)
            }
            _ => {
                self.is_clear = false;
                false
            }
        };
        self.out.push('}');
        is_kept
    }

    /// Writes everything below a value that was absent before, and so is owned. The metadata itself is never owned.
    fn added(&mut self, id: NodeId, view: &View<'_>, new: &Value, depth: usize) -> bool {
        self.out.push('{');
        let is_owned = depth != 1 || !self.is_metadata(id);
        let has_children = match (view, new) {
            (View::List(list), Value::Array(items)) => self.items(list, items, depth, is_owned),
            (View::Object(_) | View::Free, Value::Object(members)) => {
                let wanted = self.wanted(id, depth);
                self.members(id, view, None, members, depth, wanted, is_owned)
            }
            _ => false,
        };
        self.out.push('}');
        is_owned || has_children
    }

    fn is_metadata(&self, id: NodeId) -> bool {
        &*self.shapes.node(id).name == "v1.ObjectMeta"
    }

    fn wanted(&self, id: NodeId, depth: usize) -> impl Fn(&str) -> bool + use<> {
        let in_metadata = depth == 1 && self.is_metadata(id);
        move |name| !(in_metadata && UNMANAGED.contains(&name))
    }

    /// Writes the members of an object, sorted by name. `is_owned` is that of the object itself, which is only written if there
    /// are members.
    #[expect(clippy::too_many_arguments, reason = "one position in two trees, and the members that are skipped")]
    fn members(
        &mut self,
        id: NodeId,
        view: &View<'_>,
        old: Option<&Map>,
        new: &Map,
        depth: usize,
        wanted: impl Fn(&str) -> bool,
        is_owned: bool,
    ) -> bool {
        let mut members: SmallVec<[(&Text, &Value); 24]> = new.iter().filter(|(name, _)| wanted(name)).collect();
        if !members.is_sorted_by(|a, b| a.0 <= b.0) {
            members.sort_unstable_by(|a, b| a.0.cmp(b.0));
        }
        let mut is_first = true;
        for (name, value) in members {
            let Some(child) = child_of(view, id, name) else { continue };
            let mark = self.out.len();
            self.separate(is_first, is_owned);
            write_field(name, &mut self.out);
            self.out.push(':');
            if self.value(child, old.and_then(|old| old.get(name)), value, depth + 1) {
                is_first = false;
            } else {
                self.out.truncate(mark);
            }
        }
        !is_first
    }

    fn items(&mut self, list: &List, items: &[Value], depth: usize, is_owned: bool) -> bool {
        let mut is_first = true;
        for (element, items) in group(self.shapes, list, items) {
            self.separate(is_first, is_owned);
            is_first = false;
            element.write(&mut self.out);
            self.out.push(':');
            match items.as_slice() {
                [item] => drop(self.value(list.item, None, item, depth + 1)),
                // Duplicate items are one value, owned or not.
                _ => self.out.push_str("{}"),
            }
        }
        !is_first
    }

    fn separate(&mut self, is_first: bool, is_owned: bool) {
        match (is_first, is_owned) {
            (true, true) => self.out.push_str("\".\":{},"),
            (true, false) => {}
            (false, _) => self.out.push(','),
        }
    }
}
