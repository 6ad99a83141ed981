//! ALTER TABLE, of which the parser knows less than PostgreSQL.
//!
//! Actions that it has not stand as others that no text can be:
//!
//! | action | stands as |
//! | --- | --- |
//! | `ALTER c SET STATISTICS`, `SET STORAGE` | `OPTIONS` without any |
//! | `ALTER c SET GENERATED`, `SET` of an option, `RESTART` | `ADD GENERATED` with [`SET`] first |
//! | `ALTER c DROP IDENTITY [IF EXISTS]` | `ADD GENERATED` with [`DROP`] or [`DROP_IF`] |
//! | `ALTER CONSTRAINT` | a foreign key to [`CHANGED`] |

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, Expr, ForeignKeyConstraint, GeneratedAs,
    Ident, ObjectName, RenameTableNameKind, SequenceOptions, Statement, TableConstraint,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::parse_constraints::is_word;
use crate::parse_sequences::{marked, restart, sequence_option};

pub(crate) const SET: &str = "\0set";
pub(crate) const DROP: &str = "\0drop";
pub(crate) const DROP_IF: &str = "\0drop_if";
pub(crate) const CHANGED: &str = "\0changed";

/// Where a statement about a view stands as one about a table, this is its cluster.
pub(crate) const VIEW: &str = "\0view";

pub(crate) fn keyword(token: &TokenWithSpan) -> Keyword {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

pub(crate) fn end(parser: &Parser<'_>) -> AttachedToken {
    AttachedToken(parser.get_current_token().clone())
}

/// The statement that comes next, if it is ALTER TABLE, or gives a view another name.
pub(crate) fn parse_alter_table(parser: &mut Parser<'_>) -> Result<Option<Statement>, ParserError> {
    let [first, second] = parser.peek_tokens_ref();
    match (keyword(first), keyword(second)) {
        (Keyword::ALTER, Keyword::TABLE) => {}
        (Keyword::ALTER, Keyword::VIEW) => return parser.maybe_parse(rename_view),
        _ => return Ok(None),
    }
    parser.next_token();
    parser.next_token();
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let only = parser.parse_keyword(Keyword::ONLY);
    let name = parser.parse_object_name(false)?;
    let _ = parser.consume_token(&Token::Mul);
    let operations = parser.parse_comma_separated(action)?;
    let (location, on_cluster, table_type) = (None, None, None);
    Ok(Some(Statement::AlterTable(AlterTable {
        name,
        if_exists,
        only,
        operations,
        location,
        on_cluster,
        table_type,
        end_token: end(parser),
    })))
}

fn rename_view(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    parser.expect_keywords(&[Keyword::ALTER, Keyword::VIEW])?;
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    parser.expect_keywords(&[Keyword::RENAME, Keyword::TO])?;
    let table_name = RenameTableNameKind::To(parser.parse_object_name(false)?);
    Ok(Statement::AlterTable(AlterTable {
        name,
        if_exists,
        only: false,
        operations: vec![AlterTableOperation::RenameTable { table_name }],
        location: None,
        on_cluster: Some(Ident::new(VIEW)),
        table_type: None,
        end_token: end(parser),
    }))
}

fn action(parser: &mut Parser<'_>) -> Result<AlterTableOperation, ParserError> {
    if parser.parse_keywords(&[Keyword::ALTER, Keyword::CONSTRAINT]) {
        let name = Some(parser.parse_identifier()?);
        let constraint = TableConstraint::ForeignKey(ForeignKeyConstraint {
            name,
            index_name: None,
            columns: Vec::new(),
            foreign_table: ObjectName::from(vec![Ident::new(CHANGED)]),
            referred_columns: Vec::new(),
            on_delete: None,
            on_update: None,
            match_kind: None,
            characteristics: parser.parse_constraint_characteristics()?,
        });
        return Ok(AlterTableOperation::AddConstraint { constraint, not_valid: false });
    }
    if parser.parse_keywords(&[Keyword::CLUSTER, Keyword::ON]) {
        // There is no CLUSTER that would go by it: it is refused later.
        let exprs = vec![Expr::Identifier(parser.parse_identifier()?)];
        return Ok(AlterTableOperation::ClusterBy { exprs });
    }
    match parser.maybe_parse(of_column)? {
        Some(action) => Ok(action),
        None => parser.parse_alter_table_operation(),
    }
}

/// An action of a column that the parser has not.
fn of_column(parser: &mut Parser<'_>) -> Result<AlterTableOperation, ParserError> {
    parser.expect_keyword(Keyword::ALTER)?;
    let _ = parser.parse_keyword(Keyword::COLUMN);
    let column_name = parser.parse_identifier()?;
    let op = if parser.parse_keywords(&[Keyword::ADD, Keyword::GENERATED]) {
        let generated_as = Some(generated(parser)?);
        parser.expect_keywords(&[Keyword::AS, Keyword::IDENTITY])?;
        let mut options = Vec::new();
        if parser.consume_token(&Token::LParen) {
            while let Some(option) = sequence_option(parser)? {
                options.push(option);
            }
            parser.expect_token(&Token::RParen)?;
        }
        AlterColumnOperation::AddGenerated { generated_as, sequence_options: Some(options) }
    } else if parser.parse_keywords(&[Keyword::DROP, Keyword::IDENTITY]) {
        let mark = match parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]) {
            true => DROP_IF,
            false => DROP,
        };
        let sequence_options = Some(vec![marked(mark, Vec::new())]);
        AlterColumnOperation::AddGenerated { generated_as: None, sequence_options }
    } else if is_storage(parser)? {
        AlterColumnOperation::GenericOptions { options: Vec::new() }
    } else {
        identity(parser)?
    };
    Ok(AlterTableOperation::AlterColumn { column_name, op })
}

