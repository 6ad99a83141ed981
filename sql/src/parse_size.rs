//! How many tokens a text has, at most or about: counted before any is made, for a token takes a
//! hundred times the memory of the one byte that it may be.

/// Most tokens of a text. Spaces are some, too.
pub(crate) const MAX_TOKENS: usize = 2_000_000;

/// Whether a text has so many tokens that they would take too much memory.
pub(crate) fn has_too_many_tokens(sql: &str) -> bool {
    // Each is a byte at least.
    sql.len() > MAX_TOKENS && Tokens { rest: sql.as_bytes() }.nth(MAX_TOKENS).is_some()
}

/// The tokens of a text, as PostgreSQL's rules say where they end. One that is never ended is one.
struct Tokens<'t> {
    rest: &'t [u8],
}

impl Iterator for Tokens<'_> {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        let (first, after) = self.rest.split_first()?;
        let second = after.first();
        let length = match (first, second) {
            (b'e' | b'E' | b'x' | b'X', Some(b'\'')) => 1 + quoted(after, b'\'', true),
            (b'b' | b'B' | b'n' | b'N', Some(b'\'')) => 1 + quoted(after, b'\'', false),
            (b'u' | b'U', Some(b'&')) if matches!(after.get(1), Some(b'\'' | b'"')) => 2,
            (b'\'' | b'"', _) => quoted(self.rest, *first, false),
            (b'-', Some(b'-')) => until(self.rest, b"\n"),
            (b'/', Some(b'*')) => comment(self.rest),
            (b'$', _) => dollar(self.rest),
            (b'0'..=b'9', _) => number(self.rest),
            (first, _) if is_of_word(*first) => run(self.rest, is_of_word),
            _ => 1,
        };
        self.rest = self.rest.get(length..).unwrap_or_default();
        Some(())
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

fn run(bytes: &[u8], is_in: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| is_in(**byte)).count()
}

/// A number, without a word behind it.
fn number(bytes: &[u8]) -> usize {
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'_';
    let mut length = run(bytes, |byte| is_digit(byte) || byte == b'.');
    if let Some([b'e' | b'E', exponent @ ..]) = bytes.get(length..) {
        let sign = usize::from(matches!(exponent, [b'+' | b'-', ..]));
        let digits = exponent.get(sign..).map_or(0, |digits| run(digits, is_digit));
        length += if digits > 0 { 1 + sign + digits } else { 0 };
    }
    length
}

/// What is between quotes, with them. A quote stands for itself where there are two, or behind a
/// backslash if that escapes.
fn quoted(bytes: &[u8], quote: u8, escapes: bool) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if escapes && *byte == b'\\' {
            at += 1;
        } else if *byte == quote {
            match bytes.get(at) {
                Some(next) if *next == quote => at += 1,
                _ => break,
            }
        }
    }
    at
}

/// Up to the end of some bytes, or of all.
fn until(bytes: &[u8], end: &[u8]) -> usize {
    let found = bytes.windows(end.len()).position(|own| own == end);
    found.map_or(bytes.len(), |at| at + end.len())
}

/// A comment, with those within it.
fn comment(bytes: &[u8]) -> usize {
    let (mut at, mut open) = (2, 1_usize);
    while open > 0 && at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (open, at) = (open + 1, at + 2),
            Some(b"*/") => (open, at) = (open - 1, at + 2),
            _ => at += 1,
        }
    }
    at
}

/// A text between `$tag$`, or a parameter.
fn dollar(bytes: &[u8]) -> usize {
    let tag =
        1 + bytes.get(1..).map_or(0, |rest| run(rest, |byte| byte != b'$' && is_of_word(byte)));
    match (bytes.get(..=tag), bytes.get(tag + 1..)) {
        (Some(mark), Some(rest)) if mark.ends_with(b"$") => mark.len() + until(rest, mark),
        _ => tag,
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn count(sql: &str) -> usize {
        Tokens { rest: sql.as_bytes() }.count()
    }

    #[test]
    fn tokens_are_as_many_as_are_made() {
        for sql in [
            "select 1, 2.5e-3, 1e'a b', 0.5, .5, 'it''s', \"a \"\"b\"\"\", $1 from t;",
            r"select E'\'a b', e'\\', X'1F', B'01', N'a b', 'C:\', 'a b'",
            "select $$ a 'b' $$, $tag$ $$ ' $tag$, a$b, $12",
            "select /* a /* b */ c */ 1 -- 'the end of it\n + 2",
            "select \u{e4}\u{f6} + 'x' || \"\u{fc} y\" from caf\u{e9}",
            "  \t\n select\n",
        ] {
            let made = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap();
            let difference = count(sql).abs_diff(made.len());
            // Signs of several characters are counted one by one, as `||`.
            assert!(difference <= 2, "{sql}: {} and {made:?}", count(sql));
        }
    }

    #[test]
    fn what_is_never_ended_is_one() {
        for sql in ["'a b c", "E'a b \\", "\"a b", "/* a /* b */ c", "$a$ b c", "-- a b", "$", "u&"]
        {
            assert!(count(sql) <= 2, "{sql}: {}", count(sql));
        }
    }

    #[test]
    fn a_long_literal_is_one_token_and_many_short_ones_are_too_many() {
        assert!(!has_too_many_tokens(&format!("select '{}'", "a b ".repeat(MAX_TOKENS))));
        assert!(has_too_many_tokens(&format!("select 1{}", ",1".repeat(MAX_TOKENS))));
    }
}
