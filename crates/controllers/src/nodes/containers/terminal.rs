//! A shell that a client talks to: line by line, with a prompt and an echo if it has a terminal.
//!
//! Each line runs in the simulated shell. What stays between lines is the working directory and exported variables.

use std::collections::BTreeMap;

use tokio::io::AsyncReadExt as _;

use super::exec::{Place, Streams, run};
use crate::nodes::shell::files::absolute;

/// Longest line that is typed.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of all variables of a shell, once it has exported one.
const VARIABLES_BYTES_MAX: usize = 64 * 1024;
/// What a shell says first.
const GREETING: &str = "This container is simulated: commands of a simple shell work, and nothing runs on a machine.\n";

/// Bytes as a terminal shows them: each line begins on the left.
pub(super) fn with_returns(bytes: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(bytes.len() + 8);
    for byte in bytes {
        if *byte == b'\n' && shown.last() != Some(&b'\r') {
            shown.push(b'\r');
        }
        shown.push(*byte);
    }
    shown
}

/// Runs a shell until its input ends or `exit`.
pub(super) async fn run_session(place: &mut Place, mut streams: Streams) -> i32 {
    let Some(mut stdin) = streams.stdin.take() else { return 0 };
    let is_terminal = streams.is_terminal;
    if is_terminal && !streams.write(false, GREETING.as_bytes()).await {
        return 1;
    }
    let mut status = 0;
    let mut line = Vec::new();
    let mut piece = [0; 1024];
    if is_terminal && !prompt(place, &mut streams).await {
        return 1;
    }
    loop {
        let len = match stdin.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(len) => len,
        };
        for byte in piece.get(..len).unwrap_or_default() {
            match typed(&mut line, *byte, is_terminal) {
                Typed::Nothing => {}
                Typed::Echo(bytes) => {
                    if !streams.write(false, &bytes).await {
                        return 1;
                    }
                }
                Typed::EndOfInput if line.is_empty() => return finish(&mut streams, status, is_terminal).await,
                Typed::EndOfInput => {}
                Typed::Line => {
                    if is_terminal && !streams.write(false, b"\n").await {
                        return 1;
                    }
                    let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
                    match run_line(place, text.trim(), status, &mut streams).await {
                        Ran::Exit(code) => return code,
                        Ran::Status(code) => status = code,
                    }
                    if is_terminal && !prompt(place, &mut streams).await {
                        return 1;
                    }
                }
            }
        }
    }
    // The last line of a script need not have an end.
    let rest = String::from_utf8_lossy(&line).into_owned();
    if !is_terminal && !rest.trim().is_empty() {
        return match run_line(place, rest.trim(), status, &mut streams).await {
            Ran::Exit(code) | Ran::Status(code) => code,
        };
    }
    status
}

async fn prompt(place: &Place, streams: &mut Streams) -> bool {
    let sign = if place.environment.user == 0 { '#' } else { '$' };
    streams.write(false, format!("{} {sign} ", place.environment.directory).as_bytes()).await
}

async fn finish(streams: &mut Streams, status: i32, is_terminal: bool) -> i32 {
    if is_terminal {
        let _ = streams.write(false, b"\n").await;
    }
    status
}

/// The meaning of a byte that arrives.
#[derive(Debug, PartialEq, Eq)]
enum Typed {
    Nothing,
    Echo(Vec<u8>),
    Line,
    EndOfInput,
}

fn typed(line: &mut Vec<u8>, byte: u8, is_terminal: bool) -> Typed {
    match byte {
        b'\n' => Typed::Line,
        b'\r' if is_terminal => Typed::Line,
        // Interrupt: the line is dropped.
        3 if is_terminal => {
            line.clear();
            line.extend_from_slice(b":");
            Typed::Line
        }
        4 if is_terminal => Typed::EndOfInput,
        8 | 127 if is_terminal => match line.pop() {
            Some(_) => Typed::Echo(b"\x08 \x08".to_vec()),
            None => Typed::Nothing,
        },
        0..32 if is_terminal && byte != b'\t' => Typed::Nothing,
        _ if line.len() >= LINE_BYTES_MAX => Typed::Nothing,
        _ => {
            line.push(byte);
            if is_terminal { Typed::Echo(vec![byte]) } else { Typed::Nothing }
        }
    }
}

