//! The stages of a request that have audit events.

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// After authentication, before everything else.
    RequestReceived = 1,
    /// The headers of a long-running request are sent.
    ResponseStarted = 2,
    ResponseComplete = 4,
    /// The handler panicked; there is no other event then.
    Panic = 8,
}

impl Stage {
    pub const ALL: [Stage; 4] = [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    #[must_use]
    pub fn of(stages: &[Stage]) -> Self {
        Stages(stages.iter().fold(0, |set, stage| set | *stage as u8))
    }

    #[must_use]
    pub fn union(self, other: Stages) -> Self {
        Stages(self.0 | other.0)
    }

    #[must_use]
    pub fn has(self, stage: Stage) -> bool {
        self.0 & stage as u8 != 0
    }
}
