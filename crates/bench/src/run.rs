//! A run: one scenario after the other. Results are kept also after a failure.

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::process::raise_open_files;
use crate::report::{Case, Report};
use crate::scenario::Scenario;
use crate::stage::{Options, Sink, Stage};
use crate::trouble::Trouble;

/// Ends a run early.
pub type Interruption<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Measures and reports. `interrupted` ends the run early, with the results so far.
///
/// Boxed, so that scenarios are compiled in this crate and not where the future is polled.
pub fn run<'a>(
    options: Options,
    scenarios: &'a [Scenario],
    sink: Sink,
    interrupted: Interruption<'a>,
) -> Pin<Box<dyn Future<Output = Report> + 'a>> {
    Box::pin(run_until(options, scenarios, sink, interrupted))
}

async fn run_until(options: Options, scenarios: &[Scenario], sink: Sink, interrupted: Interruption<'_>) -> Report {
    raise_open_files();
    let report = Arc::new(Mutex::new(Report::default()));
    let foreign = options.kubeconfig.is_some();
    let mut stage = Stage::new(options, Arc::clone(&report), sink);
    let troubles = tokio::select! {
        troubles = all(&mut stage, scenarios, foreign, &report) => troubles,
        () = interrupted => vec!["interrupted".to_owned()],
    };
    stage.leave().await;
    drop(stage);
    let mut report = report.lock().clone();
    report.complete = troubles.is_empty();
    report.error = troubles.into_iter().next();
    report
}

async fn all(stage: &mut Stage, scenarios: &[Scenario], foreign: bool, report: &Mutex<Report>) -> Vec<String> {
    let mut troubles = Vec::new();
    for scenario in scenarios {
        let name = scenario.name();
        if foreign && scenario.needs_a_server_of_its_own() {
            let why = format!("{name} starts a server of its own: leave out --kubeconfig");
            // An error if it is the only one; skipped among others.
            if scenarios.len() == 1 {
                troubles.push(why);
            } else {
                report.lock().skipped.push(why);
            }
            continue;
        }
        let recorded = report.lock().cases.len();
        let Err(trouble) = scenario.run(stage).await else { continue };
        let sentence = format!("{name}: {trouble}");
        let marked = report.lock().cases.iter().skip(recorded).any(|case| !case.complete);
        if !marked {
            stage.record(Case::new(name, "–", "").failed(&trouble));
        }
        troubles.push(sentence);
        // A server that is gone cannot run the next scenario.
        if !matches!(trouble, Trouble::Refused { .. } | Trouble::Impossible(_)) {
            break;
        }
    }
    troubles
}
