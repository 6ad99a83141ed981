//! INSERT.

use std::sync::Arc;

use sqlparser::ast::{
    self, ConflictTarget, InsertOverriding, ObjectName, OnConflictAction, OnInsert, SetExpr,
    TableObject,
};

use super::modify::{always_generated, column_of, is_default, table_scope};
use super::returning::Returning;
use super::scope::{SchemaName, Scope};
use super::stage::{PendingApply, Stage, with_applies};
use super::values::{ValuesRow, plan_of_rows};
use super::{Binder, Bound, fold, name_parts, refuse};
use crate::catalogue::{Identity, TableDef};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Branch, ConflictAction, Expr, Insert, Plan, Typed};
use crate::roles::Privileges;
use crate::types::cast::CastContext;
use crate::types::{Datum, SqlType};

/// The privileges of its table that an INSERT needs.
fn needed(on: Option<&OnInsert>, returns: bool) -> Privileges {
    let mut needed = Privileges::INSERT;
    if let Some(OnInsert::OnConflict(on)) = on {
        if matches!(on.action, OnConflictAction::DoUpdate(_)) {
            needed = needed.with(Privileges::UPDATE);
        }
        if on.conflict_target.is_some() {
            needed = needed.with(Privileges::SELECT);
        }
    }
    if returns { needed.with(Privileges::SELECT) } else { needed }
}

