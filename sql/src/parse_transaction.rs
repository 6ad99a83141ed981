//! BEGIN and SET TRANSACTION with DEFERRABLE, which the parser does not know.

use sqlparser::ast::{
    BeginTransactionKind, Set, Statement, TransactionAccessMode, TransactionIsolationLevel,
    TransactionMode, TransactionModifier, Value, ValueWithSpan,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token};

/// The statement that comes next, if it begins a transaction or says how one is to be. Of BEGIN
/// DEFERRABLE is the modifier `Deferred`, NOT DEFERRABLE is `Immediate`; of SET TRANSACTION they
/// are the Boolean in the place of a snapshot. PostgreSQL has nothing else there.
pub(crate) fn parse_transaction(parser: &mut Parser<'_>) -> Result<Option<Statement>, ParserError> {
    if parser.parse_keyword(Keyword::BEGIN) {
        let kind = match parser.parse_one_of_keywords(&[Keyword::WORK, Keyword::TRANSACTION]) {
            Some(Keyword::WORK) => Some(BeginTransactionKind::Work),
            Some(_) => Some(BeginTransactionKind::Transaction),
            None => None,
        };
        return begin(parser, true, kind).map(Some);
    }
    if parser.parse_keywords(&[Keyword::START, Keyword::TRANSACTION]) {
        return begin(parser, false, Some(BeginTransactionKind::Transaction)).map(Some);
    }
    if follows(parser, 3, Keyword::SNAPSHOT) || follows(parser, 2, Keyword::SNAPSHOT) {
        return Ok(None);
    }
    let of_session = [
        Keyword::SET,
        Keyword::SESSION,
        Keyword::CHARACTERISTICS,
        Keyword::AS,
        Keyword::TRANSACTION,
    ];
    let session = parser.parse_keywords(&of_session);
    let is_set = session
        || parser.parse_keywords(&[Keyword::SET, Keyword::TRANSACTION])
        || parser.parse_keywords(&[Keyword::SET, Keyword::LOCAL, Keyword::TRANSACTION])
        || parser.parse_keywords(&[Keyword::SET, Keyword::SESSION, Keyword::TRANSACTION]);
    if !is_set {
        return Ok(None);
    }
    let (modes, deferrable) = modes(parser)?;
    if modes.is_empty() && deferrable.is_none() {
        return parser.expected_ref("transaction mode", parser.peek_token_ref());
    }
    let snapshot =
        deferrable.map(|is_on| ValueWithSpan { value: Value::Boolean(is_on), span: Span::empty() });
    Ok(Some(Statement::Set(Set::SetTransaction { modes, snapshot, session })))
}

/// Whether a keyword is the token so far ahead.
fn follows(parser: &Parser<'_>, ahead: usize, wanted: Keyword) -> bool {
    match &parser.peek_nth_token_ref(ahead).token {
        Token::Word(word) => word.quote_style.is_none() && word.keyword == wanted,
        _ => false,
    }
}

fn begin(
    parser: &mut Parser<'_>,
    begin: bool,
    transaction: Option<BeginTransactionKind>,
) -> Result<Statement, ParserError> {
    let (modes, deferrable) = modes(parser)?;
    let modifier = deferrable.map(|is_on| match is_on {
        true => TransactionModifier::Deferred,
        false => TransactionModifier::Immediate,
    });
    Ok(Statement::StartTransaction {
        modes,
        begin,
        transaction,
        modifier,
        statements: Vec::new(),
        exception: None,
        has_end_keyword: false,
    })
}

/// Modes, between which a comma may stand; and whether DEFERRABLE is among them.
fn modes(parser: &mut Parser<'_>) -> Result<(Vec<TransactionMode>, Option<bool>), ParserError> {
    let (mut modes, mut deferrable, mut is_wanted) = (Vec::new(), None, false);
    loop {
        if parser.parse_keywords(&[Keyword::ISOLATION, Keyword::LEVEL]) {
            modes.push(TransactionMode::IsolationLevel(level(parser)?));
        } else if parser.parse_keywords(&[Keyword::READ, Keyword::ONLY]) {
            modes.push(TransactionMode::AccessMode(TransactionAccessMode::ReadOnly));
        } else if parser.parse_keywords(&[Keyword::READ, Keyword::WRITE]) {
            modes.push(TransactionMode::AccessMode(TransactionAccessMode::ReadWrite));
        } else if parser.parse_keyword(Keyword::DEFERRABLE) {
            deferrable = Some(true);
        } else if parser.parse_keywords(&[Keyword::NOT, Keyword::DEFERRABLE]) {
            deferrable = Some(false);
        } else if is_wanted {
            return parser.expected_ref("transaction mode", parser.peek_token_ref());
        } else {
            return Ok((modes, deferrable));
        }
        is_wanted = parser.consume_token(&Token::Comma);
    }
}

fn level(parser: &mut Parser<'_>) -> Result<TransactionIsolationLevel, ParserError> {
    if parser.parse_keywords(&[Keyword::READ, Keyword::UNCOMMITTED]) {
        Ok(TransactionIsolationLevel::ReadUncommitted)
    } else if parser.parse_keywords(&[Keyword::READ, Keyword::COMMITTED]) {
        Ok(TransactionIsolationLevel::ReadCommitted)
    } else if parser.parse_keywords(&[Keyword::REPEATABLE, Keyword::READ]) {
        Ok(TransactionIsolationLevel::RepeatableRead)
    } else if parser.parse_keyword(Keyword::SERIALIZABLE) {
        Ok(TransactionIsolationLevel::Serializable)
    } else {
        parser.expected_ref("isolation level", parser.peek_token_ref())
    }
}
