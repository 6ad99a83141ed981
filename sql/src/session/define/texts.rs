//! Names of sequences in texts that the catalogue has: defaults of columns, and queries of views.
//!
//! Where such a text comes into the catalogue, the search path of the session that brings it is
//! what its names mean; later it may be another. So a name that is not found in `public` gets its
//! schema there.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use selkie_txn::Txn;
use sqlparser::ast::{
    Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    Query, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, Value, VisitMut,
    VisitorMut, visit_expressions_mut,
};

use super::super::run::Run;
use super::lookup::{change_note, hold};
use super::sequence::is_sequence;
use crate::bind::{default_expr, fold};
use crate::catalogue::{SchemaId, load_all, split_key};
use crate::error::{SqlError, SqlResult};
use crate::exec::from_txn;
use crate::schemas::{SearchPath, names_of_text, quoted};

/// A call that gives the next value of a sequence.
pub(super) fn next_value_of(written: &str) -> String {
    format!("nextval('{}')", written.replace('\'', "''"))
}

/// Gives `f` each name of a sequence.
fn each_sequence(node: &mut impl VisitMut, f: &mut impl FnMut(&mut String)) {
    let _ = visit_expressions_mut(node, |own: &mut Ast| {
        if let Ast::Function(Function { name, args: FunctionArguments::List(list), .. }) = own
            && is_about_sequences(&name.to_string())
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first_mut()
        {
            let first = match first {
                Ast::Cast { expr, .. } => expr,
                other => other,
            };
            if let Ast::Value(value) = first
                && let Value::SingleQuotedString(text) = &mut value.value
            {
                f(text);
            }
        }
        ControlFlow::<()>::Continue(())
    });
}

fn is_about_sequences(function: &str) -> bool {
    let function = function.to_lowercase();
    let name = function.rsplit('.').next().unwrap_or_default();
    matches!(name, "nextval" | "currval" | "setval")
}

/// Whether the default of a column, which may own a sequence, has a value of one.
pub(super) fn takes_from(
    run: &Run,
    default: &str,
    of_column: Option<&str>,
    key: &str,
) -> SqlResult<bool> {
    let stored = SearchPath::stored(run.path.schemas().cloned());
    let mut found = false;
    each_sequence(&mut default_expr(default)?, &mut |text| {
        let Ok(parts) = names_of_text(text) else { return };
        found |= match of_column {
            // Earlier versions wrote a dot in a name as it was.
            Some(own) if own == parts.join(".") => own == key,
            _ => stored.keys_of(&parts).is_ok_and(|keys| keys.iter().any(|own| own == key)),
        };
    });
    Ok(found)
}

/// A default as the catalogue has it.
pub(super) async fn pinned_default(
    run: &Run,
    txn: &mut Txn<'_>,
    text: String,
) -> SqlResult<String> {
    if run.path.is_public() {
        return Ok(text);
    }
    let mut expr = default_expr(&text)?;
    let changed = pin(run, txn, &mut expr).await?;
    if changed {
        hold(txn).await?;
    }
    Ok(if changed { expr.to_string() } else { text })
}

/// The query of a view as the catalogue has it.
pub(super) async fn pinned_query(run: &Run, txn: &mut Txn<'_>, text: &str) -> SqlResult<String> {
    if run.path.is_public() {
        return Ok(text.to_owned());
    }
    let mut query = query_of(text)?;
    let changed = pin(run, txn, &mut query).await?;
    Ok(if changed { query.to_string() } else { text.to_owned() })
}

/// The query that the catalogue has of a view.
pub(super) fn query_of(text: &str) -> SqlResult<Statement> {
    let damaged = || SqlError::internal(format!("the catalogue has a query that is none: {text}"));
    crate::parse::parse(text)?.pop().ok_or_else(damaged)
}

