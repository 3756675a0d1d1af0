//! Choice of the YAML style in which a string can be written without changing its meaning.

use super::scalar;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// Returns the style that the reference chooses. A key stays on one line.
pub(super) fn choose(text: &str, is_key: bool) -> Style {
    let can = Possible::new(text);
    let wanted = if text.contains('\n') {
        Style::Literal
    } else if scalar::is_plain_text(text) {
        Style::Plain
    } else {
        Style::DoubleQuoted
    };
    match wanted {
        _ if is_key && can.multiline => Style::DoubleQuoted,
        Style::Plain if can.plain => Style::Plain,
        Style::Plain if can.single_quoted => Style::SingleQuoted,
        Style::Literal if can.literal && !is_key => Style::Literal,
        _ => Style::DoubleQuoted,
    }
}

struct Possible {
    multiline: bool,
    plain: bool,
    single_quoted: bool,
    literal: bool,
}

impl Possible {
    fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let (Some(first), Some(last)) = (chars.first(), chars.last()) else {
            return Possible { multiline: false, plain: true, single_quoted: true, literal: false };
        };
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut breaks, mut special, mut break_space, mut space_break) = (false, false, false, false);
        for (i, &c) in chars.iter().enumerate() {
            let before = i.checked_sub(1).map(|i| chars[i]);
            let blank_follows = chars.get(i + 1).is_none_or(|c| is_blank(*c) || is_break(*c));
            indicators |= match c {
                '#' => before.is_none_or(|c| is_blank(c) || is_break(c)),
                ':' => blank_follows,
                '?' | '-' => i == 0 && blank_follows,
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => i == 0,
                _ => false,
            };
            special |= !is_printable(c);
            breaks |= is_break(c);
            break_space |= c == ' ' && before.is_some_and(is_break);
            space_break |= is_break(c) && before == Some(' ');
        }
        let framed = |c: char| c == ' ' || is_break(c);
        let unwritable = space_break || special;
        Possible {
            multiline: breaks,
            plain: !(framed(*first) || framed(*last) || break_space || unwritable || breaks || indicators),
            single_quoted: !(break_space || unwritable),
            literal: !(*last == ' ' || unwritable),
        }
    }
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// Returns whether a character needs no escape. The reference escapes everything beyond the basic plane.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}
