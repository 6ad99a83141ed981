//! VACUUM and ANALYZE, as PostgreSQL has them.
//!
//! Both are an [`Analyze`]: `compute_statistics` says that it comes from VACUUM, `noscan` that this
//! is without ANALYZE. Tables behind the first are tuples in the place of `partitions`, which
//! PostgreSQL has not: the name, and the columns.

use sqlparser::ast::{Analyze, Expr, Ident, ObjectName, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser, ParserError};
use sqlparser::tokenizer::Token;

/// Most workers of an index that VACUUM takes, in PostgreSQL.
const MOST_WORKERS: u64 = 1024;

/// The statement behind the word VACUUM.
pub(crate) fn parse_vacuum(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let analyzes = if parser.consume_token(&Token::LParen) {
        options(parser, "VACUUM")?
    } else {
        let _ = parser.parse_keyword(Keyword::FULL);
        let _ = parser.parse_keyword(Keyword::FREEZE);
        let _ = parser.parse_keyword(Keyword::VERBOSE);
        parser.parse_keyword(Keyword::ANALYZE)
    };
    let analyze = Analyze { compute_statistics: true, noscan: !analyzes, ..tables(parser)? };
    Ok(Statement::Analyze(analyze))
}

/// The statement behind the word ANALYZE.
pub(crate) fn parse_analyze(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    if parser.consume_token(&Token::LParen) {
        options(parser, "ANALYZE")?;
    } else {
        let _ = parser.parse_keyword(Keyword::VERBOSE);
    }
    Ok(Statement::Analyze(tables(parser)?))
}

/// Options in parentheses, of which but ANALYZE none changes anything: space is given back as rows
/// are deleted. Whether that is among them.
fn options(parser: &mut Parser<'_>, of: &str) -> Result<bool, ParserError> {
    let mut analyzes = false;
    loop {
        let name = parser.parse_identifier()?.value.to_ascii_lowercase();
        match (of, &*name) {
            ("VACUUM", "analyze") => analyzes = switch(parser, &name)?,
            (_, "verbose" | "skip_locked")
            | (
                "VACUUM",
                "full" | "freeze" | "disable_page_skipping" | "process_toast" | "truncate",
            ) => {
                switch(parser, &name)?;
            }
            ("VACUUM", "index_cleanup") => {
                let is_auto = match &parser.peek_token_ref().token {
                    Token::Word(word) => word.value.eq_ignore_ascii_case("auto"),
                    _ => false,
                };
                match is_auto {
                    true => parser.advance_token(),
                    false => drop(switch(parser, &name)?),
                }
            }
            ("VACUUM", "parallel") => {
                if parser.parse_literal_uint()? > MOST_WORKERS {
                    let message = "parallel workers for vacuum must be between 0 and 1024";
                    return Err(ParserError::ParserError(message.to_owned()));
                }
            }
            _ => {
                let message = format!("unrecognized {of} option \"{name}\"");
                return Err(ParserError::ParserError(message));
            }
        }
        if !parser.consume_token(&Token::Comma) {
            parser.expect_token(&Token::RParen)?;
            return Ok(analyzes);
        }
    }
}

/// What is on or off; on if nothing is said.
fn switch(parser: &mut Parser<'_>, name: &str) -> Result<bool, ParserError> {
    let text = match &parser.peek_token_ref().token {
        Token::Comma | Token::RParen => return Ok(true),
        Token::Word(word) => word.value.to_ascii_lowercase(),
        Token::Number(number, _) => number.clone(),
        Token::SingleQuotedString(text) => text.to_ascii_lowercase(),
        _ => String::new(),
    };
    let is_on = match &*text {
        "true" | "on" | "1" => true,
        "false" | "off" | "0" => false,
        _ => return Err(ParserError::ParserError(format!("{name} requires a Boolean value"))),
    };
    parser.advance_token();
    Ok(is_on)
}

/// The tables that are named, with columns of them.
fn tables(parser: &mut Parser<'_>) -> Result<Analyze, ParserError> {
    let is_over = matches!(parser.peek_token_ref().token, Token::SemiColon | Token::EOF);
    let (mut first, mut others) = (None, Vec::new());
    if !is_over {
        first = Some(table(parser)?);
        while parser.consume_token(&Token::Comma) {
            let (name, columns) = table(parser)?;
            let parts = name.0.iter().filter_map(|part| part.as_ident().cloned());
            let mut all = vec![Expr::CompoundIdentifier(parts.collect())];
            all.extend(columns.into_iter().map(Expr::Identifier));
            others.push(Expr::Tuple(all));
        }
    }
    let (table_name, columns) = first.map_or((None, Vec::new()), |(name, own)| (Some(name), own));
    Ok(Analyze {
        table_name,
        partitions: (!others.is_empty()).then_some(others),
        for_columns: false,
        columns,
        cache_metadata: false,
        noscan: false,
        compute_statistics: false,
        has_table_keyword: false,
    })
}

fn table(parser: &mut Parser<'_>) -> Result<(ObjectName, Vec<Ident>), ParserError> {
    let name = parser.parse_object_name(false)?;
    let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
    Ok((name, columns))
}
