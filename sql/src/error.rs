//! Errors of SQL, with PostgreSQL's codes.

use std::fmt;

/// A code of five characters that says what kind of error it is, as PostgreSQL's SQLSTATE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(&'static str);

macro_rules! states {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        impl SqlState {
            $(#[doc = $doc] pub const $name: Self = Self($code);)*
        }
    };
}

states! {
    ACTIVE_TRANSACTION = "25001", "A transaction is in progress already.";
    ADMIN_SHUTDOWN = "57P01", "The server ends.";
    NULL_VALUE_NOT_ALLOWED = "22004", "NULL where a value is needed.";
    INVALID_FRAME_OFFSET = "22013", "A frame of a window is of a negative size.";
    AMBIGUOUS_ALIAS = "42P09", "A name stands for several tables of FROM.";
    AMBIGUOUS_COLUMN = "42702", "A name stands for several columns.";
    AMBIGUOUS_FUNCTION = "42725", "A call fits several functions.";
    ARRAY_SUBSCRIPT = "2202E", "The dimensions of arrays do not fit.";
    BAD_COPY_FILE_FORMAT = "22P04", "Data of COPY is not of its format.";
    CANNOT_CONNECT_NOW = "57P03", "The server takes no clients now.";
    CANNOT_COERCE = "42846", "There is no cast from the one type to the other.";
    CANT_CHANGE_PARAMETER = "55P02", "A parameter cannot be changed.";
    CARDINALITY_VIOLATION = "21000", "A subquery gave more than one row.";
    CHARACTER_NOT_IN_REPERTOIRE = "22021", "Bytes are no text of the encoding.";
    CHECK_VIOLATION = "23514", "A row does not pass a CHECK constraint.";
    CONFIGURATION_LIMIT = "53400", "A statement needs more temporary files than it may have.";
    CONNECTION_EXCEPTION = "08000", "The connection is of no use any more.";
    CONNECTION_FAILURE = "08006", "A client is gone.";
    CRASH_SHUTDOWN = "57P02", "The server serves nothing more.";
    DATA_CORRUPTED = "XX001", "A page is lost or damaged.";
    DATATYPE_MISMATCH = "42804", "An expression is not of the type that is needed.";
    DATETIME_OVERFLOW = "22008", "A date or time is out of range.";
    DEADLOCK_DETECTED = "40P01", "Transactions waited for each other in a circle.";
    DEPENDENT_OBJECTS = "2BP01", "Others depend on what is to be dropped.";
    DISK_FULL = "53100", "The pool, or the disk of temporary files, has no room.";
    DIVISION_BY_ZERO = "22012", "Division by zero.";
    DUPLICATE_ALIAS = "42712", "A name of a table is used twice in FROM.";
    DUPLICATE_COLUMN = "42701", "A column is named twice.";
    DUPLICATE_CURSOR = "42P03", "There is a portal of that name.";
    DUPLICATE_OBJECT = "42710", "There is such an object already.";
    DUPLICATE_PREPARED = "42P05", "There is such a prepared statement already.";
    DUPLICATE_SCHEMA = "42P06", "There is such a schema already.";
    DUPLICATE_TABLE = "42P07", "There is such a table, index, view or sequence already.";
    FEATURE_NOT_SUPPORTED = "0A000", "It is SQL, and this engine cannot do it.";
    FOREIGN_KEY_VIOLATION = "23503", "A REFERENCES constraint does not hold.";
    GENERATED_ALWAYS = "428C9", "A column gets its values from its sequence only.";
    GROUPING_ERROR = "42803", "A column is neither grouped nor aggregated.";
    IDLE_IN_TRANSACTION_TIMEOUT = "25P03", "A client did nothing in its transaction for too long.";
    IDLE_SESSION_TIMEOUT = "57P05", "A client did nothing for too long.";
    INDETERMINATE_TYPE = "42P18", "The type of a parameter cannot be told.";
    INSUFFICIENT_PRIVILEGE = "42501", "The role may not do that.";
    INSUFFICIENT_RESOURCES = "53000", "The system gives no more files.";
    INTERNAL_ERROR = "XX000", "What should not happen.";
    INVALID_ARGUMENT_FOR_NTH_VALUE = "22016", "The row that nth_value is to take is not positive.";
    INVALID_ARGUMENT_FOR_NTILE = "22014", "The number of buckets of ntile is not positive.";
    INVALID_ARGUMENT_FOR_LOGARITHM = "2201E", "There is no logarithm of the number.";
    INVALID_ARGUMENT_FOR_POWER = "2201F", "There is no such power of the number.";
    INVALID_ARGUMENT_FOR_WIDTH_BUCKET = "2201G", "The buckets of width_bucket are none.";
    INVALID_AUTHORIZATION = "28000", "The client may not connect so.";
    INVALID_BINARY = "22P03", "Bytes are no value of their type.";
    INVALID_CATALOG_NAME = "3D000", "There is no such database.";
    INVALID_COLUMN_REFERENCE = "42P10", "A column is named that is not among those meant.";
    INVALID_CURSOR_DEFINITION = "42P11", "A cursor cannot be as it is declared.";
    INVALID_CURSOR = "34000", "There is no such cursor or portal.";
    INVALID_DATETIME = "22007", "A text is no date or time.";
    INVALID_DISPLACEMENT = "22009", "A distance to UTC is out of range.";
    INVALID_ESCAPE = "22025", "An escape in a pattern is not valid.";
    INVALID_FOREIGN_KEY = "42830", "A FOREIGN KEY refers to what is no key.";
    INVALID_GRANT = "0LP01", "That cannot be granted.";
    INVALID_LIMIT = "2201W", "A LIMIT is negative.";
    INVALID_NAME = "42602", "A text is no name.";
    INVALID_OBJECT_DEFINITION = "42P17", "A view would be made of itself.";
    INVALID_OFFSET = "2201X", "An OFFSET is negative.";
    INVALID_PARAMETER = "22023", "A value is not one of those that are allowed.";
    INVALID_PASSWORD = "28P01", "The password is wrong.";
    INVALID_RECURSION = "42P19", "A recursive query has not the form that it must have.";
    INVALID_REGEX = "2201B", "A regular expression is not valid.";
    INVALID_SAVEPOINT = "3B001", "There is no such savepoint.";
    INVALID_SCHEMA_NAME = "3F000", "There is no such schema.";
    INVALID_STATEMENT_NAME = "26000", "There is no such prepared statement.";
    INVALID_TABLE_DEFINITION = "42P16", "A table cannot be defined so.";
    INVALID_TEXT = "22P02", "A text is no value of its type.";
    IN_FAILED_TRANSACTION = "25P02", "The transaction has failed, and waits for its ROLLBACK.";
    IO_ERROR = "58030", "A file cannot be written or read.";
    LOCK_NOT_AVAILABLE = "55P03", "A row is locked by another transaction.";
    NAME_TOO_LONG = "42622", "A name is too long.";
    NOT_NULL_VIOLATION = "23502", "A column that may not be NULL is.";
    NO_ACTIVE_TRANSACTION = "25P01", "No transaction is in progress.";
    NUMERIC_OUT_OF_RANGE = "22003", "A number is out of range.";
    OBJECT_IN_USE = "55006", "An object is in use, and cannot be changed.";
    PRIVILEGE_NOT_GRANTED = "01007", "Some privileges were not granted.";
    PRIVILEGE_NOT_REVOKED = "01006", "Some privileges were not revoked.";
    OBJECT_NOT_READY = "55000", "An object is not in a state in which this can be done.";
    OUT_OF_MEMORY = "53200", "A statement needs more memory than it may have.";
    PROGRAM_LIMIT_EXCEEDED = "54000", "A statement is larger than this engine takes.";
    PROTOCOL_VIOLATION = "08P01", "A message is not as the protocol wants it.";
    QUERY_CANCELED = "57014", "The statement was cancelled, or took too long.";
    READ_ONLY_TRANSACTION = "25006", "A transaction that only reads cannot change anything.";
    RESERVED_NAME = "42939", "A name is kept for the system.";
    SEQUENCE_EXHAUSTED = "2200H", "A sequence has no more values.";
    SERIALIZATION_FAILURE = "40001", "Others changed what was read: the transaction has to be run again.";
    SNAPSHOT_TOO_OLD = "72000", "An earlier state of a page is gone: the transaction has to be run again.";
    STATEMENT_TOO_COMPLEX = "54001", "A statement is nested too deeply.";
    STRING_DATA_RIGHT_TRUNCATION = "22001", "A text is too long for its column.";
    SUBSTRING_ERROR = "22011", "A part of a text is of a negative length.";
    SUCCESSFUL_COMPLETION = "00000", "Nothing has failed: a notice of no other code.";
    SYNTAX_ERROR = "42601", "The statement is no SQL.";
    TOO_MANY_COLUMNS = "54011", "There are more columns than a table can have.";
    TOO_MANY_CONNECTIONS = "53300", "There are as many clients as are allowed.";
    TRANSACTION_RESOLUTION_UNKNOWN = "08007", "It is not known whether a commit will last.";
    UNTRANSLATABLE = "22P05", "A character is none of the encoding of texts.";
    UNDEFINED_COLUMN = "42703", "There is no such column.";
    UNDEFINED_FUNCTION = "42883", "There is no such function or operator.";
    UNDEFINED_OBJECT = "42704", "There is no such object.";
    UNDEFINED_PARAMETER = "42P02", "There is no such parameter.";
    UNDEFINED_TABLE = "42P01", "There is no such table.";
    UNIQUE_VIOLATION = "23505", "Another row has the same key.";
    WINDOWING_ERROR = "42P20", "A window function stands where it may not.";
    WARNING = "01000", "Something is probably not as it was meant.";
    WRONG_OBJECT_TYPE = "42809", "An object is not of the kind that is needed.";
}

