//! GROUP BY: its keys, and what may be named behind it.
//!
//! An expression behind GROUP BY is a key if it means the same as one: both are compared with their
//! names looked up, so that `lower(a)` is `lower(t."a")`, and with one spelling of casts. A table
//! whose primary key is among the keys has one row in each group, so each of its columns may be
//! named: those that are, are keys as well, which makes no more groups.

use std::collections::BTreeSet;
use std::mem::{discriminant, replace};
use std::ops::ControlFlow;

use sqlparser::ast::{
    self, CastKind, DataType, Expr as Ast, Ident, ObjectName, ObjectNamePart, Visit, VisitMut,
    Visitor, VisitorMut,
};

use super::query::LockableTable;
use super::scope::{Scope, ScopeColumn};
use super::select_list::{Item, without_parentheses};
use super::stage::Stage;
use super::{Binder, fold};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Typed};
use crate::types::SqlType;

/// A key of groups.
pub(super) struct GroupKey {
    /// As it was written, with its names looked up.
    meant: Ast,
    pub(super) key: Typed,
}

impl Binder<'_> {
    pub(super) fn group_keys(
        &mut self,
        group_by: &[Ast],
        items: &[Item],
        stage: &mut Stage<'_>,
    ) -> SqlResult<Vec<GroupKey>> {
        let mut keys = Vec::new();
        for expr in group_by {
            self.group_key_at(expr, items, stage, &mut keys)?;
        }
        Ok(keys)
    }

    /// The place of a key, which is added to the others if it is not among them: its name would be
    /// ambiguous behind the groups.
    pub(super) fn group_key_at(
        &mut self,
        expr: &Ast,
        items: &[Item],
        stage: &mut Stage<'_>,
        keys: &mut Vec<GroupKey>,
    ) -> SqlResult<usize> {
        let written = group_key(expr, items, stage.scope)?;
        let key = self.expr(written, stage)?;
        let meant = looked_up(written, stage.scope);
        if let Some(at) = keys.iter().position(|own| own.meant == meant) {
            return Ok(at);
        }
        keys.push(GroupKey { meant, key: self.settle_type(key)? });
        Ok(keys.len() - 1)
    }
}

impl GroupKey {
    /// A key that nothing names.
    pub(super) fn unnamed(key: Typed) -> Self {
        let meant = Ast::value(ast::Value::Placeholder("\0".to_owned()));
        Self { meant, key }
    }
}

/// What GROUP BY names: an item by its number or, where no column of FROM has it, its name.
fn group_key<'a>(ast: &'a Ast, items: &'a [Item], scope: &Scope<'_>) -> SqlResult<&'a Ast> {
    match without_parentheses(ast) {
        Ast::Value(value) => {
            let ast::Value::Number(digits, false) = &value.value else { return Ok(ast) };
            let item =
                digits.parse::<usize>().ok().and_then(|number| items.get(number.checked_sub(1)?));
            let message = || format!("GROUP BY position {digits} is not in select list");
            let item =
                item.ok_or_else(|| SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message()))?;
            Ok(&item.expr)
        }
        Ast::Identifier(name) => {
            let name = fold(name);
            if scope.columns.iter().any(|column| column.is_plain && column.name == name) {
                return Ok(ast);
            }
            let mut named = items.iter().filter(|item| item.name == name);
            let Some(first) = named.next() else { return Ok(ast) };
            if named.any(|other| !are_same(&first.expr, &other.expr, scope)) {
                let message = format!("GROUP BY \"{name}\" is ambiguous");
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
            }
            Ok(&first.expr)
        }
        _ => Ok(ast),
    }
}

/// Adds the columns as keys that are named and depend on keys: those of tables whose primary key is
/// among them.
pub(super) fn add_dependent(
    keys: &mut Vec<GroupKey>,
    scope: &Scope<'_>,
    lockable: &[LockableTable],
    named: &BTreeSet<String>,
) {
    let is_key = |keys: &[GroupKey], at: usize| {
        keys.iter().any(|own| matches!(own.key.expr, Expr::Column(own) if own == at))
    };
    for LockableTable { name: called, table, first_column } in lockable {
        let has_key = !table.primary_key.is_empty()
            && table.primary_key.iter().all(|at| is_key(keys, first_column + at));
        let columns = *first_column..first_column + table.columns.len();
        if !has_key {
            continue;
        }
        // Its row may be named as a whole.
        let is_whole = named.contains(called);
        for column in &scope.columns {
            let ScopeColumn { name, at, ty, .. } = column;
            let is_named = is_whole && column.is_shown || named.contains(name);
            if columns.contains(at) && is_named && !is_key(keys, *at) {
                let key = Typed::new(Expr::Column(*at), *ty);
                keys.push(GroupKey { meant: place(0, *at), key });
            }
        }
    }
}

