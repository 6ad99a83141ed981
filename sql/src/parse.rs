//! From text to syntax trees.

use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span};

use crate::error::{SqlError, SqlResult, SqlState};

/// Longest text of statements, in bytes.
pub(crate) const MAX_SQL_BYTES: usize = 64 << 20;

/// How deep expressions and queries may be nested.
const MAX_DEPTH: usize = 128;

/// The statements of a text, which are separated by semicolons.
///
/// # Errors
/// What is no SQL: 42601 with its position. What is nested too deeply: 54001. What is too long:
/// 54000.
pub(crate) fn parse(sql: &str) -> SqlResult<Vec<Statement>> {
    if sql.len() > MAX_SQL_BYTES {
        let message = format!("the statement has {} bytes (allowed: {MAX_SQL_BYTES})", sql.len());
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    let dialect = PostgreSqlDialect {};
    let parser = Parser::new(&dialect).with_recursion_limit(MAX_DEPTH);
    let parsed = parser.try_with_sql(sql).and_then(|mut parser| parser.parse_statements());
    parsed.map_err(|error| error_of(sql, error))
}

fn error_of(sql: &str, error: ParserError) -> SqlError {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => {
            let message =
                format!("the statement is nested too deeply (allowed: {MAX_DEPTH} levels)");
            return SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message);
        }
    };
    let (what, place) = split_place(&text);
    let position = place.and_then(|place| position_of(sql, place));
    let message = match what.split_once(", found: ") {
        Some((_, "EOF")) => "syntax error at end of input".to_owned(),
        Some((_, found)) => format!("syntax error at or near \"{found}\""),
        None => format!("syntax error: {what}"),
    };
    let mut error = SqlError::new(SqlState::SYNTAX_ERROR, message);
    if let Some((expected, _)) = what.split_once(", found: ") {
        error = error.detail(expected.to_owned());
    }
    let end = what.ends_with("found: EOF").then(|| sql.chars().count() + 1);
    match position.or(end) {
        Some(position) => error.at(position),
        None => error,
    }
}

/// What the parser says, and the place that it says it of.
fn split_place(text: &str) -> (&str, Option<Location>) {
    let Some((what, place)) = text.rsplit_once(" at Line: ") else { return (text, None) };
    let place = place.split_once(", Column: ").and_then(|(line, column)| {
        Some(Location { line: line.parse().ok()?, column: column.trim().parse().ok()? })
    });
    (what, place)
}

/// The character of a text at a place, counted from 1.
fn position_of(sql: &str, place: Location) -> Option<usize> {
    let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(place.column).ok()?;
    let before = sql.split_inclusive('\n').take(line).map(|line| line.chars().count());
    Some(before.sum::<usize>() + column)
}

/// The first character of a part of a statement, counted from 1.
pub(crate) fn position(sql: &str, span: Span) -> Option<usize> {
    if span == Span::empty() { None } else { position_of(sql, span.start) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(sql: &str) -> (String, Option<usize>) {
        let error = parse(sql).unwrap_err();
        (error.message().to_owned(), error.position())
    }

    #[test]
    fn an_error_names_what_stands_where_it_may_not() {
        let at = |text: &str, position| (format!("syntax error at or near \"{text}\""), position);
        assert_eq!(failure("select 1 +"), ("syntax error at end of input".into(), Some(11)));
        assert_eq!(failure("selec 1"), at("selec", Some(1)));
        assert_eq!(
            failure("select 1;\n select (2"),
            ("syntax error at end of input".into(), Some(21))
        );
        assert_eq!(failure("select 'ä' from t wher x"), at("x", Some(24)));
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_the_end_of_the_stack() {
        for open in ["(", "not ", "- ", "case when "] {
            let sql = format!("select {}1", open.repeat(100_000));
            let error = parse(&sql).unwrap_err();
            assert!(
                matches!(error.state(), SqlState::STATEMENT_TOO_COMPLEX | SqlState::SYNTAX_ERROR),
                "{open}: {error}"
            );
        }
    }

    #[test]
    fn statements_are_separated_by_semicolons() {
        assert_eq!(parse("select 1; select 2;").unwrap().len(), 2);
        assert_eq!(parse(" ; -- nothing\n").unwrap().len(), 0);
    }
}
