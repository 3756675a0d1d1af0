//! Whether every command of a script is known before it runs, so that a pod does not fail in the middle of one.

use std::collections::BTreeSet;

use super::commands::{PROGRAMS, base};
use super::control::BUILTINS;
use super::is_shell;
use super::parser;
use super::syntax::{Command, Default, Part, Simple, Word};

/// Fails with the first command that is not known. `name` is the program where the command is no script.
pub(super) fn check(command: &Command, name: &str) -> Result<(), String> {
    check_at(command, name, 0)
}

/// Each script inside a script uses up some of the depth.
const SCRIPT_DEPTH: usize = 8;

fn check_at(command: &Command, name: &str, depth: usize) -> Result<(), String> {
    let mut functions = BTreeSet::new();
    collect(command, &mut functions);
    if !name.is_empty() && !is_known(name, &functions) {
        return Err(format!("`{name}`"));
    }
    visit(command, &functions, depth)
}

fn is_known(name: &str, functions: &BTreeSet<String>) -> bool {
    let short = base(name);
    functions.contains(name)
        || PROGRAMS.contains(&short)
        || BUILTINS.contains(&short)
        || is_shell(name)
        || matches!(name, "break" | "continue")
}

/// The functions that a script defines.
fn collect(command: &Command, functions: &mut BTreeSet<String>) {
    if let Command::Function { name, .. } = command {
        functions.insert(name.clone());
    }
    for inner in children(command) {
        collect(inner, functions);
    }
}

fn children(command: &Command) -> Vec<&Command> {
    match command {
        Command::Simple(_) | Command::Test(_) => Vec::new(),
        Command::Not(inner) | Command::Background(inner) | Command::Subshell(inner) => vec![inner],
        Command::Function { body, .. } | Command::For { body, .. } => vec![body],
        Command::Pipeline(commands) | Command::Sequence(commands) => commands.iter().collect(),
        Command::Chain(first, rest) => std::iter::once(&**first).chain(rest.iter().map(|(_, next)| next)).collect(),
        Command::Loop { condition, body, .. } => vec![condition, body],
        Command::If { arms, otherwise } => {
            let arms = arms.iter().flat_map(|(condition, body)| [condition, body]);
            arms.chain(otherwise.as_deref()).collect()
        }
        Command::Case { arms, .. } => arms.iter().map(|(_, body)| body).collect(),
    }
}

fn visit(command: &Command, functions: &BTreeSet<String>, depth: usize) -> Result<(), String> {
    match command {
        Command::Simple(simple) => simple_is_known(simple, functions, depth)?,
        Command::Test(words) => words.iter().try_for_each(|word| inside(word, functions, depth))?,
        Command::For { words, .. } => words.iter().try_for_each(|word| inside(word, functions, depth))?,
        Command::Case { word, .. } => inside(word, functions, depth)?,
        _ => {}
    }
    children(command).into_iter().try_for_each(|inner| visit(inner, functions, depth))
}

fn simple_is_known(simple: &Simple, functions: &BTreeSet<String>, depth: usize) -> Result<(), String> {
    let words = simple.words.iter().chain(simple.assignments.iter().map(|(_, word)| word));
    for word in words {
        inside(word, functions, depth)?;
    }
    // A name that is computed is known only when it runs.
    let Some(name) = simple.words.first().and_then(Word::literal) else { return Ok(()) };
    if !is_known(&name, functions) {
        return Err(format!("`{name}`"));
    }
    if functions.contains(&name) && !simple.redirects.is_empty() {
        return Err(format!("a redirection of the function `{name}`"));
    }
    let literal = |at: usize| simple.words.get(at).and_then(Word::literal);
    match base(&name) {
        "exec" | "command" => match literal(1).filter(|word| !word.starts_with('-')) {
            Some(program) if !is_known(&program, functions) => Err(format!("`{program}`")),
            _ => Ok(()),
        },
        // What runs later is read now.
        "trap" | "eval" => match literal(1).filter(|text| !matches!(text.as_str(), "-" | "")) {
            Some(text) => visit(&parser::parse(&text, depth + SCRIPT_DEPTH)?, functions, depth + SCRIPT_DEPTH),
            None => Ok(()),
        },
        _ if is_shell(&name) => {
            let at = simple.words.iter().position(|word| word.literal().is_some_and(|word| word == "-c"));
            match at.and_then(|at| literal(at + 1)) {
                Some(text) => check_at(&parser::parse(&text, depth + SCRIPT_DEPTH)?, "", depth + SCRIPT_DEPTH),
                None => Err(format!("`{name}`")),
            }
        }
        _ => Ok(()),
    }
}

/// Commands inside a word.
fn inside(word: &Word, functions: &BTreeSet<String>, depth: usize) -> Result<(), String> {
    word.0.iter().try_for_each(|part| match part {
        Part::Output { command, .. } => visit(command, functions, depth),
        Part::Number(word) => inside(word, functions, depth),
        Part::Variable { default: Some(default), .. } => match default {
            Default::Use { word, .. }
            | Default::Assign { word, .. }
            | Default::Fail { word, .. }
            | Default::Instead { word, .. }
            | Default::TrimEnd { pattern: word, .. }
            | Default::TrimStart { pattern: word, .. } => inside(word, functions, depth),
            Default::Length => Ok(()),
        },
        _ => Ok(()),
    })
}
