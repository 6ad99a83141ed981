//! LIKE.
//!
//! A pattern is pieces of text that have to come one after the other, with any number of characters
//! between them where it has `%`. So the first such group of pieces stands at the beginning, the
//! last at the end, and each of the others is looked for behind the one before: where it is found
//! first leaves the most for the rest, so that nothing is ever gone back to. Texts are looked at as
//! bytes, of which only `_` has to know where a character ends.

use std::borrow::Cow;

use super::interrupts::Interrupts;
use crate::error::{SqlError, SqlResult, SqlState};

/// What a pattern is made of.
#[derive(Debug, PartialEq)]
enum Piece<'p> {
    /// `%`
    Any,
    /// So many `_`.
    Skip(usize),
    Literal(Cow<'p, str>),
}

/// Most pieces of a pattern, each of which takes many times the memory of its text.
const MAX_PIECES: usize = 1 << 20;

fn pieces(pattern: &str, escape: Option<char>) -> SqlResult<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    let is_special = |c: char| c == '%' || c == '_' || Some(c) == escape;
    while let Some(first) = rest.chars().next() {
        if pieces.len() >= MAX_PIECES {
            let message = "LIKE pattern is too complex";
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        let behind = rest.get(first.len_utf8()..).unwrap_or_default();
        // A character that is the escape is nothing else.
        if Some(first) == escape {
            let escaped = behind.chars().next().ok_or_else(|| {
                let message = "LIKE pattern must not end with escape character";
                SqlError::new(SqlState::INVALID_ESCAPE, message)
            })?;
            let (own, next) = behind.split_at_checked(escaped.len_utf8()).unwrap_or((behind, ""));
            push_literal(&mut pieces, own);
            rest = next;
        } else if first == '%' {
            if pieces.last() != Some(&Piece::Any) {
                pieces.push(Piece::Any);
            }
            rest = behind;
        } else if first == '_' {
            match pieces.last_mut() {
                Some(Piece::Skip(count)) => *count += 1,
                _ => pieces.push(Piece::Skip(1)),
            }
            rest = behind;
        } else {
            let end = rest.find(is_special).unwrap_or(rest.len());
            let (own, next) = rest.split_at_checked(end).unwrap_or((rest, ""));
            push_literal(&mut pieces, own);
            rest = next;
        }
    }
    Ok(pieces)
}

fn push_literal<'p>(pieces: &mut Vec<Piece<'p>>, text: &'p str) {
    match pieces.last_mut() {
        Some(Piece::Literal(before)) => before.to_mut().push_str(text),
        _ => pieces.push(Piece::Literal(Cow::Borrowed(text))),
    }
}

/// What is left of a text without so many characters at its beginning.
fn skip(text: &str, count: usize) -> Option<&str> {
    if count == 0 {
        return Some(text);
    }
    let (at, last) = text.char_indices().nth(count - 1)?;
    text.get(at + last.len_utf8()..)
}

/// The same, at its end.
fn skip_back(text: &str, count: usize) -> Option<&str> {
    if count == 0 {
        return Some(text);
    }
    let (at, _) = text.char_indices().nth_back(count - 1)?;
    text.get(..at)
}

/// What is left of a text that begins with pieces.
fn strip_start<'t>(text: &'t str, pieces: &[Piece<'_>]) -> Option<&'t str> {
    pieces.iter().try_fold(text, |rest, piece| match piece {
        Piece::Literal(own) => rest.strip_prefix(&**own),
        Piece::Skip(count) => skip(rest, *count),
        Piece::Any => None,
    })
}

/// What is left of a text that ends with pieces.
fn strip_end<'t>(text: &'t str, pieces: &[Piece<'_>]) -> Option<&'t str> {
    pieces.iter().rev().try_fold(text, |rest, piece| match piece {
        Piece::Literal(own) => rest.strip_suffix(&**own),
        Piece::Skip(count) => skip_back(rest, *count),
        Piece::Any => None,
    })
}

/// What of a text is behind the first place where pieces are.
fn behind_first<'t>(
    text: &'t str,
    pieces: &[Piece<'_>],
    interrupts: &Interrupts,
) -> SqlResult<Option<&'t str>> {
    // Characters before the first text only move its first possible place.
    let (text, pieces) = match pieces {
        [Piece::Skip(count), rest @ ..] => (skip(text, *count), rest),
        all => (Some(text), all),
    };
    let Some(mut text) = text else { return Ok(None) };
    let [Piece::Literal(first), others @ ..] = pieces else { return Ok(Some(text)) };
    loop {
        let Some(at) = text.find(&**first) else { return Ok(None) };
        let found = text.get(at + first.len()..).unwrap_or_default();
        if let Some(rest) = strip_start(found, others) {
            return Ok(Some(rest));
        }
        // Each place costs a search that begins anew, and a look at what follows.
        let looked_at: usize = others.iter().map(Piece::bytes).sum();
        interrupts.after(at.saturating_add(2 * first.len()).saturating_add(looked_at))?;
        let Some(next) = text.get(at..).and_then(|rest| skip(rest, 1)) else { return Ok(None) };
        text = next;
    }
}

impl Piece<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Any => 0,
            Self::Skip(count) => *count,
            Self::Literal(own) => own.len(),
        }
    }
}

