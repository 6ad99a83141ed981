//! Random changes of columns, rows and indexes by two nodes, against a model that keeps whole rows.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use selkie_fabric::env::SplitMix;
use selkie_txn::{
    Column, ColumnType, Database, DatabaseSchema, Direction, Isolation, KeyRange, NamedRowError,
    NewIndex, Protocol, RowError, RowRef, SchemaError, Source, Table, TableSchema, Txn, TxnError,
    Value, key,
};

use crate::common::{Cluster, check};

/// Transactions of a run.
const TRANSACTIONS: usize = 120;
/// Ids of rows.
const IDS: u64 = 24;
const MOST_COLUMNS: usize = 12;
const TYPES: [ColumnType; 4] =
    [ColumnType::I16, ColumnType::I64, ColumnType::Text(9), ColumnType::Uuid];

/// A value of the model: of a type by the column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Own {
    Null,
    Short(i16),
    Long(i64),
    Text(String),
    Uuid([u8; 16]),
}

impl Own {
    fn draw(random: &SplitMix, ty: ColumnType) -> Self {
        let number = random.below(1000) as u16;
        match ty {
            ColumnType::I16 => Self::Short(number as i16),
            ColumnType::I64 => Self::Long(-i64::from(number)),
            ColumnType::Text(_) => Self::Text("x".repeat(usize::from(number % 10))),
            _ => Self::Uuid([number as u8; 16]),
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Short(value) => Value::I16(*value),
            Self::Long(value) => Value::I64(*value),
            Self::Text(value) => Value::Text(value),
            Self::Uuid(value) => Value::Uuid(*value),
        }
    }

    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::I16(value) => Self::Short(value),
            Value::I64(value) => Self::Long(value),
            Value::Text(value) => Self::Text(value.to_owned()),
            Value::Uuid(value) => Self::Uuid(value),
            other => panic!("{other:?}"),
        }
    }
}

/// The table as it should be. The key is not among the columns, nor in the rows.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    columns: Vec<(Column, Own)>,
    /// Names of indexes and of their columns.
    indexes: Vec<(String, String)>,
    rows: BTreeMap<i32, Vec<Own>>,
}

impl Model {
    fn schema(&self) -> TableSchema {
        let schema = TableSchema::new("t").column("id", ColumnType::I32).primary_key([0]);
        let columns = self.columns.iter().map(|(column, _)| column.clone());
        let mut schema = columns.fold(schema, TableSchema::with_column).max_rows_per_page(4);
        for (name, column) in &self.indexes {
            let at = schema.column_position(column).unwrap();
            schema = schema.index(name, [at]);
        }
        schema
    }

    fn is_indexed(&self, at: usize) -> bool {
        self.indexes.iter().any(|(_, column)| *column == self.columns[at].0.name)
    }
}

/// A run: the table, its model, and how to draw.
struct Run<'a> {
    table: Table,
    random: &'a SplitMix,
    names: u64,
}

