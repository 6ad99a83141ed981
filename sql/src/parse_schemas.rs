//! ALTER TABLE, VIEW and SEQUENCE with SET SCHEMA, and what CREATE SCHEMA creates within the
//! schema, as PostgreSQL has them.

use sqlparser::ast::{AlterView, AlterViewOperation, Ident, ObjectName, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

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

/// Before the texts of what is created within CREATE SCHEMA, in the place of a schema that it would
/// be a copy of.
pub(crate) const ELEMENTS: &str = "\0elements";

/// Reads what is created within CREATE SCHEMA, up to the end of the statement. The parser takes a
/// word that it does not expect for an alias, so each is cut out before it is parsed.
pub(crate) fn parse_elements(parser: &mut Parser<'_>, statement: &mut Statement) {
    let Statement::CreateSchema { clone, .. } = statement else { return };
    if parser.peek_one_of_keywords(&[Keyword::CREATE, Keyword::GRANT]).is_none() {
        return;
    }
    let mut texts: Vec<String> = Vec::new();
    let mut depth = 0_usize;
    // Behind one of these the words are rights, or WITH GRANT OPTION.
    let mut goes_on = false;
    loop {
        let next = parser.peek_token_ref();
        let is_start = !goes_on
            && matches!(&next.token, Token::Word(word)
            if word.quote_style.is_none()
                && matches!(word.keyword, Keyword::CREATE | Keyword::GRANT));
        goes_on = match &next.token {
            Token::Comma => true,
            Token::Word(word) => matches!(word.keyword, Keyword::GRANT | Keyword::WITH),
            _ => false,
        };
        match next.token {
            Token::SemiColon | Token::EOF => break,
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        let text = text_of(&parser.next_token().token);
        match texts.last_mut() {
            Some(last) if !is_start || depth > 0 => {
                last.push(' ');
                last.push_str(&text);
            }
            _ => texts.push(text),
        }
    }
    texts.insert(0, ELEMENTS.to_owned());
    *clone = Some(ObjectName::from(texts.into_iter().map(Ident::new).collect::<Vec<Ident>>()));
}

/// A token as it is read again: what it shows of itself has no quotes doubled.
fn text_of(token: &Token) -> String {
    let quoted = |text: &str, quote: char| {
        let doubled = text.replace(quote, &format!("{quote}{quote}"));
        format!("{quote}{doubled}{quote}")
    };
    match token {
        // What was escaped is not any more, and needs no escapes in a plain literal.
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::NationalStringLiteral(text)
        | Token::UnicodeStringLiteral(text) => quoted(text, '\''),
        Token::Word(word) if word.quote_style.is_some() => quoted(&word.value, '"'),
        other => other.to_string(),
    }
}
