//! UPDATE and DELETE, and what INSERT has in common with them.

use std::sync::Arc;

use selkie_txn::LockWait;
use sqlparser::ast::{
    self, Assignment, AssignmentTarget, Expr as Ast, FromTable, TableFactor, TableWithJoins,
    UpdateTableFromKind,
};

use super::query::LockableTable;
use super::returning::Changed;
use super::scope::{SchemaName, Scope};
use super::stage::{PendingApply, Stage, with_applies};
use super::{Binder, Bound, fold, name_parts, refuse};
use crate::catalogue::{Identity, TableDef};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, LockRows, Locking, Modify, Plan, Typed};
use crate::roles::{Kind, Privileges};
use crate::types::SqlType;
use crate::types::cast::{CastContext, can_cast};

/// The rows that an UPDATE or DELETE changes, with what it can name.
struct Target<'s> {
    table: Arc<TableDef>,
    plan: Plan,
    scope: Scope<'s>,
}

/// What a column is set to.
enum NewValue<'v> {
    Written(&'v Ast),
    /// A column of a query.
    Bound(Typed),
}

impl Binder<'_> {
    /// A value as one of the type of a column.
    pub(super) fn assigned(
        &mut self,
        table: &TableDef,
        at: usize,
        value: Typed,
    ) -> SqlResult<Expr> {
        let Some(column) = table.columns.get(at) else {
            return Err(SqlError::internal("a column that is not there"));
        };
        let is_literal = value.ty == SqlType::UNKNOWN;
        if !is_literal
            && value.ty != column.ty
            && !can_cast(value.ty, column.ty, CastContext::Assignment)
        {
            let message = format!(
                "column \"{}\" is of type {} but expression is of type {}",
                column.name,
                column.ty.plain().name(),
                value.ty.plain().name()
            );
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .hint("You will need to rewrite or cast the expression."));
        }
        self.coerce(value, column.ty, CastContext::Assignment)
    }

    /// What a column is in a row that does not say.
    pub(crate) fn default_of(&mut self, table: &TableDef, at: usize) -> SqlResult<Expr> {
        let mut applies = Vec::new();
        let value = self.default_with(table, at, 0, &mut applies)?;
        refuse(!applies.is_empty(), "a value of a sequence here")?;
        Ok(value)
    }

    /// As [`default_of`](Self::default_of), over rows of `width` columns with what is applied to
    /// them behind those.
    pub(super) fn default_with(
        &mut self,
        table: &TableDef,
        at: usize,
        width: usize,
        applies: &mut Vec<PendingApply>,
    ) -> SqlResult<Expr> {
        let Some(column) = table.columns.get(at) else {
            return Err(SqlError::internal("a column that is not there"));
        };
        let Some(default) = &column.default else {
            return Ok(Expr::Const(crate::types::Datum::Null));
        };
        let ast = super::default_expr(default)?;
        let scope = Scope::inside(None);
        let before = std::mem::take(applies);
        let mut stage =
            Stage { width, applies: before, ..Stage::new(&scope, "DEFAULT expressions") };
        // Who may insert rows may have the values of an identity column.
        self.is_identity = column.identity.is_some();
        self.own_sequence.clone_from(&column.sequence);
        let bound = self.as_stored(|own| own.expr(&ast, &mut stage));
        (self.is_identity, self.own_sequence) = (false, None);
        *applies = stage.applies;
        self.assigned(table, at, bound?)
    }

    /// The CHECK constraints of a table, over its rows.
    pub(crate) fn checks(&mut self, table: &TableDef) -> SqlResult<Vec<(String, Expr)>> {
        let mut checks = Vec::new();
        for (name, condition) in &table.checks {
            let ast = super::default_expr(condition)?;
            let scope = table_scope(table, &table.name, SchemaName::Any)?;
            let mut stage = Stage::new(&scope, "check constraints");
            let bound = self.as_stored(|own| own.expr(&ast, &mut stage))?;
            refuse(!stage.applies.is_empty(), "a subquery in a check constraint")?;
            checks.push((name.clone(), self.condition(bound, "CHECK")?));
        }
        Ok(checks)
    }

    pub(super) fn assignments(
        &mut self,
        table: &TableDef,
        assignments: &[Assignment],
        stage: &mut Stage<'_>,
    ) -> SqlResult<Vec<(usize, Expr)>> {
        let mut all: Vec<(usize, Expr)> = Vec::new();
        for assignment in assignments {
            let Assignment { target, value } = assignment;
            let (names, values) = match (target, value) {
                (AssignmentTarget::ColumnName(name), value) => {
                    (std::slice::from_ref(name), vec![NewValue::Written(value)])
                }
                (AssignmentTarget::Tuple(names), Ast::Tuple(values)) => {
                    (&**names, values.iter().map(NewValue::Written).collect())
                }
                (AssignmentTarget::Tuple(names), Ast::Subquery(query)) => {
                    let row = self.row_of_query(query, stage)?;
                    (&**names, row.into_iter().map(NewValue::Bound).collect())
                }
                (AssignmentTarget::Tuple(_), _) => {
                    let what = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, what));
                }
            };
            if names.len() != values.len() {
                let message = "number of columns does not match number of values";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            for (name, value) in names.iter().zip(values) {
                let column = name_parts(name)?.pop().unwrap_or_default();
                let at = column_of(table, &column).map_err(|error| self.place(error, name))?;
                if all.iter().any(|(own, _)| *own == at) {
                    let message = format!("multiple assignments to same column \"{column}\"");
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                let assigned = match value {
                    NewValue::Written(value) if is_default(value) => {
                        self.default_with(table, at, stage.width, &mut stage.applies)?
                    }
                    NewValue::Written(value) => {
                        refuse_identity(table, at)?;
                        let bound = self.expr(value, stage)?;
                        let assigned = self.assigned(table, at, bound);
                        assigned.map_err(|error| self.place(error, value))?
                    }
                    NewValue::Bound(value) => {
                        refuse_identity(table, at)?;
                        let assigned = self.assigned(table, at, value);
                        assigned.map_err(|error| self.place(error, name))?
                    }
                };
                all.push((at, assigned));
            }
        }
        Ok(all)
    }

    pub(crate) fn update(&mut self, update: &ast::Update) -> SqlResult<Bound> {
        let ast::Update {
            update_token: _,
            optimizer_hints: _,
            table,
            on_cluster,
            assignments,
            from,
            selection,
            returning,
            output,
            or,
            order_by,
            limit,
            settings,
        } = update;
        let is_odd = on_cluster.is_some() || output.is_some() || or.is_some() || settings.is_some();
        refuse(is_odd, "this form of UPDATE")?;
        refuse(!order_by.is_empty() || limit.is_some(), "UPDATE with ORDER BY or LIMIT")?;
        let others = match from {
            None => &[][..],
            Some(UpdateTableFromKind::AfterSet(from) | UpdateTableFromKind::BeforeSet(from)) => {
                from
            }
        };
        let Target { table, mut plan, scope } = self.target(table, others)?;
        self.watch(&table);
        let width = scope.width;
        let mut stage = Stage::new(&scope, "WHERE");
        plan = self.filtered(plan, selection.as_ref(), &mut stage)?;
        plan = locked(plan, &table);
        let mut stage = Stage { width: width + applied(&plan), ..Stage::new(&scope, "UPDATE") };
        let assignments = Some(self.assignments(&table, assignments, &mut stage)?);
        let (_, width) = stage.settled();
        let source = with_applies(plan, stage.applies);
        self.need_to_change(&table, Privileges::UPDATE, returning.is_some());
        let checks = self.checks(&table)?;
        let changed = Changed { source, width, assignments };
        self.modify((table, changed), checks, returning.as_deref(), &scope)
    }

    pub(crate) fn delete(&mut self, delete: &ast::Delete) -> SqlResult<Bound> {
        let ast::Delete {
            delete_token: _,
            optimizer_hints: _,
            tables,
            from,
            on_cluster,
            using,
            selection,
            returning,
            output,
            order_by,
            limit,
            settings,
        } = delete;
        let is_odd =
            !tables.is_empty() || on_cluster.is_some() || output.is_some() || settings.is_some();
        refuse(is_odd, "this form of DELETE")?;
        refuse(!order_by.is_empty() || limit.is_some(), "DELETE with ORDER BY or LIMIT")?;
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = from;
        let [table] = &**from else {
            return Err(SqlError::unsupported("DELETE from several tables"));
        };
        let Target { table, plan, scope } = self.target(table, using.as_deref().unwrap_or(&[]))?;
        self.watch(&table);
        let mut stage = Stage::new(&scope, "WHERE");
        let source = locked(self.filtered(plan, selection.as_ref(), &mut stage)?, &table);
        self.need_to_change(&table, Privileges::DELETE, returning.is_some());
        let width = scope.width + applied(&source);
        let changed = Changed { source, width, assignments: None };
        self.modify((table, changed), Vec::new(), returning.as_deref(), &scope)
    }

    /// Looks from now on whether a column of the table is named that is changed.
    fn watch(&mut self, table: &TableDef) {
        (self.watched, self.names_watched) = (Some(table.columns.len()), false);
    }

    /// Notes what changing a table needs. Its columns may be read only by who may read the table.
    fn need_to_change(&mut self, table: &TableDef, change: Privileges, returns: bool) {
        let reads = std::mem::take(&mut self.names_watched) || returns;
        self.watched = None;
        let select = if reads { Privileges::SELECT } else { Privileges::NONE };
        self.need(table, change.with(select));
    }

    fn modify(
        &mut self,
        (table, mut changed): (Arc<TableDef>, Changed),
        checks: Vec<(String, Expr)>,
        returning: Option<&[ast::SelectItem]>,
        scope: &Scope<'_>,
    ) -> SqlResult<Bound> {
        let returned = self.returning_changed(returning, scope, &table, &mut changed)?;
        let ((returning, columns), Changed { source, assignments, .. }) = (returned, changed);
        let modify = Modify { table, source, assignments, checks, returning };
        Ok(Bound { plan: Plan::Modify(Box::new(modify)), columns })
    }

    /// The table that is changed with the others that are named beside it.
    fn target<'s>(
        &mut self,
        table: &TableWithJoins,
        others: &[TableWithJoins],
    ) -> SqlResult<Target<'s>> {
        refuse(!table.joins.is_empty(), "a join as the table to be changed")?;
        let TableFactor::Table { name, .. } = &table.relation else {
            return Err(SqlError::unsupported("changing something else than a table"));
        };
        let own = self.table(name)?;
        let called = name_parts(name)?;
        let is_hidden = called.len() == 1 && self.named_query(&own.name).is_some();
        refuse(is_hidden, "changing a table that WITH has a query of the same name as")?;
        let from: Vec<TableWithJoins> =
            std::iter::once(table.clone()).chain(others.iter().cloned()).collect();
        let mut lockable: Vec<LockableTable> = Vec::new();
        let first = self.needed.len();
        let (mut plan, scope) = self.from(&from, None, &mut lockable)?;
        // That the table itself is read is said later. Its schema may stand before it.
        let mut added = self.needed.iter().skip(first);
        let at = added.position(|needed| needed.kind != Kind::Schema);
        let at = at.map(|at| first + at);
        if let Some(at) = at
            && self.needed.get(at).is_some_and(|needed| needed.name == own.name)
        {
            self.needed.remove(at);
        }
        mark_for_update(&mut plan);
        Ok(Target { table: own, plan, scope })
    }

    fn filtered(
        &mut self,
        plan: Plan,
        selection: Option<&Ast>,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Plan> {
        let Some(selection) = selection else { return Ok(plan) };
        let condition = self.expr(selection, stage)?;
        let condition = self.condition(condition, "WHERE")?;
        let input = Box::new(with_applies(plan, std::mem::take(&mut stage.applies)));
        Ok(Plan::Filter { input, condition })
    }
}