/// The names of columns that some parts of a query name, or queries within them.
#[derive(Default)]
pub(super) struct NamedColumns(pub(super) BTreeSet<String>);

impl NamedColumns {
    pub(super) fn add(&mut self, part: &impl Visit) {
        let _ = Visit::visit(part, self);
    }
}

impl Visitor for NamedColumns {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Ast) -> ControlFlow<()> {
        let name = match expr {
            Ast::Identifier(name) => Some(name),
            Ast::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        self.0.extend(name.map(fold));
        ControlFlow::Continue(())
    }
}

/// The columns that can be named behind GROUP BY: those that are keys.
pub(super) fn grouped_scope<'s>(scope: &Scope<'s>, keys: &[GroupKey]) -> Scope<'s> {
    let mut columns = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        let Expr::Column(column) = key.key.expr else { continue };
        let own = scope.columns.iter().filter(|own| own.at == column);
        columns.extend(own.cloned().map(|own| ScopeColumn { at, ..own }));
    }
    let (tables, width) = (scope.tables.clone(), keys.len());
    Scope { columns, tables, outer: scope.outer, depth: scope.depth, width }
}

/// The column of the group key that an expression is.
pub(super) fn grouped(ast: &Ast, stage: &Stage<'_>) -> Option<Typed> {
    // Names are found in the scope of the groups.
    if matches!(ast, Ast::Nested(_) | Ast::Identifier(_) | Ast::CompoundIdentifier(_)) {
        return None;
    }
    let grouping = stage.grouping.as_ref()?;
    let is_alike = |own: &GroupKey| discriminant(&own.meant) == discriminant(ast);
    if !grouping.keys.iter().any(is_alike) {
        return None;
    }
    let meant = looked_up(ast, grouping.input);
    let at = grouping.keys.iter().position(|own| own.meant == meant)?;
    grouping.keys.get(at).map(|own| Typed::new(Expr::Column(at), own.key.ty))
}

/// Whether two expressions mean the same in a scope.
pub(super) fn are_same(one: &Ast, other: &Ast, scope: &Scope<'_>) -> bool {
    let (mut one, mut other) = (one, other);
    while let Ast::Nested(inner) = one {
        one = inner;
    }
    while let Ast::Nested(inner) = other {
        other = inner;
    }
    let are_names = |ast: &Ast| matches!(ast, Ast::Identifier(_) | Ast::CompoundIdentifier(_));
    let may_be = discriminant(one) == discriminant(other) || are_names(one) && are_names(other);
    may_be && looked_up(one, scope) == looked_up(other, scope)
}

/// An expression with columns as where they are in the rows of a scope, and other names and casts
/// in one spelling.
fn looked_up(ast: &Ast, scope: &Scope<'_>) -> Ast {
    let mut ast = ast.clone();
    let _ = VisitMut::visit(&mut ast, &mut LookUp { scope, queries: 0 });
    ast
}

struct LookUp<'l, 's> {
    scope: &'l Scope<'s>,
    /// How many queries within the expression it is in: names mean something else there.
    queries: usize,
}

impl VisitorMut for LookUp<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<()> {
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        let found = match expr {
            Ast::Identifier(name) => self.scope.find(None, &fold(name)).ok(),
            Ast::CompoundIdentifier(names) => match &*names.iter().map(fold).collect::<Vec<_>>() {
                [table, name] => self.scope.find(Some((None, table)), name).ok(),
                [schema, table, name] => self.scope.find(Some((Some(schema), table)), name).ok(),
                _ => None,
            },
            _ => None,
        };
        match expr {
            _ if found.is_some() => {
                *expr = found.map_or_else(null, |own| place(own.level, own.at));
            }
            Ast::Nested(inner) => *expr = replace(&mut **inner, null()),
            Ast::Cast { kind, data_type, .. } => {
                *kind = CastKind::DoubleColon;
                if let Ok(ty) = SqlType::parse(data_type) {
                    let name = ObjectName::from(vec![Ident::new(ty.name())]);
                    *data_type = DataType::Custom(name, Vec::new());
                }
            }
            Ast::Function(function) => {
                for part in &mut function.name.0 {
                    if let ObjectNamePart::Identifier(name) = part {
                        *name = Ident::new(fold(name));
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn null() -> Ast {
    Ast::Value(ast::Value::Null.into())
}

/// A column of the row of a query so many levels out.
fn place(level: usize, at: usize) -> Ast {
    let part = |number: usize| Ident::with_quote('"', number.to_string());
    Ast::CompoundIdentifier(vec![part(level), part(at)])
}