impl Run<'_> {
    /// Makes one change, which the model makes as well, or which is refused.
    async fn change(&mut self, txn: &mut Txn<'_>, model: &mut Model) -> Result<(), TxnError> {
        let random = self.random;
        let id = random.below(IDS) as i32;
        match random.below(16) {
            0..=2 => self.add_column(txn, model).await,
            3..=7 if !model.columns.is_empty() => {
                let at = random.below(model.columns.len() as u64) as usize;
                self.change_column(txn, model, at).await
            }
            8 if !model.rows.contains_key(&id) => self.insert(txn, model, id, true).await,
            _ if !model.rows.contains_key(&id) => self.insert(txn, model, id, false).await,
            9 | 10 => {
                model.rows.remove(&id);
                txn.delete(self.table, &key![id]).await
            }
            _ => self.update(txn, model, id).await,
        }
    }

    async fn add_column(&mut self, txn: &mut Txn<'_>, model: &mut Model) -> Result<(), TxnError> {
        let random = self.random;
        if model.columns.len() == MOST_COLUMNS {
            return Ok(());
        }
        // Names are used again.
        self.names = (self.names + 1) % 20;
        let name = format!("c{}", self.names);
        let is_there = model.columns.iter().any(|(column, _)| column.name == name);
        let ty = TYPES[random.below(4) as usize];
        let default = if random.below(2) == 0 { Own::Null } else { Own::draw(random, ty) };
        let column = Column::new(&name, ty).default(default.value());
        let column = if random.below(3) > 0 { column.nullable() } else { column };
        let added = txn.add_column(self.table, column.clone()).await;
        if is_there {
            assert!(matches!(added, Err(TxnError::Schema(SchemaError::DuplicateName { .. }))));
            return Ok(());
        }
        if default == Own::Null && !column.nullable && !model.rows.is_empty() {
            assert!(matches!(added, Err(TxnError::Schema(SchemaError::NullsInRows { .. }))));
            return Ok(());
        }
        model.rows.values_mut().for_each(|row| row.push(default.clone()));
        model.columns.push((column, default));
        added
    }

    async fn change_column(
        &self,
        txn: &mut Txn<'_>,
        model: &mut Model,
        at: usize,
    ) -> Result<(), TxnError> {
        let (table, random) = (self.table, self.random);
        let Column { name, ty, nullable, .. } = model.columns[at].0.clone();
        match random.below(6) {
            0 | 1 => {
                let dropped = txn.drop_column(table, &name).await;
                if model.is_indexed(at) {
                    let in_use =
                        matches!(dropped, Err(TxnError::Schema(SchemaError::ColumnInUse { .. })));
                    assert!(in_use);
                    return Ok(());
                }
                model.columns.remove(at);
                model.rows.values_mut().for_each(|row| _ = row.remove(at));
                dropped
            }
            2 => {
                let value = if random.below(3) == 0 { Own::Null } else { Own::draw(random, ty) };
                let (column, default) = &mut model.columns[at];
                *column = column.clone().default(value.value());
                default.clone_from(&value);
                txn.set_default(table, &name, value.value()).await
            }
            3 => {
                let set = txn.set_not_null(table, &name).await;
                if model.rows.values().any(|row| row[at] == Own::Null) {
                    let nulls =
                        matches!(set, Err(TxnError::Schema(SchemaError::NullsInRows { .. })));
                    assert!(nulls);
                    return Ok(());
                }
                model.columns[at].0.nullable = false;
                set
            }
            4 => {
                let dropped = txn.drop_not_null(table, &name).await;
                if !nullable && model.is_indexed(at) && dropped.is_err() {
                    return Ok(());
                }
                model.columns[at].0.nullable = true;
                dropped
            }
            _ => {
                let new = format!("{name}r");
                if model.is_indexed(at) || name.len() > 6 {
                    return Ok(());
                }
                if model.columns.iter().any(|(column, _)| column.name == new) {
                    let twice = txn.rename_column(table, &name, &new).await;
                    let twice =
                        matches!(twice, Err(TxnError::Schema(SchemaError::DuplicateName { .. })));
                    assert!(twice);
                    return Ok(());
                }
                model.columns[at].0.name.clone_from(&new);
                txn.rename_column(table, &name, &new).await
            }
        }
    }

    async fn insert(
        &self,
        txn: &mut Txn<'_>,
        model: &mut Model,
        id: i32,
        by_default: bool,
    ) -> Result<(), TxnError> {
        let mut row = txn.row(self.table).await?;
        row.i32(id);
        let (mut own, mut refused) = (Vec::new(), None);
        for (at, (column, default)) in model.columns.iter().enumerate() {
            let value = match by_default || self.random.below(3) == 0 {
                true => {
                    row.default_value();
                    if *default == Own::Null && !column.nullable {
                        refused = refused.or(Some(RowError::NoDefault { column: at + 1 }));
                    }
                    default.clone()
                }
                false => {
                    let value = Own::draw(self.random, column.ty);
                    row.value(value.value());
                    value
                }
            };
            own.push(value);
        }
        let finished = row.finish();
        if let Some(refused) = refused {
            assert_eq!(finished.unwrap_err().error, refused);
            return Ok(());
        }
        model.rows.insert(id, own);
        txn.insert(self.table, finished?).await
    }

    async fn update(&self, txn: &mut Txn<'_>, model: &mut Model, id: i32) -> Result<(), TxnError> {
        let random = self.random;
        let own = model.rows.get_mut(&id).unwrap();
        let mut set = Vec::new();
        for (at, (column, _)) in model.columns.iter().enumerate() {
            if random.below(3) == 0 {
                let null = column.nullable && random.below(4) == 0;
                own[at] = if null { Own::Null } else { Own::draw(random, column.ty) };
                set.push((at + 1, own[at].clone()));
            }
        }
        txn.update(self.table, &key![id], |row| {
            for (column, value) in &set {
                row.set(*column, value.value())?;
            }
            Ok(())
        })
        .await
    }

    /// Builds an index, or drops one, in transactions of its own.
    async fn change_indexes(&mut self, db: &Database, model: &mut Model) -> Result<(), TxnError> {
        let plain = (0..model.columns.len()).filter(|at| !model.is_indexed(*at));
        let plain: Vec<usize> = plain.collect();
        if model.indexes.len() < 2 && !plain.is_empty() {
            let at = plain[self.random.below(plain.len() as u64) as usize];
            self.names += 1;
            let name = format!("i{}", self.names);
            let column = model.columns[at].0.name.clone();
            db.create_index(self.table, NewIndex::new(&name, [&column])).await?;
            model.indexes.push((name, column));
        } else if !model.indexes.is_empty() {
            let (name, _) = model.indexes.remove(0);
            let mut txn = db.begin();
            txn.drop_index(self.table, &name).await?;
            txn.commit().await?;
        }
        Ok(())
    }

    /// Fails unless a transaction sees what the model has.
    async fn compare(&self, txn: &mut Txn<'_>, model: &Model) {
        let table = self.table;
        assert_eq!(txn.schema(table).await.unwrap(), model.schema());
        let mut sources = vec![Source::from(table)];
        for (name, _) in &model.indexes {
            sources.push(txn.index(table, name).await.unwrap().into());
        }
        for source in sources {
            let mut rows = BTreeMap::new();
            let visit = |row: RowRef<'_>| {
                rows.extend([own_row(row, model)?]);
                Ok(ControlFlow::Continue(()))
            };
            txn.scan(source, &KeyRange::all(), Direction::Reverse, visit).await.unwrap();
            assert_eq!(rows, model.rows, "{source:?}");
            let mut cursor = txn.cursor(source, KeyRange::all(), Direction::Forward).unwrap();
            let rows = cursor.fetch(txn, 1000).await.unwrap();
            let rows: BTreeMap<_, _> =
                rows.iter().map(|row| own_row(row, model).unwrap()).collect();
            assert_eq!(rows, model.rows, "{source:?}");
        }
        let id = self.random.below(IDS) as i32;
        let row = txn.get(table, &key![id]).await.unwrap();
        let row = row.map(|row| own_row(row, model).unwrap().1);
        assert_eq!(row.as_ref(), model.rows.get(&id));
    }
}

