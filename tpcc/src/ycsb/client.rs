//! A worker: draws operations, does them, and notes what they did and found.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::config::Config;
use super::distribution::RecordChooser;
use super::record::{FIELDS, key_of};
use super::rules::RecordRules;
use super::store::{Finding, RecordStore, Scanned};
use super::workload::{MAX_SCAN, Operation};
use crate::benchmark::WorkerContext;
use crate::error::TpccError;
use crate::run::{Terminal, TransactionOutcome};
use crate::workload::{Deck, Mix, Random};

pub(super) const FOUND: &str = "every record that is read was inserted, and is found";
pub(super) const WHOLE: &str =
    "the fields of a record that is read are values of that record, each as a whole";
const TURN: u64 = 32;

/// What an operation is to do.
#[derive(Clone, Debug)]
struct Input {
    number: u64,
    key: i64,
    /// Of an update: which field, and what is written there.
    field: usize,
    value: Vec<u8>,
    /// Of a scan.
    most: u32,
}

/// What an operation found.
enum Done {
    Record(Finding),
    Scan(Scanned),
    Inserted,
}

/// A worker.
pub(super) struct Client<'a> {
    pub(super) place: WorkerContext<'a, Config>,
    config: &'a Config,
    rules: RecordRules,
    chooser: RecordChooser,
    random: Random,
    /// Opened by the first operation.
    store: Option<RecordStore<'a>>,
}

impl<'a> Client<'a> {
    pub(super) fn new(
        config: &'a Config,
        place: WorkerContext<'a, Config>,
        random: Random,
    ) -> Self {
        let (records, inserts) = (config.records.into(), config.expected_inserts());
        let chooser = RecordChooser::new(config.distribution(), config.zipf(), records, inserts);
        Self { place, config, rules: config.rules(), chooser, random, store: None }
    }

    fn draw(&mut self, operation: Operation) -> Input {
        let numbers = &self.place.ledger.numbers;
        let number = match operation {
            Operation::Insert => numbers.take(),
            _ => self.chooser.choose(&mut self.random, numbers),
        };
        let key = key_of(number);
        let mut input = Input { number, key, field: 0, value: Vec::new(), most: 0 };
        match operation {
            Operation::Update | Operation::ReadModifyWrite => {
                input.field = self.random.below(FIELDS as u64) as usize;
                input.value = self.rules.value(key, input.field, self.random.bits());
            }
            Operation::Scan => input.most = 1 + self.random.below(MAX_SCAN.into()) as u32,
            Operation::Read | Operation::Insert => {}
        }
        input
    }

    fn note(&self, operation: Operation, input: &Input, done: &Done) {
        let ledger = self.place.ledger;
        let Input { number, key, .. } = *input;
        let damaged = |key: i64| ledger.note_wrong(WHOLE, || format!("record {key} is damaged"));
        let missing = || {
            ledger.note_wrong(FOUND, || {
                format!("{} finds no record {key}, the {number}th", operation.title())
            });
        };
        match done {
            Done::Inserted => ledger.numbers.acknowledge(number),
            Done::Scan(scanned) => {
                scanned.damaged.into_iter().for_each(damaged);
                if scanned.records == 0 {
                    missing();
                }
            }
            Done::Record(found) => {
                let writes = matches!(operation, Operation::Update | Operation::ReadModifyWrite);
                if writes && *found != Finding::Missing {
                    ledger.note_update(number);
                }
                match found {
                    Finding::Whole => {}
                    Finding::Missing => missing(),
                    Finding::Damaged => damaged(key),
                }
            }
        }
    }
}

impl Terminal for Client<'_> {
    type TransactionType = Operation;

    /// Operations are shorter than what it takes to let others run.
    const TURN: u64 = TURN;

    fn deck(&self) -> Deck<Operation> {
        self.config.workload.deck()
    }

    fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    async fn transact(
        &mut self,
        operation: Operation,
        _started: Duration,
        attempts: &AtomicU64,
    ) -> Result<TransactionOutcome, TpccError> {
        if self.store.is_none() {
            self.store = Some(RecordStore::open(&self.config.via, self.place.node).await?);
        }
        let input = self.draw(operation);
        let Some(store) = &self.store else { return Ok(TransactionOutcome::default()) };
        let execute = || execute(store, self.rules, operation, &input);
        let note = |done| self.note(operation, &input, &done);
        self.place.transact(operation, attempts, execute, note).await
    }
}

async fn execute(
    store: &RecordStore<'_>,
    rules: RecordRules,
    operation: Operation,
    input: &Input,
) -> Result<Option<Done>, TpccError> {
    let (key, write) = (input.key, (input.field, &*input.value));
    Ok(Some(match operation {
        Operation::Read => Done::Record(store.read(rules, key).await?),
        Operation::Update => Done::Record(store.update(rules, key, write).await?),
        Operation::ReadModifyWrite => {
            Done::Record(store.read_modify_write(rules, key, write).await?)
        }
        Operation::Scan => Done::Scan(store.scan(rules, key, input.most).await?),
        Operation::Insert => {
            store.insert(rules, key).await?;
            Done::Inserted
        }
    }))
}
