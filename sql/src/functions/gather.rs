//! Aggregates that keep all of their values: texts, arrays and documents.

use super::aggregates::{Accumulator, NewAccumulator};
use super::arguments::{argument, bytes, text};
use super::arrays::of_elements;
use super::documents::{key_text, print_json};
use super::signature::{Table, Types};
use super::strings::check_length;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::limits::check_count;
use crate::types::{Array, Datum, FormatSettings, Scalar, SqlType, json};

/// `string_agg` of texts: each delimiter goes before its value, but that of the first.
#[derive(Default)]
struct Joined {
    text: Option<String>,
}

impl Accumulator for Joined {
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()> {
        if argument(arguments, 0).is_null() {
            return Ok(());
        }
        let value = text(arguments, 0)?;
        match &mut self.text {
            None => self.text = Some(value.to_owned()),
            Some(all) => {
                check_length(all.len(), value.len())?;
                if !argument(arguments, 1).is_null() {
                    all.push_str(text(arguments, 1)?);
                }
                all.push_str(value);
            }
        }
        Ok(())
    }

    fn finish(&self) -> SqlResult<Datum> {
        Ok(self.text.as_deref().map_or(Datum::Null, Datum::text))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.as_ref().map_or(0, String::capacity)
    }
}

/// `string_agg` of byte strings.
#[derive(Default)]
struct JoinedBytes {
    all: Option<Vec<u8>>,
}

impl Accumulator for JoinedBytes {
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()> {
        if argument(arguments, 0).is_null() {
            return Ok(());
        }
        let value = bytes(arguments, 0)?;
        match &mut self.all {
            None => self.all = Some(value.to_vec()),
            Some(all) => {
                check_length(all.len(), value.len())?;
                if !argument(arguments, 1).is_null() {
                    all.extend(bytes(arguments, 1)?);
                }
                all.extend(value);
            }
        }
        Ok(())
    }

    fn finish(&self) -> SqlResult<Datum> {
        Ok(self.all.as_ref().map_or(Datum::Null, |all| Datum::Bytes(all.as_slice().into())))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.all.as_ref().map_or(0, Vec::capacity)
    }
}

/// `array_agg`: of arrays it makes one with a dimension more.
struct Elements {
    ty: SqlType,
    values: Vec<Datum>,
    /// The dimensions of the arrays that are gathered.
    inner: Option<Vec<(usize, i32)>>,
    rows: usize,
    value_bytes: usize,
}

impl Accumulator for Elements {
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()> {
        let value = argument(arguments, 0);
        check_count(self.values.len())?;
        self.rows += 1;
        self.value_bytes += held_bytes(value);
        let Datum::Array(array) = value else {
            if self.ty.is_array {
                return Err(SqlError::new(
                    SqlState::NULL_VALUE_NOT_ALLOWED,
                    "cannot accumulate null arrays",
                ));
            }
            self.values.push(value.clone());
            return Ok(());
        };
        let known = self.inner.get_or_insert_with(|| array.dimensions.clone());
        if *known != array.dimensions || known.is_empty() {
            let what = match array.dimensions.is_empty() {
                true => "cannot accumulate empty arrays",
                false => "cannot accumulate arrays of different dimensionality",
            };
            return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, what));
        }
        self.values.extend(array.elements.iter().cloned());
        Ok(())
    }

    fn finish(&self) -> SqlResult<Datum> {
        Ok(match &self.inner {
            _ if self.rows == 0 => Datum::Null,
            None => of_elements(self.ty.scalar, self.values.clone()),
            Some(inner) => {
                let mut dimensions = vec![(self.rows, 1)];
                dimensions.extend(inner);
                let elements = self.values.clone();
                Datum::Array(Array { element: self.ty.scalar, dimensions, elements }.into())
            }
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<Datum>() + self.value_bytes
    }
}

/// Bytes that a value has elsewhere, about.
pub(super) fn held_bytes(value: &Datum) -> usize {
    match value {
        Datum::Text(text) | Datum::Json(text) => text.len(),
        Datum::Bytes(bytes) => bytes.len(),
        Datum::Array(array) => array.elements.len() * size_of::<Datum>(),
        Datum::Record(own) => own.values.len() * size_of::<Datum>(),
        Datum::Numeric(Some(value)) => 32 + usize::try_from(value.digits() / 2).unwrap_or(0),
        _ => 0,
    }
}

/// `json_agg`, `json_object_agg` and their kin. Values are printed in the default style: an
/// accumulator does not know the session.
struct Document {
    types: Types,
    is_object: bool,
    is_binary: bool,
    text: Option<String>,
}

impl Accumulator for Document {
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()> {
        let settings = FormatSettings::default();
        let is_first = self.text.is_none();
        let open = if self.is_object { "{ " } else { "[" };
        let out = self.text.get_or_insert_with(|| open.to_owned());
        check_length(out.len(), 0)?;
        out.push_str(if is_first { "" } else { ", " });
        let at = if self.is_object {
            let key = argument(arguments, 0);
            if key.is_null() {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER,
                    "field name must not be null",
                ));
            }
            json::print_string(&key_text(key, self.types.argument(0), &settings), out);
            out.push_str(" : ");
            1
        } else {
            0
        };
        let (value, ty) = (argument(arguments, at), self.types.argument(at));
        // Rows and arrays are on lines of their own.
        let is_deep = ty.is_array || ty.scalar == Scalar::Record;
        if is_deep && !is_first && !self.is_object && !value.is_null() {
            out.push_str("\n ");
        }
        print_json(value, ty, &settings, out);
        Ok(())
    }

    fn finish(&self) -> SqlResult<Datum> {
        let Some(text) = &self.text else { return Ok(Datum::Null) };
        let whole = format!("{text}{}", if self.is_object { " }" } else { "]" });
        Ok(Datum::Json(match self.is_binary {
            true => json::canonical(&whole)?.into(),
            false => whole.into(),
        }))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.as_ref().map_or(0, String::capacity)
    }
}

fn document(types: &Types, is_object: bool, is_binary: bool) -> Box<dyn Accumulator> {
    Box::new(Document { types: types.clone(), is_object, is_binary, text: None })
}

fn elements(types: &Types) -> Box<dyn Accumulator> {
    Box::new(Elements {
        ty: types.argument(0),
        values: Vec::new(),
        inner: None,
        rows: 0,
        value_bytes: 0,
    })
}

pub(super) fn register(table: &mut Table<NewAccumulator>) {
    table.add_body("string_agg", "lax text text -> text", |_| Box::new(Joined::default()));
    table.add_body("string_agg", "lax bytea bytea -> bytea", |_| Box::new(JoinedBytes::default()));
    table.add_body("array_agg", "lax anynonarray -> anyarray", elements);
    table.add_body("array_agg", "lax anyarray -> anyarray", elements);
    table.add_body("json_agg", "lax any -> json", |types| document(types, false, false));
    table.add_body("jsonb_agg", "lax any -> jsonb", |types| document(types, false, true));
    table.add_body("json_object_agg", "lax any any -> json", |types| document(types, true, false));
    table.add_body("jsonb_object_agg", "lax any any -> jsonb", |types| document(types, true, true));
}
