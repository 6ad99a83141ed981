//! ALTER SEQUENCE, and what is said of the sequences of identity columns, as PostgreSQL has them.
//!
//! The parser has no such statement. It is a CREATE SEQUENCE whose name has [`ALTER`] behind it,
//! and options that the parser has not are an OWNED BY whose name begins with a word that no
//! identifier can be: [`RESTART`], with a number behind it if one is said, and [`NAME`], with the
//! name of the sequence.

use sqlparser::ast::{
    AlterTable, AlterTableOperation, Expr, Ident, ObjectName, ObjectNamePart, RenameTableNameKind,
    SequenceOptions, Statement,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::parse_alter::{end, keyword};

pub(crate) const ALTER: &str = "\0alter";
pub(crate) const RESTART: &str = "\0restart";
pub(crate) const NAME: &str = "\0name";

/// Where a statement about a sequence stands as one about a table, this is its cluster.
pub(crate) const SEQUENCE: &str = "\0sequence";

/// The statement that comes next, if it is ALTER SEQUENCE.
pub(crate) fn parse_alter_sequence(
    parser: &mut Parser<'_>,
) -> Result<Option<Statement>, ParserError> {
    let [first, second] = parser.peek_tokens_ref();
    if (keyword(first), keyword(second)) != (Keyword::ALTER, Keyword::SEQUENCE) {
        return Ok(None);
    }
    parser.next_token();
    parser.next_token();
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let mut name = parser.parse_object_name(false)?;
    let operation = if parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        let table_name = RenameTableNameKind::To(parser.parse_object_name(false)?);
        AlterTableOperation::RenameTable { table_name }
    } else if parser.parse_keywords(&[Keyword::OWNER, Keyword::TO]) {
        AlterTableOperation::OwnerTo { new_owner: parser.parse_owner()? }
    } else {
        let mut sequence_options = Vec::new();
        while let Some(option) = sequence_option(parser)? {
            sequence_options.push(option);
        }
        if sequence_options.is_empty() {
            return parser.expected_ref("an option of a sequence", parser.peek_token_ref());
        }
        name.0.push(ObjectNamePart::Identifier(Ident::new(ALTER)));
        let (temporary, if_not_exists) = (false, if_exists);
        let altered =
            Statement::CreateSequence { temporary, if_not_exists, name, sequence_options };
        return Ok(Some(altered));
    };
    let altered = AlterTable {
        name,
        if_exists,
        only: false,
        operations: vec![operation],
        location: None,
        on_cluster: Some(Ident::new(SEQUENCE)),
        table_type: None,
        end_token: end(parser),
    };
    Ok(Some(Statement::AlterTable(altered)))
}

/// The option of a sequence that comes next.
pub(crate) fn sequence_option(
    parser: &mut Parser<'_>,
) -> Result<Option<SequenceOptions>, ParserError> {
    let words = [
        Keyword::AS,
        Keyword::INCREMENT,
        Keyword::MINVALUE,
        Keyword::MAXVALUE,
        Keyword::NO,
        Keyword::START,
        Keyword::RESTART,
        Keyword::CACHE,
        Keyword::CYCLE,
        Keyword::OWNED,
        Keyword::SEQUENCE,
    ];
    Ok(Some(match parser.parse_one_of_keywords(&words) {
        None => return Ok(None),
        Some(Keyword::AS) => SequenceOptions::DataType(parser.parse_data_type()?),
        Some(Keyword::INCREMENT) => {
            let by = parser.parse_keyword(Keyword::BY);
            SequenceOptions::IncrementBy(parser.parse_number()?, by)
        }
        Some(Keyword::MINVALUE) => SequenceOptions::MinValue(Some(parser.parse_number()?)),
        Some(Keyword::MAXVALUE) => SequenceOptions::MaxValue(Some(parser.parse_number()?)),
        Some(Keyword::NO) => {
            let words = [Keyword::MINVALUE, Keyword::MAXVALUE, Keyword::CYCLE];
            match parser.expect_one_of_keywords(&words)? {
                Keyword::MINVALUE => SequenceOptions::MinValue(None),
                Keyword::MAXVALUE => SequenceOptions::MaxValue(None),
                // The parser has it the other way round.
                _ => SequenceOptions::Cycle(true),
            }
        }
        Some(Keyword::START) => {
            let with = parser.parse_keyword(Keyword::WITH);
            SequenceOptions::StartWith(parser.parse_number()?, with)
        }
        Some(Keyword::RESTART) => restart(parser)?,
        Some(Keyword::CACHE) => SequenceOptions::Cache(parser.parse_number()?),
        Some(Keyword::CYCLE) => SequenceOptions::Cycle(false),
        Some(Keyword::SEQUENCE) => {
            parser.expect_keyword(Keyword::NAME)?;
            marked(NAME, parser.parse_object_name(false)?.0)
        }
        Some(_) => {
            parser.expect_keyword(Keyword::BY)?;
            let owner = parser.parse_object_name(false)?;
            let is_none = matches!(&*owner.0, [ObjectNamePart::Identifier(name)]
                if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("none"));
            SequenceOptions::OwnedBy((!is_none).then_some(owner))
        }
    }))
}

/// What is behind the word RESTART.
pub(crate) fn restart(parser: &mut Parser<'_>) -> Result<SequenceOptions, ParserError> {
    let with = parser.parse_keyword(Keyword::WITH);
    let is_number =
        matches!(parser.peek_token_ref().token, Token::Number(..) | Token::Minus | Token::Plus);
    if !with && !is_number {
        return Ok(marked(RESTART, Vec::new()));
    }
    let number: Expr = parser.parse_number()?;
    Ok(marked(RESTART, vec![ObjectNamePart::Identifier(Ident::new(number.to_string()))]))
}

/// An option that the parser has not.
pub(crate) fn marked(mark: &str, mut parts: Vec<ObjectNamePart>) -> SequenceOptions {
    parts.insert(0, ObjectNamePart::Identifier(Ident::new(mark)));
    SequenceOptions::OwnedBy(Some(ObjectName(parts)))
}

/// The mark of an option that the parser has not, and what is behind it.
pub(crate) fn mark_of(option: &SequenceOptions) -> Option<(&str, &[ObjectNamePart])> {
    let SequenceOptions::OwnedBy(Some(name)) = option else { return None };
    match &*name.0 {
        [ObjectNamePart::Identifier(mark), rest @ ..] if mark.value.starts_with('\0') => {
            Some((&mark.value, rest))
        }
        _ => None,
    }
}
