//! COPY.

use std::sync::Arc;

use sqlparser::ast::{CopyOption, CopySource, CopyTarget, Ident, ObjectName, Statement};

use super::{Binder, Bound, fold, name_parts, refuse};
use crate::copy::{CopyFormat, CopyKind};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Plan};
use crate::roles::Privileges;
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
        self.need(&table, Privileges::SELECT);
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
        let bound = Bound { plan: Plan::Project { input, exprs: exprs.into() }, columns: given };
        Ok(BoundCopy { bound, out: Some(Arc::new(format)) })
    }

    fn copy_table_in(
        &mut self,
        name: &ObjectName,
        columns: &[Ident],
        options: &[CopyOption],
    ) -> SqlResult<BoundCopy> {
        let table = self.table(name)?;
        self.need(&table, Privileges::INSERT);
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

/// The format that options name, for columns of these names.
fn copy_format(options: &[CopyOption], names: &[String], to: bool) -> SqlResult<CopyFormat> {
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
    let mut format = CopyFormat::of(kind);
    let mut seen = Vec::new();
    for option in options {
        let kind_of_option = std::mem::discriminant(option);
        if seen.contains(&kind_of_option) {
            let message = "conflicting or redundant options";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        seen.push(kind_of_option);
        set_option(&mut format, option, names, to)?;
    }
    // It is the quote unless it is said.
    let has_escape = options.iter().any(|option| matches!(option, CopyOption::Escape(_)));
    format.escape = if has_escape { format.escape } else { format.quote };
    let is_csv = kind == CopyKind::Csv;
    let is_odd = matches!(format.delimiter, b'\n' | b'\r' | b'\\')
        || (!is_csv && format.delimiter.is_ascii_alphanumeric())
        || (is_csv && format.delimiter == format.quote)
        || format.null.contains(['\n', '\r'])
        || (kind != CopyKind::Binary && format.null.bytes().any(|byte| byte == format.delimiter));
    if is_odd {
        let message =
            "COPY delimiter, quote and null must differ from each other and from line ends";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    Ok(format)
}

fn set_option(
    format: &mut CopyFormat,
    option: &CopyOption,
    names: &[String],
    to: bool,
) -> SqlResult<()> {
    let (is_csv, is_binary) = (format.kind == CopyKind::Csv, format.kind == CopyKind::Binary);
    let forbid = |is_wrong: bool, what: &str| refuse(is_wrong, &format!("COPY {what}"));
    // They are one byte: the parser has seen to that.
    let byte = |character: &char| u8::try_from(*character).unwrap_or(b'?');
    match option {
        // Rows are visible when their transaction has committed, whatever FREEZE says.
        CopyOption::Format(_) | CopyOption::Freeze(_) => {}
        CopyOption::Delimiter(character) => {
            forbid(is_binary, "DELIMITER in BINARY mode")?;
            format.delimiter = byte(character);
        }
        CopyOption::Null(text) => {
            forbid(is_binary, "NULL in BINARY mode")?;
            format.null.clone_from(text);
        }
        CopyOption::Header(is_on) => {
            forbid(is_binary, "HEADER in BINARY mode")?;
            format.header = *is_on;
        }
        CopyOption::Quote(character) => {
            forbid(!is_csv, "QUOTE without CSV mode")?;
            format.quote = byte(character);
        }
        CopyOption::Escape(character) => {
            forbid(!is_csv, "ESCAPE without CSV mode")?;
            format.escape = byte(character);
        }
        CopyOption::ForceQuote(columns) => {
            forbid(!is_csv || !to, "FORCE_QUOTE without CSV mode and TO")?;
            format.force_quote = match columns.is_empty() {
                true => vec![true; names.len()],
                false => chosen(columns, names)?,
            };
        }
        CopyOption::ForceNotNull(columns) => {
            forbid(!is_csv || to, "FORCE_NOT_NULL without CSV mode and FROM")?;
            format.force_not_null = chosen(columns, names)?;
        }
        CopyOption::ForceNull(columns) => {
            forbid(!is_csv || to, "FORCE_NULL without CSV mode and FROM")?;
            format.force_null = chosen(columns, names)?;
        }
        CopyOption::Encoding(name) => {
            let is_utf8 = matches!(&*name.to_lowercase(), "utf8" | "utf-8" | "unicode");
            refuse(!is_utf8, "an encoding other than UTF8")?;
        }
    }
    Ok(())
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