impl Binder<'_> {
    pub(crate) fn insert(&mut self, insert: &ast::Insert) -> SqlResult<Bound> {
        let ast::Insert {
            insert_token: _,
            optimizer_hints: _,
            or,
            ignore,
            into: _,
            table,
            table_alias,
            columns,
            by_name,
            overwrite,
            source,
            assignments,
            partitioned,
            after_columns,
            overriding,
            has_table_keyword,
            on,
            returning,
            output,
            replace_into,
            priority,
            insert_alias,
            settings,
            format_clause,
            multi_table_insert_type,
            multi_table_into_clauses,
            multi_table_when_clauses,
            multi_table_else_clause,
        } = insert;
        let is_odd = or.is_some()
            || *ignore
            || *by_name
            || *overwrite
            || !assignments.is_empty()
            || partitioned.is_some()
            || !after_columns.is_empty()
            || *has_table_keyword
            || output.is_some()
            || *replace_into
            || priority.is_some()
            || insert_alias.is_some()
            || settings.is_some()
            || format_clause.is_some()
            || multi_table_insert_type.is_some()
            || !multi_table_into_clauses.is_empty()
            || !multi_table_when_clauses.is_empty()
            || multi_table_else_clause.is_some();
        refuse(is_odd, "this form of INSERT")?;
        let TableObject::TableName(name) = table else {
            return Err(SqlError::unsupported("INSERT into something else than a table"));
        };
        let table = self.table(name)?;
        let own = name_parts(name)?.pop().unwrap_or_default();
        let called = table_alias.as_ref().map_or(own, |alias| fold(&alias.alias));
        let targets = self.insert_columns(&table, columns)?;
        let given = (&*targets, !columns.is_empty());
        let source = self.insert_source(&table, given, overriding.as_ref(), source.as_deref())?;
        let checks = self.checks(&table)?;
        let (on_conflict, mut applies) = self.on_insert(&table, &called, on.as_ref())?;
        self.need(&table, needed(on.as_ref(), returning.is_some()));
        let scope = table_scope(&table, &called, self.schema_name(&table, &called))?;
        // Subqueries are applied to the rows that are to be inserted.
        let width = table.columns.len() + applies.len();
        let Returning { exprs: returning, columns, applies: of_returning } =
            self.returning(returning.as_deref(), &scope, width)?;
        check_applied(on_conflict.as_ref(), &of_returning)?;
        applies.extend(of_returning);
        let source = with_applies(source, applies);
        let insert = Insert { table, source, checks, on_conflict, returning };
        Ok(Bound { plan: Plan::Insert(Box::new(insert)), columns })
    }

    /// What is done with rows that are there already, and the subqueries of that.
    fn on_insert(
        &mut self,
        table: &TableDef,
        called: &str,
        on: Option<&OnInsert>,
    ) -> SqlResult<(Option<ConflictAction>, Vec<PendingApply>)> {
        let mut applies = Vec::new();
        let action = match on {
            None => None,
            Some(OnInsert::OnConflict(on)) => {
                Some(self.on_conflict(table, called, on, &mut applies)?)
            }
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY")),
        };
        Ok((action, applies))
    }

    /// The columns that are given, by position.
    pub(super) fn insert_columns(
        &self,
        table: &TableDef,
        names: &[ObjectName],
    ) -> SqlResult<Vec<usize>> {
        if names.is_empty() {
            let shown = table.columns.iter().enumerate().filter(|(_, column)| !column.is_hidden);
            return Ok(shown.map(|(at, _)| at).collect());
        }
        let mut targets = Vec::new();
        for name in names {
            let column = name_parts(name)?.pop().unwrap_or_default();
            let at = column_of(table, &column).map_err(|error| self.place(error, name))?;
            if targets.contains(&at) {
                let message = format!("column \"{column}\" specified more than once");
                let error = SqlError::new(SqlState::DUPLICATE_COLUMN, message);
                return Err(self.place(error, name));
            }
            targets.push(at);
        }
        Ok(targets)
    }

    /// Rows with a value for each column of the table. Fewer are given than there are targets only
    /// where the statement has not named those.
    fn insert_source(
        &mut self,
        table: &TableDef,
        (targets, named): (&[usize], bool),
        overriding: Option<&InsertOverriding>,
        source: Option<&ast::Query>,
    ) -> SqlResult<Plan> {
        let width = table.columns.len();
        let Some(source) = source else {
            return self.with_defaults(table, vec![vec![None; width]]);
        };
        let too_many = |given: usize| {
            let message = match given > targets.len() {
                true => "INSERT has more expressions than target columns",
                false => "INSERT has more target columns than expressions",
            };
            SqlError::new(SqlState::SYNTAX_ERROR, message)
        };
        let is_bare =
            source.order_by.is_none() && source.limit_clause.is_none() && source.with.is_none();
        if let (true, SetExpr::Values(values)) = (is_bare, &*source.body) {
            let scope = Scope::inside(None);
            let mut rows = Vec::new();
            for row in &values.rows {
                let count = row.content.len();
                if count > targets.len() || count == 0 || named && count < targets.len() {
                    return Err(too_many(row.content.len()));
                }
                let mut stage = Stage::new(&scope, "VALUES");
                let mut full: Vec<Option<Expr>> = vec![None; width];
                for (value, &at) in row.content.iter().zip(targets) {
                    if is_default(value) || overrides(table, at, overriding)? {
                        continue;
                    }
                    let bound = self.expr(value, &mut stage)?;
                    let assigned = self.assigned(table, at, bound);
                    let assigned = assigned.map_err(|error| self.place(error, value))?;
                    if let Some(place) = full.get_mut(at) {
                        *place = Some(assigned);
                    }
                }
                rows.push((full, stage.applies));
            }
            return self.inserted_values(table, rows);
        }
        let bound = self.query_for(source, None, true)?;
        let count = if named { targets.len() } else { bound.columns.len().min(targets.len()) };
        let targets = targets.get(..count).unwrap_or(targets);
        let mut given = Vec::new();
        for at in targets {
            given.push(!overrides(table, *at, overriding)?);
        }
        self.fill(table, targets, &given, bound)
    }

    /// Rows of values, with defaults where there is none, which may need subqueries.
    fn inserted_values(
        &mut self,
        table: &TableDef,
        rows: Vec<ValuesRow<Option<Expr>>>,
    ) -> SqlResult<Plan> {
        if rows.iter().all(|(_, applies)| applies.is_empty()) {
            return self.with_defaults(table, rows.into_iter().map(|(row, _)| row).collect());
        }
        let mut full = Vec::with_capacity(rows.len());
        for (row, mut applies) in rows {
            let mut exprs = Vec::with_capacity(row.len());
            for (at, value) in row.into_iter().enumerate() {
                exprs.push(match value {
                    Some(value) => value,
                    None => self.default_with(table, at, 0, &mut applies)?,
                });
            }
            full.push((exprs, applies));
        }
        Ok(plan_of_rows(full, table.columns.len()))
    }

    /// Rows of values, with defaults where there is none.
    fn with_defaults(
        &mut self,
        table: &TableDef,
        mut rows: Vec<Vec<Option<Expr>>>,
    ) -> SqlResult<Plan> {
        let columns = table.columns.len();
        // Behind the values those that say which rows take a value of a sequence.
        let mut width = columns;
        let (mut exprs, mut calls) = (Vec::new(), Vec::new());
        for at in 0..columns {
            let is_given = |row: &Vec<Option<Expr>>| row.get(at).is_some_and(Option::is_some);
            exprs.push(Expr::Column(at));
            if rows.iter().all(is_given) {
                continue;
            }
            let mut applies = Vec::new();
            let value = self.default_with(table, at, 0, &mut applies)?;
            let none = if applies.is_empty() { value } else { Expr::Const(Datum::Null) };
            let takes: Vec<bool> = rows.iter().map(|row| !is_given(row)).collect();
            for (row, takes) in rows.iter_mut().zip(takes) {
                if let Some(own) = row.get_mut(at).filter(|_| takes) {
                    *own = Some(none.clone());
                }
                if !applies.is_empty() {
                    row.push(Some(Expr::Const(Datum::Bool(takes))));
                }
            }
            if !applies.is_empty() {
                calls.push((at, width));
                width += 1;
            }
        }
        let rows = rows.into_iter().map(|row| row.into_iter().flatten().collect()).collect();
        let values = Plan::Values { rows, width };
        if calls.is_empty() {
            return Ok(values);
        }
        let mut applies = Vec::new();
        for (at, flag) in calls {
            let first = applies.len();
            let value = self.default_with(table, at, width, &mut applies)?;
            for apply in applies.iter_mut().skip(first) {
                if let Plan::Sequence(call) = &mut apply.query {
                    call.when = Some(Expr::Outer { level: 0, column: flag });
                }
            }
            let branch = Branch { condition: Expr::Column(flag), result: value };
            let otherwise = Some(Box::new(Expr::Column(at)));
            if let Some(own) = exprs.get_mut(at) {
                *own = Expr::Case { branches: vec![branch], otherwise };
            }
        }
        Ok(Plan::Project { input: Box::new(with_applies(values, applies)), exprs: exprs.into() })
    }

    /// A plan that inserts rows which a source gives for these columns.
    pub(crate) fn insert_rows(
        &mut self,
        table: Arc<TableDef>,
        targets: &[usize],
        source: Bound,
    ) -> SqlResult<Plan> {
        let source = self.fill(&table, targets, &vec![true; targets.len()], source)?;
        let checks = self.checks(&table)?;
        let insert = Insert { table, source, checks, on_conflict: None, returning: None };
        Ok(Plan::Insert(Box::new(insert)))
    }

    /// Rows with a value for each column of the table, of those that have values for these.
    /// Values that are not `given` are those of sequences.
    fn fill(
        &mut self,
        table: &TableDef,
        targets: &[usize],
        given: &[bool],
        mut bound: Bound,
    ) -> SqlResult<Plan> {
        let width = table.columns.len();
        let too_many = |given: usize| {
            let message = match given > targets.len() {
                true => "INSERT has more expressions than target columns",
                false => "INSERT has more target columns than expressions",
            };
            SqlError::new(SqlState::SYNTAX_ERROR, message)
        };
        if bound.columns.len() > targets.len()
            || (bound.columns.len() < targets.len() && targets.len() < width)
        {
            return Err(too_many(bound.columns.len()));
        }
        for at in 0..bound.columns.len() {
            let column = targets.get(at).and_then(|at| table.columns.get(*at));
            let ty = column.map_or(SqlType::TEXT, |own| own.ty);
            self.give_type(&mut bound, at, ty, CastContext::Assignment)?;
        }
        let (mut exprs, mut applies) = (Vec::new(), Vec::new());
        for at in 0..width {
            let from = targets.iter().position(|own| *own == at);
            let from = from.filter(|from| given.get(*from).copied().unwrap_or(true));
            let from = from.and_then(|from| Some((from, bound.columns.get(from)?)));
            exprs.push(match from {
                Some((from, column)) => {
                    self.assigned(table, at, Typed::new(Expr::Column(from), column.ty))?
                }
                None => self.default_with(table, at, bound.columns.len(), &mut applies)?,
            });
        }
        Ok(Plan::Project {
            input: Box::new(with_applies(bound.plan, applies)),
            exprs: exprs.into(),
        })
    }

    fn on_conflict(
        &mut self,
        table: &TableDef,
        called: &str,
        on: &ast::OnConflict,
        applies: &mut Vec<PendingApply>,
    ) -> SqlResult<ConflictAction> {
        let ast::OnConflict { conflict_target, action } = on;
        let target = match conflict_target {
            None => None,
            Some(ConflictTarget::OnConstraint(name)) => {
                let name = name_parts(name)?.pop().unwrap_or_default();
                Some(constraint_of(table, &name)?)
            }
            Some(ConflictTarget::Columns { columns, predicate }) => {
                refuse(predicate.is_some(), "ON CONFLICT with WHERE")?;
                let columns = columns.iter().map(|own| column_of(table, &fold(own)));
                Some(key_of(table, columns.collect::<SqlResult<_>>()?)?)
            }
        };
        let update = match action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(ast::DoUpdate { assignments, selection }) => {
                if target.is_none() {
                    let message =
                        "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                let mut scope = table_scope(table, called, self.schema_name(table, called))?;
                let columns = table.columns.iter();
                let columns = columns.map(|own| (own.name.clone(), own.ty, own.is_hidden));
                scope.add_table("excluded", SchemaName::Alias, columns)?;
                let mut stage = Stage::new(&scope, "ON CONFLICT DO UPDATE");
                let assignments = self.assignments(table, assignments, &mut stage)?;
                let condition = match selection {
                    None => None,
                    Some(selection) => {
                        let condition = self.expr(selection, &mut stage)?;
                        Some(self.condition(condition, "WHERE")?)
                    }
                };
                // They are applied to the new row, which does not know the old one.
                let is_of_row =
                    |own: &PendingApply| own.is_correlated && !is_plain_call(&own.query);
                refuse(
                    stage.applies.iter().any(is_of_row),
                    "a subquery over the row in ON CONFLICT",
                )?;
                *applies = stage.applies;
                Some((assignments, condition))
            }
        };
        Ok(ConflictAction { target, update })
    }
}

