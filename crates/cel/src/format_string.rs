//! `'%s is %d'.format([…])`

use std::fmt::Write;

use machinery::go_text::quote;

use crate::cost::Meter;
use crate::value::{Fault, List, Map, Outcome, Val};

/// A clause (`%…`) of a format string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

impl Clause {
    /// Returns the error text for an unsuitable argument, to be followed by the name of its type.
    pub(crate) const fn type_error(self) -> &'static str {
        match self {
            Clause::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                 and timestamps, was given "
            }
            Clause::Decimal => "decimal clause can only be used on integers, was given ",
            Clause::Fixed(_) => "fixed-point clause can only be used on doubles, was given ",
            Clause::Scientific => "scientific clause can only be used on doubles, was given ",
            Clause::Binary => "only integers and bools can be formatted as binary, was given ",
            Clause::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex, was given ",
            Clause::Octal => "octal clause can only be used on integers, was given ",
        }
    }
}

/// A part of a format string: literal text or a clause.
pub(crate) enum Piece<'f> {
    Text(&'f str),
    Clause(Clause),
}

const PRECISION: usize = 6;
/// Largest precision accepted.
const PRECISION_MAX: usize = 1_000;

/// Splits a format string; `args` is the number of arguments.
pub(crate) fn pieces(format: &str, args: u64) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = format;
    let mut used = 0;
    while let Some(at) = rest.find('%') {
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            pieces.push(Piece::Text("%"));
            rest = after;
            continue;
        }
        if used >= args && !rest.is_empty() {
            return Err(format!("index {used} out of range"));
        }
        let (clause, after) = clause(rest)?;
        pieces.push(Piece::Clause(clause));
        used += 1;
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

fn clause(text: &str) -> Result<(Clause, &str), String> {
    const PARSE: &str = "could not parse formatting clause: ";
    let mut precision = PRECISION;
    let mut rest = text;
    if let Some(after) = text.strip_prefix('.') {
        let end = after.find(|c: char| !c.is_ascii_digit());
        let end = end.ok_or_else(|| {
            format!("{PARSE}error while parsing precision: could not find end of precision specifier")
        })?;
        precision = after[..end].parse().ok().filter(|precision| *precision <= PRECISION_MAX).ok_or_else(|| {
            format!(
                "{PARSE}error while parsing precision: error while converting precision to integer: strconv.Atoi: \
                 parsing {}: invalid syntax",
                quote(&after[..end])
            )
        })?;
        rest = &after[end..];
    }
    let c = rest.chars().next().ok_or_else(|| "unexpected end of string".to_owned())?;
    let clause = match c {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision),
        'e' => Clause::Scientific,
        'b' => Clause::Binary,
        'x' => Clause::Hex { upper: false },
        'X' => Clause::Hex { upper: true },
        'o' => Clause::Octal,
        c => return Err(format!("{PARSE}unrecognized formatting clause \"{c}\"")),
    };
    Ok((clause, &rest[c.len_utf8()..]))
}

/// Formats the arguments.
pub(crate) fn format<'a>(format: &str, args: &List<'a>, meter: &mut Meter) -> Outcome<String> {
    let pieces = pieces(format, args.len()).map_err(Fault::new)?;
    let mut out = String::new();
    let mut next = 0;
    for piece in pieces {
        let start = out.len();
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Clause(clause) => {
                let value = args.get(next)?;
                next += 1;
                write_clause(&mut out, clause, &value, meter)?;
            }
        }
        meter.bytes(out.len() - start)?;
    }
    Ok(out)
}

fn write_clause(out: &mut String, clause: Clause, value: &Val<'_>, meter: &mut Meter) -> Outcome<()> {
    let refused = || Fault::new(format!("error during formatting: {}{}", clause.type_error(), value.type_name()));
    let special = |text: &str| match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    };
    let double = || match value {
        Val::Double(value) => Some(*value),
        Val::String(text) => special(text),
        _ => None,
    };
    let done = match (clause, value) {
        (Clause::String, value) => return show(out, value, false, meter).map_err(|fault| worded(fault, &refused)),
        (Clause::Decimal, Val::Int(value)) => write!(out, "{value}"),
        (Clause::Decimal, Val::Uint(value)) => write!(out, "{value}"),
        (Clause::Fixed(precision), _) => {
            out.push_str(&grouped(double().ok_or_else(refused)?, precision));
            Ok(())
        }
        (Clause::Scientific, _) => {
            out.push_str(&scientific(double().ok_or_else(refused)?));
            Ok(())
        }
        (Clause::Binary, Val::Int(value)) => signed(out, *value, |value| format!("{value:b}")),
        (Clause::Binary, Val::Uint(value)) => write!(out, "{value:b}"),
        (Clause::Binary, Val::Bool(value)) => write!(out, "{}", u8::from(*value)),
        (Clause::Octal, Val::Int(value)) => signed(out, *value, |value| format!("{value:o}")),
        (Clause::Octal, Val::Uint(value)) => write!(out, "{value:o}"),
        (Clause::Hex { upper: false }, Val::Int(value)) => signed(out, *value, |value| format!("{value:x}")),
        (Clause::Hex { upper: true }, Val::Int(value)) => signed(out, *value, |value| format!("{value:X}")),
        (Clause::Hex { upper: false }, Val::Uint(value)) => write!(out, "{value:x}"),
        (Clause::Hex { upper: true }, Val::Uint(value)) => write!(out, "{value:X}"),
        (Clause::Hex { upper }, Val::String(text)) => hex(out, text.as_bytes(), upper, meter),
        (Clause::Hex { upper }, Val::Bytes(bytes)) => hex(out, bytes, upper, meter),
        _ => return Err(refused()),
    };
    done.map_err(|_| Fault::Limit)
}

