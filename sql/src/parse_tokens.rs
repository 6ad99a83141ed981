//! `TABLE t`, which the parser does not know, in words that it knows: where a query may stand, it
//! is `SELECT * FROM t`.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The tokens of a text, with what the parser does not know replaced.
pub(crate) fn reworded(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_meant = |own: &TokenWithSpan| is_one_of(Some(&own.token), &[Keyword::TABLE]);
    if !tokens.iter().any(is_meant) {
        return tokens;
    }
    // Strings are one by what stands between them, so that is kept.
    let is_word = |own: &Token| !matches!(own, Token::Whitespace(_));
    let words: Vec<&Token> =
        tokens.iter().map(|own| &own.token).filter(|own| is_word(own)).collect();
    let mut reworded = Vec::with_capacity(tokens.len());
    let mut at = 0;
    for own in &tokens {
        if !is_word(&own.token) {
            reworded.push(own.clone());
            continue;
        }
        if is_table_query(&words, at) {
            for token in [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")] {
                reworded.push(TokenWithSpan { token, span: own.span });
            }
        } else {
            reworded.push(own.clone());
        }
        at += 1;
    }
    reworded
}

/// Whether a query `TABLE name` begins at a place: by what stands before and behind it, as the word
/// is part of many statements.
fn is_table_query(tokens: &[&Token], at: usize) -> bool {
    if !is_one_of(token(tokens, at), &[Keyword::TABLE]) {
        return false;
    }
    let Some(end) = end_of_name(tokens, at + 1) else { return false };
    let is_over = match token(tokens, end) {
        None | Some(Token::EOF | Token::SemiColon | Token::RParen) => true,
        next => is_one_of(
            next,
            &[
                Keyword::UNION,
                Keyword::INTERSECT,
                Keyword::EXCEPT,
                Keyword::ORDER,
                Keyword::LIMIT,
                Keyword::OFFSET,
                Keyword::FETCH,
                Keyword::FOR,
                Keyword::WITH,
                Keyword::ON,
                Keyword::RETURNING,
            ],
        ),
    };
    is_over && may_begin_query(tokens, at)
}

/// Whether what stands before a place lets a query begin there.
fn may_begin_query(tokens: &[&Token], at: usize) -> bool {
    let Some(mut before) = at.checked_sub(1) else { return true };
    let words = [
        Keyword::UNION,
        Keyword::INTERSECT,
        Keyword::EXCEPT,
        Keyword::ALL,
        Keyword::DISTINCT,
        Keyword::AS,
        Keyword::EXPLAIN,
    ];
    match token(tokens, before) {
        Some(Token::SemiColon | Token::LParen | Token::RParen) => return true,
        other if is_one_of(other, &words) => return true,
        _ => {}
    }
    // EXPLAIN ANALYZE VERBOSE, or INSERT INTO a.b.
    let options = [Keyword::ANALYZE, Keyword::VERBOSE];
    let explains = is_one_of(token(tokens, before), &options);
    while let Some(earlier) = before.checked_sub(1) {
        let own = token(tokens, earlier);
        if is_one_of(own, &[Keyword::EXPLAIN, Keyword::INTO]) {
            return is_one_of(own, &[Keyword::EXPLAIN]) == explains;
        }
        let goes_on = match own {
            Some(Token::Period) => !explains,
            Some(Token::Word(_)) if !explains => {
                matches!(token(tokens, before), Some(Token::Period))
            }
            other => explains && is_one_of(other, &options),
        };
        if !goes_on {
            return false;
        }
        before = earlier;
    }
    false
}

/// The place behind a name that begins here.
fn end_of_name(tokens: &[&Token], at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        let Some(Token::Word(_)) = token(tokens, at) else { return None };
        at += 1;
        let Some(Token::Period) = token(tokens, at) else { return Some(at) };
        at += 1;
    }
}

fn token<'t>(tokens: &[&'t Token], at: usize) -> Option<&'t Token> {
    tokens.get(at).copied()
}

fn is_one_of(token: Option<&Token>, keywords: &[Keyword]) -> bool {
    matches!(token, Some(Token::Word(word)) if keywords.contains(&word.keyword))
}

#[cfg(test)]
mod tests {
    use crate::parse::parse;

    fn parsed(sql: &str) -> Vec<String> {
        parse(sql).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_table_is_a_query_where_one_may_stand() {
        for (sql, meant) in [
            ("table t", "select * from t"),
            ("table a.t order by 1 limit 2;", "select * from a.t order by 1 limit 2"),
            ("(table t) union all table u", "(select * from t) union all select * from u"),
            ("with x as (table t) table x", "with x as (select * from t) select * from x"),
            ("create table n as table t", "create table n as select * from t"),
            ("insert into a.n table t", "insert into a.n select * from t"),
            ("insert into n (a) table t", "insert into n (a) select * from t"),
            ("explain analyze table t", "explain analyze select * from t"),
            ("select (table t)", "select (select * from t)"),
        ] {
            assert_eq!(parsed(sql), parsed(meant), "{sql}");
        }
        for sql in ["create table t (a int)", "drop table t", "truncate table t"] {
            assert!(!parsed(sql).is_empty(), "{sql}");
        }
        for sql in ["table", "table t where true", "table t x", "analyze table t u"] {
            assert!(parse(sql).is_err(), "{sql}");
        }
    }
}
