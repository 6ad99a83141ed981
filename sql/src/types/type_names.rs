//! Names and numbers of types, as the catalogue of PostgreSQL has them.

use sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo,
    TypeModifier,
};

use super::sql_type::{Scalar, SqlType};
use crate::error::{SqlError, SqlResult, SqlState};

/// What a modifier of a length has more than the length.
pub(crate) const LENGTH_HEADER: i32 = 4;
/// Longest `varchar(n)`.
const MAX_LENGTH: u64 = 10_485_760;
/// Most digits of a `numeric(p, s)`.
const MAX_PRECISION: u64 = 1000;
/// Most digits of a second.
const MAX_TIME_DIGITS: u64 = 6;

/// Of each type its number, that of its array, the bytes it takes (-1: any number), the name that
/// the catalogue has and the one that is shown.
const TYPES: [(Scalar, u32, u32, i16, &str, &str); 34] = [
    (Scalar::Bool, 16, 1000, 1, "bool", "boolean"),
    (Scalar::Bytea, 17, 1001, -1, "bytea", "bytea"),
    (Scalar::SingleChar, 18, 1002, 1, "char", "\"char\""),
    (Scalar::Name, 19, 1003, 64, "name", "name"),
    (Scalar::Int8, 20, 1016, 8, "int8", "bigint"),
    (Scalar::Int2, 21, 1005, 2, "int2", "smallint"),
    (Scalar::Int4, 23, 1007, 4, "int4", "integer"),
    (Scalar::Regproc, 24, 1008, 4, "regproc", "regproc"),
    (Scalar::Text, 25, 1009, -1, "text", "text"),
    (Scalar::Oid, 26, 1028, 4, "oid", "oid"),
    (Scalar::Json, 114, 199, -1, "json", "json"),
    (Scalar::Float4, 700, 1021, 4, "float4", "real"),
    (Scalar::Float8, 701, 1022, 8, "float8", "double precision"),
    (Scalar::Unknown, 705, 0, -2, "unknown", "unknown"),
    (Scalar::Char, 1042, 1014, -1, "bpchar", "character"),
    (Scalar::Varchar, 1043, 1015, -1, "varchar", "character varying"),
    (Scalar::Date, 1082, 1182, 4, "date", "date"),
    (Scalar::Time, 1083, 1183, 8, "time", "time without time zone"),
    (Scalar::Timestamp, 1114, 1115, 8, "timestamp", "timestamp without time zone"),
    (Scalar::TimestampTz, 1184, 1185, 8, "timestamptz", "timestamp with time zone"),
    (Scalar::Interval, 1186, 1187, 16, "interval", "interval"),
    (Scalar::Numeric, 1700, 1231, -1, "numeric", "numeric"),
    (Scalar::Regprocedure, 2202, 2207, 4, "regprocedure", "regprocedure"),
    (Scalar::Regoper, 2203, 2208, 4, "regoper", "regoper"),
    (Scalar::Regoperator, 2204, 2209, 4, "regoperator", "regoperator"),
    (Scalar::Regclass, 2205, 2210, 4, "regclass", "regclass"),
    (Scalar::Regtype, 2206, 2211, 4, "regtype", "regtype"),
    (Scalar::Record, 2249, 2287, -1, "record", "record"),
    (Scalar::Void, 2278, 0, 4, "void", "void"),
    (Scalar::Regnamespace, 4089, 4090, 4, "regnamespace", "regnamespace"),
    (Scalar::Regrole, 4096, 4097, 4, "regrole", "regrole"),
    (Scalar::Regcollation, 4191, 4192, 4, "regcollation", "regcollation"),
    (Scalar::Uuid, 2950, 2951, 16, "uuid", "uuid"),
    (Scalar::Jsonb, 3802, 3807, -1, "jsonb", "jsonb"),
];

/// `int2vector` and `oidvector`: their elements, numbers and names.
const VECTORS: [(Scalar, u32, &str); 2] =
    [(Scalar::Int2, 22, "int2vector"), (Scalar::Oid, 30, "oidvector")];

