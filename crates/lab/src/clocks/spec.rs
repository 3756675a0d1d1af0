//! What a write of the clock asks for.

use std::time::Duration;

use clock::{Mode, WorldClock};
use jiff::Timestamp;
use machinery::json::Value;
use machinery::{FieldError, GroupResource, Status};

use super::NAME;
use crate::durations::parse_duration;
use crate::kinds::GROUP;

/// The longest move at once: the moments on the way are gone through one by one.
const ADVANCE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a write asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Wanted {
    /// How the clock runs from now on, and the time that it shows.
    pub(super) set: Option<(Mode, Option<Timestamp>)>,
    pub(super) advance: Move,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Move {
    None,
    By(Duration),
    ToNext,
}

/// Reads what a write asks for, and takes out of the object what is not kept. None if nothing changes.
pub(super) fn take(old: &Value, new: &mut Value, clock: &WorldClock) -> Result<Option<Wanted>, Status> {
    let mut errors = Vec::new();
    let spec = &mut new["spec"];
    let (advance, to_next) = match spec.as_object_mut() {
        Some(members) => (members.remove("advance"), members.remove("advanceToNext")),
        None => (None, None),
    };
    let spec = &new["spec"];
    let mode = mode(spec, &mut errors);
    let now = spec["now"].as_str().filter(|now| old["spec"]["now"].as_str() != Some(now));
    let now = now.and_then(|now| now.parse::<Timestamp>().ok());
    let shown = clock.now();
    if let Some(now) = now.filter(|now| *now < shown) {
        let why =
            format!("the clock shows {shown} and is never set back; rewind a checkpoint to see old objects again");
        errors.push(FieldError::invalid("spec.now", Value::from(now.to_string()), why));
    }
    if mode == Mode::Real && now.is_some() {
        errors.push(FieldError::forbidden("spec.now", "a Real clock shows the machine's time; use Stopped or Scaled"));
    }
    if mode == Mode::Real && clock.mode() != Mode::Real && shown > machinery::Clock::system().now() {
        let why = format!("the clock shows {shown}, which the machine's clock has not reached; it is never set back");
        errors.push(FieldError::forbidden("spec.mode", why));
    }
    let wanted = movement(advance.as_ref(), to_next.as_ref(), mode, &mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid(&GroupResource::new(GROUP, "Clock"), NAME, &errors));
    }
    let set = (mode != clock.mode() || now.is_some()).then_some((mode, now));
    let changes = set.is_some() || wanted != Move::None;
    Ok(changes.then_some(Wanted { set, advance: wanted }))
}

fn mode(spec: &Value, errors: &mut Vec<FieldError>) -> Mode {
    let rate = spec["rate"].as_f64();
    match spec["mode"].as_str() {
        Some("Scaled") => match rate {
            Some(rate) => Mode::Scaled(rate),
            None => {
                errors.push(FieldError::required("spec.rate", "the rate of a Scaled clock"));
                Mode::Real
            }
        },
        Some("Stopped") => Mode::Stopped,
        _ => Mode::Real,
    }
}

fn movement(advance: Option<&Value>, to_next: Option<&Value>, mode: Mode, errors: &mut Vec<FieldError>) -> Move {
    let by = advance.and_then(Value::as_str);
    let to_next = to_next.and_then(Value::as_bool) == Some(true);
    let (field, wanted) = match (by, to_next) {
        (None, false) => return Move::None,
        (Some(_), true) => {
            errors.push(FieldError::forbidden("spec.advanceToNext", "may not be given beside advance"));
            return Move::None;
        }
        (None, true) => ("spec.advanceToNext", Move::ToNext),
        (Some(text), false) => match parse_duration(text).filter(|by| *by <= ADVANCE_MAX) {
            Some(by) => ("spec.advance", Move::By(by)),
            None => {
                let why = "must be a duration such as 10m, of at most 8784h";
                errors.push(FieldError::invalid("spec.advance", Value::from(text), why));
                return Move::None;
            }
        },
    };
    if mode != Mode::Stopped {
        errors.push(FieldError::forbidden(field, "only a Stopped clock is advanced; set mode to Stopped"));
    }
    wanted
}
