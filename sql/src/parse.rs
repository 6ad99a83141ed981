//! From text to syntax trees.

use sqlparser::ast::{Ident, ObjectName, Reset, ResetStatement, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

use crate::error::{SqlError, SqlResult, SqlState};
use crate::notice::Notice;
use crate::parse_alter::parse_alter_table;
use crate::parse_comment::parse_comment;
use crate::parse_constraints::{is_set_constraints, parse_set_constraints};
use crate::parse_copy::parse_copy;
use crate::parse_cursor::{CANNOT_SPECIFY_BOTH, current_of, parse_cursor};
use crate::parse_depth::{Depth, MAX_CONDITIONS, MAX_ENTRIES, MAX_WORDS, TooComplex};
use crate::parse_fields::{in_form, name_all_fields};
use crate::parse_lists::balance;
use crate::parse_locks::plain_locks;
use crate::parse_references::move_set_columns;
use crate::parse_roles::parse_role;
use crate::parse_schemas::{parse_elements, parse_set_schema};
use crate::parse_sequences::parse_alter_sequence;
use crate::parse_set_role::parse_set_role;
use crate::parse_show::parse_show;
use crate::parse_size::{MAX_TOKENS, has_too_many_tokens};
use crate::parse_tokens::reworded;
use crate::parse_transaction::parse_transaction;
use crate::parse_vacuum::{parse_analyze, parse_vacuum};

/// Longest text of statements, in bytes.
pub(crate) const MAX_SQL_BYTES: usize = 64 << 20;

/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 63;

/// How deep expressions and queries may be nested.
const MAX_DEPTH: usize = 128;

/// The stack on which long lists of conditions are parsed: they are deep trees at first. The system
/// gives memory as it is used.
const LIST_STACK_BYTES: usize = 64 << 20;

// What drops such a tree takes less than a page for a condition.
const _: () = assert!(LIST_STACK_BYTES / MAX_CONDITIONS > 4 << 10);

/// The statements of a text, which are separated by semicolons.
///
/// # Errors
/// What is no SQL: 42601 with its position. What is nested too deeply: 54001. What is too long:
/// 54000.
pub(crate) fn parse(sql: &str) -> SqlResult<Vec<Statement>> {
    parse_noting(sql).map(|(statements, _)| statements)
}

/// The same, and what is to be said of the text: that names were cut.
pub(crate) fn parse_noting(sql: &str) -> SqlResult<(Vec<Statement>, Vec<Notice>)> {
    if sql.len() > MAX_SQL_BYTES {
        let message = format!("the statement has {} bytes (allowed: {MAX_SQL_BYTES})", sql.len());
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    if has_too_many_tokens(sql) {
        let message = format!("the statement has more than {MAX_TOKENS} words and signs");
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
            .hint("Use parameters or COPY, or several statements."));
    }
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
    let mut tokens = tokens.map_err(|error| error_of(sql, ParserError::from(error)))?;
    if let Some(span) = current_of(&tokens) {
        let error = SqlError::unsupported("WHERE CURRENT OF");
        return Err(match position(sql, span) {
            Some(position) => error.at(position),
            None => error,
        });
    }
    plain_locks(&mut tokens);
    let may_have_parts = name_all_fields(&mut tokens);
    let notices = tokens.iter_mut().filter_map(cut_name).collect();
    let parsed = if check_depth(sql, &tokens)? {
        stacker::grow(LIST_STACK_BYTES, || {
            let mut parsed = parse_tokens(&dialect, tokens)?;
            balance(&mut parsed);
            Ok(parsed)
        })
    } else {
        parse_tokens(&dialect, tokens)
    };
    let parsed = parsed.map(|mut own| {
        if may_have_parts {
            in_form(&mut own);
        }
        own
    });
    parsed.map(|own| (own, notices)).map_err(|error| error_of(sql, error))
}

/// Cuts a name that is too long, at the end of a character. What is to be said of it.
fn cut_name(token: &mut TokenWithSpan) -> Option<Notice> {
    let Token::Word(word) = &mut token.token else { return None };
    if word.value.len() <= MAX_NAME_BYTES {
        return None;
    }
    if word.quote_style.is_none() {
        word.value.make_ascii_lowercase();
    }
    let name = word.value.clone();
    word.value.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
    let message = format!("identifier \"{name}\" will be truncated to \"{}\"", word.value);
    Some(Notice::note(SqlState::NAME_TOO_LONG, message))
}

fn parse_tokens(
    dialect: &PostgreSqlDialect,
    tokens: Vec<TokenWithSpan>,
) -> Result<Vec<Statement>, ParserError> {
    let parser = Parser::new(dialect).with_recursion_limit(MAX_DEPTH);
    statements(&mut parser.with_tokens_with_locations(move_set_columns(reworded(tokens))))
}

fn statements(parser: &mut Parser<'_>) -> Result<Vec<Statement>, ParserError> {
    let mut statements = Vec::new();
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        if parser.peek_token_ref().token == Token::EOF {
            return Ok(statements);
        }
        if is_set_constraints(parser) {
            statements.push(parse_set_constraints(parser)?);
            end_of_statement(parser)?;
            continue;
        }
        if let Some(role) = parse_role(parser)? {
            statements.push(role);
            end_of_statement(parser)?;
            continue;
        }
        if let Some(begun) = parse_transaction(parser)? {
            statements.push(begun);
            end_of_statement(parser)?;
            continue;
        }
        if let Some(set) = parse_set_role(parser)? {
            statements.push(set);
            end_of_statement(parser)?;
            continue;
        }
        if let Some(moved) = parse_cursor(parser)? {
            statements.push(moved);
            end_of_statement(parser)?;
            continue;
        }
        if let Some(altered) = altered(parser)? {
            statements.push(altered);
            end_of_statement(parser)?;
            continue;
        }
        let ours =
            [Keyword::COPY, Keyword::VACUUM, Keyword::COMMENT, Keyword::SHOW, Keyword::ANALYZE];
        statements.push(match parser.parse_one_of_keywords(&ours) {
            Some(Keyword::COPY) => parse_copy(parser)?,
            Some(Keyword::VACUUM) => parse_vacuum(parser)?,
            Some(Keyword::COMMENT) => parse_comment(parser)?,
            Some(Keyword::SHOW) => parse_show(parser)?,
            Some(_) => parse_analyze(parser)?,
            None if parser.parse_keywords(&[Keyword::RESET, Keyword::TIME, Keyword::ZONE]) => {
                let name = ObjectName::from(vec![Ident::new("timezone")]);
                Statement::Reset(ResetStatement { reset: Reset::ConfigurationParameter(name) })
            }
            None => {
                let mut statement = parser.parse_statement()?;
                parse_elements(parser, &mut statement);
                statement
            }
        });
        end_of_statement(parser)?;
    }
}

