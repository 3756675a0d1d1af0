//! How the writer's thread tells callers what became of their writes: a whole group with one wake-up.
//!
//! Waking a task from a thread outside its runtime costs a system call or two, each time. A group of writes is therefore
//! handed to one task inside, which wakes the callers where that costs next to nothing. By then the task that follows the
//! log has been woken first, so that what was written is visible when its caller looks.

use machinery::Revision;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::error::WriteError;

pub(super) type Answer = oneshot::Sender<Result<Revision, WriteError>>;

/// Writes of one group, each with what became of it.
pub(super) type Outcomes = Vec<(Answer, Result<Revision, WriteError>)>;

/// The way to those who wait. It never holds more than they are.
pub(super) struct Answers(Option<mpsc::UnboundedSender<Outcomes>>);

impl Answers {
    /// Goes through the runtime that the caller is in, if it is in one.
    pub(super) fn start() -> Self {
        let Ok(runtime) = Handle::try_current() else { return Answers(None) };
        let (sender, mut groups) = mpsc::unbounded_channel();
        runtime.spawn(async move {
            while let Some(outcomes) = groups.recv().await {
                tell(outcomes);
            }
        });
        Answers(Some(sender))
    }

    pub(super) fn send(&self, outcomes: Outcomes) {
        let Some(sender) = &self.0 else { return tell(outcomes) };
        // The runtime that opened the store has ended; callers may be in another.
        if let Err(mpsc::error::SendError(outcomes)) = sender.send(outcomes) {
            tell(outcomes);
        }
    }
}

/// A caller that no longer waits does not hear of it.
fn tell(outcomes: Outcomes) {
    for (answer, outcome) in outcomes {
        let _ = answer.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(answers: &Answers) -> oneshot::Receiver<Result<Revision, WriteError>> {
        let (answer, answered) = oneshot::channel();
        answers.send(vec![(answer, Ok(Revision(7)))]);
        answered
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    #[test]
    fn callers_hear_through_the_runtime_that_opened_the_store() {
        let runtime = runtime();
        let answers = runtime.block_on(async { Answers::start() });
        let mut answered = send(&answers);
        assert!(answered.try_recv().is_err(), "the task inside has not run yet");
        assert_eq!(runtime.block_on(answered).expect("an answer").expect("written"), Revision(7));
    }

    #[test]
    fn callers_hear_when_that_runtime_has_ended_and_when_there_was_none() {
        let ended = runtime().block_on(async { Answers::start() });
        for answers in [ended, Answers::start()] {
            assert_eq!(send(&answers).try_recv().expect("an answer at once").expect("written"), Revision(7));
        }
    }
}
