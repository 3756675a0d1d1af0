//! Functions on strings.

use crate::cost::Meter;
use crate::format_string;
use crate::library::Implementation;
use crate::value::{Fault, Outcome, Text, Val};

pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "contains" => |args, _| test(args, |text, part| text.contains(part)),
        "startsWith" => |args, _| test(args, |text, part| text.starts_with(part)),
        "endsWith" => |args, _| test(args, |text, part| text.ends_with(part)),
        "lowerAscii" => |args, meter| changed(args, meter, str::to_ascii_lowercase),
        "upperAscii" => |args, meter| changed(args, meter, str::to_ascii_uppercase),
        "trim" => |args, meter| changed(args, meter, |text| text.trim().to_owned()),
        "strings.quote" => |args, meter| changed(args, meter, quote),
        "charAt" => char_at,
        "substring" => substring,
        "replace" => replace,
        "split" => split,
        "join" => join,
        "format" => |args, meter| match args {
            [Val::String(format), Val::List(list)] => format_string::format(format, list, meter).map(Val::string),
            _ => Err(Fault::overload()),
        },
        _ => return None,
    })
}

fn test<'a>(args: &[Val<'a>], holds: fn(&str, &str) -> bool) -> Outcome<Val<'a>> {
    match args {
        [Val::String(text), Val::String(part)] => Ok(Val::Bool(holds(text, part))),
        _ => Err(Fault::overload()),
    }
}

fn changed<'a>(args: &[Val<'a>], meter: &mut Meter, change: fn(&str) -> String) -> Outcome<Val<'a>> {
    match args {
        [Val::String(text)] => {
            meter.bytes(text.len())?;
            Ok(Val::string(change(text)))
        }
        _ => Err(Fault::overload()),
    }
}

fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn out_of_range(at: i64) -> Fault {
    Fault::new(format!("index out of range: {at}"))
}

/// Returns the byte offset of a character; the index after the last one is the end.
fn place(text: &str, at: i64) -> Outcome<usize> {
    let count = usize::try_from(at).map_err(|_| out_of_range(at))?;
    if text.is_ascii() {
        return if count <= text.len() { Ok(count) } else { Err(out_of_range(at)) };
    }
    let mut starts = text.char_indices().map(|(start, _)| start).chain([text.len()]);
    starts.nth(count).ok_or_else(|| out_of_range(at))
}

/// Returns a part of a text; a part of a borrowed text is borrowed.
fn part<'a>(text: &Text<'a>, from: usize, to: usize) -> Val<'a> {
    match text {
        Text::Borrowed(text) => Val::String(Text::Borrowed(&text[from..to])),
        Text::Shared(text) => Val::string(&text[from..to]),
    }
}

fn char_at<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    let [Val::String(text), Val::Int(at)] = args else {
        return Err(Fault::overload());
    };
    let start = place(text, *at)?;
    let length = text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(part(text, start, start + length))
}

fn substring<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::String(text), Val::Int(start)] => Ok(part(text, place(text, *start)?, text.len())),
        [Val::String(text), Val::Int(start), Val::Int(end)] => {
            if start > end {
                return Err(Fault::new(format!("invalid substring range. start: {start}, end: {end}")));
            }
            Ok(part(text, place(text, *start)?, place(text, *end)?))
        }
        _ => Err(Fault::overload()),
    }
}

/// Returns the character index of the first occurrence at or after `from`.
pub(crate) fn index_of(text: &str, wanted: &str, from: i64) -> Outcome<i64> {
    if wanted.is_empty() {
        return Ok(from);
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Ok(start) = place(text, from) else {
        return Ok(-1);
    };
    Ok(text[start..].find(wanted).map_or(-1, |at| text[..start + at].chars().count() as i64))
}

/// Returns the character index of the last occurrence at or before `from`.
pub(crate) fn last_index_of(text: &str, wanted: &str, from: Option<i64>) -> Outcome<i64> {
    let count = text.chars().count() as i64;
    if wanted.is_empty() {
        return Ok(from.unwrap_or(count));
    }
    let last = match from {
        None if text.len() < wanted.len() => return Ok(-1),
        None => count - 1,
        Some(from) if from < 0 => return Err(out_of_range(from)),
        Some(from) if from >= count => return Ok(-1),
        Some(from) => from,
    };
    // A match that starts at the last index may extend beyond it.
    let end = place(text, last)?.saturating_add(wanted.len());
    let mut end = end.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Ok(text[..end].rfind(wanted).map_or(-1, |at| text[..at].chars().count() as i64))
}

fn replace<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let (text, old, new, count) = match args {
        [Val::String(text), Val::String(old), Val::String(new)] => (text, old, new, usize::MAX),
        [Val::String(text), Val::String(old), Val::String(new), Val::Int(count)] => {
            (text, old, new, usize::try_from(*count).unwrap_or(usize::MAX))
        }
        _ => return Err(Fault::overload()),
    };
    // The length of the result is charged before it is built.
    let places = if old.is_empty() { text.chars().count() + 1 } else { text.matches(&**old).count() };
    let times = places.min(count);
    let grown = (times as u128) * (new.len() as u128) + text.len() as u128;
    meter.bytes(usize::try_from(grown).unwrap_or(usize::MAX))?;
    Ok(Val::string(text.replacen(&**old, new, count)))
}

fn split<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let (text, separator, count) = match args {
        [Val::String(text), Val::String(separator)] => (text, separator, -1),
        [Val::String(text), Val::String(separator), Val::Int(count)] => (text, separator, *count),
        _ => return Err(Fault::overload()),
    };
    if count == 0 {
        return Ok(Val::list(Vec::new()));
    }
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let mut ends = Vec::new();
    let mut start = 0;
    while ends.len() + 1 < most {
        let found = if separator.is_empty() {
            // An empty separator splits after each character.
            let length = text[start..].chars().next().map_or(0, char::len_utf8);
            (length > 0 && start + length < text.len()).then_some((start + length, start + length))
        } else {
            text[start..].find(&**separator).map(|at| (start + at, start + at + separator.len()))
        };
        let Some((end, next)) = found else {
            break;
        };
        meter.work(1)?;
        ends.push((start, end));
        start = next;
    }
    if !(separator.is_empty() && text.is_empty()) {
        ends.push((start, text.len()));
    }
    Ok(Val::list(ends.into_iter().map(|(from, to)| part(text, from, to)).collect()))
}

fn join<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let (list, separator) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::String(separator)] => (list, &**separator),
        _ => return Err(Fault::overload()),
    };
    let mut joined = String::new();
    for (at, element) in list.iter().enumerate() {
        meter.work(1)?;
        if at > 0 {
            joined.push_str(separator);
        }
        match element? {
            Val::String(text) => {
                meter.bytes(text.len() + separator.len())?;
                joined.push_str(&text);
            }
            other => return Err(Fault::new(format!("join: invalid input: {other}"))),
        }
    }
    Ok(Val::string(joined))
}
