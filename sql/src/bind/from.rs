//! FROM: tables, subqueries, functions, and joins of them.

use std::sync::Arc;

use sqlparser::ast::{
    self, FunctionArg, JoinConstraint, JoinOperator, ObjectName, TableAlias, TableFactor,
    TableWithJoins,
};

use super::query::{LockableTable, rename};
use super::scope::{SchemaName, Scope, ScopeColumn};
use super::stage::{Stage, with_applies};
use super::{Binder, Bound, OutputColumn, fold, name_parts, refuse};
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::resolve_rows;
use crate::plan::{Access, Expr, Join, JoinKind, Plan, Scan, Typed};
use crate::roles::Privileges;
use crate::types::SqlType;
use crate::types::cast::CastContext;

/// A part of FROM.
struct Part<'s> {
    plan: Plan,
    scope: Scope<'s>,
    /// Whether it sees the row of what stands before it.
    is_lateral: bool,
}

impl Binder<'_> {
    /// What FROM gives, and how it is named. Without tables it is one row without columns.
    pub(super) fn from<'s>(
        &mut self,
        from: &[TableWithJoins],
        outer: Option<&'s Scope<'s>>,
        lockable: &mut Vec<LockableTable>,
    ) -> SqlResult<(Plan, Scope<'s>)> {
        let mut whole: Option<Part<'s>> = None;
        for item in from {
            let part = self.item(item, whole.as_ref(), outer, lockable)?;
            whole = Some(match whole {
                None => part,
                Some(left) => self.joined(left, part, JoinKind::Inner, &JoinConstraint::None)?,
            });
        }
        let none = || (Plan::One, Scope::inside(outer));
        Ok(whole.map_or_else(none, |part| (part.plan, part.scope)))
    }

    fn item<'s>(
        &mut self,
        item: &TableWithJoins,
        before: Option<&Part<'s>>,
        outer: Option<&'s Scope<'s>>,
        lockable: &mut Vec<LockableTable>,
    ) -> SqlResult<Part<'s>> {
        let TableWithJoins { relation, joins } = item;
        let first = before.map_or(0, |before| before.scope.width);
        let mut part =
            self.relation(relation, before.map(|own| &own.scope), outer, lockable, first)?;
        for ast::Join { relation, global, join_operator } in joins {
            refuse(*global, "a GLOBAL join")?;
            let (kind, constraint) = join_kind(join_operator)?;
            let at = first + part.scope.width;
            // What stands before the comma is not seen behind JOIN, except by LATERAL.
            refuse(before.is_some() && part.is_lateral, "a join behind LATERAL and a comma")?;
            let right = self.relation(relation, Some(&part.scope), outer, lockable, at)?;
            if right.is_lateral && matches!(kind, JoinKind::Right | JoinKind::Full) {
                let message =
                    "The combining JOIN type must be INNER or LEFT for a LATERAL reference.";
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            part = self.joined(part, right, kind, constraint)?;
        }
        Ok(part)
    }

    /// One table, subquery or function. Its columns are numbered from 0; they will be from `first`.
    fn relation<'s>(
        &mut self,
        factor: &TableFactor,
        before: Option<&Scope<'s>>,
        outer: Option<&'s Scope<'s>>,
        lockable: &mut Vec<LockableTable>,
        first: usize,
    ) -> SqlResult<Part<'s>> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_directives,
                inheritance: _,
            } => {
                let is_odd = !with_hints.is_empty()
                    || version.is_some()
                    || !partitions.is_empty()
                    || json_path.is_some()
                    || !index_directives.is_empty();
                refuse(is_odd, "a modifier of a table in FROM")?;
                refuse(sample.is_some(), "TABLESAMPLE")?;
                if let Some(args) = args {
                    refuse(args.settings.is_some(), "SETTINGS")?;
                    return self.rows(name, &args.args, *with_ordinality, alias, before, outer);
                }
                refuse(*with_ordinality, "WITH ORDINALITY of a table")?;
                self.named(name, alias.as_ref(), outer, lockable, first)
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                refuse(sample.is_some(), "TABLESAMPLE")?;
                let (bound, is_lateral) = match before.filter(|_| *lateral) {
                    Some(before) => self.inner_query(subquery, Some(before))?,
                    None => (self.query(subquery, outer)?, false),
                };
                let name = alias.as_ref().map(|alias| fold(&alias.name)).unwrap_or_default();
                let mut columns = bound.columns;
                let names = alias_columns(alias.as_ref())?;
                rename(&mut columns, &names, &name)?;
                let scope = scope_of(&name, &columns, outer)?;
                Ok(Part { plan: bound.plan, scope, is_lateral })
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
                self.rows(name, args, *with_ordinality, alias, before, outer)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                refuse(alias.is_some(), "an alias of a join")?;
                let from = std::slice::from_ref(&**table_with_joins);
                let mut inner = Vec::new();
                let (plan, scope) = self.from(from, outer, &mut inner)?;
                lockable.extend(
                    inner
                        .into_iter()
                        .map(|own| LockableTable { first_column: own.first_column + first, ..own }),
                );
                Ok(Part { plan, scope, is_lateral: false })
            }
            TableFactor::UNNEST { .. } | TableFactor::TableFunction { .. } => {
                Err(SqlError::unsupported("this form of a function in FROM"))
            }
            _ => Err(SqlError::unsupported("this kind of table in FROM")),
        }
    }

    /// A table or common table expression.
    fn named<'s>(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        outer: Option<&'s Scope<'s>>,
        lockable: &mut Vec<LockableTable>,
        first: usize,
    ) -> SqlResult<Part<'s>> {
        let parts = name_parts(name)?;
        let own = parts.last().cloned().unwrap_or_default();
        let called = alias.map_or_else(|| own.clone(), |alias| fold(&alias.name));
        let names = alias_columns(alias)?;
        if parts.len() == 1
            && let Some(query) = self.named_query(&own)
        {
            let mut columns = query.columns;
            rename(&mut columns, &names, &called)?;
            let scope = scope_of(&called, &columns, outer)?;
            return Ok(Part { plan: query.plan, scope, is_lateral: false });
        }
        if let Some(system) = self.system_relation(name, &parts)? {
            let mut columns = system.columns;
            rename(&mut columns, &names, &called)?;
            let (shown, mut scope) = (columns.len() - 1, Scope::inside(outer));
            let named = (0..).zip(columns);
            let named = named.map(|(at, own): (usize, _)| (own.name, own.ty, at >= shown));
            let schema = match alias {
                None => SchemaName::Any,
                Some(_) => SchemaName::Alias,
            };
            scope.add_table(&called, schema, named)?;
            return Ok(Part { plan: system.plan, scope, is_lateral: false });
        }
        let table = self.relation_named(name)?;
        self.need(table, Privileges::SELECT);
        let schema = match alias {
            None => self.schema_name(table, &table.name),
            Some(_) => SchemaName::Alias,
        };
        if let Some(view) = &table.view {
            let Bound { plan, mut columns } = self.view(table, view)?;
            rename(&mut columns, &names, &called)?;
            let mut scope = Scope::inside(outer);
            let named = columns.into_iter().map(|own| (own.name, own.ty, false));
            scope.add_table(&called, schema, named)?;
            return Ok(Part { plan, scope, is_lateral: false });
        }
        let mut columns: Vec<OutputColumn> = table.columns.iter().map(output_of).collect();
        rename(&mut columns, &names, &called)?;
        let mut scope = Scope::inside(outer);
        let hidden = table.columns.iter().map(|column| column.is_hidden);
        let named = columns.into_iter().zip(hidden);
        scope.add_table(&called, schema, named.map(|(own, hidden)| (own.name, own.ty, hidden)))?;
        lockable.push(LockableTable {
            name: called,
            table: Arc::clone(table),
            first_column: first,
        });
        Ok(Part { plan: scan_of(Arc::clone(table), false), scope, is_lateral: false })
    }

    /// A function that gives rows.
    fn rows<'s>(
        &mut self,
        name: &ObjectName,
        args: &[FunctionArg],
        ordinality: bool,
        alias: &Option<TableAlias>,
        before: Option<&Scope<'s>>,
        outer: Option<&'s Scope<'s>>,
    ) -> SqlResult<Part<'s>> {
        let function = name_parts(name)?.pop().unwrap_or_default();
        let seen = Scope::inside(before.or(outer));
        let mut stage = Stage::new(&seen, "functions in FROM");
        let reached = std::mem::replace(&mut self.reached, usize::MAX);
        let given = self.arguments(args, &mut stage);
        let is_lateral = before.is_some() && self.reached != usize::MAX;
        self.reached = self.reached.min(reached);
        refuse(!stage.applies.is_empty(), "a subquery as an argument of a function in FROM")?;
        let given = given?;
        let types: Vec<SqlType> = given.iter().map(|own| own.ty).collect();
        let resolved = resolve_rows(&function, &types)?.ok_or_else(|| {
            let types: Vec<String> = types.iter().map(|ty| ty.name()).collect();
            let message = format!("function {function}({}) does not exist", types.join(", "));
            self.place(SqlError::new(SqlState::UNDEFINED_FUNCTION, message), name)
        })?;
        let mut arguments = Vec::new();
        for (given, ty) in given.into_iter().zip(resolved.arguments.clone()) {
            arguments.push(self.coerce(given, ty, CastContext::Implicit)?);
        }
        let called = alias.as_ref().map_or_else(|| function.clone(), |alias| fold(&alias.name));
        let single = resolved.columns.len() == 1;
        let mut columns: Vec<OutputColumn> = resolved
            .columns
            .iter()
            .map(|(name, ty)| OutputColumn {
                // A function that gives one value calls it as the table is called.
                name: if single && alias.is_some() { called.clone() } else { name.clone() },
                ty: *ty,
            })
            .collect();
        if ordinality {
            columns.push(OutputColumn { name: "ordinality".to_owned(), ty: SqlType::INT8 });
        }
        rename(&mut columns, &alias_columns(alias.as_ref())?, &called)?;
        let scope = scope_of(&called, &columns, outer)?;
        let plan = Plan::Rows { function: Arc::new(resolved), arguments, ordinality };
        Ok(Part { plan, scope, is_lateral })
    }

    fn joined<'s>(
        &mut self,
        left: Part<'s>,
        right: Part<'s>,
        kind: JoinKind,
        constraint: &JoinConstraint,
    ) -> SqlResult<Part<'s>> {
        let (left_width, right_width) = (left.scope.width, right.scope.width);
        let names = merged_names(constraint, &left.scope, &right.scope)?;
        let mut merged = Merged::default();
        for name in &names {
            let pair = (
                merged_column(&left.scope.columns, name, "left")?,
                merged_column(&right.scope.columns, name, "right")?,
            );
            self.merge(name, pair, (left_width, kind), &mut merged)?;
        }
        let mut scope = combined(left.scope, right.scope)?;
        for column in scope.columns.iter_mut().filter(|own| merged.hidden.contains(&own.at)) {
            column.is_plain = false;
        }
        let (mut condition, mut applies) = (None, Vec::new());
        if let JoinConstraint::On(on) = constraint {
            let mut stage = Stage::new(&scope, "JOIN/ON");
            let on = self.expr(on, &mut stage)?;
            condition = Some(self.condition(on, "JOIN/ON")?);
            applies = stage.applies;
        }
        if !merged.equal.is_empty() {
            condition = Some(Expr::And(merged.equal));
        }
        let join = |condition| {
            let (left, right, is_lateral) = (left.plan, right.plan, right.is_lateral);
            let equal = Vec::new();
            let join = Join {
                left,
                right,
                left_width,
                right_width,
                kind,
                equal,
                condition,
                is_lateral,
                keeps_order: false,
            };
            Plan::Join(Box::new(join))
        };
        let mut plan = if applies.is_empty() {
            join(condition)
        } else {
            refuse(kind != JoinKind::Inner, "a subquery in the condition of an outer join")?;
            let width = scope.width;
            let input = Box::new(with_applies(join(None), applies));
            let condition = condition.unwrap_or(Expr::TRUE);
            let exprs = (0..width).map(Expr::Column).collect();
            Plan::Project { input: Box::new(Plan::Filter { input, condition }), exprs }
        };
        if !merged.coalesced.is_empty() {
            plan = with_coalesced(plan, merged.coalesced, &mut scope);
        }
        Ok(Part { plan, scope, is_lateral: left.is_lateral })
    }

    /// A column of both sides that is one in the join.
    fn merge(
        &mut self,
        name: &str,
        (first, second): (&ScopeColumn, &ScopeColumn),
        (left_width, kind): (usize, JoinKind),
        merged: &mut Merged,
    ) -> SqlResult<()> {
        let right_at = second.at + left_width;
        let left = Typed::new(Expr::Column(first.at), first.ty);
        let right = Typed::new(Expr::Column(right_at), second.ty);
        merged.equal.push(self.operator("=", Some(left.clone()), right.clone())?.expr);
        match kind {
            JoinKind::Right => merged.hidden.push(first.at),
            JoinKind::Full => {
                merged.hidden.extend([first.at, right_at]);
                let (both, ty) = self.unify(vec![left, right])?;
                merged.coalesced.push((name.to_owned(), Expr::Coalesce(both), ty));
            }
            _ => merged.hidden.push(right_at),
        }
        Ok(())
    }
}

