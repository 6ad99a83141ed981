//! FROM: tables, subqueries, and what is joined.

use std::sync::Arc;

use sqlparser::ast::{self, JoinConstraint, ObjectName, TableAlias, TableFactor, TableWithJoins};

use super::join::join_kind;
use super::query::{LockableTable, rename};
use super::scope::{SchemaName, Scope};
use super::{Binder, Bound, OutputColumn, fold, name_parts, refuse};
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Access, JoinKind, Plan, Scan};
use crate::roles::Privileges;

/// A part of FROM.
pub(super) struct Part<'s> {
    pub(super) plan: Plan,
    pub(super) scope: Scope<'s>,
    /// Whether it sees the row of what stands before it.
    pub(super) is_lateral: bool,
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
                self.derived(subquery, alias.as_ref(), before.filter(|_| *lateral), outer)
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
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset,
                with_offset_alias,
                with_ordinality,
            } => {
                refuse(*with_offset || with_offset_alias.is_some(), "WITH OFFSET")?;
                self.unnest(array_exprs, *with_ordinality, alias, before, outer)
            }
            TableFactor::TableFunction { .. } => {
                Err(SqlError::unsupported("this form of a function in FROM"))
            }
            _ => Err(SqlError::unsupported("this kind of table in FROM")),
        }
    }

    /// A subquery. If it is lateral, it can name columns of what is before it.
    fn derived<'s>(
        &mut self,
        subquery: &ast::Query,
        alias: Option<&TableAlias>,
        before: Option<&Scope<'s>>,
        outer: Option<&'s Scope<'s>>,
    ) -> SqlResult<Part<'s>> {
        let (bound, is_lateral) = match before {
            Some(before) => self.inner_query(subquery, Some(before))?,
            None => (self.query(subquery, outer)?, false),
        };
        let name = alias.map(|alias| fold(&alias.name)).unwrap_or_default();
        let mut columns = bound.columns;
        rename(&mut columns, &alias_columns(alias)?, &name)?;
        let scope = scope_of(&name, &columns, outer)?;
        Ok(Part { plan: bound.plan, scope, is_lateral })
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
            if query.gives_no_rows() {
                let message = format!("WITH query \"{own}\" does not have a RETURNING clause");
                let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                return Err(self.place(error, name));
            }
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
}

/// A read of a whole table.
pub(crate) fn scan_of(table: Arc<TableDef>, for_update: bool) -> Plan {
    let (index, prefix, low, high, descending) = (None, Vec::new(), None, None, false);
    let needed = vec![true; table.columns.len()];
    let access = Access::Range { index, prefix, low, high, descending };
    let (filter, is_ordered, index_only) = (None, false, false);
    Plan::Scan(Arc::new(Scan { table, access, filter, needed, for_update, is_ordered, index_only }))
}

fn output_of(column: &crate::catalogue::ColumnDef) -> OutputColumn {
    OutputColumn::new(&*column.name, column.ty)
}

pub(super) fn scope_of<'s>(
    table: &str,
    columns: &[OutputColumn],
    outer: Option<&'s Scope<'s>>,
) -> SqlResult<Scope<'s>> {
    let mut scope = Scope::inside(outer);
    let columns = columns.iter().map(|own| (own.name.clone(), own.ty, false));
    scope.add_table(table, SchemaName::Alias, columns)?;
    Ok(scope)
}

pub(super) fn alias_columns(alias: Option<&TableAlias>) -> SqlResult<Vec<String>> {
    let Some(TableAlias { explicit: _, name: _, columns, at }) = alias else {
        return Ok(Vec::new());
    };
    refuse(at.is_some(), "AT of an alias")?;
    if columns.iter().any(|own| own.data_type.is_some()) {
        let message = "a column definition list is only allowed for functions returning \"record\"";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    Ok(columns.iter().map(|own| fold(&own.name)).collect())
}
