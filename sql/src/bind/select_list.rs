//! The select list: its items, and what they are called.

use sqlparser::ast::{self, Expr as Ast, SelectItem, SelectItemQualifiedWildcardKind};

use super::column_name::name_of;
use super::scope::{Qualifier, SchemaName, Scope, ScopeColumn};
use super::{Binder, OutputColumn, fold, name_parts, refuse};
use crate::error::{SqlError, SqlResult, SqlState};

impl Binder<'_> {
    /// The select list, with `*` taken apart.
    pub(super) fn items(
        &mut self,
        projection: &[SelectItem],
        scope: &Scope<'_>,
    ) -> SqlResult<Vec<Item>> {
        let mut items = Vec::new();
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    if let Some(fields) = self.all_fields(expr, scope)? {
                        items.extend(fields);
                        continue;
                    }
                    items.push(Item { name: name_of(expr), expr: expr.clone() });
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    items.push(Item { name: fold(alias), expr: expr.clone() });
                }
                SelectItem::Wildcard(options) => {
                    refuse(!is_plain_wildcard(options), "a modifier of *")?;
                    if scope.tables.is_empty() {
                        let message = "SELECT * with no tables specified is not valid";
                        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                    }
                    let plain = scope.columns.iter().filter(|column| column.is_plain);
                    items.extend(plain.map(|column| Item::of_column(column, scope)));
                }
                SelectItem::QualifiedWildcard(kind, options) => {
                    refuse(!is_plain_wildcard(options), "a modifier of *")?;
                    let SelectItemQualifiedWildcardKind::ObjectName(name) = kind else {
                        return Err(SqlError::unsupported("* of an expression"));
                    };
                    let parts = name_parts(name)?;
                    let called = match &*parts {
                        [table] => (None, &**table),
                        [schema, table] => (Some(&**schema), &**table),
                        _ => return Err(SqlError::unsupported("* with so many qualifiers")),
                    };
                    items.extend(self.items_of_table(called, scope)?);
                }
                SelectItem::ExprWithAliases { .. } => {
                    return Err(SqlError::unsupported("several names of one expression"));
                }
            }
        }
        Ok(items)
    }

    /// The items that `table.*` stands for.
    pub(super) fn items_of_table(
        &self,
        called: Qualifier<'_>,
        scope: &Scope<'_>,
    ) -> SqlResult<Vec<Item>> {
        let Some(table) = scope.table(called)? else {
            return Err(scope.no_table(called));
        };
        let is_own = |own: &&ScopeColumn| own.is_shown && own.table.as_ref() == Some(table);
        let own = scope.columns.iter().filter(is_own);
        Ok(own.map(|column| Item::of_column(column, scope)).collect())
    }
}

/// An item of the select list.
pub(super) struct Item {
    pub(super) expr: Ast,
    pub(super) name: String,
}

impl Item {
    fn of_column(column: &ScopeColumn, scope: &Scope<'_>) -> Self {
        let quoted = |name: &str| ast::Ident::with_quote('"', name);
        let has_name = |own: &&ScopeColumn| own.name == column.name && own.table == column.table;
        let name = match scope.columns.iter().filter(has_name).count() {
            0 | 1 => column.name.clone(),
            // Which of them, no name says.
            _ => format!("{}\0{}", column.name, column.place),
        };
        let expr = match &column.table {
            Some(table) if !table.name.is_empty() => {
                let mut parts = vec![quoted(&table.name), quoted(&name)];
                // Another table may have its name in another schema.
                if let SchemaName::Of(schema) = &table.schema
                    && scope.table((None, &table.name)).is_err()
                {
                    parts.insert(0, quoted(schema));
                }
                Ast::CompoundIdentifier(parts)
            }
            _ => Ast::Identifier(quoted(&name)),
        };
        Self { expr, name: column.name.clone() }
    }
}

fn is_plain_wildcard(options: &ast::WildcardAdditionalOptions) -> bool {
    *options
        == ast::WildcardAdditionalOptions {
            wildcard_token: options.wildcard_token.clone(),
            ..ast::WildcardAdditionalOptions::default()
        }
}

/// The output column that ORDER BY or DISTINCT ON names by its number or name.
pub(super) fn output_position(
    ast: &Ast,
    columns: &[OutputColumn],
    clause: &str,
) -> SqlResult<Option<usize>> {
    match without_parentheses(ast) {
        Ast::Value(value) => {
            let ast::Value::Number(digits, false) = &value.value else { return Ok(None) };
            let at = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let at = at.filter(|at| *at < columns.len());
            let message = || format!("{clause} position {digits} is not in select list");
            at.map(Some).ok_or_else(|| SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message()))
        }
        Ast::Identifier(name) => {
            let name = fold(name);
            let mut named = (0..).zip(columns).filter(|(_, column)| column.name == name);
            Ok(named.next().map(|(at, _)| at))
        }
        _ => Ok(None),
    }
}

/// What stands within parentheses, which mean nothing.
pub(super) fn without_parentheses(ast: &Ast) -> &Ast {
    let mut ast = ast;
    while let Ast::Nested(inner) = ast {
        ast = inner;
    }
    ast
}
