//! SET role TO, which the parser takes for a SET ROLE of a role that is called TO.

use sqlparser::ast::{ContextModifier, Ident, ObjectName, Set, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// The statement that comes next, if it gives the parameter `role` a value.
pub(crate) fn parse_set_role(parser: &mut Parser<'_>) -> Result<Option<Statement>, ParserError> {
    let keyword = |ahead: usize| match &parser.peek_nth_token_ref(ahead).token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let scope = match keyword(1) {
        Keyword::LOCAL => Some(ContextModifier::Local),
        Keyword::SESSION => Some(ContextModifier::Session),
        _ => None,
    };
    let at = 1 + usize::from(scope.is_some());
    let is_value =
        keyword(at + 1) == Keyword::TO || parser.peek_nth_token_ref(at + 1).token == Token::Eq;
    if keyword(0) != Keyword::SET || keyword(at) != Keyword::ROLE || !is_value {
        return Ok(None);
    }
    for _ in 0..at + 2 {
        parser.next_token();
    }
    Ok(Some(Statement::Set(Set::SingleAssignment {
        scope,
        hivevar: false,
        variable: ObjectName::from(vec![Ident::new("role")]),
        values: vec![parser.parse_expr()?],
    })))
}