/// The entry of a vector.
fn vector_entry(ty: SqlType) -> Option<(u32, &'static str)> {
    let found = VECTORS.iter().find(|own| ty.is_vector() && own.0 == ty.scalar);
    found.map(|&(_, oid, name)| (oid, name))
}

impl Scalar {
    fn entry(self) -> (u32, u32, i16, &'static str, &'static str) {
        let found = TYPES.iter().find(|entry| entry.0 == self);
        found.map_or((0, 0, -1, "", ""), |&(_, oid, array, bytes, name, shown)| {
            (oid, array, bytes, name, shown)
        })
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TYPES.iter().map(|entry| entry.0)
    }
}

impl SqlType {
    /// Its number in PostgreSQL's catalogue; 0 for what has none there.
    #[must_use]
    pub fn oid(self) -> u32 {
        if let Some((oid, _)) = vector_entry(self) {
            return oid;
        }
        let (oid, array, ..) = self.scalar.entry();
        if self.is_array { array } else { oid }
    }

    /// The type of this number, without modifier.
    #[must_use]
    pub fn from_oid(oid: u32) -> Option<Self> {
        if let Some(own) = VECTORS.iter().find(|own| own.1 == oid) {
            return Some(Self::vector(own.0));
        }
        TYPES.iter().filter(|_| oid != 0).find_map(|&(scalar, own, array, ..)| {
            if own == oid {
                Some(Self::new(scalar))
            } else {
                (array == oid).then_some(Self::array(scalar))
            }
        })
    }

    /// Bytes that a value takes: -1 if that varies, -2 if a zero ends it. `typlen` of `pg_type`.
    #[must_use]
    pub fn bytes_len(self) -> i16 {
        if self.is_array { -1 } else { self.scalar.entry().2 }
    }

    /// Its name in the catalogue, as `int4` and `_int4`: `typname` of `pg_type`.
    #[must_use]
    pub fn catalogue_name(self) -> String {
        if let Some((_, name)) = vector_entry(self) {
            return name.to_owned();
        }
        let name = self.scalar.entry().3;
        if self.is_array { format!("_{name}") } else { name.to_owned() }
    }

    /// Its name with its modifier, as `format_type` gives it.
    #[must_use]
    pub fn name(self) -> String {
        if let Some((_, name)) = vector_entry(self) {
            return name.to_owned();
        }
        let shown = self.scalar.entry().4;
        let modifier = self.modifier;
        let mut name = match self.scalar {
            _ if modifier < 0 => shown.to_owned(),
            Scalar::Varchar | Scalar::Char => format!("{shown}({})", modifier - LENGTH_HEADER),
            Scalar::Numeric => match self.precision_and_scale() {
                Some((precision, scale)) => format!("numeric({precision},{scale})"),
                None => shown.to_owned(),
            },
            Scalar::Time => format!("time({modifier}) without time zone"),
            Scalar::Timestamp => format!("timestamp({modifier}) without time zone"),
            Scalar::TimestampTz => format!("timestamp({modifier}) with time zone"),
            Scalar::Interval => format!("interval({modifier})"),
            _ => shown.to_owned(),
        };
        if self.is_array {
            name.push_str("[]");
        }
        name
    }

    /// Most characters of a `varchar(n)` or `char(n)`.
    #[must_use]
    pub fn max_characters(self) -> Option<usize> {
        if !matches!(self.scalar, Scalar::Varchar | Scalar::Char) {
            return None;
        }
        usize::try_from(self.modifier.checked_sub(LENGTH_HEADER)?).ok()
    }

    /// The digits of a `numeric(p, s)`, and those of them behind the point.
    #[must_use]
    pub fn precision_and_scale(self) -> Option<(i32, i32)> {
        if self.scalar != Scalar::Numeric || self.modifier < LENGTH_HEADER {
            return None;
        }
        let packed = self.modifier - LENGTH_HEADER;
        // Of the scale 11 bits count, the highest of which is its sign.
        let scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
        Some(((packed >> 16) & 0xffff, scale))
    }