/// Columns that subqueries of WHERE have added.
fn applied(plan: &Plan) -> usize {
    match plan {
        Plan::Filter { input, .. } => applied(input),
        Plan::Apply { input, .. } => 1 + applied(input),
        Plan::Lock(lock) => applied(&lock.input),
        _ => 0,
    }
}

/// The rows that are changed, locked before: so a change waits for others of the same rows, and
/// sees what they have left.
fn locked(input: Plan, table: &Arc<TableDef>) -> Plan {
    let (condition, is_strict) = match &input {
        Plan::Filter { input, condition } => (Some(condition.clone()), !is_scan(input)),
        plan => (None, !is_scan(plan)),
    };
    let table = Arc::clone(table);
    let locks = vec![Locking { table, first_column: 0, wait: LockWait::Wait }];
    let (is_for_change, is_one_by_one) = (true, false);
    Plan::Lock(Box::new(LockRows {
        input,
        locks,
        condition,
        is_strict,
        is_for_change,
        is_one_by_one,
    }))
}

fn is_scan(plan: &Plan) -> bool {
    matches!(plan, Plan::Scan(_))
}

/// The first table of FROM is the one that is changed.
fn mark_for_update(plan: &mut Plan) {
    match plan {
        Plan::Join(join) => mark_for_update(&mut join.left),
        Plan::Scan(scan) => Arc::make_mut(scan).for_update = true,
        _ => {}
    }
}

