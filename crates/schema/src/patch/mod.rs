//! Patches other than apply: RFC 6902, RFC 7386 and strategic merge, with the results of the reference.
//!
//! - [`json`]: a list of operations
//! - [`merge`]: an object merged into another
//! - [`strategic`]: the same, with lists merged by keys, and directives
//!
//! Each returns the patched object in its normal form. Defaults, ownership and validation are up to the caller.

mod error;
pub mod json;
pub mod merge;
pub mod strategic;

pub use error::PatchError;

use machinery::json::Value;
use machinery::{GroupVersionKind, go_text};

use crate::custom;
use crate::decode::{self, FieldValidation};
use crate::facts::{Type, Types};

/// The type of the patched object, and the strictness.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub ty: &'a Type,
    pub gvk: &'a GroupVersionKind,
    /// Objects of a custom kind are not converted to the form of a struct.
    pub custom: bool,
    /// The schema of a custom kind.
    pub version: Option<&'a custom::Version>,
    pub validation: FieldValidation,
}

/// A patched object.
#[derive(Debug)]
pub struct Patched {
    pub value: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

impl Target<'_> {
    fn is_strict(&self) -> bool {
        self.validation != FieldValidation::Ignore
    }

    /// Decodes the result of a JSON patch or a merge patch; `complaints` are about the keys of the patch itself.
    ///
    /// `shown` returns the result as the reference prints it in messages, with changed objects sorted.
    fn decode(
        &self,
        mut value: Value,
        current: &Value,
        mut complaints: Vec<String>,
        shown: impl Fn() -> Value,
    ) -> Result<Patched, PatchError> {
        let shown = || go_text::json(&shown());
        let invalid = |detail: String| PatchError::Invalid { value: shown(), detail };
        if self.custom {
            if let Some(version) = self.version {
                let unknown = custom::decode::from_request(version, &mut value).map_err(invalid)?;
                if self.is_strict() {
                    complaints.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
                }
            }
            return self.finish(value, complaints, shown);
        }
        let found = decode::kind_of(&value, self.gvk).map_err(|error| invalid(error.message()))?;
        // An object of another version of the kind, served or not, is converted.
        let is_convertible = || found.kind == self.gvk.kind && decode::registered::is_unserved(&found);
        if found != *self.gvk && !is_convertible() {
            // The reference decodes the kind that the object states before it finds that it is another one.
            let refused = Types::get().kind(&found).and_then(|ty| decode::normalise(&ty, &mut value, None).err());
            return Err(invalid(refused.unwrap_or_else(|| decode::not_that_kind(&found, self.gvk))));
        }
        let unknown = decode::normalise(self.ty, &mut value, Some(current)).map_err(invalid)?;
        if found != *self.gvk {
            decode::registered::default_labels(&found, &mut value);
        }
        decode::name(&mut value, self.gvk);
        if self.is_strict() {
            complaints.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
        }
        self.finish(value, complaints, shown)
    }

    /// Returns complaints as warnings or as an error.
    fn finish(
        &self,
        value: Value,
        complaints: Vec<String>,
        shown: impl FnOnce() -> String,
    ) -> Result<Patched, PatchError> {
        if self.validation == FieldValidation::Strict && !complaints.is_empty() {
            let detail = format!("strict decoding error: {}", complaints.join(", "));
            return Err(PatchError::Invalid { value: shown(), detail });
        }
        Ok(Patched { value, warnings: complaints })
    }
}

/// Returns duplicate keys of a patch as complaints.
fn duplicates(patch: &[u8], has_some: bool) -> Vec<String> {
    if !has_some {
        return Vec::new();
    }
    decode::json::duplicates(patch).iter().map(|path| format!("duplicate field {path:?}")).collect()
}

#[cfg(test)]
mod tests;
