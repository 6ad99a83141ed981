//! The columns behind ON DELETE SET NULL and SET DEFAULT, which the parser does not know.
//!
//! They are moved behind the columns that the constraint refers to, with [`MARK`] before them:
//! `REFERENCES p (a) ON DELETE SET NULL (x)` is read as `REFERENCES p (a, MARK, x) ON DELETE SET
//! NULL`. No text has that name.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// What stands before the columns that are set.
pub(crate) const MARK: &str = "\0set";

/// Moves the columns behind ON DELETE SET NULL and SET DEFAULT.
pub(crate) fn move_set_columns(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let has_any = tokens.iter().any(|own| keyword(&own.token) == Keyword::REFERENCES);
    if !has_any {
        return tokens;
    }
    let mut moved: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // Where the columns of the last REFERENCES end, and whether they are said.
    let mut place: Option<(usize, bool)> = None;
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        let is_references = keyword(&token.token) == Keyword::REFERENCES;
        let is_open = token.token == Token::LParen && sets_columns(&moved);
        if is_open && let Some((at, has_columns)) = place.take() {
            let (mut list, mut is_closed) = (Vec::new(), false);
            for own in rest.by_ref() {
                is_closed = own.token == Token::RParen;
                if is_closed {
                    break;
                }
                list.push(own);
            }
            if is_closed {
                insert(&mut moved, at, has_columns, list, &token);
            } else {
                // The parser finds that its end is missing.
                moved.push(token);
                moved.extend(list);
            }
            continue;
        }
        moved.push(token);
        if is_references {
            place = Some(columns_of(&mut moved, &mut rest));
        }
    }
    moved
}

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Whether ON DELETE SET NULL or SET DEFAULT comes last.
fn sets_columns(tokens: &[TokenWithSpan]) -> bool {
    let words = tokens.iter().rev().filter(|own| !is_space(own)).map(|own| keyword(&own.token));
    let last: Vec<Keyword> = words.take(4).collect();
    matches!(*last, [Keyword::NULL | Keyword::DEFAULT, Keyword::SET, Keyword::DELETE, Keyword::ON])
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// Passes the name of a table by, and its columns. Where these end, and whether they are said.
fn columns_of(
    moved: &mut Vec<TokenWithSpan>,
    rest: &mut std::iter::Peekable<std::vec::IntoIter<TokenWithSpan>>,
) -> (usize, bool) {
    let (mut end, mut wants_name) = (moved.len(), true);
    while let Some(next) = rest.peek() {
        let is_part = match next.token {
            Token::Whitespace(_) => true,
            Token::Word(_) if wants_name => true,
            Token::Period if !wants_name => true,
            _ => false,
        };
        if !is_part {
            break;
        }
        if !is_space(next) {
            wants_name = !wants_name;
        }
        let is_last = !is_space(next);
        moved.extend(rest.next());
        if is_last {
            end = moved.len();
        }
    }
    if rest.peek().is_none_or(|next| next.token != Token::LParen) {
        return (end, false);
    }
    for next in rest.by_ref() {
        let is_end = next.token == Token::RParen;
        moved.push(next);
        if is_end {
            return (moved.len() - 1, true);
        }
    }
    (moved.len(), false)
}

/// Puts columns where they are read.
fn insert(
    moved: &mut Vec<TokenWithSpan>,
    at: usize,
    has_columns: bool,
    list: Vec<TokenWithSpan>,
    open: &TokenWithSpan,
) {
    let token = |token: Token| TokenWithSpan { token, span: open.span };
    let mark = Word { value: MARK.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
    let mut added = vec![token(if has_columns { Token::Comma } else { Token::LParen })];
    added.extend([token(Token::Word(mark)), token(Token::Comma)]);
    added.extend(list);
    if !has_columns {
        added.push(token(Token::RParen));
    }
    moved.splice(at..at, added);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    fn moved(sql: &str) -> String {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location().unwrap();
        let moved = move_set_columns(tokens);
        moved.iter().map(|own| own.token.to_string()).collect::<String>().replace('\0', "")
    }

    #[test]
    fn columns_that_are_set_stand_behind_those_that_are_referred_to() {
        for (sql, wanted) in [
            ("references p on delete set null (b)", "references p(\"set\",b) on delete set null "),
            (
                "references s.p (x, y) on update cascade on delete set default (a, b), c int",
                "references s.p (x, y,\"set\",a, b) on update cascade on delete set default , c int",
            ),
            (
                "a int references p (x) on delete set null, check (a > (1))",
                "a int references p (x) on delete set null, check (a > (1))",
            ),
            ("references p on update set null (b)", "references p on update set null (b)"),
            ("references p on delete set null (b", "references p on delete set null (b"),
            ("references", "references"),
            ("references p (", "references p ("),
            ("on delete set null (b)", "on delete set null (b)"),
        ] {
            assert_eq!(moved(sql), wanted);
        }
    }
}
