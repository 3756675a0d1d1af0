//! A running script: a state machine that is advanced to a time, and that says when it has something to do next.
//!
//! Nothing here waits. A `sleep` is a time until which a thread is blocked; [`Process::advance`] runs every thread up to a
//! moment. Work is bounded: after [`STEPS_MAX`] operations in one advance the script pauses for [`PAUSE`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Environment;
use super::code::{Code, Op};
use super::files::Files;
use super::output::{Chunk, Output, OutputLine};

/// Operations of one advance.
pub const STEPS_MAX: u32 = 5_000;
/// Operations of a command that is run to its end at once.
pub(super) const STEPS_AT_ONCE_MAX: u32 = 100_000;
/// How long a script pauses that does not stop by itself.
pub const PAUSE: Duration = Duration::from_secs(1);
/// Background commands of one script.
const THREADS_MAX: usize = 32;
/// Function calls inside each other.
const FRAMES_MAX: usize = 100;
/// Commands whose output other commands use, inside each other.
const NESTING_MAX: usize = 12;
/// Bytes that count as one step.
const BYTES_PER_STEP: usize = 1024;
/// Steps that are left for the commands inside one command; with fewer a script pauses before its next command.
const STEPS_RESERVED: u32 = STEPS_MAX / 5;
/// Bytes of the variables and arguments of one shell, beyond those that it starts with.
const VARIABLES_BYTES_MAX: usize = 256 * 1024;
/// Functions of one shell: `eval` can define more than its script has.
const FUNCTIONS_MAX: usize = 100;
/// Bytes that a variable is counted with beside its name and value.
const ENTRY_BYTES: usize = 32;
/// Patterns of one arm of `case` that are compared.
const CASE_PATTERNS_MAX: usize = 256;
/// Longest sleep; a longer one never ends.
const SLEEP_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The exit code of a process that SIGTERM ends.
pub const TERMINATED: i32 = 143;

/// A command could not go on: its thread is blocked or ended.
pub(super) struct Stopped;

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    Ready,
    Until(Timestamp),
    Forever,
    /// Waits for a background command, or for all.
    Child(Option<u32>),
    Ended(i32),
}

/// The state of a shell that a subshell copies.
#[derive(Debug, Clone, Default)]
pub(super) struct Shell {
    /// Values, and whether commands see them in their environment.
    pub(super) variables: BTreeMap<String, (String, bool)>,
    pub(super) functions: BTreeMap<String, Code>,
    /// `$0`, `$1`, …
    pub(super) arguments: Vec<String>,
    pub(super) directory: String,
    pub(super) stops_on_error: bool,
}

impl Shell {
    /// About how many bytes it holds.
    fn bytes(&self) -> usize {
        let variables = self.variables.iter().map(|(name, (value, _))| name.len() + value.len() + ENTRY_BYTES);
        let arguments = self.arguments.iter().map(|word| word.len() + ENTRY_BYTES);
        variables.chain(arguments).sum::<usize>()
    }
}

#[derive(Debug, Clone)]
enum FrameKind {
    Plain,
    Function {
        arguments: Vec<String>,
    },
    Subshell(Box<Shell>),
    /// A handler of a signal; afterwards the status is what it was.
    Trap {
        status: i32,
    },
    /// The handler of `EXIT`.
    ExitTrap {
        status: i32,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Frame {
    code: Code,
    at: usize,
    loops: Vec<VecDeque<String>>,
    kind: FrameKind,
}

impl Frame {
    fn new(code: Code, kind: FrameKind) -> Self {
        Frame { code, at: 0, loops: Vec::new(), kind }
    }
}

/// One line of execution: the script itself, or a command in the background.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    id: u32,
    frames: Vec<Frame>,
    pub(super) shell: Shell,
    pub(super) status: i32,
    pub(super) time: Timestamp,
    pub(super) block: Block,
    pub(super) stdin: VecDeque<u8>,
    pub(super) last_child: u32,
}

impl Thread {
    pub(super) fn arguments(&self) -> &[String] {
        self.shell.arguments.get(1..).unwrap_or_default()
    }

