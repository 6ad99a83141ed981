//! JSON documents: read into nodes that know where in the text they stand.
//!
//! A `jsonb` is kept as text too, in PostgreSQL's own form: keys by length and bytes, one space
//! behind `:` and `,`. What is cut out of that text has the form already, so operators that look
//! into a document only give a part of its text.

use std::cmp::Ordering;
use std::fmt::Write;
use std::ops::Range;

use super::limits::MAX_DOCUMENT_VALUES;
use super::numeric;
use crate::error::{SqlError, SqlResult, SqlState};

/// Deepest nesting of arrays and objects.
const MAX_DEPTH: usize = 512;

/// A value in a document.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it stands in the text.
    pub range: Range<usize>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number; its digits are in the text.
    Number,
    /// A text without quotes and escapes.
    String(String),
    /// `[..]`
    Array(Vec<Node>),
    /// `{..}`, as it was written.
    Object(Vec<(String, Node)>),
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many were read.
    values: usize,
}

/// Reads a document.
///
/// # Errors
/// [`SqlState::INVALID_TEXT`] if it is none, 54001 if it is nested too deeply, 54000 if it has too
/// many values.
pub fn parse(text: &str) -> SqlResult<Node> {
    let mut reader = Reader { text, at: 0, values: 0 };
    let node = reader.value(0)?;
    reader.skip_spaces();
    if reader.at < text.len() {
        return Err(reader.unexpected());
    }
    Ok(node)
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn invalid(detail: impl Into<String>) -> SqlError {
        SqlError::new(SqlState::INVALID_TEXT, "invalid input syntax for type json").detail(detail)
    }

    fn unexpected(&self) -> SqlError {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len()).max(1);
        match rest.chars().next() {
            None => Self::invalid("The input string ended unexpectedly."),
            Some(first) => {
                let token = rest.get(..end).map_or_else(|| first.to_string(), str::to_owned);
                Self::invalid(format!("Token \"{token}\" is invalid."))
            }
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> SqlResult<Node> {
        if depth > MAX_DEPTH {
            return Err(SqlError::new(
                SqlState::STATEMENT_TOO_COMPLEX,
                "a JSON document is nested too deeply",
            ));
        }
        if self.values >= MAX_DOCUMENT_VALUES {
            let message =
                format!("number of values in a JSON document exceeds {MAX_DOCUMENT_VALUES}");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        self.values += 1;
        self.skip_spaces();
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => {
                let words = [
                    ("null", Value::Null),
                    ("true", Value::Bool(true)),
                    ("false", Value::Bool(false)),
                ];
                let found = words.into_iter().find(|(word, _)| {
                    let rest = self.rest();
                    rest.strip_prefix(*word)
                        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
                });
                let (word, value) = found.ok_or_else(|| self.unexpected())?;
                self.at += word.len();
                value
            }
        };
        Ok(Node { value, range: start..self.at })
    }

    fn array(&mut self, depth: usize) -> SqlResult<Value> {
        self.at += 1;
        let mut nodes = Vec::new();
        if self.eat(b']') {
            return Ok(Value::Array(nodes));
        }
        loop {
            nodes.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Ok(Value::Array(nodes));
            }
            if !self.eat(b',') {
                return Err(self.unexpected());
            }
        }
    }

    fn object(&mut self, depth: usize) -> SqlResult<Value> {
        self.at += 1;
        let mut members = Vec::new();
        if self.eat(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_spaces();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected());
            }
            let key = self.string()?;
            if !self.eat(b':') {
                return Err(self.unexpected());
            }
            members.push((key, self.value(depth + 1)?));
            if self.eat(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.eat(b',') {
                return Err(self.unexpected());
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> SqlResult<Value> {
        self.at += usize::from(self.peek() == Some(b'-'));
        let has_leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        let mut is_valid = whole == 1 || (whole > 1 && !has_leading_zero);
        if self.peek() == Some(b'.') {
            self.at += 1;
            is_valid &= self.digits() > 0;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            is_valid &= self.digits() > 0;
        }
        if !is_valid || self.rest().starts_with(|c: char| c.is_alphanumeric()) {
            return Err(self.unexpected());
        }
        Ok(Value::Number)
    }

    fn string(&mut self) -> SqlResult<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let end = rest.find(|c: char| c == '"' || c == '\\' || c < ' ');
            let Some(end) = end else {
                return Err(Self::invalid("The input string ended unexpectedly."));
            };
            out.push_str(rest.get(..end).unwrap_or_default());
            self.at += end;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(byte) => {
                    return Err(Self::invalid(format!(
                        "Character with value 0x{byte:02x} must be escaped."
                    )));
                }
                None => return Err(Self::invalid("The input string ended unexpectedly.")),
            }
        }
    }

    fn hex(&mut self) -> SqlResult<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        code.ok_or_else(|| Self::invalid("\"\\u\" must be followed by four hexadecimal digits."))
    }

    fn escape(&mut self) -> SqlResult<char> {
        let byte = self.peek();
        self.at += 1;
        Ok(match byte {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex()?;
                let code = if (0xd800..0xdc00).contains(&first) {
                    let low = if self.rest().starts_with("\\u") {
                        self.at += 2;
                        self.hex()?
                    } else {
                        0
                    };
                    let is_low = (0xdc00..0xe000).contains(&low);
                    is_low.then(|| 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00))
                } else {
                    Some(first)
                };
                code.and_then(char::from_u32).ok_or_else(|| {
                    Self::invalid("Unicode low surrogate must follow a high surrogate.")
                })?
            }
            _ => {
                self.at -= 1;
                return Err(Self::invalid("Escape sequence is invalid."));
            }
        })
    }
}

