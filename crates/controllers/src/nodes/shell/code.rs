//! From the syntax tree to operations, so that a script can stop anywhere and go on later.

use std::sync::Arc;

use super::syntax::{Command, Simple, Word};

/// Operations that end at their end.
pub(super) type Code = Arc<[Op]>;

/// One operation. Positions are those in the same code.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Simple {
        command: Simple,
        /// True if a failure ends the script after `set -e`.
        checked: bool,
    },
    Test {
        words: Vec<Word>,
        checked: bool,
    },
    Pipeline {
        commands: Vec<Code>,
        checked: bool,
    },
    /// Turns success into failure and back.
    Not,
    Status(i32),
    Jump(usize),
    JumpIfFailed(usize),
    JumpIfDone(usize),
    /// The beginning of a turn of a loop.
    Turn,
    Background(Code),
    Subshell(Code),
    Function(String, Code),
    ForBegin(Vec<Word>),
    /// The next word of a loop, or the position after the loop.
    ForNext(String, usize),
    ForEnd,
    /// Goes to the position unless one of the patterns matches.
    Case(Arc<Word>, Vec<Word>, usize),
}

/// Translates a command.
pub(super) fn compile(command: &Command) -> Code {
    let mut compiler = Compiler { ops: Vec::new(), loops: Vec::new() };
    compiler.add(command, true);
    compiler.ops.into()
}

struct Compiler {
    ops: Vec<Op>,
    loops: Vec<Loop>,
}

/// A loop around the current position.
struct Loop {
    start: usize,
    /// Jumps to the end, which is not known yet.
    breaks: Vec<usize>,
}

impl Compiler {
    fn here(&self) -> usize {
        self.ops.len()
    }

    /// Adds a jump whose target is set later.
    fn jump(&mut self, jump: Op) -> usize {
        self.ops.push(jump);
        self.here() - 1
    }

    fn land(&mut self, at: usize) {
        let here = self.here();
        match &mut self.ops[at] {
            Op::Jump(to) | Op::JumpIfFailed(to) | Op::JumpIfDone(to) | Op::ForNext(_, to) | Op::Case(_, _, to) => {
                *to = here;
            }
            _ => {}
        }
    }

    fn add(&mut self, command: &Command, checked: bool) {
        match command {
            Command::Simple(simple) => self.simple(simple, checked),
            Command::Test(words) => self.ops.push(Op::Test { words: words.clone(), checked }),
            Command::Not(inner) => {
                self.add(inner, false);
                self.ops.push(Op::Not);
            }
            Command::Pipeline(commands) => {
                let commands = commands.iter().map(compile).collect();
                self.ops.push(Op::Pipeline { commands, checked });
            }
            Command::Chain(first, rest) => {
                self.add(first, false);
                for (at, (and, next)) in rest.iter().enumerate() {
                    let over = self.jump(if *and { Op::JumpIfFailed(0) } else { Op::JumpIfDone(0) });
                    self.add(next, checked && at + 1 == rest.len());
                    self.land(over);
                }
            }
            Command::Sequence(commands) => {
                if commands.is_empty() {
                    self.ops.push(Op::Status(0));
                }
                commands.iter().for_each(|command| self.add(command, checked));
            }
            Command::Background(inner) => self.ops.push(Op::Background(compile(inner))),
            Command::Subshell(inner) => self.ops.push(Op::Subshell(compile(inner))),
            Command::Function { name, body } => self.ops.push(Op::Function(name.clone(), compile(body))),
            Command::If { arms, otherwise } => self.branches(arms, otherwise.as_deref(), checked),
            Command::Loop { until, condition, body } => self.condition_loop(*until, condition, body, checked),
            Command::For { name, words, body } => {
                self.ops.push(Op::ForBegin(words.clone()));
                let start = self.jump(Op::ForNext(name.clone(), 0));
                self.loop_body(start, body, checked);
                self.land(start);
                self.ops.push(Op::ForEnd);
            }
            Command::Case { word, arms } => {
                let mut ends = Vec::new();
                let word = Arc::new(word.clone());
                for (patterns, body) in arms {
                    let next = self.jump(Op::Case(Arc::clone(&word), patterns.clone(), 0));
                    self.add(body, checked);
                    ends.push(self.jump(Op::Jump(0)));
                    self.land(next);
                }
                self.ops.push(Op::Status(0));
                ends.into_iter().for_each(|end| self.land(end));
            }
        }
    }

    fn simple(&mut self, simple: &Simple, checked: bool) {
        let word = simple.words.first().and_then(Word::plain);
        match (word, self.loops.len()) {
            (Some("break"), 1..) => {
                let jump = self.jump(Op::Jump(0));
                if let Some(inner) = self.loops.last_mut() {
                    inner.breaks.push(jump);
                }
            }
            (Some("continue"), 1..) => {
                let start = self.loops.last().map_or(0, |inner| inner.start);
                self.ops.push(Op::Jump(start));
            }
            _ => self.ops.push(Op::Simple { command: simple.clone(), checked }),
        }
    }

    fn branches(&mut self, arms: &[(Command, Command)], otherwise: Option<&Command>, checked: bool) {
        let mut ends = Vec::new();
        for (condition, body) in arms {
            self.add(condition, false);
            let next = self.jump(Op::JumpIfFailed(0));
            self.add(body, checked);
            ends.push(self.jump(Op::Jump(0)));
            self.land(next);
        }
        match otherwise {
            Some(otherwise) => self.add(otherwise, checked),
            None => self.ops.push(Op::Status(0)),
        }
        ends.into_iter().for_each(|end| self.land(end));
    }

    fn condition_loop(&mut self, until: bool, condition: &Command, body: &Command, checked: bool) {
        let start = self.here();
        self.ops.push(Op::Turn);
        self.add(condition, false);
        let end = self.jump(if until { Op::JumpIfDone(0) } else { Op::JumpIfFailed(0) });
        // A `break` leaves the status as it is; the end of the condition means success.
        self.loops.push(Loop { start, breaks: Vec::new() });
        self.add(body, checked);
        self.ops.push(Op::Jump(start));
        self.land(end);
        self.ops.push(Op::Status(0));
        self.end_loop();
    }

    fn loop_body(&mut self, start: usize, body: &Command, checked: bool) {
        self.loops.push(Loop { start, breaks: Vec::new() });
        self.add(body, checked);
        self.ops.push(Op::Jump(start));
        self.end_loop();
    }

    fn end_loop(&mut self) {
        for jump in self.loops.pop().map(|inner| inner.breaks).unwrap_or_default() {
            self.land(jump);
        }
    }
}