    pub(super) fn directory(&self) -> &str {
        &self.shell.directory
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        let exported = self.shell.variables.get(name).is_some_and(|(_, exported)| *exported);
        self.shell.variables.insert(name.to_owned(), (value.to_owned(), exported));
    }

    /// Bytes of the shells and arguments that its frames keep.
    fn held(&self) -> usize {
        let of = |frame: &Frame| match &frame.kind {
            FrameKind::Subshell(shell) => shell.bytes(),
            FrameKind::Function { arguments } => arguments.iter().map(String::len).sum(),
            _ => 0,
        };
        self.frames.iter().map(of).sum()
    }

    /// Leaves the current function.
    pub(super) fn leave_function(&mut self) {
        while let Some(frame) = self.frames.pop() {
            if let FrameKind::Function { arguments } = frame.kind {
                self.shell.arguments = arguments;
                return;
            }
        }
    }

    /// Blocks for a duration; none means for ever.
    pub(super) fn sleep(&mut self, duration: Option<Duration>) {
        let until = duration.filter(|wait| *wait <= SLEEP_MAX).and_then(|wait| self.time.checked_add(wait).ok());
        self.block = until.map_or(Block::Forever, Block::Until);
    }
}

/// A running script. The first thread is the script itself.
#[derive(Debug)]
pub struct Process {
    threads: Vec<Thread>,
    files: Files,
    pub(super) environment: Arc<Environment>,
    pub(super) output: Output,
    /// What runs on a signal; none where the signal is ignored.
    pub(super) traps: BTreeMap<&'static str, Option<Code>>,
    pending: Vec<&'static str>,
    nesting: usize,
    steps_left: u32,
    /// Steps that are not for the script itself.
    reserved: u32,
    /// Bytes that a shell may hold.
    bytes_max: usize,
    next_id: u32,
    random: u64,
    ended: Option<(i32, Timestamp)>,
}

impl Process {
    pub(super) fn new(code: Code, environment: Arc<Environment>, files: Files, now: Timestamp) -> Self {
        let mut variables: BTreeMap<String, (String, bool)> =
            environment.variables.iter().map(|(name, value)| (name.clone(), (value.clone(), true))).collect();
        variables.insert("PWD".to_owned(), (environment.directory.clone(), true));
        let shell = Shell {
            variables,
            arguments: environment.arguments.clone(),
            directory: environment.directory.clone(),
            stops_on_error: environment.stops_on_error,
            ..Shell::default()
        };
        let bytes_max = shell.bytes() + VARIABLES_BYTES_MAX;
        let main = Thread {
            id: 1,
            frames: vec![Frame::new(code, FrameKind::Plain)],
            shell,
            status: 0,
            time: now,
            block: Block::Ready,
            stdin: VecDeque::new(),
            last_child: 0,
        };
        Process {
            threads: vec![main],
            files,
            random: environment.seed | 1,
            environment,
            output: Output::default(),
            traps: BTreeMap::new(),
            pending: Vec::new(),
            nesting: 0,
            steps_left: 0,
            reserved: 0,
            bytes_max,
            next_id: 2,
            ended: None,
        }
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// The exit code and the time of the end.
    #[must_use]
    pub fn ended(&self) -> Option<(i32, Timestamp)> {
        self.ended
    }

    /// The next time at which it has something to do; none if it waits for a signal or has ended.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Timestamp> {
        if self.ended.is_some() {
            return None;
        }
        let due = |thread: &Thread| match thread.block {
            Block::Ready => Some(thread.time),
            Block::Until(time) => Some(time),
            _ => None,
        };
        self.threads.iter().filter_map(due).min()
    }