/// Gives the names of sequences their schemas. Whether any has got one.
async fn pin(run: &Run, txn: &mut Txn<'_>, node: &mut impl VisitMut) -> SqlResult<bool> {
    let mut names = Vec::new();
    each_sequence(node, &mut |text| names.push(text.clone()));
    let mut pinned = BTreeMap::new();
    for text in names {
        let Ok(parts) = names_of_text(&text) else { continue };
        for key in run.path.keys_of(&parts)? {
            if is_sequence(txn, &key).await? {
                if split_key(&key).0 != SchemaId::PUBLIC {
                    pinned.insert(text, run.path.written(&key));
                }
                break;
            }
        }
    }
    each_sequence(node, &mut |text| {
        if let Some(new) = pinned.get(text) {
            text.clone_from(new);
        }
    });
    Ok(!pinned.is_empty())
}

/// Writes the schemas anew that stand before names of columns and before `*`: `renamed` gives the
/// new one of a schema and a table, if it is another. Whether any is.
pub(super) fn rename_qualifiers(
    query: &mut Query,
    renamed: &mut dyn FnMut(&str, &str) -> Option<String>,
) -> bool {
    let mut qualifiers = Qualifiers { renamed, changed: false };
    let _ = query.visit(&mut qualifiers);
    qualifiers.changed
}

struct Qualifiers<'f> {
    renamed: &'f mut dyn FnMut(&str, &str) -> Option<String>,
    changed: bool,
}

impl Qualifiers<'_> {
    fn rename(&mut self, schema: &mut Ident, table: &Ident) {
        if let Some(new) = (self.renamed)(&fold(schema), &fold(table)) {
            *schema = Ident::from(&*quoted(&new));
            self.changed = true;
        }
    }

    fn of_body(&mut self, body: &mut SetExpr) {
        match body {
            SetExpr::Select(select) => {
                for item in &mut select.projection {
                    if let SelectItem::QualifiedWildcard(kind, _) = item
                        && let SelectItemQualifiedWildcardKind::ObjectName(name) = kind
                        && let [
                            ObjectNamePart::Identifier(schema),
                            ObjectNamePart::Identifier(table),
                        ] = &mut *name.0
                    {
                        self.rename(schema, table);
                    }
                }
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.of_body(left);
                self.of_body(right);
            }
            _ => {}
        }
    }
}

impl VisitorMut for Qualifiers<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.of_body(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<()> {
        if let Ast::CompoundIdentifier(names) = expr
            && let [schema, table, _] = &mut **names
        {
            self.rename(schema, table);
        }
        ControlFlow::Continue(())
    }
}

/// Writes names of sequences anew. Whether any is another now.
fn rename_in(
    node: &mut impl VisitMut,
    of_column: Option<&str>,
    renamed: &impl Fn(&[String], Option<&str>) -> Option<String>,
) -> bool {
    let mut changed = false;
    each_sequence(node, &mut |text| {
        let new = names_of_text(text).ok().and_then(|parts| renamed(&parts, of_column));
        if let Some(new) = new.filter(|new| new != text) {
            *text = new;
            changed = true;
        }
    });
    changed
}

/// Writes names of sequences anew in all texts: `renamed` gives the new text of a name, of which it
/// gets the parts, if it has another, and the sequence of the column whose default it is in.
pub(super) async fn rename_sequences(
    txn: &mut Txn<'_>,
    renamed: impl Fn(&[String], Option<&str>) -> Option<String>,
) -> SqlResult<()> {
    for (_, table) in load_all(txn).await.map_err(|error| from_txn(error, None))? {
        let table = table?;
        let mut defaults = Vec::new();
        for column in &table.columns {
            let Some(default) = &column.default else { continue };
            let mut expr = default_expr(default)?;
            if rename_in(&mut expr, column.sequence.as_deref(), &renamed) {
                defaults.push((column.name.clone(), expr.to_string()));
            }
        }
        let mut query = None;
        if let Some(view) = &table.view {
            let mut own = query_of(&view.query)?;
            if rename_in(&mut own, None, &renamed) {
                query = Some(own.to_string());
            }
        }
        if defaults.is_empty() && query.is_none() {
            continue;
        }
        change_note(txn, &table, |note| {
            for (column, default) in defaults {
                if let Some(own) = note.columns.get_mut(&column) {
                    own.default = Some(default);
                }
            }
            if let (Some(view), Some(query)) = (&mut note.view, query) {
                view.query = query;
            }
        })
        .await?;
    }
    Ok(())
}