fn generated(parser: &mut Parser<'_>) -> Result<GeneratedAs, ParserError> {
    if parser.parse_keyword(Keyword::ALWAYS) {
        return Ok(GeneratedAs::Always);
    }
    parser.expect_keywords(&[Keyword::BY, Keyword::DEFAULT])?;
    Ok(GeneratedAs::ByDefault)
}

/// Whether SET STATISTICS or SET STORAGE comes next, which is passed by.
fn is_storage(parser: &mut Parser<'_>) -> Result<bool, ParserError> {
    let [first, second] = parser.peek_tokens_ref();
    if keyword(first) != Keyword::SET {
        return Ok(false);
    }
    if is_word(&second.token, "statistics") {
        parser.next_token();
        parser.next_token();
        parser.parse_number()?;
        return Ok(true);
    }
    if !is_word(&second.token, "storage") {
        return Ok(false);
    }
    parser.next_token();
    parser.next_token();
    let found = parser.next_token();
    let kinds = ["plain", "external", "extended", "main"];
    match kinds.iter().any(|kind| is_word(&found.token, kind)) {
        true => Ok(true),
        false => parser.expected_ref("a kind of storage", &found),
    }
}

/// Changes of an identity column.
fn identity(parser: &mut Parser<'_>) -> Result<AlterColumnOperation, ParserError> {
    let (mut generated_as, mut options) = (None, vec![marked(SET, Vec::new())]);
    loop {
        if parser.parse_keyword(Keyword::RESTART) {
            options.push(restart(parser)?);
        } else if parser.parse_keywords(&[Keyword::SET, Keyword::GENERATED]) {
            generated_as = Some(generated(parser)?);
        } else if parser.parse_keyword(Keyword::SET) {
            match sequence_option(parser)? {
                Some(SequenceOptions::OwnedBy(_) | SequenceOptions::DataType(_)) | None => {
                    return parser.expected_ref("an option", parser.peek_token_ref());
                }
                Some(option) => options.push(option),
            }
        } else if options.len() > 1 || generated_as.is_some() {
            let sequence_options = Some(options);
            return Ok(AlterColumnOperation::AddGenerated { generated_as, sequence_options });
        } else {
            return parser.expected_ref("a change of a column", parser.peek_token_ref());
        }
    }
}