    /// Runs everything that is due at a moment.
    pub fn advance(&mut self, now: Timestamp) {
        self.steps_left = STEPS_MAX;
        self.reserved = STEPS_RESERVED;
        self.run_until(now);
    }

    fn run_until(&mut self, now: Timestamp) {
        while let Some(due) = self.wakes_at().filter(|due| *due <= now) {
            let Some(at) = self.threads.iter().position(|thread| {
                matches!(thread.block, Block::Ready) && thread.time == due || thread.block == Block::Until(due)
            }) else {
                return;
            };
            let mut thread = self.threads.remove(at);
            if let Block::Until(time) = thread.block {
                (thread.time, thread.block) = (time, Block::Ready);
            }
            self.run_thread(&mut thread, now);
            self.threads.insert(at.min(self.threads.len()), thread);
            self.settle(now);
        }
    }

    /// Ends threads that are done, wakes those that wait for them, and ends the process with its first thread.
    fn settle(&mut self, now: Timestamp) {
        if let Some(Thread { block: Block::Ended(code), time, .. }) = self.threads.first() {
            self.ended = Some((*code, *time));
            self.output.finish(*time);
            self.threads.clear();
            return;
        }
        let ended: Vec<(u32, i32)> = self
            .threads
            .iter()
            .filter_map(|thread| match thread.block {
                Block::Ended(code) => Some((thread.id, code)),
                _ => None,
            })
            .collect();
        self.threads.retain(|thread| !matches!(thread.block, Block::Ended(_)));
        let alive: Vec<u32> = self.threads.iter().map(|thread| thread.id).collect();
        for thread in &mut self.threads {
            let Block::Child(wanted) = thread.block else { continue };
            let done = match wanted {
                Some(id) => !alive.contains(&id),
                // Only the script itself has background commands.
                None => alive.len() == 1,
            };
            if done {
                thread.status = wanted.and_then(|id| ended.iter().find(|(e, _)| *e == id)).map_or(0, |(_, code)| *code);
                thread.time = thread.time.max(now);
                thread.block = Block::Ready;
            }
        }
    }

    /// Delivers SIGTERM. A shell that has a handler runs it after its current command; the first process of a container
    /// that has none ignores the signal, as on a real node.
    pub fn terminate(&mut self, now: Timestamp) {
        if self.ended.is_some() {
            return;
        }
        match self.traps.get("TERM") {
            Some(Some(_)) => {
                self.signal("TERM");
                // `wait` ends at once, other commands are waited for.
                if let Some(main) = self.threads.first_mut()
                    && matches!(main.block, Block::Child(_))
                {
                    (main.block, main.status, main.time) = (Block::Ready, TERMINATED, now);
                }
            }
            Some(None) => {}
            None if self.environment.is_first_process => {}
            None => self.ended = Some((TERMINATED, now)),
        }
    }

    fn signal(&mut self, signal: &'static str) {
        if !self.pending.contains(&signal) {
            self.pending.push(signal);
        }
    }

    /// Counts bytes that a command handled as steps.
    pub(super) fn charge(&mut self, bytes: usize) {
        let steps = u32::try_from(bytes / BYTES_PER_STEP).unwrap_or(u32::MAX);
        self.steps_left = self.steps_left.saturating_sub(steps);
    }

    fn run_thread(&mut self, thread: &mut Thread, now: Timestamp) {
        while thread.block == Block::Ready {
            if thread.time > now {
                thread.block = Block::Until(thread.time);
                return;
            }
            if self.steps_left <= self.reserved {
                // A script that never sleeps, or one that has much to catch up with.
                thread.time = now;
                thread.sleep(Some(PAUSE));
                return;
            }
            self.steps_left -= 1;
            if thread.id == 1
                && thread.frames.len() < FRAMES_MAX
                && let Some(signal) = self.pending.pop()
                && let Some(Some(code)) = self.traps.get(signal)
            {
                let kind = FrameKind::Trap { status: thread.status };
                thread.frames.push(Frame::new(Arc::clone(code), kind));
            }
            self.step(thread);
        }
    }

