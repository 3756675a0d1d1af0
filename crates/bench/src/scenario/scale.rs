//! Simulated nodes and deployments: the time until every pod runs, and its cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::frames::Lines;
use crate::own_server::OwnServer;
use crate::process::Processes;
use crate::progress::Progress;
use crate::report::Case;
use crate::stage::{Meter, Stage};
use crate::trouble::Trouble;
use crate::wire::{Connection, Protocol, Request};

const REPLICAS: u32 = 100;
/// Time without a change after which no more are expected.
const SILENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let (nodes, pods) = (stage.sizes().nodes, stage.sizes().pods);
    let nodes_text = nodes.to_string();
    let own = OwnServer::start(&stage.options.program, &stage.options.dir, &["--nodes", &nodes_text]).await?;
    let processes = Processes::new(own.pid().into_iter().collect())?;
    let mut case =
        Case::new("scale", format!("{nodes} nodes, {pods} pods"), "pod").with("nodes", nodes).with("pods", pods);

    let mut connection = Connection::open(&own.target, Protocol::Http1).await?;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let running = Arc::new(AtomicU64::new(0));
    // The server sends ADDED when a pod begins to match the selector.
    let watch = "/api/v1/namespaces/default/pods?watch=true&timeoutSeconds=3000&fieldSelector=status.phase%3DRunning";
    let mut stream = Connection::open(&own.target, Protocol::Http1).await?.watch(watch).await?;
    let counted = Arc::clone(&running);
    let counting = tokio::spawn(async move {
        let mut lines = Lines::default();
        let count = |line: &[u8]| {
            if line.starts_with(br#"{"type":"ADDED""#) {
                counted.fetch_add(1, Ordering::Relaxed);
            } else if line.starts_with(br#"{"type":"DELETED""#) {
                counted.fetch_sub(1, Ordering::Relaxed);
            }
        };
        while stream.read(|piece| lines.feed(piece, count)).await.unwrap_or(false) {}
    });

    let meter = Meter::start(&processes);
    let progress = Progress::new("pods running", u64::from(pods));
    let mut left = pods;
    for number in 0.. {
        let replicas = left.min(REPLICAS);
        if replicas == 0 {
            break;
        }
        connection.must("create a deployment", &Request::post(deployments, deployment(number, replicas))).await?;
        left -= replicas;
    }
    let (mut last, mut changed) = (0, Instant::now());
    let trouble = loop {
        let now = running.load(Ordering::Relaxed);
        progress.set(now);
        if now >= u64::from(pods) {
            break None;
        }
        if now != last {
            (last, changed) = (now, Instant::now());
        }
        if changed.elapsed() > SILENCE || counting.is_finished() {
            break Some(Trouble::impossible(format!("{now} of {pods} pods run, and no more follow")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    meter.end(&mut case, running.load(Ordering::Relaxed));
    counting.abort();
    stage.record_until(case, trouble)
}

fn deployment(number: u32, replicas: u32) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"load-{number:05}"}},"spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"load":"{number}"}}}},"template":{{"metadata":{{"labels":{{"load":"{number}"}}}},"spec":{{"containers":[{{"name":"main","image":"registry.example/team/service:1.4.2"}}]}}}}}}}}"#
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_deployment_is_json() {
        let made: serde_json::Value = serde_json::from_str(&super::deployment(3, 40)).expect("JSON");
        assert_eq!(made["spec"]["replicas"], 40);
        let labels = &made["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&made["spec"]["selector"]["matchLabels"], labels);
    }
}
