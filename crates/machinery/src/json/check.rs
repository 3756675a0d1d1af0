//! Checks that JSON text which is kept unparsed can be parsed later.
//!
//! `serde_json` checks the grammar of a `RawValue`, but not whether its numbers are within range, its nesting within the
//! parser's limit and its `\u` escapes whole characters. Each of these would fail the parse when a part is first used, where
//! there is no way to return an error. So they are checked when the text is accepted: if the whole parses, every part does.
//!
//! Parsing the text for this would cost what is saved by keeping it. Nearly all texts are cleared by one pass over their
//! bytes that has no branches, so the compiler vectorises it: 0.1 µs per KB, where accepting the text takes 1.1 µs per KB. Only
//! texts with a suspicious number, or with enough brackets to be nested too deep, are inspected closely.

use serde::de::Error as _;

use super::{Number, Value};
use crate::scan::string_end;

/// Nesting up to which `serde_json` parses.
const DEPTH_MAX: usize = 127;

/// Distance of the bytes that are inspected for a number that is out of range by its digits alone, which has more than 308.
const LONG_NUMBER_STRIDE: usize = 256;

/// Digits that must follow such a byte. With the stride, fewer than 308.
const LONG_NUMBER_DIGITS: usize = 32;

/// Bytes of one step of the first pass; few enough that a count of them fits into a byte.
const STEP: usize = 64;

/// Checks text whose grammar was checked already.
pub(super) fn check_parses(json: &str) -> Result<(), serde_json::Error> {
    let bytes = json.as_bytes();
    let (is_suspicious, brackets) = first_pass(bytes);
    if is_suspicious || has_long_number(bytes) || memchr::memmem::find(bytes, b"\\u").is_some() {
        return serde_json::from_str::<Value>(json).map(drop);
    }
    if brackets >= DEPTH_MAX && is_too_deep(bytes) {
        return Err(serde_json::Error::custom("recursion limit exceeded"));
    }
    Ok(())
}

/// Returns whether some number has an exponent and may be out of range, and the number of brackets that open a list or map
/// that is not empty. Strings are not excluded, so both may be too much.
fn first_pass(json: &[u8]) -> (bool, usize) {
    let (mut is_suspicious, mut brackets) = (false, 0);
    let following = json.get(1..).unwrap_or_default();
    for (step, (bytes, following)) in json.chunks(STEP).zip(following.chunks(STEP)).enumerate() {
        let (mut exponents, mut opening) = (0_u8, 0_u8);
        for (byte, next) in bytes.iter().zip(following) {
            exponents |= u8::from(byte.is_ascii_digit()) & u8::from(next | 0x20 == b'e');
            // `[` and `{` differ in one bit, `]` and `}` in the same.
            opening += u8::from(byte | 0x20 == b'{') & u8::from(next | 0x20 != b'}');
        }
        brackets += usize::from(opening);
        is_suspicious |= exponents != 0 && has_number_out_of_range(json, step * STEP);
    }
    (is_suspicious, brackets)
}

/// Returns whether one of the exponents that begin in a step belongs to what may be a number that does not parse.
#[cold]
fn has_number_out_of_range(json: &[u8], step_from: usize) -> bool {
    let is_digit = |at: &usize| json[*at].is_ascii_digit();
    let is_exponent = |at: &usize| matches!(json.get(at + 1), Some(b'e' | b'E'));
    let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let digits = (step_from..json.len().min(step_from + STEP)).filter(is_digit).filter(is_exponent);
    digits
        .map(|at| {
            let from = at - json[..at].iter().rev().take_while(is_part).count();
            let to = at + json[at..].iter().take_while(is_part).count();
            (from, to)
        })
        // Longer words, such as hexadecimal digests, are parts of strings.
        .filter(|(from, to)| {
            let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'"');
            !is_word(from.checked_sub(1).and_then(|before| json.get(before))) && !is_word(json.get(*to))
        })
        .any(|(from, to)| serde_json::from_slice::<Number>(&json[from..to]).is_err())
}

fn has_long_number(json: &[u8]) -> bool {
    let samples = json.chunks(LONG_NUMBER_STRIDE).filter_map(|chunk| chunk.get(..LONG_NUMBER_DIGITS));
    samples.into_iter().any(|sample| sample.iter().all(u8::is_ascii_digit))
}

fn is_too_deep(json: &[u8]) -> bool {
    let (mut at, mut depth) = (0, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' if depth == DEPTH_MAX => return true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => match string_end(json, at) {
                Ok(end) => at = end,
                Err(_) => return false,
            },
            _ => {}
        }
    }
    false
}