    fn step(&mut self, thread: &mut Thread) {
        let Some(frame) = thread.frames.last_mut() else {
            return self.end_thread(thread);
        };
        let (code, at) = (Arc::clone(&frame.code), frame.at);
        let Some(op) = code.get(at) else {
            return self.end_frame(thread);
        };
        frame.at += 1;
        let checked = match op {
            Op::Simple { command, checked } => {
                if self.simple(thread, command).is_err() {
                    return;
                }
                if thread.shell.bytes() > self.bytes_max {
                    let _ = self.fail(thread, "out of memory");
                    return;
                }
                *checked
            }
            Op::Test { words, checked } => {
                if self.test(thread, words).is_err() {
                    return;
                }
                *checked
            }
            Op::Pipeline { commands, checked } => {
                if self.pipeline(thread, commands).is_err() {
                    return;
                }
                *checked
            }
            other => {
                self.flow(thread, other);
                false
            }
        };
        let ready = matches!(thread.block, Block::Ready);
        if checked && ready && thread.status != 0 && thread.shell.stops_on_error {
            self.exit(thread, thread.status);
        }
    }

    /// Operations about the order of others.
    fn flow(&mut self, thread: &mut Thread, op: &Op) {
        let status = thread.status;
        let Some(frame) = thread.frames.last_mut() else { return };
        match op {
            Op::Not => thread.status = i32::from(status == 0),
            Op::Status(new) => thread.status = *new,
            Op::Jump(to) => frame.at = *to,
            Op::JumpIfFailed(to) if status != 0 => frame.at = *to,
            Op::JumpIfDone(to) if status == 0 => frame.at = *to,
            Op::Background(code) => self.spawn(thread, code),
            Op::Subshell(code) => {
                self.charge(thread.shell.bytes());
                let Some(held) =
                    thread.held().checked_add(thread.shell.bytes()).filter(|held| *held <= 4 * self.bytes_max)
                else {
                    let _ = self.fail(thread, "out of memory");
                    return;
                };
                self.charge(held / 4);
                let kind = FrameKind::Subshell(Box::new(thread.shell.clone()));
                self.call(thread, Arc::clone(code), kind);
            }
            Op::Function(name, code) => {
                let functions = &mut thread.shell.functions;
                if functions.len() >= FUNCTIONS_MAX && !functions.contains_key(name) {
                    let _ = self.fail(thread, "too many functions");
                    return;
                }
                functions.insert(name.clone(), Arc::clone(code));
                thread.status = 0;
            }
            Op::ForBegin(words) => {
                if let Ok(words) = self.words(thread, words)
                    && let Some(frame) = thread.frames.last_mut()
                {
                    frame.loops.push(words.into());
                }
            }
            Op::ForNext(name, end) => match frame.loops.last_mut().and_then(VecDeque::pop_front) {
                Some(word) => thread.set(name, &word),
                None => frame.at = *end,
            },
            Op::ForEnd => drop(frame.loops.pop()),
            Op::Case(word, patterns, next) => {
                let Ok(text) = self.text(thread, word) else { return };
                for pattern in patterns.iter().take(CASE_PATTERNS_MAX) {
                    let Ok(pattern) = self.pattern(thread, pattern) else { return };
                    if super::pattern::matches(&pattern, &text) {
                        return;
                    }
                }
                if let Some(frame) = thread.frames.last_mut() {
                    frame.at = *next;
                }
            }
            Op::Turn | Op::JumpIfFailed(_) | Op::JumpIfDone(_) => {}
            Op::Simple { .. } | Op::Test { .. } | Op::Pipeline { .. } => {}
        }
    }

