//! COPY.

use std::sync::Arc;

use sqlparser::ast::{
    CopyLegacyOption, CopyOption, CopySource, CopyTarget, Expr as Ast, Ident, ObjectName, Query,
    SelectItem, SetExpr, Statement, TableFactor,
};

use super::scope::{SchemaName, Scope};
use super::stage::Stage;
use super::{Binder, Bound, fold, name_parts, refuse};
use crate::catalogue::TableDef;
use crate::copy::{CopyFormat, CopyHeader, CopyKind};
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
        refuse(payload.is_some(), "this form of COPY")?;
        let matches = legacy_options.contains(&CopyLegacyOption::Header);
        let options = Options { all: options, matches };
        match target {
            CopyTarget::Stdin | CopyTarget::Stdout => {}
            CopyTarget::File { .. } => {
                return Err(SqlError::unsupported("COPY from or to a file of the server")
                    .hint("psql's \\copy reads and writes files of the client."));
            }
            CopyTarget::Program { .. } => return Err(SqlError::unsupported("COPY with a program")),
        }
        match source {
            CopySource::Query(query) if !to => self.copy_some_in(query, options),
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
                self.copy_table_in(table_name, columns, options, None)
            }
        }
    }

    fn copy_table_out(
        &mut self,
        name: &ObjectName,
        columns: &[Ident],
        options: Options<'_>,
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
            given.push(super::OutputColumn::new(&*column.name, column.ty));
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
        options: Options<'_>,
        condition: Option<&Ast>,
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
        let mut input = Plan::CopyIn { table: own.clone(), columns: given.clone(), format };
        if let Some(condition) = condition {
            let condition = self.copy_condition(condition, &own, &given, &table)?;
            input = Plan::Filter { input: Box::new(input), condition };
        }
        let columns = given.into_iter().map(|(name, ty)| super::OutputColumn::new(name, ty));
        let source = Bound { plan: input, columns: columns.collect() };
        let plan = self.insert_rows(table, &targets, source)?;
        Ok(BoundCopy { bound: Bound { plan, columns: Vec::new() }, out: None })
    }

    /// COPY FROM with WHERE: the query is as [`parse_copy`](crate::parse_copy) makes it.
    fn copy_some_in(&mut self, query: &Query, options: Options<'_>) -> SqlResult<BoundCopy> {
        let odd = || SqlError::internal("a condition of COPY of no table");
        let SetExpr::Select(select) = &*query.body else { return Err(odd()) };
        let from = select.from.first().map(|from| &from.relation);
        let Some(TableFactor::Table { name, .. }) = from else { return Err(odd()) };
        let columns = select.projection.iter().filter_map(|item| match item {
            SelectItem::UnnamedExpr(Ast::Identifier(column)) => Some(column.clone()),
            _ => None,
        });
        let columns: Vec<Ident> = columns.collect();
        self.copy_table_in(name, &columns, options, select.selection.as_ref())
    }

    /// A condition on the columns of the data.
    fn copy_condition(
        &mut self,
        condition: &Ast,
        called: &str,
        given: &[(String, SqlType)],
        table: &TableDef,
    ) -> SqlResult<Expr> {
        let mut scope = Scope::inside(None);
        let columns = given.iter().map(|(name, ty)| (name.clone(), *ty, false));
        scope.add_table(called, SchemaName::Any, columns)?;
        let mut stage = Stage::new(&scope, "COPY FROM WHERE conditions");
        let bound = self.expr(condition, &mut stage).map_err(|error| {
            // Defaults are not known where the condition is looked at.
            let is_missing = error.state() == SqlState::UNDEFINED_COLUMN;
            let shown = table.columns.iter().filter(|own| !own.is_hidden).count();
            match is_missing && given.len() < shown {
                true => {
                    let what = "WHERE of COPY with a column that is not among those given";
                    SqlError::unsupported(what).detail(error.message().to_owned())
                }
                false => error,
            }
        })?;
        if !stage.applies.is_empty() {
            let message = "cannot use subquery in COPY FROM WHERE condition";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        self.condition(bound, "WHERE")
    }
}

/// The options of a COPY, and whether HEADER is HEADER MATCH.
#[derive(Clone, Copy)]
struct Options<'a> {
    all: &'a [CopyOption],
    matches: bool,
}

/// The format that options name, for columns of these names.
fn copy_format(options: Options<'_>, names: &[String], to: bool) -> SqlResult<CopyFormat> {
    let Options { all: options, matches } = options;
    if matches && to {
        let message = "cannot use \"match\" with HEADER in COPY TO";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
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
    if matches {
        format.header = CopyHeader::Match;
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
            format.header = if *is_on { CopyHeader::Yes } else { CopyHeader::No };
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