impl SqlState {
    /// The five characters.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The outcome of what may fail with an [`SqlError`].
pub type SqlResult<T> = Result<T, SqlError>;

/// An error of a statement.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.message)]
pub struct SqlError(Box<SqlErrorParts>);

#[derive(Debug, Clone)]
struct SqlErrorParts {
    state: SqlState,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    /// Where it happened.
    context: Option<String>,
    /// The first character that it is about, counted from 1.
    position: Option<usize>,
    subject: ErrorSubject,
}

/// The table, column or constraint that an error is about, as far as it is about one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorSubject {
    /// The schema of the table.
    pub schema: Option<String>,
    /// The table. Until the session knows its schema, by its name in the catalogue.
    pub table: Option<String>,
    /// A column of the table.
    pub column: Option<String>,
    /// A constraint of the table.
    pub constraint: Option<String>,
}

impl SqlError {
    /// An error that is not about a place in the statement.
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        let (message, subject) = (message.into(), ErrorSubject::default());
        let (detail, hint, context, position) = (None, None, None, None);
        Self(Box::new(SqlErrorParts { state, message, detail, hint, context, position, subject }))
    }

    /// SQL that this engine cannot do: `what` with its article or in the plural.
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// That an administrator ends the session, or the server.
    #[must_use]
    pub fn terminated() -> Self {
        let message = "terminating connection due to administrator command";
        Self::new(SqlState::ADMIN_SHUTDOWN, message)
    }

    /// What should not happen.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(SqlState::INTERNAL_ERROR, message)
    }

    /// With more about what happened.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// With what would help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// With where it happened, as the line of the data of COPY.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context = Some(context.into());
        self
    }

    /// With the first character of the statement that it is about, counted from 1. A place that is
    /// known already stays.
    #[must_use]
    pub fn at(mut self, position: usize) -> Self {
        self.0.position.get_or_insert(position);
        self
    }

    /// About a table, by its name in the catalogue.
    #[must_use]
    pub(crate) fn of_table(mut self, key: &str) -> Self {
        self.0.subject.table = Some(key.to_owned());
        self
    }

    /// About a column of its table.
    #[must_use]
    pub(crate) fn of_column(mut self, name: &str) -> Self {
        self.0.subject.column = Some(name.to_owned());
        self
    }

    /// About a constraint of its table.
    #[must_use]
    pub(crate) fn of_constraint(mut self, name: &str) -> Self {
        self.0.subject.constraint = Some(name.to_owned());
        self
    }

    /// Gives the table its schema and its name there, which `named` knows.
    pub(crate) fn name_table(&mut self, named: impl FnOnce(&str) -> (String, String)) {
        let subject = &mut self.0.subject;
        if let (None, Some(key)) = (&subject.schema, &subject.table) {
            let (schema, table) = named(key);
            (subject.schema, subject.table) = (Some(schema), Some(table));
        }
    }

    /// What it is about.
    #[must_use]
    pub fn subject(&self) -> &ErrorSubject {
        &self.0.subject
    }

    /// Its code.
    #[must_use]
    pub fn state(&self) -> SqlState {
        self.0.state
    }

    /// What happened, in a line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// More about what happened.
    #[must_use]
    pub fn detail_text(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What would help.
    #[must_use]
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Where it happened.
    #[must_use]
    pub fn context_text(&self) -> Option<&str> {
        self.0.context.as_deref()
    }

    /// The first character of the statement that it is about, counted from 1.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        self.0.position
    }

    /// Whether the same transaction may succeed when it is run again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.state,
            SqlState::SERIALIZATION_FAILURE
                | SqlState::DEADLOCK_DETECTED
                | SqlState::SNAPSHOT_TOO_OLD
        )
    }
}
