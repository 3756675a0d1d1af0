//! `/debug/api_priority_and_fairness/…`: levels, queues and waiting requests as tables, in the columns of the reference.
//!
//! A queue is that of one user, and its `NextDispatchR` is the number of seats that the user has had, by which turns are decided. The level
//! `exempt` has neither seats nor counts, and is left out.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use super::Fairness;
use super::level::{QueueFigures, Refusal, WaitingRequest};

/// Least width of a column.
const WIDTH_MIN: usize = 8;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    PriorityLevels,
    Queues,
    Requests,
}

impl Dump {
    /// The dump of a path's last part.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "dump_priority_levels" => Some(Dump::PriorityLevels),
            "dump_queues" => Some(Dump::Queues),
            "dump_requests" => Some(Dump::Requests),
            _ => None,
        }
    }
}

impl Fairness {
    /// A table of what is there now.
    pub(crate) fn dump(&self, dump: Dump, now: Timestamp) -> String {
        let levels = self.levels.load();
        let mut rows = Vec::new();
        for level in levels.levels.iter().flatten() {
            let name = level.name.as_str();
            let queues = level.queues();
            match dump {
                Dump::PriorityLevels => rows.push(level_row(name, &queues, &level.figures_of_counts())),
                Dump::Queues => rows.extend(queues.iter().enumerate().map(|(at, queue)| queue_row(name, at, queue))),
                Dump::Requests => {
                    for (at, queue) in queues.iter().enumerate() {
                        let schema = |request: &WaitingRequest| {
                            let place = levels.schema_uids.iter().position(|uid| *uid == request.schema_uid);
                            place.and_then(|place| levels.table.schemas().nth(place)).map_or("", |schema| &schema.name)
                        };
                        let numbered = queue.waiting.iter().enumerate();
                        rows.extend(numbered.map(|(n, one)| request_row((name, schema(one)), (at, n), one, now)));
                    }
                }
            }
        }
        table(heads(dump), &rows)
    }
}

fn heads(dump: Dump) -> &'static [&'static str] {
    match dump {
        Dump::PriorityLevels => &[
            "PriorityLevelName",
            "ActiveQueues",
            "IsIdle",
            "IsQuiescing",
            "WaitingRequests",
            "ExecutingRequests",
            "DispatchedRequests",
            "RejectedRequests",
            "TimedoutRequests",
            "CancelledRequests",
        ],
        Dump::Queues => &[
            "PriorityLevelName",
            "Index",
            "PendingRequests",
            "ExecutingRequests",
            "SeatsInUse",
            "NextDispatchR",
            "InitialSeatsSum",
            "MaxSeatsSum",
            "TotalWorkSum",
        ],
        Dump::Requests => &[
            "PriorityLevelName",
            "FlowSchemaName",
            "QueueIndex",
            "RequestIndexInQueue",
            "FlowDistingsher",
            "ArriveTime",
            "InitialSeats",
            "FinalSeats",
            "AdditionalLatency",
        ],
    }
}

/// Counts of a level since the start.
pub(super) struct CountFigures {
    pub(super) dispatched: u64,
    pub(super) refused: [u64; 3],
    pub(super) cancelled: u64,
}

fn level_row(name: &str, queues: &[QueueFigures], counts: &CountFigures) -> Vec<String> {
    let active = queues.iter().filter(|queue| !queue.waiting.is_empty()).count();
    let waiting: usize = queues.iter().map(|queue| queue.waiting.len()).sum();
    let executing: usize = queues.iter().map(|queue| queue.requests).sum();
    let refused = |refusal: Refusal| counts.refused[refusal as usize];
    vec![
        name.to_owned(),
        active.to_string(),
        queues.is_empty().to_string(),
        "false".to_owned(),
        waiting.to_string(),
        executing.to_string(),
        counts.dispatched.to_string(),
        (refused(Refusal::NoQueue) + refused(Refusal::QueueFull)).to_string(),
        refused(Refusal::TimeOut).to_string(),
        counts.cancelled.to_string(),
    ]
}

fn queue_row(name: &str, at: usize, queue: &QueueFigures) -> Vec<String> {
    let seats: usize = queue.waiting.iter().map(|request| request.width).sum();
    vec![
        name.to_owned(),
        at.to_string(),
        queue.waiting.len().to_string(),
        queue.requests.to_string(),
        queue.seats.to_string(),
        format!("{}.00000000ss", queue.had),
        seats.to_string(),
        seats.to_string(),
        format!("{seats}.00000000ss"),
    ]
}

fn request_row(
    (level, schema): (&str, &str),
    (queue, at): (usize, usize),
    request: &WaitingRequest,
    now: Timestamp,
) -> Vec<String> {
    let arrived = now.checked_sub(request.arrived.elapsed()).unwrap_or(now);
    vec![
        level.to_owned(),
        schema.to_owned(),
        queue.to_string(),
        at.to_string(),
        request.user.to_string(),
        arrived.to_string(),
        request.width.to_string(),
        "0".to_owned(),
        format!("{}s", Duration::ZERO.as_secs()),
    ]
}

/// Lines of cells, each with a comma behind it and as wide as its column; the last one is as wide as it is.
fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |cell| cell.chars().count());
    let widths = heads.iter().enumerate().map(|(at, head)| {
        let widest = rows.iter().map(|row| cell(row, at)).max().unwrap_or_default().max(head.len());
        (widest + 2).max(WIDTH_MIN)
    });
    let widths: Vec<usize> = widths.collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        for (at, cell) in cells.enumerate() {
            // Writing to a String cannot fail.
            let _ = match at + 1 == widths.len() {
                true => writeln!(text, "{cell}"),
                false => write!(text, "{:<width$}", format!("{cell},"), width = widths[at]),
            };
        }
    };
    line(&mut heads.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apf_10_tables_have_aligned_columns() {
        let rows = [vec!["global-default".to_owned(), "7".to_owned(), "x".to_owned()]];
        let expected = "Name,           At,     Rest\nglobal-default, 7,      x\n";
        assert_eq!(table(&["Name", "At", "Rest"], &rows), expected);
        assert_eq!(Dump::parse("dump_queues"), Some(Dump::Queues));
        assert_eq!(Dump::parse("dump"), None);
    }
}
