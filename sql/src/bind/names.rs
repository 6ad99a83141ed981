//! What the names of tables in a statement stand for.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use sqlparser::ast::{Expr as Ast, Ident, ObjectName, ObjectNamePart, visit_expressions_mut};

use super::scope::SchemaName;
use super::{Binder, MAX_NAME_BYTES, fold, refuse};
use crate::catalogue::{TableDef, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::roles::{Kind, Needed, Privileges};
use crate::schemas::{INFORMATION_SCHEMA, PG_CATALOG, SearchPath, Searched};
use crate::system::{Relation, find_relation};

/// The definitions of the tables and views that a statement names, and of those that the views use.
#[derive(Debug)]
pub(crate) struct Tables {
    /// By their names in the catalogue.
    pub(crate) defs: HashMap<String, Arc<TableDef>>,
    /// Where the names of the statement were looked for.
    pub(crate) path: Arc<SearchPath>,
    /// Names in the catalogue of which there is no table, and by which one would be found before
    /// one that is there.
    pub(crate) absent: Vec<String>,
}

impl Tables {
    /// No tables.
    pub(crate) fn none() -> Self {
        Self { defs: HashMap::new(), path: SearchPath::plain(), absent: Vec::new() }
    }

    /// The table or view of a name, and its name in the catalogue.
    pub(super) fn find(
        &self,
        path: &SearchPath,
        parts: &[String],
    ) -> SqlResult<Option<&Arc<TableDef>>> {
        let keys = path.keys_of(parts)?;
        Ok(keys.iter().find_map(|key| self.defs.get(key)))
    }
}

impl<'b> Binder<'b> {
    /// The table of a name.
    pub(crate) fn table(&mut self, name: &ObjectName) -> SqlResult<Arc<TableDef>> {
        let table = self.relation_named(name)?;
        refuse(table.view.is_some(), "a view in the place of a table")?;
        Ok(Arc::clone(table))
    }

    /// The table or view of a name.
    pub(super) fn relation_named(&mut self, name: &ObjectName) -> SqlResult<&'b Arc<TableDef>> {
        let parts = name_parts(name)?;
        let tables = self.tables;
        let found = match self.uses {
            None => tables.find(&self.path, &parts)?,
            Some(uses) => {
                // Earlier versions wrote a dot in a name as it was.
                let dotted = [parts.join(".")];
                let keys = self.path.keys_of(&parts)?;
                let own = keys.iter().chain(&dotted).find(|key| uses.contains(*key));
                own.and_then(|key| tables.defs.get(key))
            }
        };
        if let [schema, _] = &*parts {
            self.need_schema(schema);
        }
        if let (Some(found), Some(named), None) = (found, &mut self.named, self.acting) {
            named.push((sqlparser::ast::Spanned::span(name), found.key.clone()));
        }
        found.ok_or_else(|| self.place(no_relation(&parts), name))
    }

    /// Which schema may stand before the name of a table that a statement calls like this.
    pub(super) fn schema_name(&self, table: &TableDef, called: &str) -> SchemaName {
        match called == table.name {
            true => SchemaName::Of(self.path.name(split_key(&table.key).0).to_owned()),
            false => SchemaName::Alias,
        }
    }

    /// Whether there is a schema of a name.
    pub(super) fn has_schema(&self, name: &str) -> bool {
        is_system_schema(name) || self.path.id(name).is_ok()
    }

    /// The relation of the system that a name stands for.
    pub(super) fn system_relation_named(&self, parts: &[String]) -> Option<&'static Relation> {
        let [name] = parts else { return find_relation(parts) };
        let of = |schema: &str| find_relation(&[schema.to_owned(), name.clone()]);
        let searched = self.path.searched();
        let is_first = !searched.contains(&Searched::System(PG_CATALOG));
        if let Some(found) = is_first.then(|| of(PG_CATALOG)).flatten() {
            return Some(found);
        }
        for own in searched {
            match own {
                Searched::System(schema) => {
                    if let Some(found) = of(schema) {
                        return Some(found);
                    }
                }
                Searched::User(id) if self.tables.defs.contains_key(&id.key(name)) => return None,
                Searched::User(_) => {}
            }
        }
        None
    }

    /// Notes that the statement needs privileges of a table or view.
    pub(super) fn need(&mut self, table: &TableDef, privileges: Privileges) {
        self.needed.push(Needed {
            kind: table.kind(),
            name: table.name.clone(),
            rights: table.rights.clone(),
            privileges,
            by: self.acting,
        });
    }

    /// Notes that the statement has named a schema. What the query of a view names was looked at
    /// when that was created.
    pub(super) fn need_schema(&mut self, name: &str) {
        if self.acting.is_some() || self.is_stored {
            return;
        }
        let Some(schema) = self.path.schema(name) else { return };
        self.needed.push(Needed {
            kind: Kind::Schema,
            name: name.to_owned(),
            rights: schema.rights.clone(),
            privileges: Privileges::USAGE,
            by: None,
        });
    }

    /// Does something for a text that stands in the catalogue: names in it mean what they meant
    /// when it came there.
    pub(super) fn as_stored<T>(&mut self, bind: impl FnOnce(&mut Self) -> T) -> T {
        let stored = Arc::clone(self.stored.get_or_insert_with(|| match self.path.is_public() {
            true => Arc::clone(&self.path),
            false => Arc::new(SearchPath::stored(self.path.schemas().cloned())),
        }));
        let path = std::mem::replace(&mut self.path, stored);
        let is_stored = std::mem::replace(&mut self.is_stored, true);
        let bound = bind(self);
        (self.path, self.is_stored) = (path, is_stored);
        bound
    }
}