    fn call(&mut self, thread: &mut Thread, code: Code, kind: FrameKind) {
        if thread.frames.len() >= FRAMES_MAX {
            let _ = self.fail(thread, "too many nested calls");
            return;
        }
        thread.frames.push(Frame::new(code, kind));
    }

    /// Calls a function of the script.
    pub(super) fn call_function(&mut self, thread: &mut Thread, code: Code, words: Vec<String>) {
        let before = thread.shell.arguments.clone();
        let name = before.first().cloned().unwrap_or_else(|| "sh".to_owned());
        thread.shell.arguments = std::iter::once(name).chain(words.into_iter().skip(1)).collect();
        self.call(thread, code, FrameKind::Function { arguments: before });
    }

    /// Runs code in place, as `eval` does.
    pub(super) fn run_here(&mut self, thread: &mut Thread, code: Code) {
        self.call(thread, code, FrameKind::Plain);
    }

    fn spawn(&mut self, thread: &mut Thread, code: &Code) {
        if self.threads.len() >= THREADS_MAX {
            let _ = self.fail(thread, "can't fork: too many commands in the background");
            return;
        }
        let child = Thread {
            id: self.next_id,
            frames: vec![Frame::new(Arc::clone(code), FrameKind::Plain)],
            block: Block::Ready,
            stdin: VecDeque::new(),
            ..thread.clone()
        };
        thread.last_child = self.next_id;
        thread.status = 0;
        self.next_id += 1;
        self.threads.push(child);
    }

    fn end_frame(&mut self, thread: &mut Thread) {
        match thread.frames.pop().map(|frame| frame.kind) {
            Some(FrameKind::Function { arguments }) => thread.shell.arguments = arguments,
            Some(FrameKind::Subshell(shell)) => thread.shell = *shell,
            Some(FrameKind::Trap { status }) => thread.status = status,
            Some(FrameKind::ExitTrap { status }) => thread.block = Block::Ended(status),
            Some(FrameKind::Plain) | None => {}
        }
    }

    fn end_thread(&mut self, thread: &mut Thread) {
        let status = thread.status;
        self.exit(thread, status);
    }

    /// Ends the innermost subshell, or the thread.
    pub(super) fn exit(&mut self, thread: &mut Thread, status: i32) {
        let status = status & 0xff;
        thread.status = status;
        while let Some(frame) = thread.frames.pop() {
            match frame.kind {
                FrameKind::Subshell(shell) => {
                    thread.shell = *shell;
                    return;
                }
                FrameKind::ExitTrap { .. } => break,
                _ => {}
            }
        }
        if thread.id == 1
            && let Some(Some(code)) = self.traps.remove("EXIT")
        {
            thread.frames.push(Frame::new(code, FrameKind::ExitTrap { status }));
            return;
        }
        thread.block = Block::Ended(status);
    }

    /// Ends a script that cannot go on, with a message.
    pub(super) fn fail(&mut self, thread: &mut Thread, why: &str) -> Stopped {
        self.output.write(thread.time, true, format!("sh: {why}\n").as_bytes());
        self.exit(thread, 2);
        Stopped
    }

    /// Ends a background command, or sends SIGTERM to the script itself.
    pub(super) fn kill(&mut self, thread: &mut Thread, id: u32) -> bool {
        if id == 1 {
            let now = thread.time;
            match self.traps.get("TERM") {
                Some(Some(_)) => self.signal("TERM"),
                _ if self.environment.is_first_process => {}
                _ => thread.block = Block::Ended(TERMINATED),
            }
            thread.time = now;
            return true;
        }
        let Some(child) = self.threads.iter_mut().find(|child| child.id == id) else { return false };
        child.block = Block::Ended(TERMINATED);
        true
    }

    pub(super) fn has_child(&self, id: u32) -> bool {
        self.threads.iter().any(|thread| thread.id == id)
    }

    pub(super) fn has_children(&self) -> bool {
        // The current thread is not in the list while it runs.
        !self.threads.is_empty()
    }