/// What the columns of USING become.
#[derive(Default)]
struct Merged {
    /// What has to be equal.
    equal: Vec<Expr>,
    /// Columns that are found with their table only.
    hidden: Vec<usize>,
    /// Columns of a full join: either side may have the value.
    coalesced: Vec<(String, Expr, SqlType)>,
}

/// The names of columns that are in both sides and one in the join.
fn merged_names(
    constraint: &JoinConstraint,
    left: &Scope<'_>,
    right: &Scope<'_>,
) -> SqlResult<Vec<String>> {
    match constraint {
        JoinConstraint::None | JoinConstraint::On(_) => Ok(Vec::new()),
        JoinConstraint::Using(names) => {
            let last = |name| Ok(name_parts(name)?.pop().unwrap_or_default());
            names.iter().map(last).collect()
        }
        JoinConstraint::Natural => {
            let is_plain = |own: &&ScopeColumn| own.is_plain;
            let is_right =
                |name: &String| right.columns.iter().filter(is_plain).any(|own| own.name == *name);
            let names = left.columns.iter().filter(is_plain).map(|own| own.name.clone());
            Ok(names.filter(is_right).collect())
        }
        JoinConstraint::UsingAlias(..) => Err(SqlError::unsupported("an alias of USING")),
    }
}

