//! Programs about text: `echo`, `printf`, `cat`, `grep` and the like.

use super::commands::{Call, Ran};
use super::output::OUTPUT_BYTES_MAX;

/// Characters of a set of `tr`, and bytes of a pattern of `grep`.
const PATTERN_MAX: usize = 256;
/// Choices of a pattern of `grep`.
const CHOICES_MAX: usize = 16;
/// Flags of one `%` of `printf`.
const FLAGS_MAX: usize = 32;

/// Runs a program; none if there is no such one.
pub(super) fn run(name: &str, call: &Call<'_>) -> Option<Ran> {
    Some(match name {
        "echo" => echo(call.words),
        "printf" => printf(call.words),
        "cat" => cat(call),
        "tail" | "head" => ends(name, call),
        "wc" => count(call),
        "grep" => grep(call),
        "sort" | "uniq" | "rev" => lines(name, call),
        "tee" => tee(call),
        "tr" => translate(call),
        "cut" => cut(call),
        "seq" => sequence(call),
        "basename" => {
            let path = call.operands().next().unwrap_or_default().trim_end_matches('/');
            Ran::wrote(format!("{}\n", path.rsplit('/').next().unwrap_or_default()))
        }
        "dirname" => {
            let path = call.operands().next().unwrap_or_default();
            let directory = path.trim_end_matches('/').rsplit_once('/').map_or(".", |(directory, _)| directory);
            Ran::wrote(format!("{}\n", if directory.is_empty() { "/" } else { directory }))
        }
        _ => return None,
    })
}

fn echo(words: &[String]) -> Ran {
    let (mut newline, mut escapes, mut at) = (true, false, 0);
    while let Some(word) = words.get(at).filter(|word| word.len() > 1 && word.starts_with('-')) {
        if !word[1..].chars().all(|c| matches!(c, 'n' | 'e' | 'E')) {
            break;
        }
        newline &= !word.contains('n');
        escapes = word.contains('e') || escapes && !word.contains('E');
        at += 1;
    }
    let text = words[at..].join(" ");
    let mut text = if escapes { unescape(&text) } else { text };
    if newline {
        text.push('\n');
    }
    Ran::wrote(text)
}

/// `\n`, `\t`, `\\`, `\0NNN`
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match letters.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('a') => out.push('\u{7}'),
            Some('\\') => out.push('\\'),
            Some('0') => {
                let mut value = 0;
                for _ in 0..3 {
                    let Some(digit) = letters.peek().and_then(|c| c.to_digit(8)) else { break };
                    value = value * 8 + digit;
                    letters.next();
                }
                out.extend(char::from_u32(value));
            }
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

/// The format is used again while words are left, as the standard says.
fn printf(words: &[String]) -> Ran {
    let Some((format, words)) = words.split_first() else {
        let mut ran = Ran::default();
        ran.complain("printf: missing format");
        return ran;
    };
    let format = unescape(format);
    let (mut out, mut words) = (String::new(), words.iter());
    loop {
        let before = words.len();
        let mut letters = format.chars().peekable();
        while let Some(c) = letters.next() {
            if out.len() >= OUTPUT_BYTES_MAX {
                return Ran::wrote(out);
            }
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut flags = String::new();
            while let Some(c) = letters.peek().copied().filter(|c| c.is_ascii_digit() || matches!(c, '-' | '.' | '+')) {
                if flags.len() >= FLAGS_MAX {
                    return Ran::wrote(out);
                }
                flags.push(c);
                letters.next();
            }
            let mut word = || words.next().cloned().unwrap_or_default();
            let text = match letters.next() {
                Some('s') => word(),
                Some('b') => unescape(&word()),
                Some('d' | 'i' | 'u') => word().trim().parse::<i64>().unwrap_or_default().to_string(),
                Some('x') => format!("{:x}", word().trim().parse::<i64>().unwrap_or_default()),
                Some('c') => word().chars().take(1).collect(),
                Some('%') => "%".to_owned(),
                Some(other) => format!("%{other}"),
                None => "%".to_owned(),
            };
            out.push_str(&padded(&text, &flags));
        }
        if words.len() == 0 || words.len() == before {
            return Ran::wrote(out);
        }
    }
}

/// Widths up to this are padded.
const WIDTH_MAX: usize = 1024;

