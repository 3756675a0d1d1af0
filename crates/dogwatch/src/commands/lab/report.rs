//! `dogwatch lab report`: what the faults did, and whether that is what is expected.

use http::Method;
use machinery::json::Value;

use super::super::remote::Remote;
use super::{API, with_hint};
use crate::args::LabReport;
use crate::failure::Failure;

/// Exit code of an expectation that is not met.
const UNMET: u8 = 3;

pub(super) async fn report(args: LabReport) -> Result<(), Failure> {
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    let path = format!("{API}/faults");
    let faults = remote.call_ok(Method::GET, &path, "application/json", None).await.map_err(with_hint)?.value()?;
    let mut unmet = Vec::new();
    for fault in faults["items"].as_array().into_iter().flatten() {
        let name = fault["metadata"]["name"].as_str().unwrap_or_default();
        let (hits, expected) = (fault["status"]["hits"].as_u64().unwrap_or_default(), &fault["spec"]["expect"]["hits"]);
        let effect = fault["status"]["effect"].as_str().unwrap_or_default();
        let is_met = expected.as_u64().is_none_or(|expected| expected == hits);
        let expectation = match expected {
            Value::Null => String::new(),
            expected => format!(" of {expected} expected{}", if is_met { "" } else { "  UNMET" }),
        };
        println!("{name}  {effect}  {hits} hits{expectation}");
        if !is_met {
            unmet.push(name.to_owned());
        }
    }
    match unmet.as_slice() {
        [] => Ok(()),
        names => Err(Failure::with_code(UNMET, format!("expectations not met: {}", names.join(", ")))),
    }
}
