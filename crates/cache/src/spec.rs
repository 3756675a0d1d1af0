//! What of a collection's objects can be selected on, beside names and labels.

use machinery::peek::Paths;

/// One selectable field of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// As `fieldSelector` names it: `spec.nodeName`.
    pub label: String,
    /// Where its value stands; the first that is there and not empty counts.
    pub paths: Vec<Vec<String>>,
    /// Its value when no path has one.
    pub absent: String,
}

/// The selectable fields of a collection, and the paths to read them by in one pass.
#[derive(Clone, Debug)]
pub struct Spec {
    fields: Vec<FieldSpec>,
    paths: Paths,
}

/// See [`Spec::fields_within`].
#[derive(Default)]
pub(crate) struct Within<'a> {
    /// Where the first path of a field is among all paths, and the field among all fields.
    pub(crate) fields: Vec<(usize, usize)>,
    /// Members that lead to these fields alone.
    pub(crate) members: Vec<&'a str>,
}

impl Default for Spec {
    fn default() -> Self {
        Spec::new(Vec::new())
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

impl Spec {
    #[must_use]
    pub fn new(fields: Vec<FieldSpec>) -> Self {
        let paths = Paths::new(fields.iter().flat_map(|field| &field.paths).map(Vec::as_slice));
        Spec { fields, paths }
    }

    /// Where a field's value stands in [`crate::Item::fields`].
    #[must_use]
    pub fn slot(&self, label: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.label == label)
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The fields whose values stand below some members of the object alone.
    pub(crate) fn fields_within(&self, is_within: impl Fn(&str) -> bool) -> Within<'_> {
        fn top(path: &[String]) -> &str {
            path.first().map_or("", String::as_str)
        }
        let is_inside = |field: &FieldSpec| field.paths.iter().all(|path| is_within(top(path)));
        let (mut inside, mut outside) = (Within::default(), Vec::new());
        let mut slot = 0;
        for (at, field) in self.fields.iter().enumerate() {
            let tops = field.paths.iter().map(|path| top(path));
            if is_inside(field) && !field.paths.is_empty() {
                inside.fields.push((slot, at));
                inside.members.extend(tops);
            } else {
                outside.extend(tops);
            }
            slot += field.paths.len();
        }
        // A member that another field needs is looked into; then its values are there too.
        inside.members.retain(|member| !outside.contains(member));
        inside
    }

    /// Turns what was read along the paths into one value a field.
    pub(crate) fn values(&self, read: Vec<Option<Box<str>>>) -> Box<[Box<str>]> {
        let mut read = read.into_iter();
        self.fields
            .iter()
            .map(|field| {
                let found: Vec<_> = read.by_ref().take(field.paths.len()).collect();
                let found = found.into_iter().flatten().find(|value| !value.is_empty());
                found.unwrap_or_else(|| field.absent.as_str().into())
            })
            .collect()
    }
}
