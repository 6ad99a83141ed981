//! The nodes of a plan.

use std::sync::Arc;

use selkie_txn::LockWait;

use super::advisory::AdvisoryCall;
use super::expr::Expr;
use crate::catalogue::TableDef;
use crate::copy::CopyFormat;
use crate::functions::{ResolvedAggregate, ResolvedRows};
use crate::types::{Datum, SqlType};

/// What gives rows. Where a comment says "gives", it means the columns of each row.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// One row without columns.
    One,
    /// No row, of so many columns.
    Nothing { width: usize },
    /// Gives each row of expressions, over no input row.
    Values { rows: Vec<Vec<Expr>>, width: usize },
    /// Gives the rows of data that the client sends, for such columns of a table.
    CopyIn { table: String, columns: Vec<(String, SqlType)>, format: Arc<CopyFormat> },
    /// Gives all columns of a table, of the rows that `access` finds and that pass `filter`.
    Scan(Arc<Scan>),
    /// Gives the columns of a function that gives rows; its arguments are over no input row. With
    /// `ordinality` a column more, which counts from 1.
    Rows { function: Arc<ResolvedRows>, arguments: Vec<Expr>, ordinality: bool },
    /// Gives the rows of a common table expression, which is run once.
    Shared { number: usize, plan: Arc<Plan>, reuse: Reuse },
    /// The rows that a recursive part of a common table expression gave in the round before.
    Working { number: usize, width: usize },
    /// Gives the rows of `first`, then those of `next` as long as it gives any, each time with the
    /// rows of the round before as [`Plan::Working`]. Without `all` no row comes twice.
    Recursive { number: usize, first: Box<Plan>, next: Box<Plan>, all: bool },
    /// The rows of the input, which are counted.
    Measured { number: usize, input: Box<Plan> },
    /// The rows that pass.
    Filter { input: Box<Plan>, condition: Expr },
    /// Gives the expressions over each input row.
    Project { input: Box<Plan>, exprs: Arc<[Expr]> },
    /// Gives the columns of both. For a lateral join the right side is run anew for each row of the
    /// left, which is then its innermost outer row.
    Join(Box<Join>),
    /// As [`Plan::Join`], of sides that come in one order.
    Merge(Box<Merge>),
    /// Gives the columns of the input and one more: what a subquery gives, whose innermost outer
    /// row is the input row.
    Apply { input: Box<Plan>, query: Box<Plan>, kind: ApplyKind, is_correlated: bool },
    /// Gives the keys, then what each call gives, for each group; without keys one row for all
    /// rows, also for none.
    Aggregate { input: Box<Plan>, keys: Vec<Expr>, calls: Vec<AggregateCall> },
    /// As [`Plan::Aggregate`] with keys, of rows of which those of a group come one behind the
    /// other.
    Grouped { input: Box<Plan>, keys: Vec<Expr>, calls: Vec<AggregateCall> },
    /// Gives the columns of the input, then what each call gives.
    Window { input: Box<Plan>, calls: Vec<WindowCall> },
    /// In this order; only the first rows if there is a limit to those that are needed.
    Sort { input: Box<Plan>, keys: Vec<SortKey>, first: Option<Expr> },
    /// Leaves out `offset` rows, then gives `limit`; expressions of type bigint over no input row.
    Limit { input: Box<Plan>, limit: Option<Expr>, offset: Option<Expr> },
    /// Of rows that agree in these expressions only the first. If they are sorted, such rows come
    /// one behind the other.
    Distinct { input: Box<Plan>, keys: Vec<Expr>, is_sorted: bool },
    /// Rows of both sides, as wide as each other.
    Set { operator: SetOperator, all: bool, left: Box<Plan>, right: Box<Plan> },
    /// Locks rows of tables, and gives them in their newest state.
    Lock(Box<LockRows>),
    /// Changes of a table; gives the expressions of RETURNING, or nothing.
    Insert(Box<Insert>),
    /// As [`Plan::Insert`].
    Modify(Box<Modify>),
    /// A statement with common table expressions that change rows: gives the rows of `main`, once
    /// each of `changes` has been run to its end. None of them, nor `main`, sees what another
    /// changes.
    Together { changes: Vec<Plan>, main: Box<Plan> },
    /// Gives one row: a value of a sequence.
    Sequence(Box<SequenceCall>),
    /// Gives one row: what a function of advisory locks gives.
    Advisory(Box<AdvisoryCall>),
}

