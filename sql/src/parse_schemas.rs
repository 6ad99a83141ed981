//! ALTER TABLE, VIEW and SEQUENCE with SET SCHEMA, as PostgreSQL has them.

use sqlparser::ast::{AlterView, AlterViewOperation, Ident, ObjectName, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};

pub(crate) const TABLE: &str = "\0table";
pub(crate) const VIEW: &str = "\0view";
pub(crate) const SEQUENCE: &str = "\0sequence";

/// The statement that comes next, if it puts something into another schema. It is one about a view,
/// whatever it is about: the name of the schema has [`TABLE`], [`VIEW`] or [`SEQUENCE`] behind it,
/// which no identifier can be.
pub(crate) fn parse_set_schema(parser: &mut Parser<'_>) -> Result<Option<Statement>, ParserError> {
    if !parser.peek_keyword(Keyword::ALTER) {
        return Ok(None);
    }
    parser.maybe_parse(set_schema)
}

fn set_schema(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    parser.expect_keyword(Keyword::ALTER)?;
    let kinds = [Keyword::TABLE, Keyword::VIEW, Keyword::SEQUENCE];
    let kind = match parser.expect_one_of_keywords(&kinds)? {
        Keyword::TABLE => TABLE,
        Keyword::VIEW => VIEW,
        _ => SEQUENCE,
    };
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let _ = kind == TABLE && parser.parse_keyword(Keyword::ONLY);
    let name = parser.parse_object_name(false)?;
    parser.expect_keywords(&[Keyword::SET, Keyword::SCHEMA])?;
    let schema = parser.parse_identifier()?;
    let schema_name = ObjectName::from(vec![schema, Ident::new(kind)]);
    let operation = AlterViewOperation::SetSchema { schema_name };
    Ok(Statement::AlterView(AlterView { materialized: false, name, if_exists, operation }))
}