/// The columns of both sides.
fn combined<'s>(mut left: Scope<'s>, right: Scope<'s>) -> SqlResult<Scope<'s>> {
    right.tables.into_iter().try_for_each(|table| left.push_table(table))?;
    let shifted = right.columns.into_iter();
    let width = left.width;
    left.columns.extend(shifted.map(|own| ScopeColumn { at: own.at + width, ..own }));
    left.width += right.width;
    Ok(left)
}

/// The plan with columns behind it that either side of a full join may have.
fn with_coalesced(
    plan: Plan,
    coalesced: Vec<(String, Expr, SqlType)>,
    scope: &mut Scope<'_>,
) -> Plan {
    let mut exprs: Vec<Expr> = (0..scope.width).map(Expr::Column).collect();
    let mut columns = Vec::new();
    for (name, expr, ty) in coalesced {
        let (at, is_plain, is_shown) = (exprs.len(), true, true);
        columns.push(ScopeColumn { table: None, name, ty, at, is_plain, is_shown });
        exprs.push(expr);
    }
    scope.width = exprs.len();
    // They come first in what * shows.
    columns.append(&mut scope.columns);
    scope.columns = columns;
    Plan::Project { input: Box::new(plan), exprs: exprs.into() }
}

/// A read of a whole table.
pub(crate) fn scan_of(table: Arc<TableDef>, for_update: bool) -> Plan {
    let (index, prefix, low, high, descending) = (None, Vec::new(), None, None, false);
    let needed = vec![true; table.columns.len()];
    let access = Access::Range { index, prefix, low, high, descending };
    Plan::Scan(Arc::new(Scan { table, access, filter: None, needed, for_update }))
}