/// Whether the rows of a common table expression are kept for all that read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// MATERIALIZED.
    Always,
    /// If several read it.
    IfShared,
    /// NOT MATERIALIZED.
    Never,
}

/// A call of a function of sequences.
#[derive(Clone, Debug)]
pub(crate) struct SequenceCall {
    pub(crate) function: SequenceFunction,
    /// The names in the catalogue that the sequence may have, the first of which there is one;
    /// `None` if they are only known when it is called.
    pub(crate) keys: Option<Vec<String>>,
    /// Over no input row, as it is below an [`Plan::Apply`]: columns are those of outer rows.
    pub(crate) arguments: Vec<Expr>,
    /// Without it being true nothing is done, and the value is NULL.
    pub(crate) when: Option<Expr>,
    /// Whether it gives an identity column its value: no privilege is asked for then.
    pub(crate) is_identity: bool,
}

/// A function of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceFunction {
    Next,
    Current,
    Last,
    Set,
}

/// A read of a table.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) table: Arc<TableDef>,
    pub(crate) access: Access,
    /// Over the columns of the table.
    pub(crate) filter: Option<Expr>,
    /// The columns that are needed: others may be NULL in what is given.
    pub(crate) needed: Vec<bool>,
    /// Whether rows are read to be changed, and have to stay as they were read until then. In a
    /// transaction of several statements they are locked for that ([`Plan::Lock`]).
    pub(crate) for_update: bool,
    /// Whether what is above counts on the rows coming in the order in which they are read.
    pub(crate) is_ordered: bool,
    /// Whether the entries of the index tell all that is needed, so that no rows are read.
    pub(crate) index_only: bool,
}

/// How the rows of a table are found. All expressions are over no input row: constants, parameters
/// and columns of outer rows.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// By a range of the primary key (`index: None`) or of an index: all columns of `prefix` are
    /// equal to these, and the next is within the bounds. An empty prefix without bounds is the
    /// whole table.
    Range {
        index: Option<usize>,
        prefix: Vec<KeyExpr>,
        low: Option<KeyBound>,
        high: Option<KeyBound>,
        descending: bool,
    },
    /// By several values of one column of a key: the columns before it are equal to `prefix`, and
    /// those behind it to `suffix`.
    Each { index: Option<usize>, prefix: Vec<KeyExpr>, values: Vec<KeyItem>, suffix: Vec<KeyExpr> },
}

/// The value of a column of a key: of the type of that column, or of another that all values of the
/// column can be compared in without loss. NULL finds nothing.
pub(crate) type KeyExpr = Expr;

/// Values of a column of a key.
#[derive(Clone, Debug)]
pub(crate) enum KeyItem {
    One(KeyExpr),
    /// The elements of an array.
    Elements(KeyExpr),
}

impl KeyItem {
    /// What has to be evaluated for it.
    pub(crate) const fn expr(&self) -> &Expr {
        match self {
            Self::One(expr) | Self::Elements(expr) => expr,
        }
    }
}

/// A bound of a column of a key.
#[derive(Clone, Debug)]
pub(crate) struct KeyBound {
    pub(crate) value: KeyExpr,
    pub(crate) inclusive: bool,
    /// Whether NULL says that there is no bound.
    pub(crate) is_open_if_null: bool,
}

impl KeyBound {
    /// A lower bound that leaves out NULL, and no value.
    pub(crate) const NOT_NULL: Self =
        Self { value: Expr::Const(Datum::Null), inclusive: true, is_open_if_null: true };

    /// Whether it is [that](Self::NOT_NULL).
    pub(crate) const fn is_not_null(&self) -> bool {
        matches!(self.value, Expr::Const(Datum::Null)) && self.is_open_if_null
    }

    /// A bound that finds nothing if it is NULL.
    pub(crate) const fn new(value: KeyExpr, inclusive: bool) -> Self {
        Self { value, inclusive, is_open_if_null: false }
    }
}

