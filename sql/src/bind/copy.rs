//! COPY.

use std::sync::Arc;

use sqlparser::ast::{CopyOption, CopySource, CopyTarget, Ident, ObjectName, Statement};

use super::{Binder, Bound, fold, name_parts, refuse};
use crate::copy::{CopyFormat, CopyKind};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Plan};
use crate::types::SqlType;

/// A COPY with its data.
pub(crate) struct BoundCopy {
    pub(crate) bound: Bound,
    /// How rows that it gives are written; `None` for COPY FROM.
    pub(crate) out: Option<Arc<CopyFormat>>,
}

impl Binder<'_> {
    /// Binds a COPY.
    pub(crate) fn copy(&mut self, statement: &Statement) -> SqlResult<BoundCopy> {
        let Statement::Copy { source, to, target, options, legacy_options, payload } = statement
        else {
            return Err(SqlError::internal("a COPY that is none"));
        };
        refuse(!legacy_options.is_empty() || payload.is_some(), "this form of COPY")?;
        match target {
            CopyTarget::Stdin | CopyTarget::Stdout => {}
            CopyTarget::File { .. } => {
                return Err(SqlError::unsupported("COPY from or to a file of the server")
                    .hint("psql's \\copy reads and writes files of the client."));
            }
            CopyTarget::Program { .. } => return Err(SqlError::unsupported("COPY with a program")),
        }
        match source {
            CopySource::Query(query) => {
                let bound = self.statement(query)?;
                let names: Vec<String> =
                    bound.columns.iter().map(|column| column.name.clone()).collect();
                let format = copy_format(options, &names, true)?;
                Ok(BoundCopy { bound, out: Some(Arc::new(format)) })
            }
            CopySource::Table { table_name, columns } if *to => {
                self.copy_table_out(table_name, columns, options)
            }
            CopySource::Table { table_name, columns } => {
                self.copy_table_in(table_name, columns, options)
            }
        }
    }

    fn copy_table_out(
        &mut self,
        name: &ObjectName,
        columns: &[Ident],
        options: &[CopyOption],
    ) -> SqlResult<BoundCopy> {
        let table = self.table(name)?;
        let columns: Vec<ObjectName> = columns.iter().map(|own| own.clone().into()).collect();
        let targets = self.insert_columns(&table, &columns)?;
        let (mut exprs, mut names, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for at in targets {
            let Some(column) = table.columns.get(at) else { continue };
            exprs.push(Expr::Column(at));
            names.push(column.name.clone());
            given.push(super::OutputColumn { name: column.name.clone(), ty: column.ty });
        }
        let format = copy_format(options, &names, true)?;
        let input = Box::new(super::from::scan_of(table, false));
        let bound = Bound { plan: Plan::Project { input, exprs }, columns: given };
        Ok(BoundCopy { bound, out: Some(Arc::new(format)) })
    }

    fn copy_table_in(
        &mut self,
        name: &ObjectName,
        columns: &[Ident],
        options: &[CopyOption],
    ) -> SqlResult<BoundCopy> {
        let table = self.table(name)?;
        let columns: Vec<ObjectName> = columns.iter().map(|own| own.clone().into()).collect();
        let targets = self.insert_columns(&table, &columns)?;
        let given = targets.iter().filter_map(|at| table.columns.get(*at));
        let given: Vec<(String, SqlType)> =
            given.map(|column| (column.name.clone(), column.ty)).collect();
        let names: Vec<String> = given.iter().map(|(name, _)| name.clone()).collect();
        let format = Arc::new(copy_format(options, &names, false)?);
        let own = name_parts(name)?.pop().unwrap_or_default();
        let input = Plan::CopyIn { table: own, columns: given.clone(), format };
        let columns = given.into_iter().map(|(name, ty)| super::OutputColumn { name, ty });
        let source = Bound { plan: input, columns: columns.collect() };
        let plan = self.insert_rows(table, &targets, source)?;
        Ok(BoundCopy { bound: Bound { plan, columns: Vec::new() }, out: None })
    }
}

