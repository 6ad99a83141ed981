//! Errors of transactions as errors of SQL.

use selkie_txn::{EngineError, RowError, SchemaError, SequenceError, TxnError};

use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlState};

/// What `selkie_txn` calls the index that is the table itself.
const PRIMARY: &str = "primary key";

/// The SQL error for one of a transaction. `table` is that of the operation, if it had one.
pub(crate) fn from_txn(error: TxnError, table: Option<&TableDef>) -> SqlError {
    if let Some(short) = error.engine_error().and_then(of_resources).or_else(|| of_limits(&error)) {
        return short.detail(error.to_string());
    }
    let (state, message) = match &error {
        TxnError::Duplicate { table: name, index, .. } => {
            return duplicate(
                &constraint_name(table, name, index),
                table.map_or(name, |own| &own.key),
            );
        }
        TxnError::Row(row) if !matches!(row.error, RowError::UnknownLayout { .. }) => {
            return from_row(&row.error, table);
        }
        TxnError::Deadlock { .. } => (SqlState::DEADLOCK_DETECTED, "deadlock detected"),
        TxnError::LockTimeout { .. } => {
            (SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
        }
        TxnError::RowLocked { table: name, .. } => {
            let name = table.map_or(name, |table| &table.name);
            let message = format!("could not obtain lock on row in relation \"{name}\"");
            return SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message);
        }
        TxnError::NotFound { .. } | TxnError::ValueGone { .. } => {
            (SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        }
        TxnError::ForeignRow { .. } => {
            (SqlState::SERIALIZATION_FAILURE, "the table was changed by another transaction")
        }
        TxnError::ReadOnly => (
            SqlState::READ_ONLY_TRANSACTION,
            "cannot change or lock rows in a read-only transaction",
        ),
        TxnError::RowTooLarge { .. } | TxnError::KeyTooLong { .. } => {
            return too_large(&error, table);
        }
        TxnError::TooManyLeaves { .. } | TxnError::TooMuchMemory { .. } => {
            (SqlState::PROGRAM_LIMIT_EXCEEDED, "the transaction is too large")
        }
        TxnError::InvalidCursor { .. } => {
            (SqlState::INVALID_CURSOR, "the cursor is of a part that was rolled back")
        }
        TxnError::NoSavepoint => (SqlState::INVALID_SAVEPOINT, "savepoint does not exist"),
        TxnError::DeadlineExceeded { .. } => {
            (SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
        }
        TxnError::InTransaction => {
            (SqlState::ACTIVE_TRANSACTION, "there is already a transaction in progress")
        }
        TxnError::NoTransaction => {
            (SqlState::NO_ACTIVE_TRANSACTION, "there is no transaction in progress")
        }
        TxnError::NoRowLocks | TxnError::NoSessions { .. } => {
            return SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, error.to_string());
        }
        TxnError::Undetermined { .. } => (
            SqlState::TRANSACTION_RESOLUTION_UNKNOWN,
            "it is not known whether the commit will last",
        ),
        TxnError::Schema(error) => return from_schema(error),
        TxnError::Sequence(own) if !error.is_retryable() => return from_sequence(own),
        _ if error.is_retryable() => {
            (SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        }
        TxnError::RolledBack { .. } => (
            SqlState::IN_FAILED_TRANSACTION,
            "current transaction is aborted, commands ignored until end of transaction block",
        ),
        _ => return SqlError::internal(error.to_string()),
    };
    SqlError::new(state, message).detail(error.to_string())
}

/// The error of an engine that is over, or lacks something which no other attempt would find. A
/// cache that is full, or a log without room, is full because of others, which end.
fn of_resources(error: &EngineError) -> Option<SqlError> {
    if error.ends_node() {
        let message = "terminating connection as the node of its server serves nothing more";
        let hint = "Another server of the pool has the same database.";
        return Some(SqlError::new(SqlState::CRASH_SHUTDOWN, message).hint(hint));
    }
    let (state, message, hint) = match error {
        EngineError::PoolFull { .. } => {
            (SqlState::DISK_FULL, "the pool is full", "Give it more memory, or delete rows.")
        }
        EngineError::ChangeTooLarge { .. } => return Some(larger_than_log()),
        EngineError::Log(_) | EngineError::LogTimeout { .. } => (
            SqlState::IO_ERROR,
            "the log cannot be written",
            "Look whether there is room where the server keeps its log.",
        ),
        EngineError::PageLost { .. }
        | EngineError::PageDamaged { .. }
        | EngineError::TooManyLost { .. } => {
            let message = "a page of the table is lost or damaged";
            return Some(SqlError::new(SqlState::DATA_CORRUPTED, message));
        }
        _ => return None,
    };
    Some(SqlError::new(state, message).hint(hint))
}

/// The error of a transaction that needs more memory of its node than there is, or whose client did
/// nothing for longer than it may.
fn of_limits(error: &TxnError) -> Option<SqlError> {
    match error {
        TxnError::WriteSetTooLarge { .. } => Some(larger_than_log()),
        TxnError::SnapshotTooOld { .. } => {
            let hint = "Run it again, or give the nodes more memory for earlier states of pages \
                        (--images).";
            Some(SqlError::new(SqlState::SNAPSHOT_TOO_OLD, "snapshot too old").hint(hint))
        }
        TxnError::IdleTooLong { .. } => {
            let message = "terminating connection due to idle-in-transaction timeout";
            Some(SqlError::new(SqlState::IDLE_IN_TRANSACTION_TIMEOUT, message))
        }
        _ => None,
    }
}

fn larger_than_log() -> SqlError {
    let message = "the transaction changes more than the log takes";
    let hint = "Make transactions smaller, or give the node a larger log.";
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).hint(hint)
}

/// A row or a key has no room on a page.
fn too_large(error: &TxnError, table: Option<&TableDef>) -> SqlError {
    let message = match error {
        TxnError::RowTooLarge { bytes, limit, .. } => {
            format!("row is too big: size {bytes}, maximum size {limit}")
        }
        TxnError::KeyTooLong { table: name, index, bytes, limit, .. } => {
            let index = constraint_name(table, name, index);
            format!("index row size {bytes} exceeds maximum {limit} for index \"{index}\"")
        }
        other => other.to_string(),
    };
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).detail(error.to_string())
}

