//! `check`: lists the damage in a data directory, and with `--repair` sets it aside.

use machinery::clock::Clock;

use crate::args::Check;
use crate::engine::{self, CheckReport, Repaired};
use crate::failure::Failure;

/// Exit code 0 without damage or after a repair; 1 with damage.
pub(super) async fn check(args: Check) -> Result<(), Failure> {
    if args.repair {
        let repaired = engine::repair(&args.dir, Clock::system()).await?;
        print!("{}", repair_text(&repaired));
        return Ok(());
    }
    let report = engine::check(&args.dir).await?;
    print!("{}", check_text(&report));
    if report.damage.is_empty() {
        return Ok(());
    }
    let sentence = format!("{} is damaged in {} places", report.path.display(), report.damage.len());
    Err(Failure::new(sentence).hint("stop the server and run `dogwatch check --repair`, or restore a backup"))
}

fn check_text(report: &CheckReport) -> String {
    let mut text = String::new();
    for damage in &report.damage {
        text.push_str(&format!("{}: {damage}\n", report.path.display()));
    }
    text.push_str(&format!("checked {} changes\n", report.rows));
    text
}

fn repair_text(repaired: &Repaired) -> String {
    let Some((list, kept)) = &repaired.files else { return "no damage found, nothing changed\n".to_owned() };
    let mut text = String::new();
    for value in &repaired.set_aside {
        text.push_str(&format!("set aside: key {}, revision {}: {}\n", value.key, value.revision, value.reason));
    }
    if repaired.missing > 0 {
        text.push_str(&format!("{} changes were written once and are not in the file\n", repaired.missing));
    }
    text.push_str(&format!("kept {} objects, set {} aside\n", repaired.objects, repaired.set_aside.len()));
    text.push_str(&format!("damage and values set aside: {}\ndamaged store: {}\n", list.display(), kept.display()));
    text
}
