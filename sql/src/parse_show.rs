//! SHOW, as PostgreSQL has it.

use sqlparser::ast::{Ident, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};

use crate::bind::fold;

/// The statement behind the word SHOW. A name with dots is one word.
pub(crate) fn parse_show(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    const SEVERAL: [(&[Keyword], &str); 3] = [
        (
            &[Keyword::TRANSACTION, Keyword::ISOLATION, Keyword::LEVEL],
            "transaction isolation level",
        ),
        (&[Keyword::TIME, Keyword::ZONE], "time zone"),
        (&[Keyword::SESSION, Keyword::AUTHORIZATION], "session authorization"),
    ];
    let several = SEVERAL.iter().find(|(words, _)| parser.parse_keywords(words));
    let name = match several {
        Some((_, name)) => (*name).to_owned(),
        None => {
            let name = parser.parse_object_name(false)?;
            let parts = name.0.iter().filter_map(|part| part.as_ident());
            parts.map(fold).collect::<Vec<_>>().join(".")
        }
    };
    Ok(Statement::ShowVariable { variable: vec![Ident::with_quote('"', name)] })
}
