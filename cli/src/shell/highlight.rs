//! Colours of what is typed: keywords, texts, comments and commands.

use std::fmt::Write as _;

use super::keywords::is_keyword;
use super::statements::{Place, Scan, is_of_word};

const KEYWORD: &str = "\x1b[1;34m";
const TEXT: &str = "\x1b[32m";
const COMMENT: &str = "\x1b[2m";
const COMMAND: &str = "\x1b[35m";
const END: &str = "\x1b[0m";

/// A line with its colours. `scan` has read what was typed before.
pub(super) fn highlighted(line: &str, scan: &Scan) -> String {
    let mut scan = scan.behind();
    let mut out = Colored::default();
    let indent = line.len() - line.trim_start().len();
    if *scan.place() == Place::Plain && line.trim_start().starts_with('\\') {
        let text = line.get(indent..).unwrap_or_default();
        let end = indent + text.find(char::is_whitespace).unwrap_or(text.len());
        out.put(line.get(..indent).unwrap_or_default(), None);
        out.put(line.get(indent..end).unwrap_or_default(), Some(COMMAND));
        out.put(line.get(end..).unwrap_or_default(), None);
        return out.end();
    }
    let mut word_from = None;
    loop {
        let (from, before) = (scan.at(), scan.place().clone());
        let is_more = scan.advance(line);
        let piece = line.get(from..scan.at()).unwrap_or_default();
        let is_word = is_more
            && before == Place::Plain
            && *scan.place() == Place::Plain
            && piece.chars().all(is_of_word);
        match (is_word, word_from) {
            (true, None) => word_from = Some(from),
            (false, Some(begun)) => {
                let word = line.get(begun..from).unwrap_or_default();
                out.put(word, is_keyword(word).then_some(KEYWORD));
                word_from = None;
            }
            _ => {}
        }
        if !is_more {
            return out.end();
        }
        if !is_word {
            let place = if before == Place::Plain { scan.place() } else { &before };
            out.put(piece, color_of(place));
        }
    }
}

fn color_of(place: &Place) -> Option<&'static str> {
    match place {
        // A name in quotes is a name.
        Place::Plain | Place::Quoted('"') => None,
        Place::Quoted(_) | Place::Escaped | Place::Dollar(_) => Some(TEXT),
        Place::LineComment | Place::Comment(_) => Some(COMMENT),
    }
}

/// Text in colours.
#[derive(Default)]
struct Colored {
    text: String,
    color: Option<&'static str>,
}

impl Colored {
    fn put(&mut self, piece: &str, color: Option<&'static str>) {
        if color != self.color && !piece.is_empty() {
            self.text.push_str(if self.color.is_some() { END } else { "" });
            self.text.push_str(color.unwrap_or_default());
            self.color = color;
        }
        let _ = self.text.write_str(piece);
    }

    fn end(mut self) -> String {
        self.put("\0", None);
        self.text.pop();
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::super::statements::Statements;
    use super::*;

    #[test]
    fn keywords_texts_and_comments_have_colours() {
        let shown = highlighted("select 'from' from \"to\" -- to", &Scan::default());
        let expected = format!(
            "{KEYWORD}select{END} {TEXT}'from'{END} {KEYWORD}from{END} \"to\" {COMMENT}-- to{END}"
        );
        assert_eq!(shown, expected);
        let shown = highlighted("  \\d from", &Scan::default());
        assert_eq!(shown, format!("  {COMMAND}\\d{END} from"));
        assert_eq!(highlighted("", &Scan::default()), "");
        assert_eq!(highlighted("fromage", &Scan::default()), "fromage");
    }

    #[test]
    fn a_line_goes_on_in_what_the_last_has_begun() {
        let mut statements = Statements::default();
        statements.add("select 'a");
        assert_eq!(statements.next(), None);
        let shown = highlighted("from' from", statements.scan());
        assert_eq!(shown, format!("{TEXT}from'{END} {KEYWORD}from{END}"));
    }
}