/// The format that options name.
fn copy_format(options: &[CopyOption], names: &[String], to: bool) -> SqlResult<CopyFormat> {
    let invalid = |message: String| SqlError::new(SqlState::SYNTAX_ERROR, message);
    let kind = options.iter().find_map(|option| match option {
        CopyOption::Format(name) => Some(fold(name)),
        _ => None,
    });
    let kind = match kind.as_deref() {
        None | Some("text") => CopyKind::Text,
        Some("csv") => CopyKind::Csv,
        Some("binary") => CopyKind::Binary,
        Some(other) => {
            let message = format!("COPY format \"{other}\" not recognized");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
        }
    };
    let is_csv = kind == CopyKind::Csv;
    let mut format = CopyFormat {
        kind,
        delimiter: if is_csv { b',' } else { b'\t' },
        null: if is_csv { "" } else { "\\N" }.to_owned(),
        header: false,
        quote: b'"',
        escape: b'"',
        force_quote: Vec::new(),
        force_not_null: Vec::new(),
        force_null: Vec::new(),
    };
    let (mut escape, mut seen) = (None, Vec::new());
    for option in options {
        let kind_of_option = std::mem::discriminant(option);
        if seen.contains(&kind_of_option) {
            return Err(invalid("conflicting or redundant options".to_owned()));
        }
        seen.push(kind_of_option);
        let needs = |is_right: bool, what: &str| match is_right {
            true => Ok(()),
            false => Err(SqlError::unsupported(format!("COPY {what}"))),
        };
        // They are one byte: the parser has seen to that.
        let byte = |character: &char| u8::try_from(*character).unwrap_or(b'?');
        match option {
            // Rows are visible when their transaction has committed, whatever this says.
            CopyOption::Format(_) | CopyOption::Freeze(_) => {}
            CopyOption::Delimiter(character) => {
                needs(kind != CopyKind::Binary, "DELIMITER in BINARY mode")?;
                format.delimiter = byte(character);
            }
            CopyOption::Null(text) => {
                needs(kind != CopyKind::Binary, "NULL in BINARY mode")?;
                format.null.clone_from(text);
            }
            CopyOption::Header(is_on) => {
                needs(kind != CopyKind::Binary, "HEADER in BINARY mode")?;
                format.header = *is_on;
            }
            CopyOption::Quote(character) => {
                needs(is_csv, "quote without CSV mode")?;
                format.quote = byte(character);
            }
            CopyOption::Escape(character) => {
                needs(is_csv, "escape without CSV mode")?;
                escape = Some(byte(character));
            }
            CopyOption::ForceQuote(columns) => {
                needs(is_csv && to, "force quote without CSV mode and COPY TO")?;
                format.force_quote = match columns.is_empty() {
                    true => vec![true; names.len()],
                    false => chosen(columns, names)?,
                };
            }
            CopyOption::ForceNotNull(columns) => {
                needs(is_csv && !to, "force not null without CSV mode and COPY FROM")?;
                format.force_not_null = chosen(columns, names)?;
            }
            CopyOption::ForceNull(columns) => {
                needs(is_csv && !to, "force null without CSV mode and COPY FROM")?;
                format.force_null = chosen(columns, names)?;
            }
            CopyOption::Encoding(name) => {
                let is_utf8 = matches!(&*name.to_lowercase(), "utf8" | "utf-8" | "unicode");
                refuse(!is_utf8, "an encoding other than UTF8")?;
            }
        }
    }
    format.escape = escape.unwrap_or(format.quote);
    let is_odd = matches!(format.delimiter, b'\n' | b'\r' | b'\\')
        || (!is_csv && format.delimiter.is_ascii_alphanumeric())
        || (is_csv && format.delimiter == format.quote)
        || format.null.contains(['\n', '\r'])
        || (kind != CopyKind::Binary && format.null.bytes().any(|byte| byte == format.delimiter));
    if is_odd {
        let message = "COPY delimiter, quote and null have to be told from each other and from the end of a line";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    Ok(format)
}

/// Which of the columns are named.
fn chosen(columns: &[Ident], names: &[String]) -> SqlResult<Vec<bool>> {
    let mut chosen = vec![false; names.len()];
    for column in columns {
        let name = fold(column);
        let at = names.iter().position(|own| *own == name);
        match at.and_then(|at| chosen.get_mut(at)) {
            Some(place) => *place = true,
            None => {
                let message = format!("column \"{name}\" not referenced by COPY");
                return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
            }
        }
    }
    Ok(chosen)
}