/// Calls `f` with each name of a column in an expression.
pub(crate) fn each_name(expr: &mut Ast, f: &mut dyn FnMut(&mut Ident)) {
    let _ = visit_expressions_mut(expr, |own: &mut Ast| {
        match own {
            Ast::Identifier(name) => f(name),
            Ast::CompoundIdentifier(names) => names.last_mut().into_iter().for_each(&mut *f),
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The parts of a name.
pub(crate) fn name_parts(name: &ObjectName) -> SqlResult<Vec<String>> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(name) => Ok(fold(name)),
        ObjectNamePart::Function(_) => Err(SqlError::unsupported("a function as a name")),
    };
    name.0.iter().map(part).collect()
}

/// What something is called that a statement does not name, as PostgreSQL does it: by its table,
/// the columns that it is of, and what it is. The longer of the first two is cut where all is too
/// long.
pub(crate) fn made_name(table: &str, columns: &str, what: &str) -> String {
    let signs = if columns.is_empty() { 1 } else { 2 };
    let most = MAX_NAME_BYTES.saturating_sub(what.len() + signs);
    let (mut left, mut right) = (table.len(), columns.len());
    while left + right > most {
        if left > right { left -= 1 } else { right -= 1 }
    }
    let (table, columns) = (cut(table, left), cut(columns, right));
    match columns {
        "" => format!("{table}_{what}"),
        columns => format!("{table}_{columns}_{what}"),
    }
}

/// The first characters of a text that take at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or(text)
}

/// That there is no table, view or sequence of a name.
pub(crate) fn no_relation(parts: &[String]) -> SqlError {
    let message = format!("relation \"{}\" does not exist", parts.join("."));
    SqlError::new(SqlState::UNDEFINED_TABLE, message)
}

/// Whether a schema is one of the system.
pub(crate) fn is_system_schema(name: &str) -> bool {
    matches!(name, PG_CATALOG | INFORMATION_SCHEMA)
}

/// The name of a function: of `information_schema` there are few.
pub(super) fn function_name(parts: &[String]) -> Option<&str> {
    match parts {
        [name] => Some(name),
        [schema, name] if schema == PG_CATALOG => Some(name),
        [schema, name] if schema == INFORMATION_SCHEMA && name.starts_with("_pg_") => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `makeObjectName` of PostgreSQL does it.
    #[test]
    fn a_name_that_is_made_is_cut_to_what_fits() {
        assert_eq!(made_name("t", "a_b", "key"), "t_a_b_key");
        assert_eq!(made_name("t", "", "check"), "t_check");
        let (table, columns) = ("t".repeat(50), "c".repeat(20));
        let wanted = format!("{}_{columns}_key", "t".repeat(38));
        assert_eq!(made_name(&table, &columns, "key"), wanted);
        let both = made_name(&"t".repeat(63), &"c".repeat(63), "idx");
        assert_eq!(both, format!("{}_{}_idx", "t".repeat(29), "c".repeat(29)));
        let wide = made_name(&"\u{e4}".repeat(31), "c", "key");
        assert!(wide.len() <= MAX_NAME_BYTES && wide.ends_with("_c_key"), "{wide}");
    }
}
