//! Why a patch was refused.

use machinery::field_error::FieldError;
use machinery::{GroupResource, Status};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// It is no patch at all.
    Malformed(String),
    /// It has too many operations.
    TooLarge(String),
    /// It does not fit the object.
    Unprocessable,
    /// What it makes of the object is none of the kind.
    Invalid { value: String, detail: String },
    /// Errors that the reference answers with 500 and the bare text.
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
