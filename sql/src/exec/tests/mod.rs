//! Plans made by hand, run on a real database in one process.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod basic;
mod expressions;
mod groups;
mod joins;
mod reads;
mod spills;
mod subqueries;
mod writes;

use std::sync::Arc;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Fabric, RealRuntime};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_txn::{Database, DatabaseSchema, KeyOrder, Protocol, TableSchema, Txn};

use super::row_key::RowKey;
use super::{Counts, ExecContext, MemoryLimits, Row, SequenceMemory, SharedRows, build};
use crate::catalogue::table_def::IndexDef;
use crate::catalogue::{ColumnDef, TableDef};
use crate::error::{SqlError, SqlResult};
use crate::functions::{CallContext, Resolved, resolve_operator};
use crate::plan::{Access, Expr, Plan, Scan};
use crate::types::FormatSettings;
use crate::types::{Datum, SqlType, stored};

const INT: SqlType = SqlType::INT4;
const TEXT: SqlType = SqlType::TEXT;

/// Runs a test in a database with these tables.
fn with_database(tables: Vec<TableSchema>, test: impl AsyncFnOnce(&Database)) {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = PoolConfig {
        memory_nodes: 2,
        bytes_per_node: 16 << 20,
        gcl_bytes: 2048,
        range_bytes: 4 << 20,
        max_compute_nodes: 1,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    runtime.block_on(async {
        let id = ComputeId::new(0).unwrap();
        let node =
            Engine::start(memory.pool(), &fabric, &env, id, EngineConfig::default()).await.unwrap();
        let schema = DatabaseSchema::from(tables).protocol(Protocol::Snapshot);
        let db = Database::create(&node, schema).await.unwrap();
        test(&db).await;
        drop(db);
        node.close().await.unwrap();
    });
}

/// Runs plans in a transaction of a database without tables.
fn with_transaction(test: impl AsyncFnOnce(&mut Txn<'_>)) {
    let table = TableSchema::new("unused").column("a", selkie_txn::ColumnType::I32);
    with_database(vec![table.primary_key([0])], async |db| {
        let mut txn = db.begin();
        test(&mut txn).await;
        txn.rollback().await;
    });
}

/// What a plan gives, and how many rows it has changed.
async fn run_with(
    plan: &Plan,
    txn: &mut Txn<'_>,
    parameters: &[Datum],
    limits: MemoryLimits,
) -> SqlResult<(Vec<Row>, u64)> {
    let settings = FormatSettings::default();
    let call = CallContext {
        settings: &settings,
        transaction_start: 0,
        statement_start: 0,
        now: 0,
        user: "ada",
        session_user: "ada",
        is_superuser: true,
        session_number: 1,
        sessions: &crate::SessionList::default(),
        database: "test",
        search_path: &[],
        to_set: &crate::functions::ToSet::default(),
        random: &|| 0.5,
        interrupts: &crate::functions::Interrupts::default(),
        large_values: &crate::functions::LargeValues::default(),
    };
    let sequences = SequenceMemory::default();
    let mut context = ExecContext {
        sequences: &sequences,
        path: &crate::schemas::SearchPath::plain(),
        relations: &crate::exec::RelationCache::default(),
        references: crate::exec::PendingReferences::default(),
        deferred: &Default::default(),
        advisory: crate::exec::AdvisoryContext {
            locks: &crate::exec::SessionLocks::default(),
            database: None,
            timeout: None,
            may_see_later: false,
        },
        authority: None,
        txn,
        call,
        parameters,
        env: None,
        client: None,
        is_alone: false,
        read_only: false,
        limits: &limits,
        outer: Vec::new(),
        shared: SharedRows::default(),
        affected: 0,
        counts: Counts::default(),
        copied: crate::exec::CopiedRows::default(),
        gathered: None,
        unbroken: 0,
    };
    let mut operator = build(plan);
    let mut rows = Vec::new();
    while let Some(batch) = operator.next(&mut context).await? {
        assert!((1..=256).contains(&batch.len()), "a batch of {} rows", batch.len());
        rows.extend(batch);
    }
    assert!(operator.next(&mut context).await?.is_none(), "rows behind the end");
    assert!(context.outer.is_empty(), "an outer row is left");
    Ok((rows, context.affected))
}

/// What a plan gives.
async fn run(plan: &Plan, txn: &mut Txn<'_>) -> SqlResult<Vec<Row>> {
    Ok(run_with(plan, txn, &[], MemoryLimits::default()).await?.0)
}

/// Checks what a plan gives.
async fn check(plan: &Plan, txn: &mut Txn<'_>, wanted: &[Row]) {
    let rows = run(plan, txn).await.unwrap();
    assert_rows(&rows, wanted);
}

#[track_caller]
fn assert_rows(rows: &[Row], wanted: &[Row]) {
    let keys = |rows: &[Row]| rows.iter().cloned().map(RowKey).collect::<Vec<_>>();
    assert_eq!(keys(rows), keys(wanted));
}

/// Code and message of an error.
#[track_caller]
fn assert_error<T: std::fmt::Debug>(outcome: SqlResult<T>, code: &str, message: &str) -> SqlError {
    let error = outcome.unwrap_err();
    assert_eq!((error.state().code(), error.message()), (code, message));
    error
}

fn int(value: i32) -> Datum {
    Datum::I32(value)
}

fn big(value: i64) -> Datum {
    Datum::I64(value)
}

fn text(value: &str) -> Datum {
    Datum::text(value)
}

/// A row of integers, `None` for NULL.
fn ints(values: &[Option<i32>]) -> Row {
    values.iter().map(|value| value.map_or(Datum::Null, int)).collect()
}

/// Rows of integers.
fn int_rows<const N: usize>(rows: &[[Option<i32>; N]]) -> Vec<Row> {
    rows.iter().map(|row| ints(row)).collect()
}

/// A plan of constant rows.
fn values(rows: Vec<Row>, width: usize) -> Plan {
    let rows = rows.into_iter().map(|row| row.into_iter().map(Expr::Const).collect());
    Plan::Values { rows: rows.collect(), width }
}

/// A plan of one column of integers.
fn column(values: &[Option<i32>]) -> Plan {
    self::values(values.iter().map(|value| ints(&[*value])).collect(), 1)
}

fn col(at: usize) -> Expr {
    Expr::Column(at)
}

fn lit(value: i32) -> Expr {
    Expr::Const(int(value))
}

/// An operator over integers.
fn operator(name: &str) -> Box<Resolved> {
    Box::new(resolve_operator(name, Some(INT), INT).unwrap())
}

fn op(name: &str, left: Expr, right: Expr) -> Expr {
    Expr::Call { function: operator(name), arguments: vec![left, right], comparison: None }
}

/// A table as SQL sees it: names, types and whether they may be NULL.
struct TableSpec {
    schema: TableSchema,
    columns: Vec<ColumnDef>,
}

impl TableSpec {
    fn new(name: &str, columns: &[(&str, SqlType, bool)], key: &[usize]) -> Self {
        let mut schema = TableSchema::new(name).primary_key(key);
        let mut defs = Vec::new();
        for (name, ty, nullable) in columns {
            let stored = stored::column_type(*ty).unwrap();
            schema = match nullable {
                true => schema.nullable_column(*name, stored),
                false => schema.column(*name, stored),
            };
            defs.push(ColumnDef {
                name: (*name).to_owned(),
                ty: *ty,
                nullable: *nullable,
                default: None,
                is_hidden: false,
                sequence: None,
                identity: None,
            });
        }
        Self { schema, columns: defs }
    }

    fn def(&self, db: &Database) -> Arc<TableDef> {
        let indexes = self.schema.indexes.iter().map(|index| IndexDef {
            name: index.name.clone(),
            columns: index.columns.clone(),
            order: index.order.clone(),
            unique: index.unique,
            is_constraint: false,
        });
        let order = match self.schema.primary_key_order.as_slice() {
            [] => vec![KeyOrder::ASCENDING; self.schema.primary_key.len()],
            order => order.to_vec(),
        };
        Arc::new(TableDef {
            table: db.table(&self.schema.name).unwrap(),
            key: self.schema.name.clone(),
            name: self.schema.name.clone(),
            columns: self.columns.clone(),
            primary_key: self.schema.primary_key.clone(),
            primary_order: order,
            indexes: indexes.collect(),
            checks: Vec::new(),
            not_valid: Default::default(),
            primary_key_name: None,
            foreign_keys: Vec::new(),
            referenced_by: Vec::new(),
            comments: Default::default(),
            view: None,
            rights: crate::roles::Rights::default(),
        })
    }
}

/// The whole table.
const WHOLE: Access =
    Access::Range { index: None, prefix: Vec::new(), low: None, high: None, descending: false };

/// A read of all columns of a table.
fn scan(table: &Arc<TableDef>, access: Access) -> Plan {
    Plan::Scan(Arc::new(Scan {
        table: Arc::clone(table),
        access,
        filter: None,
        needed: vec![true; table.columns.len()],
        for_update: false,
        is_ordered: false,
        index_only: false,
    }))
}

/// An INSERT of constant rows.
fn insert(table: &Arc<TableDef>, rows: Vec<Row>) -> crate::plan::Insert {
    crate::plan::Insert {
        table: Arc::clone(table),
        source: values(rows, table.columns.len()),
        checks: Vec::new(),
        on_conflict: None,
        returning: None,
    }
}

/// Inserts rows.
async fn fill(table: &Arc<TableDef>, rows: Vec<Row>, txn: &mut Txn<'_>) {
    let plan = Plan::Insert(Box::new(insert(table, rows)));
    run(&plan, txn).await.unwrap();
}
