//! `FOR NO KEY UPDATE` and `FOR KEY SHARE`, which the parser does not know. They keep others from
//! less than `FOR UPDATE` and `FOR SHARE` do, as which they are taken: a row has one kind of lock.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// Makes the weaker locks of rows those that the parser knows. Other tokens stay where they are.
pub(crate) fn plain_locks(tokens: &mut [TokenWithSpan]) {
    // The words before, the last first, and where they are.
    let mut before = [(Keyword::NoKeyword, 0); 3];
    let mut weaker = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let word = match &token.token {
            Token::Whitespace(_) => continue,
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let [last, second, third] = before;
        match (third.0, second.0, last.0, word) {
            (Keyword::FOR, Keyword::NO, Keyword::KEY, Keyword::UPDATE) => {
                weaker.extend([second.1, last.1]);
            }
            (_, Keyword::FOR, Keyword::KEY, Keyword::SHARE) => weaker.push(last.1),
            _ => {}
        }
        before = [(word, at), last, second];
    }
    for at in weaker {
        if let Some(token) = tokens.get_mut(at) {
            token.token = Token::Whitespace(Whitespace::Space);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use crate::parse::parse;

    #[test]
    fn weaker_locks_are_those_that_there_are() {
        for (sql, same) in [
            ("select 1 from t for no key update", "select 1 from t for update"),
            (
                "select 1 from t FOR\nKEY  SHARE OF t nowait",
                "select 1 from t for share of t nowait",
            ),
            (
                "select 1 from t, u for no key update of t nowait for key share of u skip locked",
                "select 1 from t, u for update of t nowait for share of u skip locked",
            ),
        ] {
            assert_eq!(parse(sql).unwrap(), parse(same).unwrap());
        }
        for sql in [
            "select 1 from t for no update",
            "select 1 from t for key update",
            "select 1 from t for key",
            "for key share",
        ] {
            assert!(parse(sql).is_err(), "{sql}");
        }
        // A column that is called so is none.
        assert!(parse("select no, key from t where share = 1 for update").is_ok());
    }
}
