//! A number or a percentage, as in ports and `maxUnavailable`.

use std::fmt;

use crate::json::Value;

use crate::go_text::quote;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

impl IntOrString {
    /// Converts a JSON value; `None` if it is neither a number nor a string.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(IntOrString::String(text.to_string())),
            _ => i32::try_from(value.as_i64()?).ok().map(IntOrString::Int),
        }
    }

    /// Returns a number as it is; a percentage as that share of `total`, rounded up or down.
    pub fn scaled(&self, total: i64, round_up: bool) -> Result<i64, String> {
        let text = match self {
            IntOrString::Int(number) => return Ok(i64::from(*number)),
            IntOrString::String(text) => text,
        };
        let Some(digits) = text.strip_suffix('%') else {
            return Err("invalid value for IntOrString: invalid type: string is not a percentage".to_owned());
        };
        let percent: i64 = digits.parse().map_err(|_| {
            let (text, digits) = (quote(text), quote(digits));
            format!(
                "invalid value for IntOrString: invalid value {text}: strconv.Atoi: parsing {digits}: invalid syntax"
            )
        })?;
        let product = i128::from(percent) * i128::from(total);
        let share = if round_up { -(-product).div_euclid(100) } else { product.div_euclid(100) };
        Ok(i64::try_from(share).unwrap_or(if share < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(number) => number.fmt(f),
            IntOrString::String(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn percentages_round_both_ways() {
        let read = |value| IntOrString::from_value(&value).unwrap_or(IntOrString::Int(-1));
        assert_eq!(read(json!(3)).scaled(10, true), Ok(3));
        assert_eq!(read(json!("25%")).scaled(10, true), Ok(3));
        assert_eq!(read(json!("25%")).scaled(10, false), Ok(2));
        assert_eq!(read(json!("100%")).scaled(7, false), Ok(7));
        assert!(read(json!("http")).scaled(7, false).is_err());
        assert!(read(json!("x%")).scaled(7, false).is_err());
        assert_eq!(IntOrString::from_value(&json!(1.5)), None);
        assert_eq!(IntOrString::from_value(&json!(1_i64 << 40)), None);
    }
}
