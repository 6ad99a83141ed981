//! Arrays and rows as texts.

use std::fmt::Write;
use std::sync::Arc;

use super::datum::{Array, Datum, Record};
use super::limits::check_count;
use super::settings::FormatSettings;
use super::sql_type::SqlType;
use super::text_format::{from_text, to_string};
use crate::error::{SqlError, SqlResult, SqlState};

/// Most dimensions of an array.
pub(crate) const MAX_DIMENSIONS: usize = 6;

/// Prints an array: `{1,2,NULL}`, with the bounds before it if they do not begin with 1.
pub(crate) fn print(array: &Array, ty: SqlType, settings: &FormatSettings, out: &mut String) {
    if ty.is_vector() {
        return print_vector(array, settings, out);
    }
    if array.dimensions.is_empty() || array.elements.is_empty() {
        return out.push_str("{}");
    }
    if array.dimensions.iter().any(|&(_, first)| first != 1) {
        for &(length, first) in &array.dimensions {
            let last = i64::from(first) + length as i64 - 1;
            let _ = write!(out, "[{first}:{last}]");
        }
        out.push('=');
    }
    let element = SqlType { scalar: array.element, ..ty.element() };
    let mut elements = array.elements.iter();
    print_dimension(&array.dimensions, &mut elements, element, settings, out);
}

/// Prints an `int2vector` or `oidvector`: `1 2`.
fn print_vector(array: &Array, settings: &FormatSettings, out: &mut String) {
    let element = SqlType::new(array.element);
    for (at, value) in array.elements.iter().enumerate() {
        out.push_str(if at > 0 { " " } else { "" });
        out.push_str(&to_string(value, element, settings));
    }
}

/// Reads one.
fn parse_vector(text: &str, ty: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    let words = text.split_ascii_whitespace();
    let elements = words.map(|word| from_text(word, ty.element(), settings));
    let elements: Vec<Datum> = elements.collect::<SqlResult<_>>()?;
    let dimensions = if elements.is_empty() { Vec::new() } else { vec![(elements.len(), 0)] };
    Ok(Datum::Array(Arc::new(Array { element: ty.scalar, dimensions, elements })))
}

fn print_dimension<'a>(
    dimensions: &[(usize, i32)],
    elements: &mut impl Iterator<Item = &'a Datum>,
    ty: SqlType,
    settings: &FormatSettings,
    out: &mut String,
) {
    let Some((&(length, _), rest)) = dimensions.split_first() else { return };
    out.push('{');
    for at in 0..length {
        if at > 0 {
            out.push(',');
        }
        if !rest.is_empty() {
            print_dimension(rest, elements, ty, settings, out);
            continue;
        }
        match elements.next() {
            None | Some(Datum::Null) => out.push_str("NULL"),
            Some(value) => print_element(&to_string(value, ty, settings), out),
        }
    }
    out.push('}');
}

fn print_element(text: &str, out: &mut String) {
    let is_special = |c: char| matches!(c, '{' | '}' | '"' | ',' | '\\') || c.is_ascii_whitespace();
    if !text.is_empty() && !text.eq_ignore_ascii_case("null") && !text.contains(is_special) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// Prints a row: `(1,text,)`.
pub(crate) fn print_record(own: &Record, settings: &FormatSettings, out: &mut String) {
    out.push('(');
    for (at, (value, ty)) in own.typed().enumerate() {
        if at > 0 {
            out.push(',');
        }
        if value.is_null() {
            continue;
        }
        let text = to_string(value, ty, settings);
        let is_special =
            |c: char| matches!(c, '(' | ')' | '"' | ',' | '\\') || c.is_ascii_whitespace();
        if !text.is_empty() && !text.contains(is_special) {
            out.push_str(&text);
            continue;
        }
        out.push('"');
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                out.push(c);
            }
            out.push(c);
        }
        out.push('"');
    }
    out.push(')');
}

struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
    ty: SqlType,
    settings: &'a FormatSettings,
    elements: Vec<Datum>,
    /// The lengths of the dimensions, as far as they are known.
    lengths: Vec<Option<usize>>,
    /// The depth at which elements stand.
    element_depth: Option<usize>,
}

/// Reads an array.
pub(crate) fn parse(text: &str, ty: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    if ty.is_vector() {
        return parse_vector(text, ty, settings);
    }
    let mut reader = Reader {
        whole: text,
        rest: text.trim_start(),
        ty: ty.element(),
        settings,
        elements: Vec::new(),
        lengths: Vec::new(),
        element_depth: None,
    };
    let bounds = reader.bounds()?;
    reader.braces(0)?;
    if !reader.rest.trim_start().is_empty() {
        return Err(reader.malformed("Junk after closing right brace."));
    }
    let lengths: Vec<usize> = reader.lengths.iter().map_while(|length| *length).collect();
    let mut dimensions: Vec<(usize, i32)> = lengths.iter().map(|length| (*length, 1)).collect();
    if reader.elements.is_empty() {
        dimensions.clear();
    }
    if let Some(bounds) = bounds {
        if bounds.len() != dimensions.len()
            || bounds.iter().zip(&dimensions).any(|(bound, found)| bound.0 != found.0)
        {
            return Err(reader.malformed("Specified array dimensions do not match array contents."));
        }
        dimensions = bounds;
    }
    let elements = reader.elements;
    Ok(Datum::Array(Arc::new(Array { element: ty.scalar, dimensions, elements })))
}

