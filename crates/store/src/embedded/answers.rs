//! Sends the results of a group of writes to their callers with one wake-up.
//!
//! Waking a task from a thread outside its runtime costs one or two system calls. The writer therefore passes the whole
//! group to one task inside the runtime, which wakes the callers at almost no cost. The task that follows the log is
//! woken before that, so that a write is visible by the time its caller looks.

use machinery::Revision;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::error::WriteError;

pub(super) type WriteResult = Result<Revision, WriteError>;

/// Takes the result of one write to its caller.
pub(super) type Answer = oneshot::Sender<WriteResult>;

/// The callers of one group, each with its result.
pub(super) type Outcomes = Vec<(Answer, WriteResult)>;

/// The channel to the answering task. Unbounded, but it never holds more results than there are waiting callers, whose
/// number the command channel bounds.
pub(super) struct Answers(Option<mpsc::UnboundedSender<Outcomes>>);

impl Answers {
    /// Starts the answering task in the current runtime. Outside of a runtime, callers are answered directly.
    pub(super) fn start() -> Self {
        let Ok(runtime) = Handle::try_current() else { return Answers(None) };
        let (sender, mut groups) = mpsc::unbounded_channel();
        runtime.spawn(async move {
            while let Some(outcomes) = groups.recv().await {
                answer_all(outcomes);
            }
        });
        Answers(Some(sender))
    }

    pub(super) fn send(&self, outcomes: Outcomes) {
        let Some(sender) = &self.0 else { return answer_all(outcomes) };
        // The runtime that opened the store has ended; callers may be in another.
        if let Err(mpsc::error::SendError(outcomes)) = sender.send(outcomes) {
            answer_all(outcomes);
        }
    }
}

fn answer_all(outcomes: Outcomes) {
    for (answer, result) in outcomes {
        // Fails for a caller that no longer waits.
        let _ = answer.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(answers: &Answers) -> oneshot::Receiver<WriteResult> {
        let (answer, answered) = oneshot::channel();
        answers.send(vec![(answer, Ok(Revision(7)))]);
        answered
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    #[test]
    fn callers_are_answered_through_the_runtime_that_opened_the_store() {
        let runtime = runtime();
        let answers = runtime.block_on(async { Answers::start() });
        let mut answered = send(&answers);
        assert!(answered.try_recv().is_err(), "the task inside has not run yet");
        assert_eq!(runtime.block_on(answered).expect("an answer").expect("written"), Revision(7));
    }

    #[test]
    fn callers_are_answered_when_that_runtime_has_ended_and_when_there_was_none() {
        let ended = runtime().block_on(async { Answers::start() });
        for answers in [ended, Answers::start()] {
            assert_eq!(send(&answers).try_recv().expect("an answer at once").expect("written"), Revision(7));
        }
    }
}
