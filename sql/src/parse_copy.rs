//! COPY, of which the parser knows less than PostgreSQL.
//!
//! HEADER MATCH is the option HEADER, and the legacy one beside it, which PostgreSQL has not. COPY
//! FROM with WHERE is from a query of the table with that condition, which it has for COPY TO only.

use sqlparser::ast::{
    CopyLegacyOption, CopyOption, CopySource, CopyTarget, Expr, Ident, ObjectName, SelectItem,
    SetExpr, Statement, TableFactor,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser, ParserError};
use sqlparser::tokenizer::Token;

/// The statement behind the word COPY.
pub(crate) fn parse_copy(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let is_binary = parser.parse_keyword(Keyword::BINARY);
    let source = if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        CopySource::Query(query)
    } else {
        let table_name = parser.parse_object_name(false)?;
        let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
        CopySource::Table { table_name, columns }
    };
    let to = match parser.expect_one_of_keywords(&[Keyword::FROM, Keyword::TO])? {
        Keyword::FROM if matches!(source, CopySource::Query(_)) => {
            parser.prev_token();
            return parser.expected_ref("TO", parser.peek_token_ref());
        }
        keyword => keyword == Keyword::TO,
    };
    let target = if parser.parse_keyword(Keyword::STDIN) {
        CopyTarget::Stdin
    } else if parser.parse_keyword(Keyword::STDOUT) {
        CopyTarget::Stdout
    } else if parser.parse_keyword(Keyword::PROGRAM) {
        CopyTarget::Program { command: parser.parse_literal_string()? }
    } else {
        CopyTarget::File { filename: parser.parse_literal_string()? }
    };
    let _ = parser.parse_keyword(Keyword::WITH);
    let (mut options, mut legacy_options) = (Vec::new(), Vec::new());
    if is_binary {
        options.push(CopyOption::Format("binary".into()));
    }
    if parser.consume_token(&Token::LParen) {
        let legacy = &mut legacy_options;
        options.extend(parser.parse_comma_separated(|parser| option(parser, legacy))?);
        parser.expect_token(&Token::RParen)?;
    } else {
        old_options(parser, &mut options)?;
    }
    let source = match source {
        CopySource::Table { table_name, columns }
            if !to && parser.parse_keyword(Keyword::WHERE) =>
        {
            rows_of(table_name, columns, parser.parse_expr()?)?
        }
        source => source,
    };
    Ok(Statement::Copy { source, to, target, options, legacy_options, payload: None })
}

/// The query of columns of a table, or of all, with a condition.
fn rows_of(
    table_name: ObjectName,
    columns: Vec<Ident>,
    condition: Expr,
) -> Result<CopySource, ParserError> {
    let dialect = PostgreSqlDialect {};
    let mut query = Parser::new(&dialect).try_with_sql("select * from t")?.parse_query()?;
    if let SetExpr::Select(select) = &mut *query.body {
        if !columns.is_empty() {
            let item = |column| SelectItem::UnnamedExpr(Expr::Identifier(column));
            select.projection = columns.into_iter().map(item).collect();
        }
        let from = select.from.first_mut().map(|from| &mut from.relation);
        if let Some(TableFactor::Table { name, .. }) = from {
            *name = table_name;
        }
        select.selection = Some(condition);
    }
    Ok(CopySource::Query(query))
}

/// An option in parentheses: its name, and its value if it has one.
fn option(
    parser: &mut Parser<'_>,
    legacy: &mut Vec<CopyLegacyOption>,
) -> Result<CopyOption, ParserError> {
    let name = parser.parse_identifier()?;
    Ok(match &*name.value.to_lowercase() {
        "format" => CopyOption::Format(parser.parse_identifier()?),
        "freeze" => CopyOption::Freeze(switch(parser)?),
        "header" => {
            let is_match = match &parser.peek_token_ref().token {
                Token::Word(word) => word.value.eq_ignore_ascii_case("match"),
                Token::SingleQuotedString(text) => text.eq_ignore_ascii_case("match"),
                _ => false,
            };
            if is_match {
                parser.advance_token();
                legacy.push(CopyLegacyOption::Header);
            }
            CopyOption::Header(is_match || switch(parser)?)
        }
        "delimiter" => CopyOption::Delimiter(character(parser, "delimiter")?),
        "quote" => CopyOption::Quote(character(parser, "quote")?),
        "escape" => CopyOption::Escape(character(parser, "escape")?),
        "null" => CopyOption::Null(parser.parse_literal_string()?),
        "encoding" => CopyOption::Encoding(parser.parse_literal_string()?),
        "force_quote" if parser.consume_token(&Token::Mul) => CopyOption::ForceQuote(Vec::new()),
        "force_quote" => CopyOption::ForceQuote(columns(parser)?),
        "force_not_null" => CopyOption::ForceNotNull(columns(parser)?),
        "force_null" => CopyOption::ForceNull(columns(parser)?),
        _ => {
            let message = format!("option \"{name}\" not recognized");
            return Err(ParserError::ParserError(message));
        }
    })
}

