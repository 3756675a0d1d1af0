//! The recorder without a server.

use std::time::Duration;

use bytes::Bytes;
use machinery::fields::Selector;
use server::observation::Recorder as _;

use super::*;
use crate::kinds::REQUESTS;

fn recorder(rows_max: usize) -> Arc<Recorder> {
    Recorder::new(rows_max, Arc::default(), Clock::system(), None)
}

fn answer(recorder: &Recorder, path: &str, body: Option<Bytes>) {
    let write = body.map(|body| {
        let write = recorder.write_begins("alice", "test/1.0", "");
        write.set_body(&body);
        write.committed(Revision(7));
        write
    });
    recorder.answered(Answered {
        resource: None,
        method: "GET",
        path,
        user: "alice",
        agent: "test/1.0",
        code: 200,
        took: Duration::from_millis(2),
        bytes: Some(10),
        faults: Vec::new(),
        write,
    });
}

fn names(recorder: &Recorder, fields: &str) -> Vec<String> {
    let mut names = Vec::new();
    let fields = Selector::parse(fields).expect("a selector");
    recorder.scan(REQUESTS, "", &fields, &mut |item| {
        names.push(item.name().to_owned());
        true
    });
    names
}

#[test]
fn see_2_the_number_of_requests_and_the_bytes_of_bodies_are_bounded() {
    let recorder = recorder(100);
    for _ in 0..150 {
        answer(&recorder, "/version", None);
    }
    let kept = names(&recorder, "");
    assert_eq!((kept.len(), kept.first().map(String::as_str)), (100, Some("req-0000000051")));
    assert_eq!(names(&recorder, "verb!=get").len(), 0);
    assert_eq!(names(&recorder, "user=alice,code=200").len(), 100);

    let body = Bytes::from(vec![b'x'; 1 << 20]);
    for _ in 0..20 {
        answer(&recorder, "/version", Some(body.clone()));
    }
    let bodies = || {
        let all = recorder.requests.lock().after(0, usize::MAX);
        let kept = all.iter().filter(|row| row.status()["body"].is_string()).count();
        (kept, all.iter().filter(|row| row.status()["bodyBytes"].is_number()).count())
    };
    assert_eq!(bodies(), (16, 20), "the oldest bodies are dropped, and their sizes are kept");
    assert!(recorder.bytes() <= BYTES_MAX);
    for _ in 0..100 {
        answer(&recorder, "/version", None);
    }
    assert_eq!(bodies(), (0, 0));
    assert!(recorder.bytes() < 100 << 10, "{}", recorder.bytes());
}

#[test]
fn see_2_ten_thousand_requests_and_their_bodies_take_at_most_20_mb() {
    let recorder = recorder(REQUESTS_DEFAULT);
    let body = Bytes::from(vec![b'x'; 4096]);
    let path = format!("/{}", "x".repeat(40));
    for _ in 0..REQUESTS_DEFAULT {
        answer(&recorder, &path, Some(body.clone()));
    }
    assert!(recorder.bytes() <= BYTES_MAX, "{}", recorder.bytes());
}

#[test]
fn see_2_the_recorders_of_many_worlds_share_what_they_may_take() {
    let share = Share::default();
    let world = |share: &Share| Recorder::new(REQUESTS_DEFAULT, Arc::default(), Clock::system(), Some(share.clone()));
    let first = world(&share);
    assert_eq!(first.bytes_max(), BYTES_MAX, "one world has as much as main");
    let others: Vec<Arc<Recorder>> = (0..1000).map(|_| world(&share)).collect();
    let part = first.bytes_max();
    assert!((WORLD_BYTES_MIN..WORLDS_BYTES_MAX / 1000).contains(&part), "{part}");
    let body = Bytes::from(vec![b'x'; 4096]);
    for _ in 0..2000 {
        answer(&first, "/version", Some(body.clone()));
        answer(&first, "/version", None);
    }
    assert!(first.bytes() <= part && !names(&first, "").is_empty(), "{} of {part}", first.bytes());
    drop(others);
    assert_eq!(first.bytes_max(), BYTES_MAX, "what deleted worlds had is free");
}