/// Prints a text in quotes, with escapes.
pub fn print_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The members of an object as `jsonb` keeps them: of each key the last, by length and bytes.
#[must_use]
pub fn ordered_members<T>(members: impl IntoIterator<Item = (String, T)>) -> Vec<(String, T)> {
    let mut members: Vec<(String, T)> = members.into_iter().collect();
    // Later ones first within a key, and only the first of each is kept.
    members.reverse();
    members.sort_by(|(a, _), (b, _)| (a.len(), a.as_bytes()).cmp(&(b.len(), b.as_bytes())));
    members.dedup_by(|next, kept| next.0 == kept.0);
    members
}

/// Prints a node in the form of `jsonb`.
///
/// # Errors
/// A number with too many digits, or a zero byte in a text.
pub fn print_canonical(text: &str, node: &Node, out: &mut String) -> SqlResult<()> {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number => {
            let digits = text.get(node.range.clone()).unwrap_or_default();
            match numeric::parse(digits) {
                Some(Ok(Some(number))) => numeric::print(&number, out),
                Some(Err(error)) => return Err(error),
                _ => return Err(SqlError::internal("a JSON number that is none")),
            }
        }
        Value::String(value) => print_text(value, out)?,
        Value::Array(nodes) => {
            out.push('[');
            for (at, node) in nodes.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                print_canonical(text, node, out)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            let members = ordered_members(members.iter().map(|(key, node)| (key.clone(), node)));
            out.push('{');
            for (at, (key, node)) in members.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                print_text(key, out)?;
                out.push_str(": ");
                print_canonical(text, node, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn print_text(text: &str, out: &mut String) -> SqlResult<()> {
    if text.contains('\0') {
        let error = SqlError::new(SqlState::UNTRANSLATABLE, "unsupported Unicode escape sequence");
        return Err(error.detail("\\u0000 cannot be converted to text."));
    }
    print_string(text, out);
    Ok(())
}

/// A document in the form of `jsonb`.
///
/// # Errors
/// As [`parse`].
pub fn canonical(text: &str) -> SqlResult<String> {
    let node = parse(text)?;
    let mut out = String::with_capacity(text.len());
    print_canonical(text, &node, &mut out)?;
    Ok(out)
}

const fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::String(_) => 1,
        Value::Number => 2,
        Value::Bool(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

/// The order of parts of `jsonb`: Object > Array > Boolean > Number > String > Null; more members
/// are greater.
#[must_use]
pub fn compare(a_text: &str, a: &Node, b_text: &str, b: &Node) -> Ordering {
    match (&a.value, &b.value) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Number, Value::Number) => {
            let number = |text: &str, node: &Node| {
                let digits = text.get(node.range.clone()).unwrap_or_default();
                numeric::parse(digits).and_then(Result::ok).flatten()
            };
            number(a_text, a).cmp(&number(b_text, b))
        }
        (Value::Array(a), Value::Array(b)) => a.len().cmp(&b.len()).then_with(|| {
            let pairs = a.iter().zip(b).map(|(a, b)| compare(a_text, a, b_text, b));
            pairs.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        }),
        (Value::Object(a), Value::Object(b)) => {
            let members = |members: &[(String, Node)]| {
                ordered_members(members.iter().map(|(key, node)| (key.clone(), node.clone())))
            };
            let (a, b) = (members(a), members(b));
            a.len().cmp(&b.len()).then_with(|| {
                let mut pairs = a.iter().zip(&b).map(|((a_key, a), (b_key, b))| {
                    let keys = (a_key.len(), a_key).cmp(&(b_key.len(), b_key));
                    keys.then_with(|| compare(a_text, a, b_text, b))
                });
                pairs.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            })
        }
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

impl Node {
    /// The member of this name, of several the last.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Object(members) => {
                members.iter().rev().find(|(name, _)| name == key).map(|(_, node)| node)
            }
            _ => None,
        }
    }

    /// The element at this position; negative ones count from the end.
    #[must_use]
    pub fn element(&self, at: i64) -> Option<&Self> {
        let Value::Array(nodes) = &self.value else { return None };
        let at = if at < 0 { at + nodes.len() as i64 } else { at };
        nodes.get(usize::try_from(at).ok()?)
    }

    /// Its own text.
    #[must_use]
    pub fn text<'a>(&self, document: &'a str) -> &'a str {
        document.get(self.range.clone()).unwrap_or_default()
    }

    /// What `json_typeof` calls it.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jsonb_has_its_own_form() {
        for (text, out) in [
            (r#" {"bb":1,"a":[1,2 ,3],"a":2} "#, r#"{"a": 2, "bb": 1}"#),
            (r#"{"b":{},"aa":[],"c":null}"#, r#"{"b": {}, "c": null, "aa": []}"#),
            ("1.50", "1.50"),
            ("1e3", "1000"),
            (r#""\u00e9\n\/""#, r#""é\n/""#),
            (r#""\ud83d\ude00""#, "\"😀\""),
            ("[true,false]", "[true, false]"),
        ] {
            assert_eq!(canonical(text).unwrap(), out, "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "01",
            "1.",
            "-",
            "nul",
            "\"\n\"",
            "\"\\x\"",
            "[1] 2",
            "'a'",
            "\"\\ud800\"",
            "tru",
            "1e",
        ] {
            assert_eq!(parse(text).unwrap_err().state(), SqlState::INVALID_TEXT, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(parse(&deep).unwrap_err().state(), SqlState::STATEMENT_TOO_COMPLEX);
    }
}