/// Keeps the error of a nested value, which names its own type.
fn worded(fault: Fault, refused: &dyn Fn() -> Fault) -> Fault {
    match fault {
        Fault::Error(name) if name.starts_with("no formatting function") => {
            Fault::new(format!("error during formatting: {name}"))
        }
        Fault::Error(_) => refused(),
        Fault::Limit => Fault::Limit,
    }
}

fn signed(out: &mut String, value: i64, show: impl Fn(u64) -> String) -> std::fmt::Result {
    if value < 0 {
        out.push('-');
    }
    out.push_str(&show(value.unsigned_abs()));
    Ok(())
}

fn hex(out: &mut String, bytes: &[u8], upper: bool, meter: &mut Meter) -> std::fmt::Result {
    meter.bytes(bytes.len()).map_err(|_| std::fmt::Error)?;
    for byte in bytes {
        if upper {
            write!(out, "{byte:02X}")?;
        } else {
            write!(out, "{byte:02x}")?;
        }
    }
    Ok(())
}

/// Appends a value as `%s` formats it; strings inside a list or a map are quoted.
fn show(out: &mut String, value: &Val<'_>, inside: bool, meter: &mut Meter) -> Outcome<()> {
    let start = out.len();
    match value {
        Val::Null => out.push_str("null"),
        Val::String(text) if inside => out.push_str(&quote(text)),
        Val::Double(value) if inside => out.push_str(&format!("{value:.6}")),
        Val::Timestamp(time) if inside => out.push_str(&format!("timestamp({})", quote(&time.to_text()))),
        Val::Duration(span) if inside => out.push_str(&format!("duration({})", quote(&span.to_text()))),
        Val::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| Fault::from_static("invalid UTF-8 in bytes, cannot convert to string"))?;
            out.push_str(&if inside { format!("b{}", quote(text)) } else { text.to_owned() });
        }
        Val::List(list) => {
            out.push('[');
            for (at, element) in list.iter().enumerate() {
                meter.work(1)?;
                if at > 0 {
                    out.push_str(", ");
                }
                show(out, &element?, true, meter)?;
            }
            out.push(']');
        }
        Val::Map(map) => return show_map(out, map, meter),
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::String(_) | Val::Type(_) => {
            let _ = write!(out, "{value}");
        }
        Val::Timestamp(time) => out.push_str(&time.to_text()),
        Val::Duration(span) => out.push_str(&span.to_text()),
        other if inside => return Err(Fault::new(format!("no formatting function for {}", other.type_name()))),
        _ => return Err(Fault::overload()),
    }
    meter.bytes(out.len() - start)
}

fn show_map(out: &mut String, map: &Map<'_>, meter: &mut Meter) -> Outcome<()> {
    let mut entries = Vec::new();
    for key in map.keys() {
        meter.work(1)?;
        let mut name = String::new();
        show(&mut name, &key, true, meter)?;
        let value = map.get(&key)?.ok_or_else(|| Fault::new(format!("could not find key: {name}")))?;
        let mut text = String::new();
        show(&mut text, &value, true, meter)?;
        entries.push((name, text));
    }
    entries.sort();
    out.push('{');
    for (at, (name, text)) in entries.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        out.push_str(name);
        out.push(':');
        out.push_str(text);
    }
    out.push('}');
    Ok(())
}

/// `1,234.50`, as in the locale `en_US`.
fn grouped(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    let text = format!("{:.precision$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((&*text, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = String::new();
    if value.is_sign_negative() {
        out.push('-');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// `1.052033×10⁰³`
fn scientific(value: f64) -> String {
    if !value.is_finite() {
        return grouped(value, PRECISION);
    }
    let text = format!("{value:.6e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let mut out = format!("{digits}×10");
    if power < 0 {
        out.push('⁻');
    }
    for digit in format!("{:02}", power.unsigned_abs()).chars() {
        out.push(match digit {
            '0' => '⁰',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            _ => '⁹',
        });
    }
    out
}