enum Ran {
    Exit(i32),
    Status(i32),
}

/// Runs one line. Those that change the shell itself are looked at here, since each line has a shell of its own.
async fn run_line(place: &mut Place, line: &str, last: i32, streams: &mut Streams) -> Ran {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [] | [":"] => return Ran::Status(last),
        ["exit" | "logout"] => return Ran::Exit(last),
        ["exit", code] => return Ran::Exit(code.parse::<i32>().unwrap_or(2) & 255),
        ["cd"] => place.environment.directory = "/root".to_owned(),
        ["cd", directory] if !directory.contains(['$', '`', '*', ';', '&', '|']) => {
            let wanted = absolute(&place.environment.directory, directory);
            if !place.files.is_directory(&wanted) {
                let why = format!("sh: cd: can't cd to {directory}: No such file or directory\n");
                let _ = streams.write(true, why.as_bytes()).await;
                return Ran::Status(2);
            }
            place.environment.directory = wanted;
        }
        ["export", assignment] if is_plain(assignment) => {
            if let Some((name, value)) = assignment.split_once('=')
                && !export(&mut place.environment.variables, name, value)
            {
                let _ = streams.write(true, b"sh: export: too many variables\n").await;
                return Ran::Status(1);
            }
        }
        _ => {
            let command = ["sh", "-c", line].map(str::to_owned);
            // Without its input: that is the next line of this shell.
            let stdin = streams.stdin.take();
            let status = run(place, &command, streams).await;
            streams.stdin = stdin;
            return Ran::Status(status);
        }
    }
    Ran::Status(0)
}

/// Sets a variable, if there is room for it.
fn export(variables: &mut BTreeMap<String, String>, name: &str, value: &str) -> bool {
    let others = variables.iter().filter(|(known, _)| *known != name);
    let used: usize = others.map(|(name, value)| name.len() + value.len()).sum();
    let has_room = used + name.len() + value.len() <= VARIABLES_BYTES_MAX;
    if has_room {
        variables.insert(name.to_owned(), value.to_owned());
    }
    has_room
}

/// Whether a word means itself.
fn is_plain(word: &str) -> bool {
    !word.contains(['$', '`', '"', '\'', '\\', ';', '&', '|', '<', '>'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cs_5_terminals_echo_and_correct() {
        let mut line = Vec::new();
        let mut type_all =
            |text: &[u8]| -> Vec<Typed> { text.iter().map(|byte| typed(&mut line, *byte, true)).collect() };
        assert_eq!(type_all(b"a"), [Typed::Echo(b"a".to_vec())]);
        assert_eq!(type_all(b"\x7f\x7f"), [Typed::Echo(b"\x08 \x08".to_vec()), Typed::Nothing]);
        assert_eq!(type_all(b"\x1b\x04\r"), [Typed::Nothing, Typed::EndOfInput, Typed::Line]);
        assert_eq!(typed(&mut Vec::new(), b'a', false), Typed::Nothing);
        assert_eq!(with_returns(b"a\nb\r\n"), b"a\r\nb\r\n");
    }

    #[test]
    fn cs_5_exported_variables_are_bounded() {
        let mut variables = BTreeMap::new();
        let value = "x".repeat(LINE_BYTES_MAX - 2);
        let kept = (0..10).filter(|number| export(&mut variables, &format!("a{number}"), &value)).count();
        assert_eq!((kept, variables.len()), (8, 8));
        assert!(export(&mut variables, "a0", "y"), "a variable can be replaced");
        assert!(export(&mut variables, "b", "z"));
    }
}