/// Subqueries of RETURNING are applied to the new row, which ON CONFLICT may not insert.
fn check_applied(on_conflict: Option<&ConflictAction>, applies: &[PendingApply]) -> SqlResult<()> {
    let updates = on_conflict.is_some_and(|own| own.update.is_some());
    let is_of_row = applies.iter().any(|own| own.is_correlated);
    refuse(updates && is_of_row, "a subquery over the row in RETURNING of ON CONFLICT DO UPDATE")
}

/// Whether a plan takes a value of a sequence, whatever the row is.
fn is_plain_call(plan: &Plan) -> bool {
    let Plan::Sequence(call) = plan else { return false };
    let mut parts = call.arguments.iter().chain(&call.when);
    parts.all(|own| matches!(own, Expr::Const(_) | Expr::Param(_)))
}

/// The unique key of these columns: `None` for the primary key.
fn key_of(table: &TableDef, mut columns: Vec<usize>) -> SqlResult<Option<usize>> {
    columns.sort_unstable();
    columns.dedup();
    let is_same = |own: &[usize]| {
        let mut own = own.to_vec();
        own.sort_unstable();
        own == columns
    };
    if is_same(&table.primary_key) {
        return Ok(None);
    }
    let index = table.indexes.iter().position(|index| index.unique && is_same(&index.columns));
    index.map(Some).ok_or_else(|| {
        let message =
            "there is no unique or exclusion constraint matching the ON CONFLICT specification";
        SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message)
    })
}

/// Whether a value that is given for a column is left out for that of its sequence.
fn overrides(
    table: &TableDef,
    at: usize,
    overriding: Option<&InsertOverriding>,
) -> SqlResult<bool> {
    let Some(column) = table.columns.get(at) else { return Ok(false) };
    match (column.identity, overriding) {
        (Some(_), Some(InsertOverriding::User)) => Ok(true),
        (Some(Identity::Always), None) => {
            let name = &column.name;
            let message = format!("cannot insert a non-DEFAULT value into column \"{name}\"");
            let hint = "Use OVERRIDING SYSTEM VALUE to override.";
            Err(always_generated(message, name).hint(hint))
        }
        _ => Ok(false),
    }
}

fn constraint_of(table: &TableDef, name: &str) -> SqlResult<Option<usize>> {
    if table.primary_key_name() == name {
        return Ok(None);
    }
    let index = table.indexes.iter().position(|index| index.unique && index.name == name);
    index.map(Some).ok_or_else(|| {
        let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_OBJECT, message)
    })
}
