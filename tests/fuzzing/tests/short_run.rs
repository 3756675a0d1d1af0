//! A short run of every target on a fixed sequence of inputs. A failure, or an input that takes too long, is printed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fuzzing::{TARGETS, Target, mutation, seeds};
use machinery::json::Value;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Number of inputs for each target, and the seed of their sequence. `FUZZ_INPUTS` and `FUZZ_SEED` override them.
const INPUTS: u64 = 2500;
const SEED: u64 = 0xd06;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Longest time of the processor for one input. The largest take a tenth of it without optimisation; an input whose cost is not
/// proportional to its size takes far longer.
const PROCESSOR_TIME_MAX: Duration = Duration::from_secs(20);

/// The time that the processor has spent on this thread: other programs do not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

fn feed(target: Target, input: &[u8]) {
    let began = processor_time();
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        panic!("{} fails on {:?}\n{input:?}", target.name, String::from_utf8_lossy(input));
    }
    let took = processor_time() - began;
    let text = || String::from_utf8_lossy(&input[..input.len().min(2000)]).into_owned();
    assert!(took < PROCESSOR_TIME_MAX, "{} takes {took:?} for {} bytes: {:?}", target.name, input.len(), text());
}

fn run(name: &str) {
    let target = TARGETS.into_iter().find(|target| target.name == name).expect("a target");
    let seeds = seeds::for_target(name);
    assert!(seeds.len() > 5, "a target needs seeds");
    for seed in &seeds {
        feed(target, seed);
    }
    for seed in seeds::deep(name) {
        feed(target, &seed);
    }
    let mut rng = StdRng::seed_from_u64(number("FUZZ_SEED", SEED));
    for _ in 0..number("FUZZ_INPUTS", INPUTS) {
        let seed = &seeds[rng.random_range(0..seeds.len())];
        // The first bytes choose how the rest is read; the rest may be a document.
        let (head, rest) = seed.split_at(match name {
            "body" | "patch" => 2,
            "watch_response" => 1,
            _ => 0,
        });
        let input = match serde_json::from_slice::<Value>(rest) {
            Ok(document) if rng.random_range(0..4) > 0 => {
                let changed = mutation::document(&mut rng, &document).to_string();
                [head, changed.as_bytes()].concat()
            }
            _ => match rng.random_range(0..10) {
                0 => (0..rng.random_range(0..64)).map(|_| rng.random()).collect(),
                1 if name == "watch_response" => [&[rng.random()], &mutation::bytes(&mut rng, rest)[..]].concat(),
                _ => [head, &mutation::bytes(&mut rng, rest)].concat(),
            },
        };
        feed(target, &input);
    }
}

#[test]
fn label_selector() {
    run("label_selector");
}

#[test]
fn field_selector() {
    run("field_selector");
}

#[test]
fn query() {
    run("query");
}

#[test]
fn continue_token() {
    run("continue_token");
}

#[test]
fn accept() {
    run("accept");
}

#[test]
fn path() {
    run("path");
}

#[test]
fn body() {
    run("body");
}

#[test]
fn patch() {
    run("patch");
}

#[test]
fn certificate_request() {
    run("certificate_request");
}

#[test]
fn delete_options() {
    run("delete_options");
}

#[test]
fn cel() {
    run("cel");
}

#[test]
fn definition() {
    run("definition");
}

#[test]
fn json_path() {
    run("json_path");
}

#[test]
fn watch_response() {
    run("watch_response");
}

#[test]
fn headers() {
    run("headers");
}

#[test]
fn token() {
    run("token");
}

#[test]
fn audit_policy() {
    run("audit_policy");
}

#[test]
fn authorization_file() {
    run("authorization_file");
}

#[test]
fn authentication_file() {
    run("authentication_file");
}

#[test]
fn sp_2_spdy() {
    run("spdy");
}

#[test]
fn sp_5_stream_message() {
    run("stream_message");
}

#[test]
fn script() {
    run("script");
}

#[test]
fn stages() {
    run("stages");
}

#[test]
fn wh_20_webhook_answer() {
    run("webhook_answer");
}
