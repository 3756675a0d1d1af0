//! Attachments: a client sees what a container writes, until it ends.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Containers;
use super::exec::Streams;
use super::log::{CurrentPod, LogWanted};
use super::rules::{LogContent, rule_for};
use super::state::{self, Refusal};
use k8s_openapi::api::core::v1::Pod;

impl Containers {
    /// Joins the standard streams of a container's own process. The input is read and dropped: no simulated process reads any.
    pub async fn attach(
        &self,
        pod: &Pod,
        container: &str,
        streams: Streams,
        current: CurrentPod,
    ) -> Result<i32, String> {
        let why = |refusal| match refusal {
            Refusal::NotYet(why) | Refusal::NotRunning(why) => why,
        };
        let instance = state::instance(pod, container, false).map_err(why)?;
        let Streams { stdin, stdout, .. } = streams;
        let dropping = async {
            if let Some(mut stdin) = stdin {
                let mut piece = [0; 1024];
                while matches!(stdin.read(&mut piece).await, Ok(len) if len > 0) {}
            }
            std::future::pending::<()>().await;
        };
        let rules = self.rules_of(pod).attaches;
        let Some(mut stdout) = stdout else {
            // Without an output there is only the end to wait for.
            let wanted = LogWanted { follow: true, tail_lines: Some(0), ..LogWanted::default() };
            let _ = self.write_log(pod, container, instance, wanted, current, tokio::io::sink()).await;
            return Ok(0);
        };
        let showing = async {
            let mut tail = None;
            if let Some(LogContent::Text(text)) = rule_for(&rules, container).map(|rule| &rule.log) {
                let _ = stdout.write_all(text.as_bytes()).await;
                tail = Some(0);
            }
            // What it has written so far as well: a container that writes nothing more would seem to hang.
            let wanted = LogWanted { follow: true, tail_lines: tail, ..LogWanted::default() };
            let _ = self.write_log(pod, container, instance, wanted, current, &mut stdout).await;
        };
        tokio::select! {
            () = showing => {}
            () = dropping => {}
        }
        Ok(0)
    }
}