    /// `numeric(p, s)`.
    ///
    /// # Errors
    /// A precision or scale out of range is an [`SqlState::INVALID_PARAMETER`].
    pub fn numeric(precision: u64, scale: i64) -> SqlResult<Self> {
        let invalid = |what: String| Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
        if !(1..=MAX_PRECISION).contains(&precision) {
            return invalid(format!(
                "NUMERIC precision {precision} must be between 1 and {MAX_PRECISION}"
            ));
        }
        if !(-1000..=1000).contains(&scale) {
            return invalid(format!("NUMERIC scale {scale} must be between -1000 and 1000"));
        }
        let precision = i32::try_from(precision).unwrap_or_default();
        let scale = i32::try_from(scale).unwrap_or_default() & 0x7ff;
        Ok(Self::NUMERIC.with_modifier((precision << 16 | scale) + LENGTH_HEADER))
    }

    /// The type of this name, as the catalogue has it or as it is shown; for `regtype` and for
    /// names that the parser does not know.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let name = name.trim();
        if let Some(element) = name.strip_suffix("[]") {
            let element = Self::by_name(element).filter(|ty| !ty.is_vector())?;
            return Some(Self { is_array: true, ..element });
        }
        let found = |name: &str| {
            let ty = TYPES.iter().find(|entry| entry.5 == name || entry.4 == name)?;
            Some(Self::new(ty.0))
        };
        match name {
            // Not the catalogue's "char", which is written with its quotes.
            "char" => Some(Self::new(Scalar::Char)),
            "int" => Some(Self::INT4),
            "decimal" => Some(Self::NUMERIC),
            "float" => Some(Self::FLOAT8),
            "int2vector" => Some(Self::vector(Scalar::Int2)),
            "oidvector" => Some(Self::vector(Scalar::Oid)),
            "time" | "timestamp" => found(name),
            _ => found(name).or_else(|| {
                let element = found(name.strip_prefix('_')?)?;
                Some(Self { is_array: true, ..element })
            }),
        }
    }

    /// The type that a statement names.
    ///
    /// # Errors
    /// A type that does not exist, or that this engine does not have.
    pub fn parse(ty: &DataType) -> SqlResult<Self> {
        let of = |scalar| Ok(Self::new(scalar));
        match ty {
            DataType::Bool | DataType::Boolean => of(Scalar::Bool),
            DataType::SmallInt(None) | DataType::Int2(None) => of(Scalar::Int2),
            DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => {
                of(Scalar::Int4)
            }
            DataType::BigInt(None) | DataType::Int8(None) => of(Scalar::Int8),
            DataType::Real | DataType::Float4 => of(Scalar::Float4),
            DataType::Float8 | DataType::DoublePrecision => of(Scalar::Float8),
            DataType::Float(info) => float(*info),
            DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => match info {
                ExactNumberInfo::None => of(Scalar::Numeric),
                ExactNumberInfo::Precision(precision) => Self::numeric(*precision, 0),
                ExactNumberInfo::PrecisionAndScale(precision, scale) => {
                    Self::numeric(*precision, *scale)
                }
            },
            DataType::Text => of(Scalar::Text),
            DataType::Varchar(length)
            | DataType::CharVarying(length)
            | DataType::CharacterVarying(length) => characters(Scalar::Varchar, *length),
            DataType::Char(length) | DataType::Character(length) => {
                let one = CharacterLength::IntegerLength { length: 1, unit: None };
                characters(Scalar::Char, Some(length.unwrap_or(one)))
            }
            DataType::Bytea => of(Scalar::Bytea),
            DataType::Date => of(Scalar::Date),
            DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                seconds(Scalar::Time, *digits)
            }
            DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                seconds(Scalar::Timestamp, *digits)
            }
            DataType::Timestamp(digits, _) => seconds(Scalar::TimestampTz, *digits),
            DataType::Interval { fields: Some(_), .. } => {
                Err(SqlError::unsupported("a type of intervals with certain fields only"))
            }
            DataType::Interval { fields: None, precision } => seconds(Scalar::Interval, *precision),
            DataType::Uuid => of(Scalar::Uuid),
            DataType::JSON => of(Scalar::Json),
            DataType::JSONB => of(Scalar::Jsonb),
            DataType::Regclass => of(Scalar::Regclass),
            DataType::Array(
                ArrayElemTypeDef::SquareBracket(element, _)
                | ArrayElemTypeDef::Qualified(element, _),
            ) => Ok(Self { is_array: true, ..Self::parse(element)? }),
            DataType::Custom(name, modifiers) => named(name, modifiers),
            DataType::Time(..) => Err(SqlError::unsupported("the type time with time zone")),
            other => Err(undefined(&other.to_string().to_lowercase())),
        }
    }
}