/// Options without parentheses, as they were before PostgreSQL 9.0.
fn old_options(parser: &mut Parser<'_>, options: &mut Vec<CopyOption>) -> Result<(), ParserError> {
    const WORDS: [Keyword; 10] = [
        Keyword::BINARY,
        Keyword::CSV,
        Keyword::FORCE,
        Keyword::FREEZE,
        Keyword::HEADER,
        Keyword::ENCODING,
        Keyword::DELIMITER,
        Keyword::NULL,
        Keyword::QUOTE,
        Keyword::ESCAPE,
    ];
    while let Some(word) = parser.parse_one_of_keywords(&WORDS) {
        let has_as =
            matches!(word, Keyword::DELIMITER | Keyword::NULL | Keyword::QUOTE | Keyword::ESCAPE);
        let _ = has_as && parser.parse_keyword(Keyword::AS);
        options.push(match word {
            Keyword::BINARY => CopyOption::Format("binary".into()),
            Keyword::CSV => CopyOption::Format("csv".into()),
            Keyword::HEADER => CopyOption::Header(true),
            Keyword::FREEZE => CopyOption::Freeze(true),
            Keyword::ENCODING => CopyOption::Encoding(parser.parse_literal_string()?),
            Keyword::FORCE => forced(parser)?,
            Keyword::DELIMITER => CopyOption::Delimiter(character(parser, "delimiter")?),
            Keyword::QUOTE => CopyOption::Quote(character(parser, "quote")?),
            Keyword::ESCAPE => CopyOption::Escape(character(parser, "escape")?),
            _ => CopyOption::Null(parser.parse_literal_string()?),
        });
    }
    Ok(())
}

/// What stands behind FORCE: the columns are in no parentheses.
fn forced(parser: &mut Parser<'_>) -> Result<CopyOption, ParserError> {
    let names = |parser: &mut Parser<'_>| parser.parse_comma_separated(Parser::parse_identifier);
    if parser.parse_keyword(Keyword::QUOTE) {
        let is_all = parser.consume_token(&Token::Mul);
        return Ok(CopyOption::ForceQuote(if is_all { Vec::new() } else { names(parser)? }));
    }
    if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
        return names(parser).map(CopyOption::ForceNotNull);
    }
    parser.expect_keyword(Keyword::NULL)?;
    names(parser).map(CopyOption::ForceNull)
}

/// What is on or off; on if nothing is said.
fn switch(parser: &mut Parser<'_>) -> Result<bool, ParserError> {
    let text = match &parser.peek_token_ref().token {
        Token::Comma | Token::RParen => return Ok(true),
        Token::Word(word) => word.value.to_lowercase(),
        Token::Number(number, _) => number.clone(),
        Token::SingleQuotedString(text) => text.to_lowercase(),
        _ => String::new(),
    };
    let is_on = match &*text {
        "true" | "on" | "1" => true,
        "false" | "off" | "0" => false,
        _ => return parser.expected_ref("a Boolean value", parser.peek_token_ref()),
    };
    parser.advance_token();
    Ok(is_on)
}

/// A value of one character of one byte.
fn character(parser: &mut Parser<'_>, what: &str) -> Result<char, ParserError> {
    let text = parser.parse_literal_string()?;
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) if character.is_ascii() => Ok(character),
        _ => {
            let message = format!("COPY {what} must be a single one-byte character");
            Err(ParserError::ParserError(message))
        }
    }
}

fn columns(parser: &mut Parser<'_>) -> Result<Vec<sqlparser::ast::Ident>, ParserError> {
    parser.parse_parenthesized_column_list(IsOptional::Mandatory, false)
}
