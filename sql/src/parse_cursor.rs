//! DECLARE, FETCH and MOVE, as PostgreSQL has them. In the syntax tree MOVE is a FETCH with the
//! word IN, and FETCH one with FROM, whatever stands in the text.

use sqlparser::ast::{
    Declare, DeclareSeparator, DeclareType, FetchDirection, FetchPosition, Statement, Value,
    ValueWithSpan,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// How the message begins that two options exclude each other, which is no error of syntax.
pub(crate) const CANNOT_SPECIFY_BOTH: &str = "cannot specify both";

/// The statement that comes next, if it declares or moves a cursor.
pub(crate) fn parse_cursor(parser: &mut Parser<'_>) -> Result<Option<Statement>, ParserError> {
    let Token::Word(word) = &parser.peek_token_ref().token else { return Ok(None) };
    if word.quote_style.is_some() {
        return Ok(None);
    }
    let position = match word.keyword {
        Keyword::DECLARE => {
            parser.next_token();
            let stmts = vec![parse_declare(parser)?];
            let separator = DeclareSeparator::Semicolon;
            return Ok(Some(Statement::Declare { stmts, separator }));
        }
        Keyword::FETCH => FetchPosition::From,
        _ if word.value.eq_ignore_ascii_case("move") => FetchPosition::In,
        _ => return Ok(None),
    };
    parser.next_token();
    let direction = parse_direction(parser)?;
    // Either word, or none: they mean the same.
    let _ = parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::IN]);
    let name = parser.parse_identifier()?;
    Ok(Some(Statement::Fetch { name, direction, position, into: None }))
}

fn parse_declare(parser: &mut Parser<'_>) -> Result<Declare, ParserError> {
    let mut declare = Declare {
        names: vec![parser.parse_identifier()?],
        data_type: None,
        assignment: None,
        declare_type: Some(DeclareType::Cursor),
        binary: None,
        sensitive: None,
        scroll: None,
        hold: None,
        for_query: None,
    };
    let options =
        [Keyword::BINARY, Keyword::INSENSITIVE, Keyword::ASENSITIVE, Keyword::SCROLL, Keyword::NO];
    while let Some(option) = parser.parse_one_of_keywords(&options) {
        let (place, value, both) = match option {
            Keyword::BINARY => {
                declare.binary = Some(true);
                continue;
            }
            Keyword::NO => {
                parser.expect_keyword_is(Keyword::SCROLL)?;
                (&mut declare.scroll, false, "SCROLL and NO SCROLL")
            }
            Keyword::SCROLL => (&mut declare.scroll, true, "SCROLL and NO SCROLL"),
            option => {
                let is_insensitive = option == Keyword::INSENSITIVE;
                (&mut declare.sensitive, is_insensitive, "INSENSITIVE and ASENSITIVE")
            }
        };
        if place.is_some_and(|other| other != value) {
            return Err(ParserError::ParserError(format!("{CANNOT_SPECIFY_BOTH} {both}")));
        }
        *place = Some(value);
    }
    parser.expect_keyword_is(Keyword::CURSOR)?;
    declare.hold = match parser.parse_one_of_keywords(&[Keyword::WITH, Keyword::WITHOUT]) {
        None => None,
        Some(word) => {
            parser.expect_keyword_is(Keyword::HOLD)?;
            Some(word == Keyword::WITH)
        }
    };
    parser.expect_keyword_is(Keyword::FOR)?;
    declare.for_query = Some(parser.parse_query()?);
    Ok(declare)
}

/// Which rows are wanted: the next without a word.
fn parse_direction(parser: &mut Parser<'_>) -> Result<FetchDirection, ParserError> {
    // A cursor may be called as a direction is.
    if matches!(parser.peek_nth_token_ref(1).token, Token::EOF | Token::SemiColon) {
        return Ok(FetchDirection::Next);
    }
    let words = [
        Keyword::NEXT,
        Keyword::PRIOR,
        Keyword::FIRST,
        Keyword::LAST,
        Keyword::ABSOLUTE,
        Keyword::RELATIVE,
        Keyword::ALL,
        Keyword::FORWARD,
        Keyword::BACKWARD,
    ];
    Ok(match parser.parse_one_of_keywords(&words) {
        Some(Keyword::NEXT) => FetchDirection::Next,
        Some(Keyword::PRIOR) => FetchDirection::Prior,
        Some(Keyword::FIRST) => FetchDirection::First,
        Some(Keyword::LAST) => FetchDirection::Last,
        Some(Keyword::ABSOLUTE) => FetchDirection::Absolute { limit: expect_number(parser)? },
        Some(Keyword::RELATIVE) => FetchDirection::Relative { limit: expect_number(parser)? },
        Some(Keyword::ALL) => FetchDirection::All,
        Some(Keyword::FORWARD) if parser.parse_keyword(Keyword::ALL) => FetchDirection::ForwardAll,
        Some(Keyword::FORWARD) => FetchDirection::Forward { limit: parse_number(parser)? },
        Some(_) if parser.parse_keyword(Keyword::ALL) => FetchDirection::BackwardAll,
        Some(_) => FetchDirection::Backward { limit: parse_number(parser)? },
        None => match parse_number(parser)? {
            Some(limit) => FetchDirection::Count { limit },
            None => FetchDirection::Next,
        },
    })
}