pub(super) fn table_scope<'s>(
    table: &TableDef,
    called: &str,
    schema: SchemaName,
) -> SqlResult<Scope<'s>> {
    let mut scope = Scope::inside(None);
    let columns = table.columns.iter().map(|own| (own.name.clone(), own.ty, own.is_hidden));
    scope.add_table(called, schema, columns)?;
    Ok(scope)
}

/// A column that is always the value of its sequence is set to its default only.
fn refuse_identity(table: &TableDef, at: usize) -> SqlResult<()> {
    match table.columns.get(at).filter(|own| own.identity == Some(Identity::Always)) {
        None => Ok(()),
        Some(column) => {
            let message = format!("column \"{}\" can only be updated to DEFAULT", column.name);
            Err(always_generated(message, &column.name))
        }
    }
}

/// The error for a value of a column that is always that of its sequence.
pub(super) fn always_generated(message: String, column: &str) -> SqlError {
    let detail = format!("Column \"{column}\" is an identity column defined as GENERATED ALWAYS.");
    SqlError::new(SqlState::GENERATED_ALWAYS, message).detail(detail)
}

pub(super) fn is_default(value: &Ast) -> bool {
    matches!(value, Ast::Identifier(name) if name.quote_style.is_none() && fold(name) == "default")
}

pub(super) fn column_of(table: &TableDef, name: &str) -> SqlResult<usize> {
    table.column(name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })
}
