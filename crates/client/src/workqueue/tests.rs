//! The rules of the work queue, one test each, on virtual time.

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

async fn next(queue: &WorkQueue<&'static str>) -> Work<&'static str> {
    queue.get().await.unwrap()
}

/// Takes everything that is ready, finishing each.
async fn take_all(queue: &WorkQueue<&'static str>) -> Vec<&'static str> {
    let mut all = Vec::new();
    while !queue.is_empty() {
        all.push(*next(queue).await.item());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn wq_01_a_key_that_waits_is_not_added_again() {
    let queue = WorkQueue::new();
    for item in ["a", "b", "a", "a"] {
        queue.add(item);
    }
    assert_eq!(take_all(&queue).await, ["a", "b"]);
    queue.shut_down();
    queue.add("c");
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn wq_02_a_key_in_work_is_in_line_again_when_done_and_never_in_parallel() {
    let queue = WorkQueue::new();
    queue.add("a");
    let work = next(&queue).await;
    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(queue.len(), 1, "only b is in line");
    drop(work);
    assert_eq!(take_all(&queue).await, ["b", "a"], "at the end of the line, once");
}

#[tokio::test(start_paused = true)]
async fn wq_03_first_come_first_served() {
    let queue = WorkQueue::new();
    for item in ["c", "a", "b", "c"] {
        queue.add(item);
    }
    assert_eq!(take_all(&queue).await, ["c", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn wq_04_of_two_delays_the_earlier_end_counts() {
    for delays in [[10, 5], [5, 10]] {
        let queue = WorkQueue::new();
        let began = Instant::now();
        for seconds in delays {
            queue.add_after("a", Duration::from_secs(seconds));
        }
        drop(next(&queue).await);
        assert_eq!(began.elapsed().as_secs(), 5);
        assert_eq!(queue.report().delayed, 0, "one run");
    }
    let queue = WorkQueue::new();
    queue.add_after("now", Duration::ZERO);
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn wq_04_a_waiting_worker_learns_of_an_earlier_end() {
    let queue = WorkQueue::new();
    queue.add_after("late", Duration::from_secs(100));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { *next(&queue).await.item() }
    });
    tokio::task::yield_now().await;
    let began = Instant::now();
    queue.add_after("early", Duration::from_secs(1));
    assert_eq!(worker.await.unwrap(), "early");
    assert_eq!(began.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn wq_04_a_delay_to_the_end_of_time_is_no_panic() {
    let queue = WorkQueue::new();
    queue.add_after("a", Duration::MAX);
    assert_eq!(queue.report().delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn wq_05_an_immediate_add_leaves_the_delayed_one() {
    let queue = WorkQueue::new();
    let began = Instant::now();
    queue.add_after("a", Duration::from_secs(3));
    queue.add("a");
    drop(next(&queue).await);
    assert_eq!(began.elapsed().as_secs(), 0);
    drop(next(&queue).await);
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn wq_06_the_figures_of_the_limiters() {
    let item = ItemExponential::new(ms(5), Duration::from_secs(1000)).counting(Counting::Every);
    let delays: Vec<Duration> = (0..20).map(|_| item.when(&"a", Instant::now())).collect();
    assert_eq!(delays[..4], [ms(5), ms(10), ms(20), ms(40)]);
    assert_eq!(delays[17], ms(5 << 17));
    assert_eq!(delays[18], Duration::from_secs(1000));
    assert_eq!((item.retries(&"a"), item.retries(&"b")), (20, 0));
    item.forget(&"a");
    assert_eq!(item.when(&"a", Instant::now()), ms(5));

    let bucket = TokenBucket::new(10.0, 100);
    let waits: Vec<Duration> = (0..102).map(|_| bucket.when(&"a", Instant::now())).collect();
    assert!(waits[..100].iter().all(Duration::is_zero), "a burst of 100");
    assert_eq!((waits[100].as_millis(), waits[101].as_millis()), (100, 200), "then ten a second");

    let steps = FastSlow::new(ms(5), Duration::from_secs(10), 3);
    let delays: Vec<Duration> = (0..4).map(|_| steps.when(&"a", Instant::now())).collect();
    assert_eq!(delays, [ms(5), ms(5), ms(5), Duration::from_secs(10)]);

    let capped = Capped { limiter: FastSlow::new(ms(5), Duration::from_secs(10), 0), cap: Duration::from_secs(1) };
    assert_eq!(capped.when(&"a", Instant::now()), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn wq_06_the_default_is_the_longer_of_both_limits() {
    let limiter = default_limiter::<u32>();
    for key in 0..100 {
        assert_eq!(limiter.when(&key, Instant::now()), ms(5), "the first failure of a key, within the burst");
    }
    assert_eq!(limiter.when(&100, Instant::now()).as_millis(), 100, "ten a second after the burst");
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(
        (limiter.when(&0, Instant::now()), limiter.retries(&0)),
        (ms(10), 2),
        "twice as long for the second failure"
    );
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(3600)).await;
        limiter.when(&0, Instant::now());
    }
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(limiter.when(&0, Instant::now()), Duration::from_secs(1000), "and never longer than this");
}

#[tokio::test(start_paused = true)]
async fn wq_06_forget_clears_the_count_and_done_does_not() {
    let queue = WorkQueue::new();
    queue.add_rate_limited("a");
    drop(next(&queue).await);
    assert_eq!(queue.retries(&"a"), 1);
    queue.add("a");
    next(&queue).await.succeed();
    assert_eq!(queue.retries(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn wq_07_the_bucket_pays_even_when_the_item_limiter_decides() {
    let long = ItemExponential::new(Duration::from_secs(60), Duration::from_secs(60));
    let both = MaxOf::new(vec![Box::new(long), Box::new(TokenBucket::new(0.001, 2))]);
    assert_eq!(both.when(&"a", Instant::now()), Duration::from_secs(60));
    assert_eq!(both.when(&"b", Instant::now()), Duration::from_secs(60));
    assert_eq!(
        both.when(&"c", Instant::now()),
        Duration::from_secs(1000),
        "the bucket is empty although it never decided"
    );
}

#[tokio::test(start_paused = true)]
async fn wq_08_shut_down_hands_out_what_waits_and_drops_what_is_delayed() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add_after("later", Duration::from_secs(1));
    queue.shut_down();
    assert_eq!(*next(&queue).await.item(), "a");
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn wq_08_shut_down_wakes_every_waiting_worker() {
    let queue = WorkQueue::<&'static str>::new();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    for worker in workers {
        assert!(worker.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn wq_09_nothing_outlives_the_queue() {
    let queue = WorkQueue::new();
    queue.add_after("a", Duration::from_secs(3600));
    let shared = Arc::downgrade(&queue.shared);
    queue.shut_down();
    drop(queue);
    assert!(shared.upgrade().is_none(), "no timer task holds it");
}

#[tokio::test(start_paused = true)]
async fn wq_10_numbers() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    queue.add("a");
    queue.add_after("c", Duration::from_secs(60));
    tokio::time::advance(Duration::from_secs(2)).await;
    let a = next(&queue).await;
    tokio::time::advance(Duration::from_secs(3)).await;
    let b = next(&queue).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let report = queue.report();
    assert_eq!((report.depth, report.delayed, report.processing), (0, 1, 2));
    assert_eq!((report.unfinished.as_secs(), report.longest_running.as_secs()), (5, 4));
    assert_eq!((report.metrics.adds.get(), report.metrics.retries.get()), (2, 1));
    assert_eq!(report.metrics.queue_duration.sum().as_secs(), 7);
    drop((a, b));
    assert_eq!(queue.report().metrics.work_duration.sum().as_secs(), 5);
    let mut text = String::new();
    crate::metrics::render_queue("q", &queue.report(), &mut text);
    for line in [
        "workqueue_depth{name=\"q\"} 0",
        "workqueue_adds_total{name=\"q\"} 2",
        "workqueue_retries_total{name=\"q\"} 1",
        "workqueue_queue_duration_seconds_count{name=\"q\"} 2",
        "workqueue_work_duration_seconds_sum{name=\"q\"} 5",
        "workqueue_unfinished_work_seconds{name=\"q\"} 0",
        "workqueue_longest_running_processor_seconds{name=\"q\"} 0",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn wq_11_a_failure_before_the_delay_was_served_does_not_count() {
    let item = ItemExponential::new(ms(100), Duration::from_secs(1000));
    assert_eq!(item.when(&"a", Instant::now()), ms(100));
    for _ in 0..10 {
        tokio::time::advance(ms(1)).await;
        assert_eq!(item.when(&"a", Instant::now()), ms(100), "an outside event brought it back early");
    }
    tokio::time::advance(ms(100)).await;
    assert_eq!(item.when(&"a", Instant::now()), ms(200), "the delay was served, the failure counts");
}

#[tokio::test(start_paused = true)]
async fn wq_12_drain_waits_for_the_line_and_the_work() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let a = next(&queue).await;
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain(None).await }
    });
    tokio::task::yield_now().await;
    drop(a);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!drain.is_finished(), "b is still in line; client-go returns here");
    drop(next(&queue).await);
    assert!(drain.await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn wq_12_drain_with_a_deadline_returns_the_rest() {
    let queue = WorkQueue::new();
    for item in ["a", "b"] {
        queue.add(item);
    }
    let _a = next(&queue).await;
    let mut left = queue.drain(Some(Duration::from_secs(5))).await;
    left.sort_unstable();
    assert_eq!(left, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn priorities_are_served_by_weight_and_no_key_starves() {
    let queue = WorkQueue::<u32>::with_limiter(default_limiter());
    for n in 0..4 {
        queue.add_with_priority(1000 + n, LOW);
    }
    let mut low_seen = 0;
    let mut taken = 0;
    // High-priority work never runs out.
    for n in 0..100 {
        queue.add_with_priority(n, NORMAL);
        queue.add_with_priority(500 + n, NORMAL);
        let work = queue.get().await.unwrap();
        taken += 1;
        low_seen += u32::from(*work.item() >= 1000);
        if low_seen == 4 {
            break;
        }
    }
    assert_eq!(low_seen, 4, "after {taken} keys");
    assert!(taken >= 4 * 9, "and high-priority work was not held up: {taken}");
}

#[tokio::test(start_paused = true)]
async fn raising_a_priority_moves_to_the_end_of_the_higher_line() {
    let queue = WorkQueue::new();
    queue.add_with_priority("x", LOW);
    queue.add_with_priority("y", LOW);
    queue.add_with_priority("high", NORMAL);
    queue.add_with_priority("y", NORMAL);
    queue.add_with_priority("y", LOW);
    assert_eq!(take_all(&queue).await, ["high", "y", "x"]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_urgent_key_overtakes_the_rest_when_due() {
    let queue = WorkQueue::new();
    queue.add_after_with_priority("urgent", Duration::from_secs(1), NORMAL);
    for item in ["a", "b", "c"] {
        queue.add_with_priority(item, LOW);
    }
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(*next(&queue).await.item(), "urgent");
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_is_still_done() {
    let queue = WorkQueue::new();
    queue.add("a");
    let crashed = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _work = next(&queue).await;
            panic!("oh");
        }
    });
    assert!(crashed.await.is_err());
    assert!(queue.drain(None).await.is_empty());
}