fn expect_number(parser: &mut Parser<'_>) -> Result<ValueWithSpan, ParserError> {
    match parse_number(parser)? {
        Some(number) => Ok(number),
        None => parser.expected_ref("a number", parser.peek_token_ref()),
    }
}

/// The whole number of four bytes that comes next, if one does.
fn parse_number(parser: &mut Parser<'_>) -> Result<Option<ValueWithSpan>, ParserError> {
    let sign = match &parser.peek_token_ref().token {
        Token::Minus => Some("-"),
        Token::Plus => Some(""),
        Token::Number(..) => None,
        _ => return Ok(None),
    };
    if sign.is_some() {
        parser.next_token();
    }
    let TokenWithSpan { token, span } = parser.peek_token_ref();
    match token {
        Token::Number(digits, false) if digits.parse::<i32>().is_ok() => {
            let value = Value::Number(format!("{}{digits}", sign.unwrap_or_default()), false);
            let number = ValueWithSpan { value, span: *span };
            parser.next_token();
            Ok(Some(number))
        }
        _ => parser.expected_ref("a whole number", parser.peek_token_ref()),
    }
}

/// Where `WHERE CURRENT OF` stands, which the parser does not know.
pub(crate) fn current_of(tokens: &[TokenWithSpan]) -> Option<Span> {
    let words = [Keyword::WHERE, Keyword::CURRENT, Keyword::OF];
    let is_seen = |own: &&TokenWithSpan| !matches!(own.token, Token::Whitespace(_));
    // The last two.
    let mut before = [(Keyword::NoKeyword, Span::empty()); 2];
    for own in tokens.iter().filter(is_seen) {
        let keyword = match &own.token {
            Token::Word(word) if word.quote_style.is_none() => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let [first, second] = before;
        if [first.0, second.0, keyword] == words {
            return Some(second.1);
        }
        before = [second, (keyword, own.span)];
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use crate::error::SqlState;
    use crate::parse::parse;

    #[test]
    fn all_forms_of_fetch_are_read() {
        for (sql, meant) in [
            ("fetch c", "FETCH NEXT FROM c"),
            ("FETCH next", "FETCH NEXT FROM next"),
            ("fetch from c", "FETCH NEXT FROM c"),
            ("fetch prior in c", "FETCH PRIOR FROM c"),
            ("fetch 5 c", "FETCH 5 FROM c"),
            ("fetch -5 from c", "FETCH -5 FROM c"),
            ("fetch +5 c", "FETCH 5 FROM c"),
            ("fetch absolute -1 c", "FETCH ABSOLUTE -1 FROM c"),
            ("fetch relative 0 from \"C d\"", "FETCH RELATIVE 0 FROM \"C d\""),
            ("fetch all c", "FETCH ALL FROM c"),
            ("fetch forward c", "FETCH FORWARD FROM c"),
            ("fetch forward 3 c", "FETCH FORWARD 3 FROM c"),
            ("fetch forward all in c", "FETCH FORWARD ALL FROM c"),
            ("fetch backward all c", "FETCH BACKWARD ALL FROM c"),
            ("move last c", "FETCH LAST IN c"),
            ("move c", "FETCH NEXT IN c"),
        ] {
            let parsed: Vec<String> = parse(sql).unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(parsed, [meant], "{sql}");
        }
        for sql in ["fetch", "fetch absolute c", "fetch 5", "fetch 3000000000 c", "fetch - c"] {
            assert_eq!(parse(sql).unwrap_err().state(), SqlState::SYNTAX_ERROR, "{sql}");
        }
    }

    #[test]
    fn options_of_a_cursor_exclude_each_other() {
        for sql in [
            "declare c cursor for select 1",
            "declare c insensitive scroll cursor without hold for values (1)",
            "declare c no scroll asensitive cursor with hold for select a from t for update",
        ] {
            assert!(parse(sql).is_ok(), "{sql}");
        }
        for (sql, state) in [
            ("declare c scroll no scroll cursor for select 1", "42P11"),
            ("declare c insensitive asensitive cursor for select 1", "42P11"),
            ("declare c cursor with for select 1", "42601"),
            ("declare c cursor", "42601"),
        ] {
            assert_eq!(parse(sql).unwrap_err().state().code(), state, "{sql}");
        }
    }

    #[test]
    fn rows_of_cursors_are_not_changed() {
        let error = parse("delete from t where  current /* row */ of c").unwrap_err();
        assert_eq!((error.state().code(), error.position()), ("0A000", Some(22)));
        assert!(parse("select current, of from t where current = of").is_ok());
    }
}