fn output_of(column: &crate::catalogue::ColumnDef) -> OutputColumn {
    OutputColumn { name: column.name.clone(), ty: column.ty }
}

fn scope_of<'s>(
    table: &str,
    columns: &[OutputColumn],
    outer: Option<&'s Scope<'s>>,
) -> SqlResult<Scope<'s>> {
    let mut scope = Scope::inside(outer);
    let columns = columns.iter().map(|own| (own.name.clone(), own.ty, false));
    scope.add_table(table, SchemaName::Alias, columns)?;
    Ok(scope)
}

fn alias_columns(alias: Option<&TableAlias>) -> SqlResult<Vec<String>> {
    let Some(TableAlias { explicit: _, name: _, columns, at }) = alias else {
        return Ok(Vec::new());
    };
    refuse(at.is_some(), "AT of an alias")?;
    refuse(columns.iter().any(|own| own.data_type.is_some()), "types of columns of an alias")?;
    Ok(columns.iter().map(|own| fold(&own.name)).collect())
}

fn merged_column<'c>(
    columns: &'c [ScopeColumn],
    name: &str,
    side: &str,
) -> SqlResult<&'c ScopeColumn> {
    let mut found = columns.iter().filter(|own| own.is_plain && own.name == name);
    let column = found.next().ok_or_else(|| {
        let message =
            format!("column \"{name}\" specified in USING clause does not exist in {side} table");
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })?;
    if found.next().is_some() {
        let message =
            format!("common column name \"{name}\" appears more than once in {side} table");
        return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
    }
    Ok(column)
}

fn join_kind(operator: &JoinOperator) -> SqlResult<(JoinKind, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(own) | JoinOperator::Inner(own) | JoinOperator::CrossJoin(own) => {
            (JoinKind::Inner, own)
        }
        JoinOperator::Left(own) | JoinOperator::LeftOuter(own) => (JoinKind::Left, own),
        JoinOperator::Right(own) | JoinOperator::RightOuter(own) => (JoinKind::Right, own),
        JoinOperator::FullOuter(own) => (JoinKind::Full, own),
        _ => return Err(SqlError::unsupported("this kind of join")),
    })
}
