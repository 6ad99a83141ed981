//! Functions, operators and aggregates, as PostgreSQL has them.
//!
//! Each file registers what it has with its signatures, as `"int4 int4 -> int4"`. A call is
//! resolved by the rules of PostgreSQL: `resolve_*` tell which types the arguments have to be cast
//! to, and what computes the result. The caller casts, and answers NULL for a strict function of
//! which an argument is NULL.

mod absent;
mod aggregates;
mod arguments;
mod arithmetic;
mod array_forms;
mod arrays;
mod byte_strings;
mod catalogue;
mod catalogue_objects;
mod catalogue_rows;
mod comparison;
mod composites;
mod dates;
mod document_functions;
mod document_objects;
mod document_paths;
mod document_rows;
mod documents;
mod encodings;
mod from_char;
mod gather;
mod interrupts;
mod key_bounds;
mod large_values;
mod like;
mod listing;
mod locks;
mod math;
mod moments;
mod number_text;
mod numbers;
mod ordered_sets;
mod parts;
mod patterns;
mod pauses;
mod periods;
mod privileges;
mod regex_parts;
mod regressions;
mod reserved;
mod resolve;
mod rows;
mod sha224;
mod signature;
mod slices;
mod statistics;
mod strings;
mod system;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text_forms;
mod to_char;
mod trigonometry;

use std::fmt;
use std::sync::Arc;

pub use aggregates::{Accumulator, ResolvedAggregate, is_aggregate, resolve_aggregate};
pub use catalogue::needs_names;
pub(crate) use composites::{fields_of, row_type};
pub(crate) use document_rows::rows_of_document;
pub use interrupts::Interrupts;
pub(crate) use key_bounds::{like_end, like_parts_of_key, like_start, moment_bound};
pub use large_values::LargeValues;
pub use listing::{FunctionEntry, FunctionKind, OperatorEntry, function_entries, operator_entries};
pub(crate) use ordered_sets::is_ordered_set;
pub use pauses::PauseOf;
pub(crate) use pauses::resolve_pause;
pub use resolve::{resolve_function, resolve_operator};
pub use rows::{
    ResolvedRows, ResolvedRowsOf, RowIterator, RowsOf, gives_rows, resolve_rows, resolve_unnest,
};
pub(crate) use rows::{columns_of_rows, is_by_array};
pub(crate) use slices::slice;
pub(crate) use strings::{MAX_BYTES, too_long};

use crate::error::SqlResult;
use crate::session_list::SessionList;
use crate::types::{Datum, FormatSettings, SqlType};

/// What a function may know of the session and the statement. Moments are microseconds since
/// 2000-01-01 UTC.
pub struct CallContext<'a> {
    /// How values look.
    pub settings: &'a FormatSettings,
    /// When the transaction began.
    pub transaction_start: i64,
    /// When the statement began.
    pub statement_start: i64,
    /// What time it is.
    pub now: i64,
    /// The role that the session is at present.
    pub user: &'a str,
    /// As whom it began.
    pub session_user: &'a str,
    /// Whether that role is a superuser.
    pub is_superuser: bool,
    /// The number of the session.
    pub session_number: i32,
    /// The sessions of its server.
    pub sessions: &'a SessionList,
    /// The database.
    pub database: &'a str,
    /// The schemas in which names are looked up.
    pub search_path: &'a [String],
    /// Takes what `set_config` sets; the session sets it when the statement has ended.
    pub to_set: &'a ToSet,
    /// A random number from 0 to below 1.
    pub random: &'a (dyn Fn() -> f64 + Sync),
    /// Ends what takes long.
    pub interrupts: &'a Interrupts,
    /// Counts what takes much memory.
    pub large_values: &'a LargeValues,
}

/// Parameters that a statement sets by calls: their names, their values, and whether they are local
/// to the transaction.
#[derive(Debug, Default)]
pub struct ToSet(parking_lot::Mutex<Vec<(String, Option<String>, bool)>>);

impl ToSet {
    /// Sets a parameter; without a value to its default.
    pub fn add(&self, name: &str, value: Option<&str>, is_local: bool) {
        self.0.lock().push((name.to_owned(), value.map(str::to_owned), is_local));
    }

    /// What was set since this was asked last.
    #[must_use]
    pub fn take(&self) -> Vec<(String, Option<String>, bool)> {
        std::mem::take(&mut self.0.lock())
    }
}

/// What computes a result of its arguments.
pub type Eval = Arc<dyn Fn(&[Datum], &CallContext<'_>) -> SqlResult<Datum> + Send + Sync>;

/// On what a result depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// On the arguments alone.
    Immutable,
    /// On the statement too.
    Stable,
    /// It may differ in every call.
    Volatile,
}

/// A call of a function or an operator whose types are known.
#[derive(Clone)]
pub struct Resolved {
    /// What it is called.
    pub name: Arc<str>,
    /// The type that each argument has to be cast to.
    pub arguments: Vec<SqlType>,
    /// The type of the result.
    pub returns: SqlType,
    /// Whether the result is NULL if any argument is. The caller has to see to it.
    pub is_strict: bool,
    /// On what the result depends.
    pub volatility: Volatility,
    /// What computes it.
    pub eval: Eval,
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (arguments, returns) = (&self.arguments, self.returns);
        f.debug_struct("Resolved")
            .field("name", &self.name)
            .field("arguments", arguments)
            .field("returns", &returns)
            .finish_non_exhaustive()
    }
}