impl Reader<'_> {
    fn malformed(&self, detail: &str) -> SqlError {
        let message = format!("malformed array literal: \"{}\"", self.whole);
        SqlError::new(SqlState::INVALID_TEXT, message).detail(detail)
    }

    /// `[1:3][0:1]=`, as lengths and first indexes.
    fn bounds(&mut self) -> SqlResult<Option<Vec<(usize, i32)>>> {
        if !self.rest.starts_with('[') {
            return Ok(None);
        }
        let failed = "Missing array dimension value.";
        let (all, rest) = self.rest.split_once('=').ok_or_else(|| self.malformed(failed))?;
        let mut found = Vec::new();
        for part in all.trim().split_inclusive(']') {
            let bound = || -> Option<(usize, i32)> {
                let inner = part.trim().strip_prefix('[')?.strip_suffix(']')?;
                let (first, last) = inner.split_once(':').unwrap_or(("1", inner));
                let (first, last): (i32, i32) = (first.parse().ok()?, last.parse().ok()?);
                let length = i64::from(last) - i64::from(first) + 1;
                Some((usize::try_from(length).ok()?, first))
            };
            found.push(bound().ok_or_else(|| self.malformed(failed))?);
        }
        if found.len() > MAX_DIMENSIONS {
            return Err(too_many_dimensions());
        }
        self.rest = rest.trim_start();
        Ok(Some(found))
    }

    fn eat(&mut self, c: char) -> bool {
        let trimmed = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
        match trimmed.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn braces(&mut self, depth: usize) -> SqlResult<()> {
        if !self.eat('{') {
            return Err(
                self.malformed("Array value must start with \"{\" or dimension information.")
            );
        }
        if depth >= MAX_DIMENSIONS {
            return Err(too_many_dimensions());
        }
        if self.lengths.len() <= depth {
            self.lengths.push(None);
        }
        let mut length = 0;
        if !self.eat('}') {
            loop {
                self.item(depth)?;
                length += 1;
                if self.eat('}') {
                    break;
                }
                if !self.eat(',') {
                    return Err(self.malformed("Unexpected end of input."));
                }
            }
        }
        let detail = "Multidimensional arrays must have sub-arrays with matching dimensions.";
        let known = self.lengths.get_mut(depth).map(|known| *known.get_or_insert(length));
        if known != Some(length) {
            return Err(self.malformed(detail));
        }
        Ok(())
    }

    fn item(&mut self, depth: usize) -> SqlResult<()> {
        let trimmed = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
        if trimmed.starts_with('{') {
            if self.element_depth.is_some_and(|known| known <= depth) {
                return Err(self.malformed("Unexpected \"{\" character."));
            }
            return self.braces(depth + 1);
        }
        let detail = "Multidimensional arrays must have sub-arrays with matching dimensions.";
        if *self.element_depth.get_or_insert(depth) != depth || self.lengths.len() > depth + 1 {
            return Err(self.malformed(detail));
        }
        check_count(self.elements.len())?;
        let (text, is_quoted) = self.element_text()?;
        let value = if !is_quoted && text.eq_ignore_ascii_case("null") {
            Datum::Null
        } else {
            from_text(&text, self.ty, self.settings)?
        };
        self.elements.push(value);
        Ok(())
    }

    fn element_text(&mut self) -> SqlResult<(String, bool)> {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
        let mut out = String::new();
        let (mut in_quotes, mut was_quoted, mut kept) = (false, false, 0);
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    out.extend(chars.next().map(|(_, c)| c));
                    kept = out.len();
                }
                '"' => {
                    in_quotes = !in_quotes;
                    was_quoted = true;
                    kept = out.len();
                }
                ',' | '}' if !in_quotes => {
                    self.rest = rest.get(at..).unwrap_or_default();
                    if !was_quoted && out.is_empty() {
                        return Err(self.malformed(&format!("Unexpected \"{c}\" character.")));
                    }
                    // Spaces behind an element do not count.
                    out.truncate(kept);
                    return Ok((out, was_quoted));
                }
                '{' if !in_quotes => break,
                _ => {
                    out.push(c);
                    if in_quotes || !c.is_ascii_whitespace() {
                        kept = out.len();
                    }
                }
            }
        }
        Err(self.malformed("Unexpected end of input."))
    }
}

fn too_many_dimensions() -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("number of array dimensions exceeds the maximum allowed ({MAX_DIMENSIONS})"),
    )
}
