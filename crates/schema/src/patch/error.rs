//! Errors of patches.

use machinery::field_error::FieldError;
use machinery::{GroupResource, Status};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// The body is not a patch.
    Malformed(String),
    /// The patch has too many operations.
    TooLarge(String),
    /// The patch does not apply to the object.
    Unprocessable,
    /// The result is not an object of the kind.
    Invalid { value: String, detail: String },
    /// The reference responds with 500 and the bare text.
    Unmapped(String),
}

impl PatchError {
    #[must_use]
    pub fn to_status(&self) -> Status {
        match self {
            PatchError::Malformed(message) => Status::bad_request(message.clone()),
            PatchError::TooLarge(message) => Status::request_entity_too_large(message),
            PatchError::Unprocessable => Status::unprocessable(),
            PatchError::Invalid { value, detail } => {
                let error = FieldError::invalid("patch", value.clone(), detail.clone());
                Status::invalid(&GroupResource::default(), "", &[error])
            }
            PatchError::Unmapped(message) => Status::unmapped(message.clone()),
        }
    }
}