    pub(super) fn variable(&self, thread: &Thread, name: &str) -> Option<String> {
        Some(match name {
            "?" => thread.status.to_string(),
            "$" => "1".to_owned(),
            "!" => thread.last_child.to_string(),
            "#" => thread.arguments().len().to_string(),
            "@" | "*" => thread.arguments().join(" "),
            "-" => String::new(),
            "RANDOM" => self.draw(thread).to_string(),
            _ if name.starts_with(|c: char| c.is_ascii_digit()) => {
                return thread.shell.arguments.get(name.parse::<usize>().ok()?).cloned();
            }
            _ => return thread.shell.variables.get(name).map(|(value, _)| value.clone()),
        })
    }

    /// A number from 0 to 32767 that depends on the container and on how far it has come.
    fn draw(&self, thread: &Thread) -> u64 {
        let position = thread
            .frames
            .iter()
            .fold(u64::from(self.steps_left), |sum, frame| sum.wrapping_mul(31).wrapping_add(frame.at as u64));
        let mut mixed =
            self.random ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ thread.time.as_millisecond() as u64;
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ (mixed >> 33)) & 0x7fff
    }

    /// Runs code to its end at once and returns what it wrote. The time that it takes passes for the thread too.
    pub(super) fn capture(&mut self, thread: &mut Thread, code: Code, stdin: Vec<u8>) -> Result<Vec<u8>, Stopped> {
        if self.nesting >= NESTING_MAX {
            return Err(self.fail(thread, "too many nested commands"));
        }
        let inner = Thread {
            id: 1,
            frames: vec![Frame::new(code, FrameKind::Plain)],
            block: Block::Ready,
            stdin: stdin.into(),
            ..thread.clone()
        };
        let mut process = Process {
            threads: vec![inner],
            files: self.files.clone(),
            environment: Arc::clone(&self.environment),
            output: Output::default(),
            traps: BTreeMap::new(),
            pending: Vec::new(),
            nesting: self.nesting + 1,
            steps_left: 0,
            reserved: 0,
            bytes_max: self.bytes_max,
            next_id: 2,
            random: self.random,
            ended: None,
        };
        self.charge(thread.shell.bytes());
        let steps = self.steps_left;
        let finished = process.run_to_end(steps);
        self.steps_left = self.steps_left.saturating_sub(steps - process.steps_left);
        let mut written = Vec::new();
        for chunk in process.output.take_chunks() {
            if chunk.is_error {
                self.output.write(chunk.at, true, &chunk.bytes);
            } else {
                written.extend_from_slice(&chunk.bytes);
            }
        }
        let Some((status, at)) = finished else {
            thread.block = Block::Forever;
            return Err(Stopped);
        };
        (thread.status, thread.time) = (status, at);
        Ok(written)
    }

    /// Runs to the end in simulated time. None if it never ends.
    fn run_to_end(&mut self, steps: u32) -> Option<(i32, Timestamp)> {
        (self.steps_left, self.reserved) = (steps, 0);
        while self.ended.is_none() {
            let due = self.wakes_at().filter(|_| self.steps_left > 0)?;
            self.run_until(due);
        }
        self.ended
    }

    /// What the script reads.
    pub(super) fn give_input(&mut self, bytes: &[u8]) {
        if let Some(main) = self.threads.first_mut() {
            main.stdin = bytes.iter().copied().collect();
        }
    }

    /// What was written since the last call.
    pub fn take_chunks(&mut self) -> Vec<Chunk> {
        self.output.take_chunks()
    }

    /// The lines that were written since the last call.
    pub fn take_lines(&mut self) -> Vec<OutputLine> {
        self.output.take_lines()
    }

    /// Runs to the end in simulated time, as a command of its own, with at most this many operations.
    pub(super) fn complete(&mut self, steps: u32) -> Option<(i32, Timestamp)> {
        self.run_to_end(steps)
    }
}
