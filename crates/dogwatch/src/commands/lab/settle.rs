//! `dogwatch lab settle`: waits until nothing is written and every watch has been sent everything.

use std::time::{Duration, Instant};

use http::Method;
use machinery::json::{Value, json};

use super::super::remote::Remote;
use super::{API, with_hint};
use crate::args::Settle;
use crate::failure::Failure;

/// Exit code of a cluster that is not quiet.
const NOT_SETTLED: u8 = 4;
/// Longest wait of one request.
const REQUEST_MAX: Duration = Duration::from_secs(50);

pub(super) async fn settle(args: Settle) -> Result<(), Failure> {
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    let began = Instant::now();
    loop {
        let left = args.timeout.saturating_sub(began.elapsed()).min(REQUEST_MAX);
        let mut spec = json!({
            "quiet": format!("{}ms", args.quiet.as_millis()),
            "timeout": format!("{}ms", left.as_millis()),
            "clients": args.clients,
        });
        if !args.ignore.is_empty() || !args.ignore_agents.is_empty() {
            spec["ignore"] = json!({"resources": args.ignore, "userAgents": args.ignore_agents});
        }
        let asked = json!({"kind": "Settlement", "apiVersion": "lab.dogwatch.dev/v1", "spec": spec});
        let body = Some(("application/json", asked.to_string().into_bytes()));
        let path = format!("{API}/settlements");
        let answer = remote.call_ok(Method::POST, &path, "application/json", body).await.map_err(with_hint)?.value()?;
        let status = &answer["status"];
        let is_last = status["settled"] == true || began.elapsed() + args.quiet >= args.timeout;
        if !is_last {
            continue;
        }
        for sentence in texts(&status["unmet"]) {
            println!("{sentence}");
        }
        if status["settled"] == true {
            println!("settled at revision {} after {} ms", status["revision"], began.elapsed().as_millis());
            return Ok(());
        }
        print!("{}", busy(&status["busy"]));
        return Err(Failure::with_code(NOT_SETTLED, format!("not settled after {} ms", began.elapsed().as_millis())));
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Who writes, which watches are behind, and what controllers have still to do, one line each.
fn busy(busy: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = String::new();
    for writer in busy["writers"].as_array().into_iter().flatten() {
        let mark = if writer["hotLoop"] == true { "  HOT LOOP" } else { "" };
        let agent = Some(text(&writer["userAgent"])).filter(|agent| !agent.is_empty());
        lines.push_str(&format!(
            "{} writes {} {}/{}  {} times, {}/s  {}{mark}\n",
            agent.unwrap_or_else(|| "the server".to_owned()),
            text(&writer["resource"]),
            text(&writer["namespace"]),
            text(&writer["name"]),
            writer["writes"],
            writer["perSecond"],
            texts(&writer["fields"]).join(" "),
        ));
    }
    for watcher in busy["watchers"].as_array().into_iter().flatten() {
        lines.push_str(&format!(
            "{} watches {}  {} changes behind, {} ms\n",
            text(&watcher["userAgent"]),
            text(&watcher["resource"]),
            watcher["revisionsBehind"],
            watcher["lagMs"],
        ));
    }
    for queue in busy["queues"].as_array().into_iter().flatten() {
        let keys = queue["keys"].as_array().into_iter().flatten();
        let keys: Vec<String> = keys.map(|key| format!("{} {}", text(&key["key"]), text(&key["state"]))).collect();
        lines.push_str(&format!(
            "controller {}  {} queued, {} in work  {}\n",
            text(&queue["controller"]),
            queue["queued"],
            queue["working"],
            keys.join(", "),
        ));
    }
    lines
}