/// What kind of join it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    /// Gives the columns of the left only, of rows that have a partner.
    Semi,
    /// Gives the columns of the left only, of rows that have none.
    Anti,
}

/// A join.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    pub(crate) left: Plan,
    pub(crate) right: Plan,
    pub(crate) left_width: usize,
    pub(crate) right_width: usize,
    pub(crate) kind: JoinKind,
    /// Pairs that have to be equal, by the order of their type: the first over rows of the left,
    /// the second over rows of the right. NULL is equal to nothing.
    pub(crate) equal: Vec<(Expr, Expr)>,
    /// What else has to hold, over the columns of both.
    pub(crate) condition: Option<Expr>,
    /// The right side sees the row of the left.
    pub(crate) is_lateral: bool,
    /// What is above counts on the rows of the left coming in their order.
    pub(crate) keeps_order: bool,
}

/// A join of sides that come in the order of the pairs that have to be equal, of which neither is
/// lateral.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    pub(crate) join: Join,
    /// The order of each pair.
    pub(crate) keys: Vec<MergeKey>,
}

/// The order in which both sides have the values of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeKey {
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// What a subquery is for.
#[derive(Clone, Debug)]
pub(crate) enum ApplyKind {
    /// Its only value, NULL without a row, an error with several.
    Scalar,
    /// Whether it gives a row.
    Exists,
    /// Whether its rows have a value for which the comparison holds: over the input row with the
    /// columns of the subquery behind it. NULL if none is true and one is NULL; for `all` the
    /// reverse.
    Compare { comparison: Expr, all: bool },
    /// Its values as an array.
    Array { element: SqlType },
}

/// A call of an aggregate function.
#[derive(Clone, Debug)]
pub(crate) struct AggregateCall {
    pub(crate) function: ResolvedAggregate,
    pub(crate) arguments: Vec<Expr>,
    pub(crate) is_distinct: bool,
    /// Rows for which it is not true do not count.
    pub(crate) filter: Option<Expr>,
    pub(crate) order: Vec<SortKey>,
}

/// A call of a window function.
#[derive(Clone, Debug)]
pub(crate) struct WindowCall {
    /// Of an aggregate function what it is.
    pub(crate) aggregate: Option<ResolvedAggregate>,
    /// In lower case.
    pub(crate) name: String,
    pub(crate) arguments: Vec<Expr>,
    /// Rows for which it is not true do not count for an aggregate.
    pub(crate) filter: Option<Expr>,
    pub(crate) partition: Vec<Expr>,
    pub(crate) order: Vec<SortKey>,
    pub(crate) frame: Frame,
}

/// The rows around each row that its value is over. By default they end with the last row that the
/// order does not tell from it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) units: FrameUnits,
    pub(crate) start: FrameBound,
    pub(crate) end: FrameBound,
}

impl Default for Frame {
    fn default() -> Self {
        let (start, end) = (FrameBound::Unbounded, FrameBound::Current);
        Self { units: FrameUnits::Range, start, end }
    }
}

/// What the bounds of a frame count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameUnits {
    Rows,
    /// Rows that the order does not tell apart are one.
    Groups,
    /// By values: the current row is all that the order does not tell from it.
    Range,
}

/// An end of a frame.
#[derive(Clone, Debug)]
pub(crate) enum FrameBound {
    /// That of the partition at this end.
    Unbounded,
    Preceding(FrameOffset),
    Current,
    Following(FrameOffset),
}

/// How far an end of a frame is from the current row.
#[derive(Clone, Debug)]
pub(crate) struct FrameOffset {
    /// Over no input row; of rows and groups a bigint.
    pub(crate) offset: Expr,
    /// Of values: the column of the order, and the value up to which it is within the frame, both
    /// over the row and of one type.
    pub(crate) limit: Option<(Expr, Expr)>,
}

