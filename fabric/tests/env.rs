//! The real environment: clock, sleep, tasks, and what becomes of their panics.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use selkie_fabric::RealRuntime;
use selkie_fabric::env::{RuntimeConfig, TaskError, yield_now};

#[test]
fn time_passes_and_sleep_lasts_at_least_as_long_as_asked() {
    let runtime = RealRuntime::new(1).unwrap();
    let env = runtime.env();
    let start = env.now();
    // Made outside the runtime, and awaited inside.
    let sleep = env.sleep(Duration::from_millis(20));
    runtime.block_on(sleep);
    assert!(env.now() - start >= Duration::from_millis(20));
}

#[test]
fn a_number_of_threads_outside_the_bounds_is_refused() {
    for threads in [0, 4097] {
        let error = RealRuntime::new(threads).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("threads = {threads}")), "{error}");
    }
}

#[test]
fn random_numbers_follow_the_seed() {
    let draw = |runtime: RealRuntime| {
        let env = runtime.env();
        (0..4).map(|_| env.random_u64()).collect::<Vec<_>>()
    };
    let seeded = |seed| draw(RealRuntime::with_seed(1, seed).unwrap());
    assert_eq!(seeded(1), seeded(1));
    assert_ne!(seeded(1), seeded(2));
    assert_ne!(draw(RealRuntime::new(1).unwrap()), draw(RealRuntime::new(1).unwrap()));
}

#[test]
fn tasks_run_in_parallel_whether_or_not_they_are_joined() {
    let runtime = RealRuntime::new(4).unwrap();
    let env = runtime.env();
    let barrier = Arc::new(std::sync::Barrier::new(4));
    let ran = Arc::new(AtomicUsize::new(0));
    let spawn = || {
        let (barrier, ran) = (Arc::clone(&barrier), Arc::clone(&ran));
        env.spawn("waiter", async move {
            // Blocks its thread: four such tasks only get past it on four threads.
            barrier.wait();
            ran.fetch_add(1, Ordering::SeqCst);
        })
    };
    let joined = [spawn(), spawn()];
    drop((spawn(), spawn()));
    runtime.block_on(async {
        for handle in joined {
            assert_eq!(handle.join().await, Ok(()));
        }
        while ran.load(Ordering::SeqCst) < 4 {
            yield_now().await;
        }
    });
}

/// A runtime whose reports of panics are collected.
fn reporting() -> (RealRuntime, Arc<Mutex<Vec<TaskError>>>) {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    let hook = Arc::new(move |failure: &TaskError| sink.lock().unwrap().push(failure.clone()));
    let config = RuntimeConfig { threads: 1, seed: None, on_panic: Some(hook) };
    (RealRuntime::start(config).unwrap(), reports)
}

fn boom(message: &str) -> TaskError {
    TaskError::Panicked { name: "boom", message: message.to_owned() }
}

#[test]
fn a_joined_panic_is_returned_and_not_reported() {
    let (runtime, reports) = reporting();
    let task = runtime.env().spawn("boom", async {
        yield_now().await;
        let what = 7;
        panic!("on purpose {what}");
    });
    assert_eq!(runtime.block_on(task.join()), Err(boom("on purpose 7")));
    assert_eq!(*reports.lock().unwrap(), []);
}

#[test]
fn a_detached_panic_is_reported_whether_it_comes_before_or_after_the_detaching() {
    let (runtime, reports) = reporting();
    let env = runtime.env();
    let early = env.spawn("boom", async { panic!("before") });
    // One worker thread takes tasks in turn: when this one is done, so is the other.
    let turn = async || env.spawn("turn", async {}).join().await;
    assert_eq!(runtime.block_on(turn()), Ok(()));
    assert_eq!(*reports.lock().unwrap(), []);
    drop(early);
    assert_eq!(*reports.lock().unwrap(), [boom("before")]);

    let go = Arc::new(AtomicUsize::new(0));
    let gate = Arc::clone(&go);
    let late = env.spawn("boom", async move {
        while gate.load(Ordering::SeqCst) == 0 {
            yield_now().await;
        }
        panic!("after");
    });
    drop(late);
    go.store(1, Ordering::SeqCst);
    runtime.block_on(async {
        while reports.lock().unwrap().len() < 2 {
            yield_now().await;
        }
    });
    assert_eq!(*reports.lock().unwrap(), [boom("before"), boom("after")]);
}

#[test]
fn tasks_of_a_stopped_runtime_are_cancelled() {
    let (runtime, reports) = reporting();
    let env = runtime.env();
    let waiting = env.spawn("waiting", std::future::pending());
    drop(runtime);
    let late = env.spawn("late", async {});
    let other = RealRuntime::new(1).unwrap();
    let cancelled = |name| Err(TaskError::Cancelled { name });
    assert_eq!(other.block_on(waiting.join()), cancelled("waiting"));
    assert_eq!(other.block_on(late.join()), cancelled("late"));
    assert_eq!(*reports.lock().unwrap(), []);
}

#[test]
fn yielding_lets_the_other_task_run() {
    let runtime = RealRuntime::new(1).unwrap();
    let env = runtime.env();
    let order = Arc::new(Mutex::new(Vec::new()));
    let start = Arc::new(AtomicUsize::new(0));
    let player = |name: &'static str| {
        let (order, start) = (Arc::clone(&order), Arc::clone(&start));
        async move {
            start.fetch_add(1, Ordering::SeqCst);
            while start.load(Ordering::SeqCst) < 2 {
                yield_now().await;
            }
            for _ in 0..100 {
                order.lock().unwrap().push(name);
                yield_now().await;
            }
        }
    };
    let tasks = [env.spawn("ping", player("ping")), env.spawn("pong", player("pong"))];
    runtime.block_on(async {
        for task in tasks {
            task.join().await.unwrap();
        }
    });
    let order = order.lock().unwrap();
    let turns = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns > 150, "the tasks took turns only {turns} times of 199");
}
