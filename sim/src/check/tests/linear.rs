//! Linearizability: cases by hand, and a comparison with all permutations.

use crate::check::linear::{Action, LinearError, Operation, linearizable, linearizable_within};

const READ_0: Action = Action::Read(0);
const READ_1: Action = Action::Read(1);
const WRITE_1: Action = Action::Write(1);
const WRITE_2: Action = Action::Write(2);

fn add(delta: u64, old: u64) -> Action {
    Action::FetchAdd { delta, old }
}

fn history(operations: &[(u64, u64, Action)]) -> Vec<Operation> {
    let operation = |(process, &(invoked, returned, action))| Operation {
        process,
        invoked,
        returned: (returned > 0).then_some(returned),
        action,
    };
    operations.iter().enumerate().map(operation).collect()
}

#[track_caller]
fn check(expected: bool, operations: &[(u64, u64, Action)]) {
    let verdict = linearizable(0, &history(operations));
    assert_eq!(verdict.is_ok(), expected, "{verdict:?}");
}

#[test]
fn stale_and_early_reads() {
    check(true, &[(1, 2, WRITE_1), (3, 4, READ_1)]);
    check(false, &[(1, 2, WRITE_1), (3, 4, READ_0)]);
    check(true, &[(1, 2, WRITE_1), (2, 4, READ_0)]);
    check(false, &[(1, 2, READ_1), (3, 4, WRITE_1)]);
    // Two reads during one write: new, then old.
    check(false, &[(1, 9, WRITE_1), (2, 3, READ_1), (4, 5, READ_0)]);
    check(true, &[(1, 9, WRITE_1), (2, 3, READ_0), (4, 5, READ_1)]);
}

#[test]
fn counters() {
    check(true, &[(1, 9, add(1, 1)), (1, 9, add(1, 0)), (10, 11, Action::Read(2))]);
    check(false, &[(1, 9, add(1, 0)), (1, 9, add(1, 0))]);
    check(false, &[(1, 9, add(1, 0)), (1, 9, add(1, 1)), (10, 11, READ_1)]);
    check(true, &[(1, 2, Action::Write(u64::MAX)), (3, 4, add(2, u64::MAX)), (5, 6, READ_1)]);
}

#[test]
fn the_value_carries_over_quiescent_points() {
    // Two overlapping writes leave either value, but only one of them.
    let writes = [(1, 4, WRITE_1), (2, 5, WRITE_2)];
    let then = |values: [u64; 2]| {
        let reads = [(6, 7, Action::Read(values[0])), (8, 9, Action::Read(values[1]))];
        [writes, reads].concat()
    };
    check(true, &then([1, 1]));
    check(true, &then([2, 2]));
    check(false, &then([1, 2]));
    check(false, &then([0, 0]));
}

#[test]
fn unknown_outcomes() {
    check(true, &[(1, 0, WRITE_1), (3, 4, READ_0), (5, 6, READ_1)]);
    check(false, &[(1, 0, WRITE_1), (3, 4, READ_1), (5, 6, READ_0)]);
    check(false, &[(3, 4, READ_1), (5, 0, WRITE_1)]);
    // One that took effect in one window cannot do so again in another.
    check(false, &[(1, 0, add(1, 0)), (2, 3, READ_1), (4, 5, WRITE_2), (6, 7, Action::Read(3))]);
    check(true, &[(1, 0, add(1, 0)), (2, 3, READ_0), (4, 5, WRITE_2), (6, 7, Action::Read(3))]);
    // Chains, equal ones, and one after the last write.
    check(true, &[(1, 0, add(1, 0)), (1, 0, add(1, 0)), (1, 0, WRITE_1), (2, 3, Action::Read(3))]);
    check(false, &[(1, 0, add(1, 0)), (1, 0, add(1, 0)), (2, 3, Action::Read(3))]);
    check(true, &[(1, 0, Action::Read(7)), (2, 3, READ_0)]);
}

#[test]
fn the_report_is_the_smallest_window() {
    let operations = [
        (1, 2, WRITE_1),
        (3, 20, WRITE_2),
        (4, 5, Action::Read(2)),
        (6, 7, READ_1),
        (8, 9, READ_1),
    ];
    let error = linearizable(0, &history(&operations)).unwrap_err();
    let LinearError::NotLinearizable(window) = &error else { panic!("{error}") };
    assert_eq!(window.before, [1]);
    let shown: Vec<usize> = window.operations.iter().map(|operation| operation.process).collect();
    assert_eq!(shown, [1, 2, 3]);
    let expected = "not linearizable: register in [1] before\n  \
        [     3 ..      ?] process 1: write 2\n  \
        [     4 ..      5] process 2: read -> 2\n  \
        [     6 ..      7] process 3: read -> 1";
    assert_eq!(error.to_string(), expected);
}