fn padded(text: &str, flags: &str) -> String {
    let width: usize =
        flags.trim_start_matches(['-', '+', '0']).split('.').next().unwrap_or_default().parse().unwrap_or(0);
    let missing = width.min(WIDTH_MAX).saturating_sub(text.chars().count());
    if flags.starts_with('-') {
        format!("{text}{}", " ".repeat(missing))
    } else if flags.starts_with('0') {
        format!("{}{text}", "0".repeat(missing))
    } else {
        format!("{}{text}", " ".repeat(missing))
    }
}

/// The bytes of all operands, or of the input.
fn all_input(name: &str, call: &Call<'_>, operands: &[&str]) -> (Vec<u8>, Ran) {
    let mut ran = Ran::default();
    if operands.is_empty() {
        return (call.input.to_vec(), ran);
    }
    let mut bytes = Vec::new();
    for operand in operands {
        if bytes.len() >= OUTPUT_BYTES_MAX || ran.errors.len() >= OUTPUT_BYTES_MAX {
            break;
        }
        match call.read(operand) {
            Ok(more) => bytes.extend(more.into_iter().take(OUTPUT_BYTES_MAX.saturating_sub(bytes.len()))),
            Err(why) => ran.complain(&format!("{name}: can't open '{operand}': {why}")),
        }
    }
    (bytes, ran)
}

fn cat(call: &Call<'_>) -> Ran {
    let operands: Vec<&str> = call.operands().collect();
    let (bytes, ran) = all_input("cat", call, &operands);
    Ran { output: bytes, ..ran }
}

fn ends(name: &str, call: &Call<'_>) -> Ran {
    let mut wanted = 10;
    let mut operands = Vec::new();
    let mut words = call.words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("-n").or_else(|| word.strip_prefix("-c")) {
            Some("") => wanted = words.next().and_then(|word| word.trim_start_matches('+').parse().ok()).unwrap_or(10),
            Some(number) => wanted = number.parse().unwrap_or(10),
            None => match word.strip_prefix('-') {
                Some(number) if number.parse::<usize>().is_ok() => wanted = number.parse().unwrap_or(10),
                Some(_) if word != "-" => {}
                _ => operands.push(word.as_str()),
            },
        }
    }
    let (bytes, ran) = all_input(name, call, &operands);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let wanted: usize = wanted;
    let chosen =
        if name == "head" { &lines[..wanted.min(lines.len())] } else { &lines[lines.len().saturating_sub(wanted)..] };
    let follows = name == "tail" && call.words.iter().any(|word| matches!(word.as_str(), "-f" | "-F"));
    Ran { output: chosen.concat(), runs_for: follows.then_some(None), ..ran }
}

fn count(call: &Call<'_>) -> Ran {
    let operands: Vec<&str> = call.operands().collect();
    let (bytes, ran) = all_input("wc", call, &operands);
    let text = String::from_utf8_lossy(&bytes);
    let (lines, words) = (text.matches('\n').count(), text.split_whitespace().count());
    let output = if call.has("l") {
        format!("{lines}\n")
    } else if call.has("w") {
        format!("{words}\n")
    } else if call.has("c") {
        format!("{}\n", bytes.len())
    } else {
        format!("{lines} {words} {}\n", bytes.len())
    };
    Ran { output: output.into_bytes(), ..ran }
}

/// Plain texts, `^`, `$`, and `(a|b)` or `a\|b`; no other patterns.
fn grep(call: &Call<'_>) -> Ran {
    let mut operands = call.operands();
    let pattern = operands.next().unwrap_or_default().replace("\\|", "|");
    let files: Vec<&str> = operands.collect();
    if pattern.len() > PATTERN_MAX || pattern.split('|').count() > CHOICES_MAX {
        let mut ran = Ran::default();
        ran.complain("grep: the pattern is too long");
        ran.status = 2;
        return ran;
    }
    let (bytes, mut ran) = all_input("grep", call, &files);
    let choices: Vec<&str> = pattern.trim_start_matches('(').trim_end_matches(')').split('|').collect();
    let matches = |line: &str, choice: &str| {
        let (start, end) = (choice.starts_with('^'), choice.ends_with('$'));
        let text = choice.trim_start_matches('^').trim_end_matches('$');
        match (start, end) {
            (true, true) => line == text,
            (true, false) => line.starts_with(text),
            (false, true) => line.ends_with(text),
            (false, false) => line.contains(text),
        }
    };
    let text = String::from_utf8_lossy(&bytes);
    let found: Vec<&str> = text
        .lines()
        .filter(|line| {
            let line = if call.has("i") { line.to_lowercase() } else { (*line).to_owned() };
            choices.iter().any(|choice| {
                let choice = if call.has("i") { choice.to_lowercase() } else { (*choice).to_owned() };
                matches(&line, &choice)
            }) != call.has("v")
        })
        .collect();
    if ran.status == 0 {
        ran.status = i32::from(found.is_empty());
    }
    if call.has("c") {
        ran.output = format!("{}\n", found.len()).into_bytes();
    } else if !call.has("q") {
        ran.output = found.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
    }
    ran
}

