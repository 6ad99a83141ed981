//! Views: their queries, where they are created and where they are read.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use sqlparser::ast::{
    self, Ident, ObjectName, ObjectNamePart, Query, Spanned, Statement, visit_relations,
    visit_relations_mut,
};
use sqlparser::tokenizer::Span;

use super::with::changed_by;
use super::{Binder, Bound, OutputColumn, fold, refuse};
use crate::catalogue::{SchemaId, TableDef, ViewColumn, ViewNote, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Plan};
use crate::schemas::quoted;
use crate::types::{Scalar, SqlType};

/// The names of what a query reads, those of common table expressions too.
pub(crate) fn relations_of(query: &Query) -> Vec<ObjectName> {
    let mut names = Vec::new();
    let _ = visit_relations(query, |name| {
        names.push(name.clone());
        ControlFlow::<()>::Continue(())
    });
    names
}

/// A query whose tables are called as texts in the catalogue call them. `named` are the places
/// where it names tables, and their names in the catalogue.
pub(crate) fn with_schemas(
    query: &Query,
    named: &[(Span, String)],
    schema_name: impl Fn(SchemaId) -> String,
) -> Query {
    let mut query = query.clone();
    let _ = visit_relations_mut(&mut query, |name| {
        let span = name.span();
        if let Some((_, key)) = named.iter().find(|(own, _)| *own == span) {
            let (schema, _) = split_key(key);
            let is_said = name.0.len() > 1;
            if (schema != SchemaId::PUBLIC || is_said)
                && let Some(last) = name.0.pop()
            {
                let schema = Ident::from(&*quoted(&schema_name(schema)));
                name.0 = vec![ObjectNamePart::Identifier(schema), last];
            }
        }
        ControlFlow::<()>::Continue(())
    });
    query
}

/// A view that is to be created.
pub(crate) fn bind_view(binder: &mut Binder<'_>, create: &ast::CreateView) -> SqlResult<ViewNote> {
    let mut named = create.query.with.iter().flat_map(|own| &own.cte_tables);
    if named.any(|own| changed_by(&own.query).is_some()) {
        let message = "views must not contain data-modifying statements in WITH";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    binder.named = Some(Vec::new());
    let bound = binder.statement(&create.query)?;
    let named = binder.named.take().unwrap_or_default();
    if !binder.parameters.is_empty() {
        let message = "there is no parameter $1";
        return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message));
    }
    if create.columns.len() > bound.columns.len() {
        let message = "CREATE VIEW specifies more column names than columns";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    let mut columns: Vec<ViewColumn> = Vec::new();
    for (at, OutputColumn { name: source, ty, origin: _ }) in bound.columns.into_iter().enumerate()
    {
        let name = match create.columns.get(at) {
            None => source.clone(),
            Some(own) => {
                refuse(own.data_type.is_some() || own.options.is_some(), "a type of a view")?;
                fold(&own.name)
            }
        };
        super::check_name(&name)?;
        if columns.iter().any(|own| own.name == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let ty = if ty == SqlType::UNKNOWN { SqlType::TEXT } else { ty };
        refuse(ty.scalar == Scalar::Record, "a row as a column of a view")?;
        if ty.scalar == Scalar::Void {
            let message = format!("column \"{name}\" has pseudo-type {}", ty.name());
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        columns.push(ViewColumn { name, source, oid: ty.oid(), modifier: ty.modifier });
    }
    let path = Arc::clone(&binder.path);
    let query = with_schemas(&create.query, &named, |schema| path.name(schema).to_owned());
    let uses: BTreeSet<String> = named.into_iter().map(|(_, key)| key).collect();
    Ok(ViewNote { query: query.to_string(), uses, columns })
}

impl<'b> Binder<'b> {
    /// The query of a view, with the columns that the view has.
    pub(super) fn view(&mut self, table: &TableDef, view: &'b ViewNote) -> SqlResult<Bound> {
        let damaged = || SqlError::internal(format!("the view {} has no query", table.name));
        let Some(Statement::Query(query)) = crate::parse::parse(&view.query)?.pop() else {
            return Err(damaged());
        };
        // It sees nothing of the statement around it.
        let sql = std::mem::replace(&mut self.sql, &view.query);
        let queries = std::mem::take(&mut self.queries);
        // It reads what its owner may read.
        let acting = self.acting.replace(table.rights.owner);
        let watched = self.watched.take();
        let uses = self.uses.replace(&view.uses);
        let bound = self.as_stored(|own| own.query(&query, None));
        (self.sql, self.queries) = (sql, queries);
        (self.acting, self.watched, self.uses) = (acting, watched, uses);
        let Bound { plan, columns } = bound?;
        let (mut exprs, mut from) = (Vec::new(), 0);
        for (own, column) in view.columns.iter().zip(&table.columns) {
            let left = columns.iter().enumerate().skip(from);
            let found = left
                .filter(|(_, given)| given.name == own.source)
                .find(|(_, given)| given.ty == column.ty || given.ty == SqlType::UNKNOWN);
            let Some((at, _)) = found else {
                let (view, column) = (&table.name, &own.name);
                let message = format!("the query of view \"{view}\" gives no column \"{column}\"");
                return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
            };
            exprs.push(Expr::Column(at));
            from = at + 1;
        }
        let is_whole = exprs.len() == columns.len();
        let plan = match is_whole {
            true => plan,
            false => Plan::Project { input: Box::new(plan), exprs: exprs.into() },
        };
        let columns = table.columns.iter();
        let columns = columns.map(|own| OutputColumn::new(&*own.name, own.ty));
        Ok(Bound { plan, columns: columns.collect() })
    }
}