fn own_row(row: RowRef<'_>, model: &Model) -> Result<(i32, Vec<Own>), TxnError> {
    let columns = 1..=model.columns.len();
    let values = columns.map(|column| Ok(Own::of(row.value(column)?)));
    Ok((row.i32(0)?, values.collect::<Result<_, NamedRowError>>()?))
}

async fn play(databases: &[Database], seed: u64) {
    let random = &SplitMix::of_stream(seed, 0);
    let table = databases[0].table("t").unwrap();
    let mut run = Run { table, random, names: 0 };
    let mut model = Model { columns: Vec::new(), indexes: Vec::new(), rows: BTreeMap::new() };
    // Snapshots, and what was there.
    let mut readers: Vec<(Txn<'_>, Model)> = Vec::new();
    for _ in 0..TRANSACTIONS {
        let db = &databases[random.below(2) as usize];
        if random.below(8) == 0 {
            run.change_indexes(db, &mut model).await.unwrap();
        }
        let isolation =
            [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted]
                [random.below(3) as usize];
        let mut txn = db.begin_with(isolation);
        let mut after = model.clone();
        let mut savepoint = None;
        for _ in 0..=random.below(6) {
            run.change(&mut txn, &mut after).await.unwrap();
            match (random.below(6), savepoint.take()) {
                (0, _) => savepoint = Some((txn.savepoint().unwrap(), after.clone())),
                (1, Some((point, at_point))) => {
                    txn.rollback_to(point).unwrap();
                    after = at_point;
                }
                (_, kept) => savepoint = kept,
            }
            if random.below(4) == 0 {
                run.compare(&mut txn, &after).await;
            }
        }
        if random.below(6) == 0 {
            txn.rollback().await;
        } else {
            txn.commit().await.unwrap();
            model = after;
        }
        let mut reader = databases[random.below(2) as usize].begin_to_read();
        run.compare(&mut reader, &model).await;
        if readers.len() < 3 {
            readers.push((reader, model.clone()));
        } else if random.below(4) == 0 {
            let (mut reader, at_snapshot) = readers.remove(random.below(3) as usize);
            run.compare(&mut reader, &at_snapshot).await;
            reader.commit().await.unwrap();
        }
    }
    for (mut reader, at_snapshot) in readers {
        run.compare(&mut reader, &at_snapshot).await;
    }
    for db in databases {
        db.refresh().await.unwrap();
        check(db).await;
    }
}

#[test]
fn changes_of_columns_agree_with_a_model() {
    for seed in 0..12 {
        println!("seed {seed}");
        let cluster = Cluster::start(2, 1024);
        let table = TableSchema::new("t").column("id", ColumnType::I32).primary_key([0]);
        let schema = DatabaseSchema::from(vec![table.max_rows_per_page(4)]);
        let databases = cluster.create(schema.protocol(Protocol::Snapshot));
        cluster.runtime.block_on(Box::pin(play(&databases, seed)));
        drop(databases);
        cluster.close();
    }
}
