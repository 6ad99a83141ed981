//! Many seeds, on all cores. Each run has a thread to itself, so how many there are changes
//! nothing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::failure::Failure;
use crate::scenario::{Case, run};

/// What a sweep that found nothing did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SweepSummary {
    /// Runs.
    pub runs: u64,
    /// Operations that clients completed.
    pub operations: u64,
    /// Clients that ended in a typed error because a node was lost.
    pub gave_up: u64,
    /// Hash of all runs' traces, in the order of their seeds.
    pub trace_hash: u64,
}

/// Runs what `case_of` makes of every seed of `seeds`, on `threads` threads.
/// `tell` is called after each run with the number of runs done so far.
///
/// # Errors
/// The failure with the smallest seed among the runs that were made; none are begun after the
/// first.
pub fn sweep(
    seeds: Range<u64>,
    case_of: &(dyn Fn(u64) -> Case + Sync),
    threads: usize,
    tell: &(dyn Fn(u64) + Sync),
) -> Result<SweepSummary, Box<Failure>> {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicBool::new(false);
    let runs = AtomicU64::new(0);
    let first: Mutex<Option<Box<Failure>>> = Mutex::new(None);
    let summaries = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match run(case_of(seed), None) {
                        Ok(summary) => summaries.lock().push(summary),
                        Err(failure) => {
                            failed.store(true, Ordering::Relaxed);
                            let mut first = first.lock();
                            if first
                                .as_ref()
                                .is_none_or(|other| failure.case.seed < other.case.seed)
                            {
                                *first = Some(failure);
                            }
                        }
                    }
                    tell(runs.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    if let Some(failure) = first.into_inner() {
        return Err(failure);
    }
    let mut summaries = summaries.into_inner();
    summaries.sort_by_key(|summary| summary.case.seed);
    let mut total = SweepSummary::default();
    for summary in summaries {
        total.runs += 1;
        total.operations += summary.operations;
        total.gave_up += summary.gave_up;
        let mixed = (total.trace_hash ^ summary.trace_hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        total.trace_hash = mixed ^ (mixed >> 32);
    }
    Ok(total)
}
