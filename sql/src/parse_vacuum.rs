//! VACUUM and ANALYZE, as PostgreSQL has them.

use sqlparser::ast::{Analyze, Statement, VacuumStatement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser, ParserError};
use sqlparser::tokenizer::Token;

/// The statement behind the word VACUUM. With ANALYZE it is that statement, in which
/// `compute_statistics` says where it comes from.
pub(crate) fn parse_vacuum(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let words = [Keyword::FULL, Keyword::FREEZE, Keyword::VERBOSE, Keyword::ANALYZE];
    let (mut full, mut analyze) = (false, false);
    let mut seen = |word: Keyword| match word {
        Keyword::FULL => full = true,
        Keyword::ANALYZE => analyze = true,
        _ => {}
    };
    if parser.consume_token(&Token::LParen) {
        loop {
            seen(parser.expect_one_of_keywords(&words)?);
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        parser.expect_token(&Token::RParen)?;
    } else {
        while let Some(word) = parser.parse_one_of_keywords(&words) {
            seen(word);
        }
    }
    let analyzed = table(parser)?;
    if analyze {
        return Ok(Statement::Analyze(Analyze { compute_statistics: true, ..analyzed }));
    }
    Ok(Statement::Vacuum(VacuumStatement {
        full,
        sort_only: false,
        delete_only: false,
        reindex: false,
        recluster: false,
        table_name: analyzed.table_name,
        threshold: None,
        boost: false,
    }))
}

/// The statement behind the word ANALYZE.
pub(crate) fn parse_analyze(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let _ = parser.parse_keyword(Keyword::VERBOSE);
    Ok(Statement::Analyze(table(parser)?))
}

/// The table, if one is named, and columns of it.
fn table(parser: &mut Parser<'_>) -> Result<Analyze, ParserError> {
    let is_over = matches!(parser.peek_token_ref().token, Token::SemiColon | Token::EOF);
    let table_name = if is_over { None } else { Some(parser.parse_object_name(false)?) };
    let columns = match table_name {
        Some(_) => parser.parse_parenthesized_column_list(IsOptional::Optional, false)?,
        None => Vec::new(),
    };
    Ok(Analyze {
        table_name,
        partitions: None,
        for_columns: false,
        columns,
        cache_metadata: false,
        noscan: false,
        compute_statistics: false,
        has_table_keyword: false,
    })
}
