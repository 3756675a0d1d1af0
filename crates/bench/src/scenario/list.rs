//! Lists of a whole collection: fresh, from the cache, in pages, with selectors; compared with the floor for the same bytes.

use std::time::Instant;

use crate::frames::Field;
use crate::pod;
use crate::progress::Progress;
use crate::report::Case;
use crate::sample::Latencies;
use crate::stage::{Meter, Stage, megabytes};
use crate::trouble::Trouble;
use crate::wire::{Connection, Request};

const PAGE: u64 = 500;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let (objects, lists, protocol) = (stage.sizes().objects, stage.sizes().lists, stage.options.protocol);
    stage.populate(objects).await?;
    let label = format!("labelSelector=app%3Dapp-{}", 3 % pod::APPS);
    let field = format!("fieldSelector=spec.nodeName%3Dnode-{}", 3 % pod::NODES);
    let ways = [
        ("rv unset", String::new()),
        ("rv=0", "resourceVersion=0".to_owned()),
        ("paged", format!("limit={PAGE}")),
        ("label selector", label),
        ("field selector", field),
    ];
    for (name, query) in ways {
        let server = stage.server().await?;
        let (pods, target, processes) = (server.pods(), server.target.clone(), server.processes.clone());
        let mut case = Case::new("list", name, "list").with("objects", server.made());
        let before = server.quiet_memory().await;
        let mut connection = Connection::open(&target, protocol).await?;
        let progress = Progress::new(&format!("list, {name}"), lists);
        let latencies = Latencies::new();
        let meter = Meter::start(&processes);
        let (mut bytes, mut requests, mut trouble) = (0, 0, None);
        for _ in 0..lists {
            let started = Instant::now();
            match whole(&mut connection, &pods, &query).await {
                Ok((read, pages)) => {
                    latencies.record(started.elapsed());
                    bytes += read;
                    requests += pages;
                    progress.add(1);
                }
                Err(met) => {
                    trouble = Some(met);
                    break;
                }
            }
        }
        let done = latencies.count();
        meter.end(&mut case, done);
        case.latency = latencies.summary();
        case.figure("mb_each", megabytes(bytes) / done.max(1) as f64);
        case.figure("requests_each", requests as f64 / done.max(1) as f64);
        if trouble.is_none() {
            let floor = stage.floor_of_answers(1, lists, bytes / lists.max(1)).await?;
            case.over_floor(floor);
            if let (Some(before), Some(after)) = (before, stage.server().await?.quiet_memory().await) {
                case.figure("memory_added_mb", megabytes(after) - megabytes(before));
            }
        }
        stage.record_until(case, trouble)?;
    }
    Ok(())
}

/// Bytes and requests of one list, following its pages to the end.
async fn whole(connection: &mut Connection, pods: &str, query: &str) -> Result<(u64, u64), Trouble> {
    let token = Field::new("continue");
    let (mut bytes, mut requests, mut path) = (0, 0, format!("{pods}?{query}"));
    loop {
        let answer = connection.must("list", &Request::get(path)).await?;
        bytes += answer.bytes;
        requests += 1;
        // Only before the items: an object could have a member of that name.
        let head = memchr::memmem::find(&answer.kept, b"\"items\"").unwrap_or(answer.kept.len());
        match token.text(&answer.kept[..head]).filter(|token| !token.is_empty()) {
            Some(token) => path = format!("{pods}?{query}&continue={}", escaped(token)),
            None => return Ok((bytes, requests)),
        }
    }
}

fn escaped(token: &str) -> String {
    token.replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_token_survives_a_query() {
        assert_eq!(super::escaped("a+b/c=%"), "a%2Bb%2Fc%3D%25");
    }
}
