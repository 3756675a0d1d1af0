//! Options of create, update and patch (spec 02 §5.1, §7).

use crate::json::Value;

use crate::field_error::FieldError;
use crate::query::Query;
use crate::{Status, go_text};

pub(super) const DRY_RUN_ALL: &str = "All";
const FIELD_MANAGER_MAX: usize = 128;

/// The treatment of fields that a kind does not have or that are given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// The request names none: as `Warn`.
    #[default]
    Unstated,
    Ignore,
    Warn,
    Strict,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    pub dry_run: bool,
    /// Empty if not given; then the User-Agent names the manager.
    pub field_manager: String,
    pub field_validation: FieldValidation,
}

/// Update has the options of create; only the messages differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// Apply only: takes over fields of other managers.
    pub force: bool,
}

impl CreateOptions {
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let (options, errors) = Shared::read(query);
        let Shared { dry_run, field_manager, field_validation } = checked("CreateOptions", options, &errors)?;
        Ok(CreateOptions { dry_run, field_manager, field_validation })
    }
}

impl UpdateOptions {
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let (options, errors) = Shared::read(query);
        let Shared { dry_run, field_manager, field_validation } = checked("UpdateOptions", options, &errors)?;
        Ok(UpdateOptions { dry_run, field_manager, field_validation })
    }
}

impl PatchOptions {
    pub fn from_query(query: &Query, is_apply: bool) -> Result<Self, Status> {
        let (options, shared_errors) = Shared::read(query);
        let force = query.truth("force");
        let mut errors = Vec::new();
        if is_apply && options.field_manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if !is_apply && force.is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        errors.extend(shared_errors);
        let Shared { dry_run, field_manager, field_validation } = checked("PatchOptions", options, &errors)?;
        Ok(PatchOptions { dry_run, field_manager, field_validation, force: force.unwrap_or_default() })
    }
}

fn checked(kind: &str, options: Shared, errors: &[FieldError]) -> Result<Shared, Status> {
    if errors.is_empty() { Ok(options) } else { Err(Status::options_invalid(kind, errors)) }
}

struct Shared {
    dry_run: bool,
    field_manager: String,
    field_validation: FieldValidation,
}

impl Shared {
    fn read(query: &Query) -> (Self, Vec<FieldError>) {
        let field_manager = query.get("fieldManager").unwrap_or_default().to_owned();
        let mut errors = validate_field_manager(&field_manager, "fieldManager");
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        errors.extend(dry_run_error(&dry_run));
        let field_validation = match query.get("fieldValidation").unwrap_or_default() {
            "Ignore" => FieldValidation::Ignore,
            "" => FieldValidation::Unstated,
            "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", other, supported));
                FieldValidation::Warn
            }
        };
        (Shared { dry_run: !dry_run.is_empty(), field_manager, field_validation }, errors)
    }
}

pub(super) fn dry_run_error(values: &[&str]) -> Option<FieldError> {
    let wrong = values.iter().any(|value| *value != DRY_RUN_ALL);
    wrong.then(|| FieldError::not_supported("dryRun", Value::from(values.to_vec()), [DRY_RUN_ALL]))
}

/// Validates the name of a field manager: its length, and that every character is printable.
#[must_use]
pub fn validate_field_manager(manager: &str, field: &(impl std::fmt::Display + ?Sized)) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(field.to_string(), FIELD_MANAGER_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !go_text::is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid(field.to_string(), manager, detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(query: &str) -> Result<CreateOptions, String> {
        CreateOptions::from_query(&Query::parse(query)).map_err(|status| status.message)
    }

    fn patch(query: &str, is_apply: bool) -> Result<PatchOptions, String> {
        PatchOptions::from_query(&Query::parse(query), is_apply).map_err(|status| status.message)
    }

    #[test]
    fn dry_run_takes_only_all() {
        assert_eq!(create("dryRun=All").map(|options| options.dry_run), Ok(true));
        assert_eq!(create("").map(|options| options.dry_run), Ok(false));
        assert_eq!(
            create("dryRun=x"),
            Err("CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"".to_owned())
        );
        assert_eq!(
            create("dryRun="),
            Err("CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\"".to_owned())
        );
    }

    #[test]
    fn field_validation_values() {
        assert_eq!(create("fieldValidation=Strict").map(|o| o.field_validation), Ok(FieldValidation::Strict));
        assert_eq!(create("").map(|o| o.field_validation), Ok(FieldValidation::Unstated));
        assert_eq!(
            create("fieldValidation=strict"),
            Err("CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"".to_owned())
        );
    }

    #[test]
    fn field_manager_is_short_and_printable() {
        assert_eq!(
            create(&format!("fieldManager={}", "m".repeat(129))),
            Err("CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes"
                .to_owned())
        );
        assert_eq!(
            create("fieldManager=a%0Ab"),
            Err("CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)".to_owned())
        );
    }

    #[test]
    fn apply_needs_a_manager_and_only_apply_may_force() {
        assert_eq!(
            patch("", true),
            Err("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
                .to_owned())
        );
        assert_eq!(
            patch("force=true", false),
            Err("PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
                .to_owned())
        );
        assert_eq!(patch("fieldManager=me&force=1", true).map(|options| options.force), Ok(true));
    }
}
