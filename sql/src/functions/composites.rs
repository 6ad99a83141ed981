//! The rows that functions of the system give as one value, and the names of their fields.
//!
//! A type is a [`SqlType`], which is small and copied everywhere, so it cannot hold names. The
//! modifier of a row says which of the lists of this file its fields have; a row without one has
//! fields without names.

use crate::types::{Scalar, SqlType};

/// The names and types of fields; those without a type have that of the elements of an array.
pub(super) type Fields = &'static [(&'static str, Option<SqlType>)];

pub(super) const EXPANDED_ARRAY: Fields = &[("x", None), ("n", Some(SqlType::INT4))];
pub(super) const EACH_JSON: Fields =
    &[("key", Some(SqlType::TEXT)), ("value", Some(SqlType::JSON))];
pub(super) const EACH_JSONB: Fields =
    &[("key", Some(SqlType::TEXT)), ("value", Some(SqlType::JSONB))];
pub(super) const EACH_TEXT: Fields =
    &[("key", Some(SqlType::TEXT)), ("value", Some(SqlType::TEXT))];
pub(super) const PRIVILEGES: Fields = &[
    ("grantor", Some(SqlType::OID)),
    ("grantee", Some(SqlType::OID)),
    ("privilege_type", Some(SqlType::TEXT)),
    ("is_grantable", Some(SqlType::BOOL)),
];
pub(super) const OPTIONS: Fields =
    &[("option_name", Some(SqlType::TEXT)), ("option_value", Some(SqlType::TEXT))];
pub(super) const KEYWORDS: Fields = &[
    ("word", Some(SqlType::TEXT)),
    ("catcode", Some(SqlType::new(Scalar::SingleChar))),
    ("barelabel", Some(SqlType::BOOL)),
    ("catdesc", Some(SqlType::TEXT)),
    ("baredesc", Some(SqlType::TEXT)),
];

/// All of them; a modifier has the place of one.
const ALL: [Fields; 7] =
    [EXPANDED_ARRAY, EACH_JSON, EACH_JSONB, EACH_TEXT, PRIVILEGES, OPTIONS, KEYWORDS];

/// In a modifier, how many places of lists there are for each type of an element.
const PLACES: i32 = 256;

/// The names and types of the fields of a row; `None` if they have no names.
pub(crate) fn fields_of(ty: SqlType) -> Option<Vec<(&'static str, SqlType)>> {
    if ty.scalar != Scalar::Record || ty.is_array {
        return None;
    }
    let place = usize::try_from(ty.modifier.checked_rem(PLACES)?).ok()?;
    let element =
        usize::try_from(ty.modifier / PLACES).ok().and_then(|at| Scalar::all().nth(at))?;
    let field =
        |(name, ty): &(&'static str, Option<SqlType>)| (*name, ty.unwrap_or(SqlType::new(element)));
    ALL.get(place).map(|fields| fields.iter().map(field).collect())
}

/// The type of a row of such fields.
pub(crate) fn row_type<'f>(fields: impl Iterator<Item = (&'f str, SqlType)> + Clone) -> SqlType {
    for (place, known) in (0_i32..).zip(ALL) {
        let mut element = None;
        let fits = fields.clone().count() == known.len()
            && fields.clone().zip(known).all(|((name, ty), known)| {
                let is_open = known.1.is_none() && !ty.is_array;
                element = if is_open { Some(ty.scalar) } else { element };
                name == known.0 && (is_open || known.1 == Some(ty))
            });
        let number = |scalar| Scalar::all().position(|own| own == scalar);
        let element = element.map_or(Some(0), number).and_then(|at| i32::try_from(at).ok());
        if let (true, Some(element)) = (fits, element) {
            return SqlType::RECORD.with_modifier(place + PLACES * element);
        }
    }
    SqlType::RECORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_the_type_of_their_row() {
        let of = |fields: &[(&'static str, SqlType)]| row_type(fields.iter().copied());
        for fields in [
            vec![("x", SqlType::INT2), ("n", SqlType::INT4)],
            vec![("x", SqlType::TEXT), ("n", SqlType::INT4)],
            vec![("key", SqlType::TEXT), ("value", SqlType::JSONB)],
            vec![("option_name", SqlType::TEXT), ("option_value", SqlType::TEXT)],
        ] {
            let ty = of(&fields);
            assert_eq!(fields_of(ty), Some(fields));
            assert_eq!((ty.oid(), ty.name(), ty.shown_modifier()), (2249, "record".into(), -1));
        }
        assert_eq!(of(&[("x", SqlType::INT2)]), SqlType::RECORD);
        assert_eq!(of(&[("x", SqlType::INT2), ("n", SqlType::INT8)]), SqlType::RECORD);
        for ty in [SqlType::RECORD, SqlType::INT4, SqlType::TEXT.with_modifier(3)] {
            assert_eq!(fields_of(ty), None);
        }
    }
}