impl WindowCall {
    /// All expressions over rows of the input.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order.iter().map(|key| &key.expr);
        let bounds =
            [&self.frame.start, &self.frame.end].into_iter().filter_map(|bound| match bound {
                FrameBound::Preceding(own) | FrameBound::Following(own) => Some(own),
                FrameBound::Unbounded | FrameBound::Current => None,
            });
        let bounds = bounds.flat_map(|own| {
            let limit = own.limit.iter().flat_map(|(order, limit)| [order, limit]);
            limit.chain([&own.offset])
        });
        self.arguments.iter().chain(&self.filter).chain(&self.partition).chain(order).chain(bounds)
    }

    /// As [`exprs`](Self::exprs).
    pub(crate) fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let order = self.order.iter_mut().map(|key| &mut key.expr);
        let bounds = [&mut self.frame.start, &mut self.frame.end];
        let bounds = bounds.into_iter().filter_map(|bound| match bound {
            FrameBound::Preceding(own) | FrameBound::Following(own) => Some(own),
            FrameBound::Unbounded | FrameBound::Current => None,
        });
        let bounds = bounds.flat_map(|own| {
            let limit = own.limit.iter_mut().flat_map(|(order, limit)| [order, limit]);
            limit.chain([&mut own.offset])
        });
        let arguments = self.arguments.iter_mut().chain(&mut self.filter);
        arguments.chain(&mut self.partition).chain(order).chain(bounds)
    }
}

/// A column of an order.
#[derive(Clone, Debug)]
pub(crate) struct SortKey {
    pub(crate) expr: Expr,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// Operators on sets of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOperator {
    Union,
    Intersect,
    Except,
}

/// Locks of the rows of a query.
#[derive(Clone, Debug)]
pub(crate) struct LockRows {
    /// Gives the columns of the tables, and others behind them.
    pub(crate) input: Plan,
    pub(crate) locks: Vec<Locking>,
    /// What a row has to pass in its newest state; one that does not is not given.
    pub(crate) condition: Option<Expr>,
    /// Whether a row that has changed since it was found is an error: other rows, or subqueries,
    /// were found by what it was.
    pub(crate) is_strict: bool,
    /// Whether the statement changes the rows: one that is alone in its transaction need not lock
    /// them, as it is run again when others have changed them.
    pub(crate) is_for_change: bool,
    /// Whether a row is locked only when it is asked for: the last ones may not be.
    pub(crate) is_one_by_one: bool,
}

/// Rows of one table that are to be locked.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    pub(crate) table: Arc<TableDef>,
    /// Where the columns of the table begin in the input row.
    pub(crate) first_column: usize,
    pub(crate) wait: LockWait,
}

/// An INSERT.
#[derive(Clone, Debug)]
pub(crate) struct Insert {
    pub(crate) table: Arc<TableDef>,
    /// Gives a value for each column of the table, then what subqueries of ON CONFLICT and
    /// RETURNING give.
    pub(crate) source: Plan,
    /// CHECK constraints, over the new row, with their names.
    pub(crate) checks: Vec<(String, Expr)>,
    pub(crate) on_conflict: Option<ConflictAction>,
    /// Over the new row with what the source gave behind it.
    pub(crate) returning: Option<Vec<Expr>>,
}

/// What is done where a row has the key of another.
#[derive(Clone, Debug)]
pub(crate) struct ConflictAction {
    /// The key: `Some(None)` is the primary key, `Some(Some(i))` an index, `None` any.
    pub(crate) target: Option<Option<usize>>,
    /// New values of columns, over the old row with the row that was to be inserted behind it;
    /// `None` leaves the old row.
    pub(crate) update: Option<ConflictUpdate>,
}

/// New values of columns, and the condition under which they are set.
pub(crate) type ConflictUpdate = (Assignments, Option<Expr>);

/// New values of columns, by position.
pub(crate) type Assignments = Vec<(usize, Expr)>;

/// An UPDATE or DELETE.
#[derive(Clone, Debug)]
pub(crate) struct Modify {
    pub(crate) table: Arc<TableDef>,
    /// Gives the columns of the table first, then what the assignments need.
    pub(crate) source: Plan,
    /// New values of columns, over the rows of the source; `None` deletes.
    pub(crate) assignments: Option<Assignments>,
    /// CHECK constraints, over the new row, with their names.
    pub(crate) checks: Vec<(String, Expr)>,
    /// Over the new row (of a DELETE the old one) with what the source gave behind it.
    pub(crate) returning: Option<Vec<Expr>>,
}