/// Types of PostgreSQL that this engine does not have.
const ABSENT: [&str; 40] = [
    "aclitem",
    "bit",
    "box",
    "cid",
    "cidr",
    "circle",
    "datemultirange",
    "daterange",
    "inet",
    "int4multirange",
    "int4range",
    "int8multirange",
    "int8range",
    "jsonpath",
    "line",
    "lseg",
    "macaddr",
    "macaddr8",
    "money",
    "nummultirange",
    "numrange",
    "path",
    "pg_lsn",
    "pg_snapshot",
    "point",
    "polygon",
    "refcursor",
    "tid",
    "timetz",
    "tsmultirange",
    "tsquery",
    "tsrange",
    "tstzmultirange",
    "tstzrange",
    "tsvector",
    "txid_snapshot",
    "varbit",
    "xid",
    "xid8",
    "xml",
];

fn undefined(name: &str) -> SqlError {
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    let base = name.get(..end).unwrap_or(name);
    if ABSENT.contains(&base) {
        return SqlError::unsupported(format!("the type {base}"));
    }
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

fn invalid_parameter(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

fn float(info: ExactNumberInfo) -> SqlResult<SqlType> {
    match info {
        ExactNumberInfo::None => Ok(SqlType::FLOAT8),
        ExactNumberInfo::Precision(0) => {
            Err(invalid_parameter("precision for type float must be at least 1 bit"))
        }
        ExactNumberInfo::Precision(1..=24) => Ok(SqlType::FLOAT4),
        ExactNumberInfo::Precision(25..=53) => Ok(SqlType::FLOAT8),
        _ => Err(invalid_parameter("precision for type float must be less than 54 bits")),
    }
}

fn characters(scalar: Scalar, length: Option<CharacterLength>) -> SqlResult<SqlType> {
    let name = if scalar == Scalar::Char { "char" } else { "varchar" };
    match length {
        None => Ok(SqlType::new(scalar)),
        Some(CharacterLength::IntegerLength { length: 0, .. }) => {
            Err(invalid_parameter(format!("length for type {name} must be at least 1")))
        }
        Some(CharacterLength::IntegerLength { length, .. }) if length <= MAX_LENGTH => {
            let length = i32::try_from(length).unwrap_or_default();
            Ok(SqlType::new(scalar).with_modifier(length + LENGTH_HEADER))
        }
        Some(_) => {
            Err(invalid_parameter(format!("length for type {name} cannot exceed {MAX_LENGTH}")))
        }
    }
}

fn seconds(scalar: Scalar, digits: Option<u64>) -> SqlResult<SqlType> {
    // More digits than there are is a warning in PostgreSQL, not an error.
    let digits = digits.map(|digits| digits.min(MAX_TIME_DIGITS));
    let modifier = digits.and_then(|digits| i32::try_from(digits).ok()).unwrap_or(-1);
    Ok(SqlType::new(scalar).with_modifier(modifier))
}

/// A type that the parser knows no word for.
fn named(name: &ObjectName, modifiers: &[TypeModifier]) -> SqlResult<SqlType> {
    let parts: Vec<_> = name.0.iter().filter_map(|part| part.as_ident()).collect();
    let last = match parts.as_slice() {
        [last] => last,
        [schema, last] if schema.value.eq_ignore_ascii_case("pg_catalog") => last,
        _ => return Err(undefined(&name.to_string())),
    };
    let is_quoted = last.quote_style.is_some();
    let folded = if is_quoted { last.value.clone() } else { last.value.to_ascii_lowercase() };
    if is_quoted && folded == "char" {
        return Ok(SqlType::new(Scalar::SingleChar));
    }
    let ty = SqlType::by_name(&folded).ok_or_else(|| undefined(&folded))?;
    let numbers: Vec<i64> = modifiers
        .iter()
        .filter_map(|modifier| match modifier {
            TypeModifier::Number(text, _) => text.parse().ok(),
            _ => None,
        })
        .collect();
    match (ty.scalar, numbers.as_slice()) {
        (_, []) if modifiers.is_empty() => Ok(ty),
        (Scalar::Char | Scalar::Varchar, &[length]) => {
            let length = u64::try_from(length).unwrap_or(0);
            characters(ty.scalar, Some(CharacterLength::IntegerLength { length, unit: None }))
        }
        (Scalar::Numeric, &[precision]) => SqlType::numeric(precision.unsigned_abs(), 0),
        (Scalar::Numeric, &[precision, scale]) => SqlType::numeric(precision.unsigned_abs(), scale),
        (Scalar::Time | Scalar::Timestamp | Scalar::TimestampTz | Scalar::Interval, &[digits]) => {
            seconds(ty.scalar, u64::try_from(digits).ok())
        }
        _ => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("type modifier is not allowed for type \"{folded}\""),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;

    fn parse(text: &str) -> SqlResult<SqlType> {
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text).unwrap();
        SqlType::parse(&parser.parse_data_type().unwrap())
    }

    #[test]
    fn names_are_those_of_format_type() {
        for (text, name, oid) in [
            ("int", "integer", 23),
            ("int2", "smallint", 21),
            ("bigint", "bigint", 20),
            ("varchar(10)", "character varying(10)", 1043),
            ("char", "character(1)", 1042),
            ("bpchar", "character", 1042),
            ("\"char\"", "\"char\"", 18),
            ("numeric(10,2)", "numeric(10,2)", 1700),
            ("decimal(5)", "numeric(5,0)", 1700),
            ("numeric(3,-2)", "numeric(3,-2)", 1700),
            ("float(24)", "real", 700),
            ("float", "double precision", 701),
            ("timestamp(3)", "timestamp(3) without time zone", 1114),
            ("timestamptz", "timestamp with time zone", 1184),
            ("timestamp with time zone", "timestamp with time zone", 1184),
            ("time", "time without time zone", 1083),
            ("interval", "interval", 1186),
            ("text[]", "text[]", 1009),
            ("int[][]", "integer[]", 1007),
            ("name", "name", 19),
            ("oid", "oid", 26),
            ("regclass", "regclass", 2205),
            ("pg_catalog.int4", "integer", 23),
            ("jsonb", "jsonb", 3802),
            ("regoperator[]", "regoperator[]", 2209),
        ] {
            let ty = parse(text).unwrap();
            assert_eq!((ty.name().as_str(), ty.oid()), (name, oid), "{text}");
            assert_eq!(SqlType::from_oid(oid), Some(ty.plain()));
        }
        for text in ["nonsense", "varchar(0)", "numeric(0)", "numeric(1001)", "float(54)"] {
            parse(text).unwrap_err();
        }
    }
    #[test]
    fn vectors_are_arrays_with_names_of_their_own() {
        for (name, oid, element) in
            [("int2vector", 22, SqlType::INT2), ("oidvector", 30, SqlType::OID)]
        {
            let ty = parse(name).unwrap();
            assert_eq!((ty.name(), ty.catalogue_name()), (name.to_owned(), name.to_owned()));
            assert_eq!((ty.oid(), ty.element(), ty.shown_modifier()), (oid, element, -1));
            assert_eq!(SqlType::from_oid(oid), Some(ty));
            assert_eq!(ty.plain(), ty);
        }
    }
}
