//! The checker of transactions against what executors really do, against all permutations, and
//! against the crate `adya`, an independent implementation of Elle.

#![expect(clippy::indexing_slicing, reason = "helpers of tests may fail")]

mod common;

use std::collections::BTreeMap;

use adya::{Valid, Workload};
use selkie_sim::check::serial::{AnomalyKind, Level, Op, Status, Transaction, serializable};

const LEVELS: [Level; 2] = [Level::Serializable, Level::StrictSerializable];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn key(&mut self, keys: u64) -> u64 {
        self.below(keys as usize) as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ops {
    /// Reads, blind writes and scans of registers.
    Registers,
    /// Reads of registers, and writes of what was read before; no unknown outcomes.
    Updates,
    Lists,
    Mixed,
}

#[derive(Clone, Default)]
struct Store {
    registers: BTreeMap<u64, u64>,
    lists: BTreeMap<u64, Vec<u64>>,
}

impl Store {
    /// The operation with what it observes here.
    fn run(&mut self, op: &Op) -> Op {
        match *op {
            Op::Read { key, .. } => Op::Read { key, value: self.registers.get(&key).copied() },
            Op::ReadList { key, .. } => {
                Op::ReadList { key, value: self.lists.get(&key).cloned().unwrap_or_default() }
            }
            Op::Scan { low, high, .. } => {
                let inside = self.registers.iter().filter(|(key, _)| (low..=high).contains(key));
                Op::Scan { low, high, seen: inside.map(|(key, value)| (*key, *value)).collect() }
            }
            Op::Write { key, value } => {
                self.registers.insert(key, value);
                op.clone()
            }
            Op::Append { key, value } => {
                self.lists.entry(key).or_default().push(value);
                op.clone()
            }
        }
    }
}

/// Runs transactions one after the other, each at an instant of its own between invocation and
/// return; the intervals overlap. One in eight aborts, one in eight leaves its client without an
/// answer.
fn execute(random: &mut Random, ops: Ops, count: usize, keys: u64) -> Vec<Transaction> {
    let (mut store, mut last_value) = (Store::default(), 0);
    let mut history: Vec<Transaction> = (0..count)
        .map(|process| {
            let now = 20 + 4 * process as u64;
            let (status, applied) = match random.below(16) {
                0 | 1 => (Status::Aborted, false),
                2 if ops != Ops::Updates => (Status::Unknown, true),
                3 if ops != Ops::Updates => (Status::Unknown, false),
                _ => (Status::Committed, true),
            };
            let mut after = store.clone();
            let plan: Vec<Op> = (0..=random.below(3))
                .flat_map(|_| plan(random, ops, keys, &mut last_value))
                .collect();
            let ops = plan.iter().map(|op| after.run(op)).collect();
            if applied {
                store = after;
            }
            let returned = (status != Status::Unknown).then_some(now + random.key(20));
            Transaction { process, invoked: now - random.key(20), returned, status, ops }
        })
        .collect();
    // The checker must not profit from the order of the history.
    (1..count).for_each(|index| history.swap(index, random.below(index + 1)));
    history
}

fn plan(random: &mut Random, ops: Ops, keys: u64, last_value: &mut u64) -> Vec<Op> {
    *last_value += 1;
    let (key, value) = (random.key(keys), *last_value);
    let lists = ops == Ops::Lists || ops == Ops::Mixed && random.below(2) == 0;
    match (lists, random.below(5)) {
        (true, 0..3) => vec![Op::ReadList { key, value: Vec::new() }],
        (true, _) => vec![Op::Append { key, value }],
        (false, 0) if ops != Ops::Updates => {
            vec![Op::Scan { low: key, high: key + random.key(3), seen: Vec::new() }]
        }
        (false, 0..3) => vec![Op::Read { key, value: None }],
        (false, 3) if ops != Ops::Updates => vec![Op::Write { key, value }],
        (false, _) => vec![Op::Read { key, value: None }, Op::Write { key, value }],
    }
}

/// One change that may or may not break a history.
fn mutate(history: &mut [Transaction], random: &mut Random) {
    let index = random.below(history.len());
    let values: Vec<u64> = (1..=history.len() as u64 * 6).collect();
    let transaction = &mut history[index];
    match random.below(6) {
        0 => {
            let earlier = random.below(20) as u64;
            transaction.invoked = transaction.invoked.saturating_sub(earlier);
            transaction.returned = transaction.returned.map(|at| at.saturating_sub(earlier));
        }
        1 => transaction.status = [Status::Committed, Status::Aborted][random.below(2)],
        2 if !transaction.ops.is_empty() => {
            transaction.ops.remove(random.below(transaction.ops.len()));
        }
        _ if !transaction.ops.is_empty() => {
            let op = random.below(transaction.ops.len());
            let any = values[random.below(values.len())];
            match &mut transaction.ops[op] {
                Op::Read { value, .. } => *value = (random.below(4) > 0).then_some(any),
                Op::ReadList { value, .. } if random.below(2) == 0 => drop(value.pop()),
                Op::ReadList { value, .. } if value.len() > 1 => value.swap(0, 1),
                Op::ReadList { value, .. } => value.push(any),
                Op::Scan { seen, .. } => drop(seen.pop()),
                Op::Write { .. } | Op::Append { .. } => {}
            }
        }
        _ => {}
    }
}

/// Blind writes, and reads of any value that is written: mostly nonsense.
fn arbitrary(random: &mut Random) -> Vec<Transaction> {
    let count = 3 + random.below(4);
    let mut written: Vec<(u64, u64)> = Vec::new();
    let mut history: Vec<Transaction> = Vec::new();
    for process in 0..count {
        let (invoked, length) = (random.key(12), random.key(9));
        let ops = (0..random.below(3)).map(|index| {
            let (key, value) = (random.key(3), (process * 3 + index + 1) as u64);
            written.push((key, value));
            Op::Write { key, value }
        });
        let (ops, returned) = (ops.collect(), Some(invoked + length));
        let status = [Status::Committed, Status::Unknown][usize::from(random.below(8) == 0)];
        history.push(Transaction { process, invoked, returned, status, ops });
    }
    for transaction in &mut history {
        for _ in 0..random.below(3) {
            let choice = random.below(written.len() + 1);
            let read = match written.get(choice) {
                Some((key, value)) => Op::Read { key: *key, value: Some(*value) },
                None => Op::Read { key: random.key(3), value: None },
            };
            transaction.ops.insert(0, read);
        }
    }
    history
}

/// Whether some order of the committed and some of the unknown explains the history.
fn some_order(history: &[Transaction], level: Level) -> bool {
    let left = history.iter().filter(|transaction| transaction.status != Status::Aborted);
    place_rest(&Store::default(), &left.collect::<Vec<_>>(), level)
}

fn place_rest(store: &Store, left: &[&Transaction], level: Level) -> bool {
    let committed = |transaction: &&&Transaction| transaction.status == Status::Committed;
    if left.iter().filter(committed).count() == 0 {
        return true;
    }
    let earliest = left.iter().filter(committed).filter_map(|transaction| transaction.returned);
    let earliest = earliest.min().unwrap_or(u64::MAX);
    (0..left.len()).any(|index| {
        let mut rest = left.to_vec();
        let next = rest.remove(index);
        let mut after = store.clone();
        let in_time = level == Level::Serializable || next.invoked <= earliest;
        in_time
            && next.ops.iter().all(|op| after.run(op) == *op)
            && place_rest(&after, &rest, level)
    })
}

/// Compares the verdicts on both levels; counts into `accepted`.
fn assert_same_as_permutations(history: &[Transaction], accepted: &mut [usize; 2]) {
    for (level, accepted) in LEVELS.into_iter().zip(accepted) {
        let verdict = serializable(history, level);
        let expected = some_order(history, level);
        assert_eq!(verdict.is_ok(), expected, "{level:?} {verdict:#?}\n{history:#?}");
        *accepted += usize::from(expected);
    }
}

#[test]
fn what_a_serial_executor_does_is_accepted() {
    for seed in 0..400 {
        let ops = [Ops::Registers, Ops::Updates, Ops::Lists, Ops::Mixed][seed % 4];
        let history = execute(&mut Random(seed as u64), ops, 100, 6);
        for level in LEVELS {
            assert_eq!(serializable(&history, level), Ok(()), "seed {seed} {ops:?} {level:?}");
        }
    }
}

#[test]
fn two_thousand_transactions_are_cheap() {
    for ops in [Ops::Registers, Ops::Updates, Ops::Lists, Ops::Mixed] {
        let history = execute(&mut Random(3), ops, 2_000, 50);
        assert_eq!(serializable(&history, Level::StrictSerializable), Ok(()), "{ops:?}");
        assert_eq!(serializable(&history, Level::Serializable), Ok(()), "{ops:?}");
    }
}

#[test]
fn an_order_against_real_time_is_found() {
    // The times say nothing about the order: earliest first runs into conflicts of blind writes.
    for seed in 0..5 {
        let random = &mut Random(seed);
        let mut history = execute(random, Ops::Registers, 1_000, 50);
        history.iter_mut().for_each(|txn| txn.returned = Some(1_000 + random.key(1_000)));
        assert_eq!(serializable(&history, Level::Serializable), Ok(()), "seed {seed}");
    }
}

#[test]
fn mutated_histories_are_judged_as_by_all_permutations() {
    let (mut random, mut accepted) = (Random(1), [0; 2]);
    const COUNT: usize = 20_000;
    for round in 0..COUNT {
        let ops = [Ops::Registers, Ops::Updates, Ops::Lists, Ops::Mixed][round % 4];
        let count = 2 + random.below(5);
        let mut history = execute(&mut random, ops, count, 3);
        for _ in 0..=random.below(3) {
            mutate(&mut history, &mut random);
        }
        assert_same_as_permutations(&history, &mut accepted);
    }
    assert!(
        accepted.iter().all(|count| (COUNT / 5..COUNT * 4 / 5).contains(count)),
        "{accepted:?}"
    );
}

#[test]
fn arbitrary_histories_are_judged_as_by_all_permutations() {
    let (mut random, mut accepted) = (Random(2), [0; 2]);
    const COUNT: usize = 50_000;
    for _ in 0..COUNT {
        assert_same_as_permutations(&arbitrary(&mut random), &mut accepted);
    }
    assert!(
        accepted.iter().all(|count| (COUNT / 20..COUNT * 4 / 5).contains(count)),
        "{accepted:?}"
    );
}

/// What only our checker looks for. Elle and `adya` trust that every value that was read had been
/// written, and that the appends of one transaction are read whole and in its order.
const BEYOND_ADYA: [AnomalyKind; 2] = [AnomalyKind::GarbageRead, AnomalyKind::IncompatibleOrder];

/// `adya` infers no order of blind writes; with `wfr_keys` it knows that of read-modify-writes.
fn has_blind_writes(history: &[Transaction]) -> bool {
    let mut ops = history.iter().flat_map(|txn| (0..txn.ops.len()).map(|at| txn.ops.split_at(at)));
    ops.any(|(before, op)| {
        let reads =
            |written: u64| move |op: &Op| matches!(op, Op::Read { key, .. } if *key == written);
        matches!(op[0], Op::Write { key, .. } if !before.iter().any(reads(key)))
    })
}

#[test]
fn agrees_with_adya() {
    let (mut random, mut agreed, mut skipped) = (Random(4), [0; 2], 0);
    for round in 0..1_200 {
        let ops = [Ops::Lists, Ops::Updates][round % 2];
        let mut history = execute(&mut random, ops, 30, 5);
        for _ in 0..random.below(4) {
            mutate(&mut history, &mut random);
        }
        // To Elle an unknown outcome has no reads, so here it has none for us either.
        let is_write = |op: &Op| matches!(op, Op::Write { .. } | Op::Append { .. });
        let unknown = history.iter_mut().filter(|txn| txn.status == Status::Unknown);
        unknown.for_each(|transaction| transaction.ops.retain(is_write));

        for (level, model) in LEVELS.into_iter().zip(["serializable", "strict-serializable"]) {
            let ours = serializable(&history, level);
            let workload = [Workload::ListAppend, Workload::RwRegister][round % 2];
            let theirs = common::adya(&history, workload, model);
            assert_ne!(theirs.valid, Valid::Unknown, "{:?}", theirs.anomalies);

            let only_we = ours.as_ref().is_err_and(|anomalies| {
                anomalies.iter().any(|anomaly| BEYOND_ADYA.contains(&anomaly.kind))
            }) || has_blind_writes(&history);
            if only_we && theirs.valid == Valid::True {
                skipped += 1;
                continue;
            }
            let (ours_valid, theirs_valid) = (ours.is_ok(), theirs.valid == Valid::True);
            assert_eq!(ours_valid, theirs_valid, "{model} {ours:#?}\n{:#?}", theirs.anomalies);
            agreed[usize::from(ours_valid)] += 1;
        }
    }
    assert!(agreed.iter().all(|count| *count > 300), "{agreed:?}, {skipped} skipped");
}
