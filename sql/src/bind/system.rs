//! Relations of the system.

use sqlparser::ast::{ObjectName, Statement};

use super::{Binder, Bound, OutputColumn};
use crate::error::{SqlError, SqlResult};
use crate::functions::{CallContext, ResolvedRows, RowIterator};
use crate::plan::{Expr, Plan};
use crate::system::{Relation, view};
use crate::types::cast::CastContext;
use crate::types::{Datum, SqlType};

/// The column of the number of the relation, which `*` does not show.
const TABLE_OID: &str = "tableoid";

impl Binder<'_> {
    /// The relation of the system that has this name, its last column hidden; `None` if there is
    /// none. Without a schema a
    /// name means such a relation before a table of a user.
    pub(super) fn system_relation(
        &mut self,
        name: &ObjectName,
        parts: &[String],
    ) -> SqlResult<Option<Bound>> {
        let Some(relation) = self.system_relation_named(parts) else { return Ok(None) };
        self.uses_catalogue = true;
        let plan = match view(relation.full_name) {
            None => rows(relation),
            Some(query) => {
                let bound = self.system_view(relation, query);
                bound.map_err(|error| self.place(error, name))?
            }
        };
        let column = |own: &crate::system::SystemColumn| OutputColumn::new(own.name, own.ty);
        let mut columns: Vec<OutputColumn> = relation.columns.iter().map(column).collect();
        let mut exprs: Vec<Expr> = (0..columns.len()).map(Expr::Column).collect();
        columns.push(OutputColumn::new(TABLE_OID, SqlType::OID));
        exprs.push(Expr::Const(Datum::I64(relation.oid.into())));
        Ok(Some(Bound {
            plan: Plan::Project { input: Box::new(plan), exprs: exprs.into() },
            columns,
        }))
    }

    /// The columns of a relation that a query gives by their names; the others are NULL.
    fn system_view(&mut self, relation: &'static Relation, query: &str) -> SqlResult<Plan> {
        let mut statements = crate::parse::parse(query)?;
        let Some(Statement::Query(query)) = statements.pop() else {
            return Err(SqlError::internal("a relation that is no query"));
        };
        // Names of the statement mean nothing there.
        let queries = std::mem::take(&mut self.queries);
        let reached = self.reached;
        let bound = self.as_stored(|own| own.query(&query, None));
        (self.queries, self.reached) = (queries, reached);
        let bound = bound?;
        let mut exprs = Vec::with_capacity(relation.columns.len());
        for own in &relation.columns {
            let found = bound.columns.iter().position(|column| column.name == own.name);
            let from = found.and_then(|at| Some((at, bound.columns.get(at)?.ty)));
            exprs.push(match from {
                None => Expr::Const(Datum::Null),
                Some((at, from)) => {
                    let column = crate::plan::Typed::new(Expr::Column(at), from);
                    self.coerce(column, own.ty, CastContext::Explicit)?
                }
            });
        }
        Ok(Plan::Project { input: Box::new(bound.plan), exprs: exprs.into() })
    }
}

/// The rows that a relation has of its own.
fn rows(relation: &'static Relation) -> Plan {
    let columns = relation.columns.iter().map(|own| (own.name.to_owned(), own.ty)).collect();
    let (arguments, rows) = (vec![SqlType::TEXT], std::sync::Arc::new(rows_of));
    let function = ResolvedRows { arguments, columns, rows, pause: None };
    let arguments = vec![Expr::Const(Datum::text(relation.full_name))];
    Plan::Rows { function: std::sync::Arc::new(function), arguments, ordinality: false }
}

fn rows_of(values: &[Datum], context: &CallContext<'_>) -> SqlResult<RowIterator> {
    let (Some(Datum::Text(name)), Some(names)) = (values.first(), context.settings.names.get())
    else {
        return Err(SqlError::internal("a relation of the system without definitions"));
    };
    Ok(Box::new(names.rows(name)?.into_iter().map(Ok)))
}