/// The name of the constraint that an index is.
fn constraint_name(table: Option<&TableDef>, name: &str, index: &str) -> String {
    match table {
        _ if index != PRIMARY => index.to_owned(),
        Some(table) => table.primary_key_name(),
        None => format!("{name}_pkey"),
    }
}

/// The index that a row has a key of another in: `Some(None)` is the primary key, `None` that it is
/// none of the table.
pub(crate) fn index_of_duplicate(table: &TableDef, index: &str) -> Option<Option<usize>> {
    if index == PRIMARY {
        return Some(None);
    }
    table.indexes.iter().position(|own| own.name == index).map(Some)
}

fn duplicate(constraint: &str, table: &str) -> SqlError {
    let message = format!("duplicate key value violates unique constraint \"{constraint}\"");
    let error = SqlError::new(SqlState::UNIQUE_VIOLATION, message);
    error.of_table(table).of_constraint(constraint)
}

fn from_row(error: &RowError, table: Option<&TableDef>) -> SqlError {
    let column = error.column().and_then(|at| table.and_then(|own| own.columns.get(at)));
    let (column, ty) =
        column.map_or((String::new(), String::new()), |own| (own.name.clone(), type_name(own.ty)));
    let (state, message) = match error {
        RowError::NotNullable { .. } | RowError::NoDefault { .. } => {
            let table = table.map_or("", |table| &table.name);
            (SqlState::NOT_NULL_VIOLATION, not_null_message(&column, table))
        }
        RowError::TooLong { .. } => {
            (SqlState::STRING_DATA_RIGHT_TRUNCATION, format!("value too long for type {ty}"))
        }
        RowError::TooManyDigits { .. } => {
            (SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow".to_owned())
        }
        RowError::OutOfRange { .. } => {
            (SqlState::NUMERIC_OUT_OF_RANGE, format!("value out of range for type {ty}"))
        }
        error => return SqlError::internal(error.to_string()),
    };
    let error = SqlError::new(state, message).detail(error.to_string());
    if column.is_empty() { error } else { error.hint(format!("It is of column \"{column}\".")) }
}

fn type_name(ty: crate::types::SqlType) -> String {
    ty.name()
}

/// The error of what changes something, in a transaction that only reads.
pub(crate) fn read_only_error(what: &str) -> SqlError {
    let message = format!("cannot execute {what} in a read-only transaction");
    SqlError::new(SqlState::READ_ONLY_TRANSACTION, message)
}

/// What is said of a NULL that may not be.
pub(crate) fn not_null_message(column: &str, table: &str) -> String {
    format!(
        "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
    )
}

fn from_schema(error: &SchemaError) -> SqlError {
    let state = match error {
        SchemaError::NoSuchTable { .. } => SqlState::UNDEFINED_TABLE,
        SchemaError::NoSuchIndex { .. } => SqlState::UNDEFINED_OBJECT,
        SchemaError::NoSuchColumn { .. } => SqlState::UNDEFINED_COLUMN,
        SchemaError::TableExists { .. } | SchemaError::IncompleteIndex { .. } => {
            SqlState::DUPLICATE_TABLE
        }
        SchemaError::DuplicateName { .. } => SqlState::DUPLICATE_OBJECT,
        SchemaError::NameBytes { .. } => SqlState::NAME_TOO_LONG,
        SchemaError::TooManyColumns { .. } => SqlState::TOO_MANY_COLUMNS,
        SchemaError::ColumnInUse { .. } => SqlState::DEPENDENT_OBJECTS,
        SchemaError::NullsInRows { .. } => SqlState::NOT_NULL_VIOLATION,
        SchemaError::ColumnCount { .. }
        | SchemaError::ColumnBytes { .. }
        | SchemaError::DecimalDigits { .. }
        | SchemaError::RowTooLarge { .. }
        | SchemaError::TooManyLayouts { .. }
        | SchemaError::EntryTooLarge { .. }
        | SchemaError::TooManyTrees { .. }
        | SchemaError::IndexNumbers { .. } => SqlState::PROGRAM_LIMIT_EXCEEDED,
        _ => SqlState::INVALID_PARAMETER,
    };
    SqlError::new(state, error.to_string())
}

fn from_sequence(error: &SequenceError) -> SqlError {
    let state = match error {
        SequenceError::NoSuchSequence { .. } => SqlState::UNDEFINED_TABLE,
        SequenceError::Exists { .. } => SqlState::DUPLICATE_TABLE,
        SequenceError::NameBytes { .. } => SqlState::NAME_TOO_LONG,
        SequenceError::Exhausted { .. } => SqlState::SEQUENCE_EXHAUSTED,
        _ => SqlState::INVALID_PARAMETER,
    };
    SqlError::new(state, error.to_string())
}

#[cfg(test)]
mod tests {
    use selkie_txn::AbortCause;

    use super::*;

    /// The codes of PostgreSQL's appendix A for what each error means.
    #[test]
    fn errors_have_the_codes_of_what_they_mean() {
        let (name, key) = (|| "t".to_owned(), || "id = I32 7".to_owned());
        let duplicate = |index: &str| TxnError::Duplicate {
            table: name(),
            index: index.to_owned(),
            key: key(),
        };
        let cases = [
            (duplicate("primary key"), "23505"),
            (duplicate("by_name"), "23505"),
            (TxnError::Deadlock { table: name(), key: key() }, "40P01"),
            (TxnError::WriteSetTooLarge { table: name(), need: 9, limit: 8 }, "54000"),
            (TxnError::SnapshotTooOld { leaf: selkie_engine::GAddr::NULL }, "72000"),
            (
                TxnError::LockTimeout {
                    waited: std::time::Duration::ZERO,
                    table: name(),
                    key: key(),
                },
                "55P03",
            ),
            (TxnError::RowLocked { table: name(), key: key() }, "55P03"),
            (TxnError::NotFound { table: name(), key: key() }, "40001"),
            (TxnError::ReadOnly, "25006"),
            (TxnError::NoSavepoint, "3B001"),
            (TxnError::InTransaction, "25001"),
            (TxnError::NoTransaction, "25P01"),
            (TxnError::RolledBack { cause: AbortCause::Conflict }, "40001"),
            (TxnError::RolledBack { cause: AbortCause::Requested }, "25P02"),
            (
                TxnError::DeadlineExceeded {
                    what: "operation",
                    limit: std::time::Duration::from_secs(1),
                },
                "57014",
            ),
            (
                TxnError::IdleTooLong {
                    limit: std::time::Duration::from_secs(1),
                    idled: std::time::Duration::from_secs(2),
                },
                "25P03",
            ),
            (RowError::NotNullable { column: 0 }.into(), "23502"),
            (RowError::TooLong { column: 0, bytes: 9, max: 3 }.into(), "22001"),
            (RowError::OutOfRange { column: 0, value: 9, min: 0, max: 3 }.into(), "22003"),
            (RowError::TooManyDigits { column: 0, digits: 9, max: 3 }.into(), "22003"),
            (RowError::UnknownLayout { number: 2, last: 1 }.into(), "40001"),
            (RowError::Damaged { column: 0 }.into(), "XX000"),
            (SchemaError::NoSuchTable { name: name() }.into(), "42P01"),
        ];
        for (error, code) in cases {
            let text = error.to_string();
            let is_retryable = error.is_retryable();
            let mapped = from_txn(error, None);
            assert_eq!(mapped.state().code(), code, "{text}");
            // A client that runs again what may be run again does no less than before.
            let may_run_again = mapped.is_retryable() || ["55P03", "25P03"].contains(&code);
            assert!(!is_retryable || may_run_again, "{text}");
        }
        let shown = from_txn(duplicate("primary key"), None);
        let wanted = "duplicate key value violates unique constraint \"t_pkey\"";
        assert_eq!(shown.message(), wanted);
    }

    /// What others have filled is empty again when they have ended.
    #[test]
    fn what_is_full_for_a_while_is_tried_again() {
        let state = |error: EngineError| {
            let error = from_txn(TxnError::Engine(error), None);
            (error.state().code(), error.is_retryable())
        };
        assert_eq!(state(EngineError::LogFull), ("40001", true));
        assert_eq!(state(EngineError::CacheFull { frames: 9 }), ("40001", true));
        assert_eq!(state(EngineError::PoolFull { used: 9, capacity: 9 }), ("53100", false));
        assert_eq!(state(EngineError::ChangeTooLarge { need: 9, limit: 8 }), ("54000", false));
        let waited = std::time::Duration::from_secs(30);
        assert_eq!(state(EngineError::LogTimeout { waited }), ("58030", false));
    }
}
