//! SET CONSTRAINTS, as PostgreSQL has it.

use sqlparser::ast::{Expr, Ident, ObjectName, Set, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// Whether the statement that follows is SET CONSTRAINTS.
pub(crate) fn is_set_constraints(parser: &Parser<'_>) -> bool {
    let [first, second] = parser.peek_tokens_ref();
    let is_set = matches!(&first.token, Token::Word(word) if word.keyword == Keyword::SET);
    is_set && is_word(&second.token, "constraints")
}

pub(crate) fn is_word(token: &Token, wanted: &str) -> bool {
    let Token::Word(word) = token else { return false };
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted)
}

/// The statement SET CONSTRAINTS. It is an assignment of `hivevar`, which PostgreSQL has not: the
/// mode, then the names, none for all.
pub(crate) fn parse_set_constraints(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    parser.next_token();
    parser.next_token();
    let mut values = Vec::new();
    if !parser.parse_keyword(Keyword::ALL) {
        values = parser.parse_comma_separated(|parser| {
            let name = parser.parse_object_name(false)?;
            let parts = name.0.into_iter().filter_map(|part| part.as_ident().cloned());
            Ok(Expr::CompoundIdentifier(parts.collect()))
        })?;
    }
    let found = parser.next_token();
    let mode = match &found.token {
        token if is_word(token, "deferred") => "deferred",
        token if is_word(token, "immediate") => "immediate",
        _ => return parser.expected_ref("DEFERRED or IMMEDIATE", &found),
    };
    values.insert(0, Expr::Identifier(Ident::new(mode)));
    Ok(Statement::Set(Set::SingleAssignment {
        scope: None,
        hivevar: true,
        variable: ObjectName::from(vec![Ident::new("constraints")]),
        values,
    }))
}
