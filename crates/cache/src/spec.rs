//! The selectable fields of a collection, in addition to names and labels.

use machinery::peek::Paths;

/// One selectable field of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// The name in a `fieldSelector`: `spec.nodeName`.
    pub label: String,
    /// Paths to its value; the first value that is present and not empty counts.
    pub paths: Vec<Vec<String>>,
    /// The value if no path has one.
    pub absent: String,
}

/// The selectable fields of a collection, with the paths to read all of them in one pass.
#[derive(Clone, Debug)]
pub struct Spec {
    fields: Vec<FieldSpec>,
    paths: Paths,
}

/// The result of [`Spec::fields_within`].
#[derive(Default)]
pub(crate) struct Within<'a> {
    /// For each field, the index of its first path among all paths, and its index among all fields.
    pub(crate) fields: Vec<(usize, usize)>,
    /// Members of the object that have no other fields.
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

    /// Index of a field's value in [`crate::Item::fields`].
    #[must_use]
    pub fn slot(&self, label: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.label == label)
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The fields all of whose paths start at members for which `is_within` holds.
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
        // A member that another field needs is parsed anyway, and then has the values of these fields too.
        inside.members.retain(|member| !outside.contains(member));
        inside
    }

    /// Converts the values read along all paths into one value for each field.
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
