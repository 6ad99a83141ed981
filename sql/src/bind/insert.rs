//! INSERT.

use std::sync::Arc;

use sqlparser::ast::{
    self, ConflictTarget, ObjectName, OnConflictAction, OnInsert, SetExpr, TableObject,
};

use super::modify::{column_of, is_default, table_scope};
use super::scope::Scope;
use super::stage::{Stage, with_applies};
use super::{Binder, Bound, fold, name_parts, refuse};
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{ConflictAction, Expr, Insert, Plan, Typed};

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
        refuse(overriding.is_some(), "OVERRIDING")?;
        let TableObject::TableName(name) = table else {
            return Err(SqlError::unsupported("INSERT into something else than a table"));
        };
        let table = self.table(name)?;
        let own = name_parts(name)?.pop().unwrap_or_default();
        let called = table_alias.as_ref().map_or(own, |alias| fold(&alias.alias));
        let targets = self.insert_columns(&table, columns)?;
        let source = self.insert_source(&table, &targets, source.as_deref())?;
        let checks = self.checks(&table)?;
        let on_conflict = match on {
            None => None,
            Some(OnInsert::OnConflict(on)) => Some(self.on_conflict(&table, &called, on)?),
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY")),
        };
        let scope = table_scope(&table, &called)?;
        let (returning, columns) = self.returning(returning.as_deref(), &scope)?;
        let insert = Insert { table, source, checks, on_conflict, returning };
        Ok(Bound { plan: Plan::Insert(Box::new(insert)), columns })
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

    /// Rows with a value for each column of the table.
    fn insert_source(
        &mut self,
        table: &TableDef,
        targets: &[usize],
        source: Option<&ast::Query>,
    ) -> SqlResult<Plan> {
        let width = table.columns.len();
        let Some(source) = source else {
            let row = (0..width).map(|at| self.default_of(table, at)).collect::<SqlResult<_>>()?;
            return Ok(Plan::Values { rows: vec![row], width });
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
            let mut stage = Stage::new(&scope, "VALUES");
            let mut rows = Vec::new();
            for row in &values.rows {
                // Fewer values than columns are only right where no columns are named.
                let few = row.content.len() > targets.len() || row.content.is_empty();
                if few || (row.content.len() < targets.len() && targets.len() < width) {
                    return Err(too_many(row.content.len()));
                }
                let mut full: Vec<Option<Expr>> = vec![None; width];
                for (value, &at) in row.content.iter().zip(targets) {
                    if is_default(value) {
                        continue;
                    }
                    let bound = self.expr(value, &mut stage)?;
                    let assigned = self.assigned(table, at, bound);
                    let assigned = assigned.map_err(|error| self.place(error, value))?;
                    if let Some(place) = full.get_mut(at) {
                        *place = Some(assigned);
                    }
                }
                let full = full.into_iter().enumerate().map(|(at, value)| match value {
                    Some(value) => Ok(value),
                    None => self.default_of(table, at),
                });
                rows.push(full.collect::<SqlResult<_>>()?);
            }
            let input = Plan::Values { rows, width };
            if stage.applies.is_empty() {
                return Ok(input);
            }
            refuse(values.rows.len() > 1, "a subquery in VALUES of several rows")?;
            let Plan::Values { mut rows, .. } = input else { return Ok(input) };
            let exprs = rows.pop().unwrap_or_default();
            let input = Box::new(with_applies(Plan::One, stage.applies));
            return Ok(Plan::Project { input, exprs });
        }
        let bound = self.query(source, None)?;
        self.fill(table, targets, bound)
    }

    /// A plan that inserts rows which a source gives for these columns.
    pub(super) fn insert_rows(
        &mut self,
        table: Arc<TableDef>,
        targets: &[usize],
        source: Bound,
    ) -> SqlResult<Plan> {
        let source = self.fill(&table, targets, source)?;
        let checks = self.checks(&table)?;
        let insert = Insert { table, source, checks, on_conflict: None, returning: None };
        Ok(Plan::Insert(Box::new(insert)))
    }

    /// Rows with a value for each column of the table, of those that have values for these.
    fn fill(&mut self, table: &TableDef, targets: &[usize], bound: Bound) -> SqlResult<Plan> {
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
        let mut exprs = Vec::new();
        for at in 0..width {
            let given = targets.iter().position(|own| *own == at);
            let given = given.and_then(|from| Some((from, bound.columns.get(from)?)));
            exprs.push(match given {
                Some((from, column)) => {
                    self.assigned(table, at, Typed::new(Expr::Column(from), column.ty))?
                }
                None => self.default_of(table, at)?,
            });
        }
        Ok(Plan::Project { input: Box::new(bound.plan), exprs })
    }

    fn on_conflict(
        &mut self,
        table: &TableDef,
        called: &str,
        on: &ast::OnConflict,
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
                let mut scope = table_scope(table, called)?;
                let columns = table.columns.iter();
                let columns = columns.map(|own| (own.name.clone(), own.ty, own.is_hidden));
                scope.add_table("excluded", columns)?;
                // A name without its table is that of the table.
                let width = table.columns.len();
                scope.columns.iter_mut().skip(width).for_each(|own| own.is_plain = false);
                let mut stage = Stage::new(&scope, "ON CONFLICT DO UPDATE");
                let assignments = self.assignments(table, assignments, &mut stage)?;
                let condition = match selection {
                    None => None,
                    Some(selection) => {
                        let condition = self.expr(selection, &mut stage)?;
                        Some(self.condition(condition, "WHERE")?)
                    }
                };
                refuse(!stage.applies.is_empty(), "a subquery in ON CONFLICT")?;
                Some((assignments, condition))
            }
        };
        Ok(ConflictAction { target, update })
    }
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
        SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
    })
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
