//! CREATE and ALTER ROLE, as PostgreSQL has them; USER and GROUP are other words for it.

use sqlparser::ast::{
    AlterRoleOperation, CreateRole, Expr, Ident, ObjectName, Password, RoleKeyword, RoleOption,
    Statement, Value,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

const ROLES: [Keyword; 3] = [Keyword::ROLE, Keyword::USER, Keyword::GROUP];

/// The statement that comes next, if it is about roles.
pub(crate) fn parse_role(parser: &mut Parser<'_>) -> Result<Option<Statement>, ParserError> {
    let (first, second, third) = (
        keyword(&parser.peek_nth_token(0)),
        keyword(&parser.peek_nth_token(1)),
        keyword(&parser.peek_nth_token(2)),
    );
    let is_role = ROLES.contains(&second) && third != Keyword::MAPPING;
    if !is_role || !matches!(first, Keyword::CREATE | Keyword::ALTER) {
        return Ok(None);
    }
    // Changes of settings and names are left to the parser, and refused later.
    let is_option = !matches!(
        keyword(&parser.peek_nth_token(3)),
        Keyword::RENAME
            | Keyword::SET
            | Keyword::RESET
            | Keyword::IN
            | Keyword::ADD
            | Keyword::DROP
    );
    if first == Keyword::ALTER && !is_option {
        parser.next_token();
        parser.next_token();
        return parser.parse_alter_role().map(Some);
    }
    parser.next_token();
    parser.next_token();
    if first == Keyword::ALTER {
        return alter(parser).map(Some);
    }
    create(parser, second == Keyword::USER).map(Some)
}

fn keyword(token: &TokenWithSpan) -> Keyword {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn create(parser: &mut Parser<'_>, logs_in: bool) -> Result<Statement, ParserError> {
    let name = parser.parse_identifier()?;
    let mut role = CreateRole {
        keyword: RoleKeyword::Role,
        names: vec![ObjectName::from(vec![name])],
        if_not_exists: false,
        login: logs_in.then_some(true),
        inherit: None,
        bypassrls: None,
        password: None,
        superuser: None,
        create_db: None,
        create_role: None,
        replication: None,
        connection_limit: None,
        valid_until: None,
        in_role: Vec::new(),
        in_group: Vec::new(),
        role: Vec::new(),
        user: Vec::new(),
        admin: Vec::new(),
        authorization_owner: None,
    };
    let mut said: Vec<Keyword> = Vec::new();
    let _ = parser.parse_keyword(Keyword::WITH);
    loop {
        let members = [Keyword::IN, Keyword::ROLE, Keyword::USER, Keyword::ADMIN];
        if let Some(word) = parser.parse_one_of_keywords(&members) {
            once(&mut said, word, parser)?;
            let list = match word {
                Keyword::IN => {
                    parser.expect_one_of_keywords(&[Keyword::ROLE, Keyword::GROUP])?;
                    &mut role.in_role
                }
                Keyword::ADMIN => &mut role.admin,
                _ => &mut role.role,
            };
            list.extend(names(parser)?);
            continue;
        }
        match option(parser, &mut said)? {
            None => return Ok(Statement::CreateRole(role)),
            Some(RoleOption::Login(own)) => role.login = Some(own),
            Some(RoleOption::Inherit(own)) => role.inherit = Some(own),
            Some(RoleOption::BypassRLS(own)) => role.bypassrls = Some(own),
            Some(RoleOption::Password(own)) => role.password = Some(own),
            Some(RoleOption::SuperUser(own)) => role.superuser = Some(own),
            Some(RoleOption::CreateDB(own)) => role.create_db = Some(own),
            Some(RoleOption::CreateRole(own)) => role.create_role = Some(own),
            Some(RoleOption::Replication(own)) => role.replication = Some(own),
            Some(RoleOption::ConnectionLimit(own)) => role.connection_limit = Some(own),
            Some(RoleOption::ValidUntil(own)) => role.valid_until = Some(own),
        }
    }
}

fn alter(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let name = parser.parse_identifier()?;
    let _ = parser.parse_keyword(Keyword::WITH);
    let (mut options, mut said) = (Vec::new(), Vec::new());
    while let Some(own) = option(parser, &mut said)? {
        options.push(own);
    }
    Ok(Statement::AlterRole { name, operation: AlterRoleOperation::WithOptions { options } })
}

fn names(parser: &mut Parser<'_>) -> Result<Vec<Ident>, ParserError> {
    parser.parse_comma_separated(Parser::parse_identifier)
}

/// An option may be said once, whether with NO or without.
fn once(
    said: &mut Vec<Keyword>,
    word: Keyword,
    parser: &mut Parser<'_>,
) -> Result<(), ParserError> {
    if said.contains(&word) {
        parser.prev_token();
        return parser.expected_ref("each option once", parser.peek_token_ref());
    }
    said.push(word);
    Ok(())
}

/// An option that is on by one word and off by another.
type Flag = (Keyword, Keyword, fn(bool) -> RoleOption);

/// The option that comes next.
fn option(
    parser: &mut Parser<'_>,
    said: &mut Vec<Keyword>,
) -> Result<Option<RoleOption>, ParserError> {
    const FLAGS: [Flag; 7] = [
        (Keyword::LOGIN, Keyword::NOLOGIN, RoleOption::Login),
        (Keyword::INHERIT, Keyword::NOINHERIT, RoleOption::Inherit),
        (Keyword::BYPASSRLS, Keyword::NOBYPASSRLS, RoleOption::BypassRLS),
        (Keyword::SUPERUSER, Keyword::NOSUPERUSER, RoleOption::SuperUser),
        (Keyword::CREATEDB, Keyword::NOCREATEDB, RoleOption::CreateDB),
        (Keyword::CREATEROLE, Keyword::NOCREATEROLE, RoleOption::CreateRole),
        (Keyword::REPLICATION, Keyword::NOREPLICATION, RoleOption::Replication),
    ];
    for (yes, no, make) in FLAGS {
        if let Some(word) = parser.parse_one_of_keywords(&[yes, no]) {
            once(said, yes, parser)?;
            return Ok(Some(make(word == yes)));
        }
    }
    let is_encrypted = parser.parse_keyword(Keyword::ENCRYPTED);
    if parser.parse_keyword(Keyword::PASSWORD) {
        once(said, Keyword::PASSWORD, parser)?;
        if !is_encrypted && parser.parse_keyword(Keyword::NULL) {
            return Ok(Some(RoleOption::Password(Password::NullPassword)));
        }
        return Ok(Some(RoleOption::Password(Password::Password(text(parser)?))));
    }
    if is_encrypted {
        return parser.expected_ref("PASSWORD", parser.peek_token_ref());
    }
    if parser.parse_keywords(&[Keyword::VALID, Keyword::UNTIL]) {
        once(said, Keyword::VALID, parser)?;
        return Ok(Some(RoleOption::ValidUntil(text(parser)?)));
    }
    if parser.parse_keywords(&[Keyword::CONNECTION, Keyword::LIMIT]) {
        once(said, Keyword::CONNECTION, parser)?;
        let sign = if parser.consume_token(&Token::Minus) { "-" } else { "" };
        let number = parser.parse_number_value()?;
        let number = Value::Number(format!("{sign}{}", number.value), false);
        return Ok(Some(RoleOption::ConnectionLimit(Expr::Value(number.into()))));
    }
    Ok(None)
}

/// A text in quotes.
fn text(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    match parser.parse_value()? {
        own if matches!(
            own.value,
            Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_)
        ) =>
        {
            Ok(Expr::Value(own))
        }
        _ => {
            parser.prev_token();
            parser.expected_ref("a text in quotes", parser.peek_token_ref())
        }
    }
}
