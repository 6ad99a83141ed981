//! Histories as text, one transaction a line.
//!
//! `10-20 r1=- w1=6 a2=5 l2=5,6 s1..9=1:6,2:7` ran from 10 to 20, read register 1 as absent, wrote
//! 6 to it, appended 5 to list 2, read list 2 as [5, 6], and scanned registers 1 to 9. `10-20!`
//! aborted, and the outcome of `10-?` is unknown.

use crate::check::serial::{Op, Status, Transaction};

/// Nothing follows from any one of the choices that the blind writes leave; each combination of
/// them contradicts one of the reads, which are the last four.
pub(in crate::check) const NO_SERIAL_ORDER: [&str; 8] = [
    "0-9 w1=5 w2=6",
    "0-9 w1=7 w3=9",
    "0-9 w3=3",
    "0-9 w2=4",
    "0-9 r3=3 r1=5",
    "0-9 r2=4 r1=7",
    "0-9 r3=9 r2=6",
    "0-9 r2=4 r3=3",
];

pub(in crate::check) fn history(lines: &[&str]) -> Vec<Transaction> {
    lines.iter().enumerate().map(|(process, line)| transaction(process, line)).collect()
}

fn transaction(process: usize, line: &str) -> Transaction {
    let mut words = line.split_whitespace();
    let (invoked, returned) = words.next().unwrap().split_once('-').unwrap();
    let status = match returned {
        "?" => Status::Unknown,
        aborted if aborted.ends_with('!') => Status::Aborted,
        _ => Status::Committed,
    };
    Transaction {
        process,
        invoked: number(invoked),
        returned: returned.trim_end_matches('!').parse().ok(),
        status,
        ops: words.map(op).collect(),
    }
}

fn op(word: &str) -> Op {
    let (target, value) = word[1..].split_once('=').unwrap();
    match &word[..1] {
        "r" => Op::Read { key: number(target), value: value.parse().ok() },
        "w" => Op::Write { key: number(target), value: number(value) },
        "a" => Op::Append { key: number(target), value: number(value) },
        "l" => Op::ReadList { key: number(target), value: items(value).map(number).collect() },
        "s" => {
            let (low, high) = target.split_once("..").unwrap();
            let pair = |item: &str| item.split_once(':').map(|(k, v)| (number(k), number(v)));
            let seen = items(value).filter_map(pair).collect();
            Op::Scan { low: number(low), high: number(high), seen }
        }
        other => panic!("no operation {other}"),
    }
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|item| !item.is_empty())
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}