fn lines(name: &str, call: &Call<'_>) -> Ran {
    let operands: Vec<&str> = call.operands().collect();
    let (bytes, ran) = all_input(name, call, &operands);
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    match name {
        "sort" => {
            if call.has("n") {
                lines.sort_by_key(|line| line.trim().parse::<i64>().unwrap_or_default());
            } else {
                lines.sort();
            }
            if call.has("r") {
                lines.reverse();
            }
            if call.has("u") {
                lines.dedup();
            }
        }
        "uniq" => lines.dedup(),
        _ => lines.iter_mut().for_each(|line| *line = line.chars().rev().collect()),
    }
    Ran { output: lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes(), ..ran }
}

fn tee(call: &Call<'_>) -> Ran {
    let mut ran = Ran::wrote(call.input);
    for operand in call.operands() {
        if let Err(why) = call.files.write(&call.path(operand), call.input, call.has("a")) {
            ran.complain(&format!("tee: {operand}: {why}"));
        }
    }
    ran
}

/// Single characters, `a-z` ranges, and `-d`.
fn translate(call: &Call<'_>) -> Ran {
    let set = |text: &str| -> Vec<char> {
        let letters: Vec<char> = unescape(text).chars().take(PATTERN_MAX).collect();
        let mut all = Vec::new();
        let mut at = 0;
        while at < letters.len() {
            if letters.get(at + 1) == Some(&'-') && at + 2 < letters.len() {
                all.extend((letters[at]..=letters[at + 2]).take(256));
                at += 3;
            } else {
                all.push(letters[at]);
                at += 1;
            }
        }
        all.truncate(PATTERN_MAX);
        all
    };
    let mut operands = call.operands();
    let (from, to) = (set(operands.next().unwrap_or_default()), set(operands.next().unwrap_or_default()));
    let text = String::from_utf8_lossy(call.input);
    let changed: String = text
        .chars()
        .filter_map(|c| match from.iter().position(|known| *known == c) {
            Some(_) if call.has("d") => None,
            Some(at) => to.get(at).or(to.last()).copied(),
            None => Some(c),
        })
        .collect();
    Ran::wrote(changed)
}

fn cut(call: &Call<'_>) -> Ran {
    let option = |letter: &str| {
        let at = call.words.iter().position(|word| word.starts_with(letter))?;
        let inline = call.words[at].strip_prefix(letter).filter(|rest| !rest.is_empty()).map(str::to_owned);
        inline.or_else(|| call.words.get(at + 1).cloned())
    };
    let delimiter = option("-d").unwrap_or_else(|| "\t".to_owned());
    let field: usize = option("-f").and_then(|field| field.parse().ok()).unwrap_or(1);
    let text = String::from_utf8_lossy(call.input);
    let pick = |line: &str| line.split(delimiter.as_str()).nth(field.saturating_sub(1)).unwrap_or_default().to_owned();
    Ran::wrote(text.lines().map(|line| format!("{}\n", pick(line))).collect::<String>())
}

/// Most numbers that `seq` writes.
const SEQUENCE_MAX: usize = 10_000;

fn sequence(call: &Call<'_>) -> Ran {
    let numbers: Vec<i64> = call.words.iter().filter_map(|word| word.parse().ok()).collect();
    let (first, step, last) = match numbers.as_slice() {
        [last] => (1, 1, *last),
        [first, last] => (*first, 1, *last),
        [first, step, last] => (*first, *step, *last),
        _ => (1, 1, 0),
    };
    let mut ran = Ran::default();
    if step == 0 {
        ran.complain("seq: increment is zero");
        return ran;
    }
    let numbers = std::iter::successors(Some(first), |number| number.checked_add(step));
    let wanted = numbers.take_while(|number| if step > 0 { *number <= last } else { *number >= last });
    ran.output = wanted.take(SEQUENCE_MAX).map(|number| format!("{number}\n")).collect::<String>().into_bytes();
    ran
}
