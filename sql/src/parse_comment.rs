//! COMMENT, as PostgreSQL has it.

use sqlparser::ast::{CommentObject, ObjectNamePart, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};

/// The statement behind the word COMMENT. That on a constraint is one on a table, whose name has
/// that of the constraint behind it, and in which `if_exists` says so.
pub(crate) fn parse_comment(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    if parser.peek_keyword(Keyword::IF) {
        return parser.expected_ref("ON", parser.peek_token_ref());
    }
    if !parser.parse_keywords(&[Keyword::ON, Keyword::CONSTRAINT]) {
        return parser.parse_comment();
    }
    let name = parser.parse_identifier()?;
    parser.expect_keyword(Keyword::ON)?;
    let mut object_name = parser.parse_object_name(false)?;
    object_name.0.push(ObjectNamePart::Identifier(name));
    parser.expect_keyword(Keyword::IS)?;
    let comment = match parser.parse_keyword(Keyword::NULL) {
        true => None,
        false => Some(parser.parse_literal_string()?),
    };
    let (object_type, if_exists) = (CommentObject::Table, true);
    Ok(Statement::Comment { object_type, object_name, comment, if_exists })
}