/// Whether a text is like a pattern. Time is that of a pass over the text, but where a text stands
/// between `%` and has `_` behind its first character: there it may be the product of both lengths.
pub(super) fn like(
    text: &str,
    pattern: &str,
    escape: Option<char>,
    interrupts: &Interrupts,
) -> SqlResult<bool> {
    let pieces = pieces(pattern, escape)?;
    let mut groups = pieces.split(|piece| *piece == Piece::Any);
    let (first, last) = (groups.next().unwrap_or_default(), groups.next_back());
    let Some(rest) = strip_start(text, first) else { return Ok(false) };
    let Some(last) = last else { return Ok(rest.is_empty()) };
    let Some(mut rest) = strip_end(rest, last) else { return Ok(false) };
    for group in groups {
        match behind_first(rest, group, interrupts)? {
            Some(behind) => rest = behind,
            None => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
mod tests {
    use super::*;

    /// As the standard defines it.
    fn by_definition(text: &[char], pattern: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['%', rest @ ..] => (0..=text.len()).any(|at| by_definition(&text[at..], rest)),
            ['_', rest @ ..] => !text.is_empty() && by_definition(&text[1..], rest),
            ['\\', c, rest @ ..] | [c, rest @ ..] => {
                text.first() == Some(c) && by_definition(&text[1..], rest)
            }
        }
    }

    /// All words of up to so many letters.
    fn words(letters: &[char], most: usize) -> Vec<Vec<char>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..most {
            let to = all.len();
            for at in from..to {
                for letter in letters {
                    let mut word: Vec<char> = all[at].clone();
                    word.push(*letter);
                    all.push(word);
                }
            }
            from = to;
        }
        all
    }

    #[test]
    fn short_texts_are_like_what_the_definition_says() {
        let (texts, patterns) = (words(&['a', 'é'], 5), words(&['a', 'é', '%', '_'], 5));
        let interrupts = Interrupts::default();
        for pattern in &patterns {
            let shown: String = pattern.iter().collect();
            for text in &texts {
                let own: String = text.iter().collect();
                let found = like(&own, &shown, Some('\\'), &interrupts).unwrap();
                assert_eq!(found, by_definition(text, pattern), "{own} like {shown}");
            }
        }
    }

    #[test]
    fn escapes_are_texts() {
        let interrupts = Interrupts::default();
        for (text, pattern, escape, wanted) in [
            ("a%c", "a\\%c", Some('\\'), true),
            ("abc", "a\\%c", Some('\\'), false),
            ("a_c", "%#_%", Some('#'), true),
            ("abc", "%#_%", Some('#'), false),
            ("a\\c", "a\\\\c", Some('\\'), true),
            ("a\\c", "a\\c", None, true),
            ("ac", "a\\c", Some('\\'), true),
            ("a%", "a%%", Some('%'), true),
            ("ab", "a%%", Some('%'), false),
        ] {
            let found = like(text, pattern, escape, &interrupts).unwrap();
            assert_eq!(found, wanted, "{text} like {pattern}");
        }
        let error = like("ab", "a\\", Some('\\'), &interrupts).unwrap_err();
        assert_eq!(error.state().code(), "22025");
        let many = "a_".repeat(MAX_PIECES);
        assert_eq!(like("a", &many, None, &interrupts).unwrap_err().state().code(), "54000");
    }

    /// A search that goes back would take hours.
    #[test]
    fn a_long_text_takes_one_pass() {
        let text = "a".repeat(1 << 20);
        let pattern = format!("%{}b", "a".repeat(1 << 19));
        let (interrupts, within) = (Interrupts::default(), format!("{pattern}%"));
        assert!(!like(&text, &pattern, None, &interrupts).unwrap());
        assert!(!like(&text, &within, None, &interrupts).unwrap());
        assert!(like(&format!("{text}b"), &within, None, &interrupts).unwrap());
    }

    #[test]
    fn what_goes_through_all_places_can_be_ended() {
        let ask = || Err(SqlError::new(SqlState::QUERY_CANCELED, "ended"));
        let interrupts = Interrupts::new(Box::new(ask), None);
        let text = "a".repeat(1 << 20);
        let pattern = format!("%{}_b%", "a".repeat(1 << 19));
        let ended = like(&text, &pattern, None, &interrupts).unwrap_err();
        assert_eq!(ended.message(), "ended");
    }
}
