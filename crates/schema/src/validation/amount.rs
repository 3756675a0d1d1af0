//! Quantities in decoded objects: a value that is not a quantity counts as zero.

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::quantity::Quantity;

use super::Errors;
use super::rules::NOT_NEGATIVE;

/// Returns the quantity of a field.
pub(super) fn of(value: &Value) -> Quantity {
    Quantity::from_value(value).unwrap_or_default()
}

/// Formats a quantity for a message.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns whether a quantity is a positive multiple of another, both in whole units.
pub(super) fn is_multiple(value: &Quantity, size: &Quantity) -> bool {
    let (value, size) = (value.value(), size.value());
    value > 0 && size > 0 && value % size == 0
}

pub(super) fn not_negative(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    if of(value).is_negative() {
        errors.push(FieldError::invalid(path, text(value), NOT_NEGATIVE));
    }
}

pub(super) fn positive(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    let amount = of(value);
    if amount.is_negative() || amount.is_zero() {
        errors.push(FieldError::invalid(path, text(value), "must be greater than zero"));
    }
}