/// Each of these has more than 2^25 configurations, were it not for one rule of the search.
#[test]
fn unknown_outcomes_stay_cheap() {
    // None is observed, so none is tried.
    let writes = (10..50).map(|value| (1, 0, Action::Write(value)));
    let reads = (0..20).map(|i| (3 + 2 * i, 4 + 2 * i, READ_0));
    let overlapping = (1..7).map(|value| (100, 109, Action::Write(value)));
    check(true, &writes.chain(reads).chain(overlapping).collect::<Vec<_>>());
    // Equal ones are tried in one order.
    let adds = (0..40).map(|old| (1, 0, add(1, old)));
    check(
        true,
        &adds.chain([(3, 4, Action::Read(20)), (5, 6, Action::Read(40))]).collect::<Vec<_>>(),
    );
    // Nothing is gained by using one up for a value that is there without it.
    let windows = (1..40).flat_map(|value| {
        let (write, read) = (Action::Write(value), Action::Read(value));
        let at = 10 * value;
        [(1, 0, write), (at, at + 5, write), (at, at + 5, read), (at + 6, at + 7, Action::Write(0))]
    });
    check(true, &windows.collect::<Vec<_>>());
}

#[test]
fn too_hard_is_neither_yes_nor_no() {
    let writes: Vec<_> = (1..=12).map(|value| (1, 9, Action::Write(value))).collect();
    let history = history(&writes);
    assert_eq!(linearizable(0, &history), Ok(()));
    let error = linearizable_within(0, &history, 100).unwrap_err();
    assert!(matches!(error, LinearError::TooHard { configurations: 100, .. }), "{error}");
}

#[test]
fn long_histories_are_cheap() {
    // 20,000 increments by four overlapping processes that never fall quiet, some without answer.
    let operation = |i: u64| {
        let returned = (i % 1000 != 7).then_some(4 * i + 15);
        Operation { process: 0, invoked: 4 * i, returned, action: add(1, i) }
    };
    let mut history: Vec<Operation> = (0..20_000).map(operation).collect();
    assert_eq!(linearizable(0, &history), Ok(()));
    history[15_000].action = add(1, 3);
    assert!(matches!(linearizable(0, &history), Err(LinearError::NotLinearizable(_))));
}

#[test]
fn agrees_with_all_permutations() {
    let mut random = 1_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % bound
    };
    let mut accepted = 0;
    for _ in 0..20_000 {
        let operation = |below: &mut dyn FnMut(u64) -> u64| {
            let invoked = 1 + below(10);
            let returned = if below(4) == 0 { 0 } else { invoked + below(5) };
            let action = match below(3) {
                0 => Action::Read(below(3)),
                1 => Action::Write(below(3)),
                _ => add(below(2), below(3)),
            };
            (invoked, returned, action)
        };
        let count = 1 + below(5);
        let operations: Vec<_> = (0..count).map(|_| operation(&mut below)).collect();
        let history = history(&operations);
        let expected = some_order(0, &history);
        accepted += usize::from(expected);
        assert_eq!(linearizable(0, &history).is_ok(), expected, "{history:#?}");
    }
    assert!((2_000..18_000).contains(&accepted), "{accepted} of both verdicts are needed");
}

/// Tries every order of `left`, dropping what has no return.
fn some_order(value: u64, left: &[Operation]) -> bool {
    let earliest = left.iter().filter_map(|operation| operation.returned).min();
    let Some(earliest) = earliest else { return true };
    (0..left.len()).filter(|index| left[*index].invoked <= earliest).any(|index| {
        let mut rest = left.to_vec();
        let Operation { action, returned, .. } = rest.remove(index);
        let (agrees, after) = match action {
            Action::Read(observed) => (observed == value, value),
            Action::Write(written) => (true, written),
            Action::FetchAdd { delta, old } => (old == value, value.wrapping_add(delta)),
        };
        (agrees || returned.is_none()) && some_order(after, &rest)
    })
}
