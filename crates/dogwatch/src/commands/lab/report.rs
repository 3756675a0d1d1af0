//! `dogwatch lab report`: what the faults did, and whether that is what is expected. Of a server, those of all its worlds; with the
//! kubeconfig of a world, its own.

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
    let mut unmet = print_faults(&remote, None).await?;
    for world in worlds(&remote).await? {
        unmet.extend(print_faults(&remote, Some(&world)).await?);
    }
    match unmet.as_slice() {
        [] => Ok(()),
        names => Err(Failure::with_code(UNMET, format!("expectations not met: {}", names.join(", ")))),
    }
}

/// The worlds of a server; none of a world, which has none.
async fn worlds(remote: &Remote) -> Result<Vec<String>, Failure> {
    let answer = remote.call(Method::GET, &format!("{API}/worlds"), "application/json", None).await?;
    if answer.code != 200 {
        return Ok(Vec::new());
    }
    let worlds = answer.value()?;
    let names = worlds["items"].as_array().into_iter().flatten().filter_map(|world| world["metadata"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Prints the faults of one world, and returns those whose expectation is not met. A world may be gone since it was listed.
async fn print_faults(remote: &Remote, world: Option<&str>) -> Result<Vec<String>, Failure> {
    let prefix = world.map_or_else(String::new, |world| format!("/worlds/{world}"));
    let answer = remote.call(Method::GET, &format!("{prefix}{API}/faults"), "application/json", None).await?;
    if answer.code != 200 {
        return if world.is_some() { Ok(Vec::new()) } else { Err(with_hint(answer.refusal())) };
    }
    let faults = answer.value()?;
    let of_world = world.map_or_else(String::new, |world| format!("world {world}: "));
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
        println!("{of_world}{name}  {effect}  {hits} hits{expectation}");
        if !is_met {
            unmet.push(format!("{of_world}{name}"));
        }
    }
    Ok(unmet)
}
