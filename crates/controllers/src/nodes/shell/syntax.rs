//! The syntax tree of a shell script, as far as simulated containers understand it.

/// A command of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Simple(Simple),
    /// `[[ … ]]`
    Test(Vec<Word>),
    Not(Box<Command>),
    /// Two commands or more, each reading what the one before wrote.
    Pipeline(Vec<Command>),
    /// `a && b || c`: the first command, then each with true for `&&`.
    Chain(Box<Command>, Vec<(bool, Command)>),
    Sequence(Vec<Command>),
    /// `command &`
    Background(Box<Command>),
    If {
        arms: Vec<(Command, Command)>,
        otherwise: Option<Box<Command>>,
    },
    Loop {
        /// True for `until`: the loop ends when the condition succeeds.
        until: bool,
        condition: Box<Command>,
        body: Box<Command>,
    },
    For {
        name: String,
        words: Vec<Word>,
        body: Box<Command>,
    },
    Case {
        word: Word,
        arms: Vec<(Vec<Word>, Command)>,
    },
    Function {
        name: String,
        body: Box<Command>,
    },
    /// `( … )`
    Subshell(Box<Command>),
}

/// `A=1 command word… >file`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Simple {
    pub(super) assignments: Vec<(String, Word)>,
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
}

/// A redirection of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    /// 0, 1 or 2.
    pub(super) descriptor: u8,
    pub(super) to: Target,
}

/// Where a redirection leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Read(Word),
    Write(Word),
    Append(Word),
    /// `2>&1`
    Same(u8),
}

/// A word before its expansion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word(pub(super) Vec<Part>);

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text {
        text: String,
        quoted: bool,
    },
    Variable {
        name: String,
        default: Option<Default>,
        quoted: bool,
    },
    /// `$( … )`
    Output {
        command: Box<Command>,
        quoted: bool,
    },
    /// `$(( … ))`
    Number(Word),
}

/// What happens where a variable is unset or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Default {
    /// `${name:-word}`, `${name-word}`
    Use { word: Word, also_empty: bool },
    /// `${name:=word}`
    Assign { word: Word, also_empty: bool },
    /// `${name:?word}`
    Fail { word: Word, also_empty: bool },
    /// `${name:+word}`: where it is set.
    Instead { word: Word, also_empty: bool },
    /// `${#name}`
    Length,
    /// `${name%pattern}`, `${name%%pattern}`
    TrimEnd { pattern: Word, longest: bool },
    /// `${name#pattern}`, `${name##pattern}`
    TrimStart { pattern: Word, longest: bool },
}

impl Word {
    /// The text of a word without quotes and expansions.
    pub(super) fn plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Text { text, quoted: false }] => Some(text),
            _ => None,
        }
    }

    /// The text of a word without expansions, quoted or not.
    pub(super) fn literal(&self) -> Option<String> {
        let text = |part: &Part| match part {
            Part::Text { text, .. } => Some(text.clone()),
            _ => None,
        };
        self.0.iter().map(text).collect()
    }

    /// A word that means its text.
    pub(super) fn quoted(text: &str) -> Self {
        Word(vec![Part::Text { text: text.to_owned(), quoted: true }])
    }
}