/// The statement that comes next, if it is one of ALTER that the parser does not have as PostgreSQL
/// has it.
fn altered(parser: &mut Parser<'_>) -> Result<Option<Statement>, ParserError> {
    if !parser.peek_keyword(Keyword::ALTER) {
        return Ok(None);
    }
    if let Some(moved) = parse_set_schema(parser)? {
        return Ok(Some(moved));
    }
    match parse_alter_sequence(parser)? {
        Some(altered) => Ok(Some(altered)),
        None => parse_alter_table(parser),
    }
}

/// A statement ends here, or it is an error.
fn end_of_statement(parser: &Parser<'_>) -> Result<(), ParserError> {
    match parser.peek_token_ref().token {
        Token::SemiColon | Token::EOF => Ok(()),
        _ => parser.expected_ref("end of statement", parser.peek_token_ref()),
    }
}

/// Refuses trees that would be too deep. Whether there are long lists of conditions.
fn check_depth(sql: &str, tokens: &[TokenWithSpan]) -> SqlResult<bool> {
    let mut depth = Depth::default();
    for token in tokens {
        let message = match depth.add(&token.token) {
            Ok(()) => continue,
            Err(TooComplex::Entries) => {
                let message = format!("target lists can have at most {MAX_ENTRIES} entries");
                return Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, message));
            }
            Err(TooComplex::Deep) => format!(
                "the statement is nested too deeply (allowed: {MAX_WORDS} words and signs of operators, joins and parts of a query within each other)"
            ),
            Err(TooComplex::Conditions) => {
                format!("a list of conditions is too long (allowed: {MAX_CONDITIONS})")
            }
        };
        let error = SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message);
        return Err(match position(sql, token.span) {
            Some(position) => error.at(position),
            None => error,
        });
    }
    Ok(depth.has_long_lists)
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
        None if what.starts_with(CANNOT_SPECIFY_BOTH) => {
            return SqlError::new(SqlState::INVALID_CURSOR_DEFINITION, what);
        }
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
    fn a_chain_of_operators_is_as_deep_as_it_is_long() {
        for (link, fits) in [
            (" + 1", 290),
            ("::text", 290),
            (" union select 1", 140),
            (" union all select 1", 290),
            (" and true", 9_000),
        ] {
            let sql = |links: usize| format!("select 1{}", link.repeat(links));
            assert!(parse(&sql(fits)).is_ok(), "{link}");
            let error = parse(&sql(100_000)).unwrap_err();
            assert_eq!(error.state(), SqlState::STATEMENT_TOO_COMPLEX, "{link}");
        }
        // Lists are no chains.
        assert!(parse(&format!("values {}", vec!["(1, 2)"; 100_000].join(", "))).is_ok());
        let conditions = vec!["a in (1, 2)"; 290].join(" or ");
        assert!(parse(&format!("select * from t where {conditions}")).is_ok());
    }

    /// Where a list ends in an error, it is dropped as deep as it was parsed.
    #[test]
    fn a_long_list_that_is_wrong_is_an_error() {
        for end in ["", " x y z", ")"] {
            let sql = format!("select * from t where {} or{end}", vec!["a"; 9_000].join(" or "));
            assert_eq!(parse(&sql).unwrap_err().state(), SqlState::SYNTAX_ERROR, "{end}");
        }
    }

    #[test]
    fn a_text_of_very_many_tokens_is_refused_before_they_are_made() {
        let error = parse(&format!("select 1{}", ",1".repeat(8 << 20))).unwrap_err();
        assert_eq!(error.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert!(parse(&format!("select '{}'", "a b ".repeat(1 << 20))).is_ok());
    }

    #[test]
    fn statements_are_separated_by_semicolons() {
        assert_eq!(parse("select 1; select 2;").unwrap().len(), 2);
        assert_eq!(parse(" ; -- nothing\n").unwrap().len(), 0);
    }
}
