//! The types of SQL.

/// A type without its length and precision; of an array, that of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scalar {
    /// `boolean`.
    Bool,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `bigint`.
    Int8,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// `numeric`.
    Numeric,
    /// `text`.
    Text,
    /// `character varying`.
    Varchar,
    /// `character`: padded with spaces, which do not count.
    Char,
    /// `name`: what objects are called.
    Name,
    /// `"char"`: one byte, in the system catalogue.
    SingleChar,
    /// `bytea`.
    Bytea,
    /// `date`.
    Date,
    /// `time without time zone`.
    Time,
    /// `timestamp without time zone`.
    Timestamp,
    /// `timestamp with time zone`.
    TimestampTz,
    /// `interval`.
    Interval,
    /// `uuid`.
    Uuid,
    /// `json`: the text as it was given.
    Json,
    /// `jsonb`: spaces, order and doubled keys of objects are not kept.
    Jsonb,
    /// `oid`: the number of an object of the catalogue.
    Oid,
    /// `regclass`: an oid shown as the name of a table or index.
    Regclass,
    /// `regtype`: an oid shown as the name of a type.
    Regtype,
    /// `regproc`: an oid shown as the name of a function.
    Regproc,
    /// `regprocedure`: an oid shown as the name of a function with the types of its parameters.
    Regprocedure,
    /// `regoper`: an oid shown as the name of an operator.
    Regoper,
    /// `regoperator`: an oid shown as the name of an operator with the types of its operands.
    Regoperator,
    /// `regcollation`: an oid shown as the name of a collation.
    Regcollation,
    /// `regnamespace`: an oid shown as the name of a schema.
    Regnamespace,
    /// `regrole`: an oid shown as the name of a role.
    Regrole,
    /// A row of several values.
    Record,
    /// The type of nothing.
    Void,
    /// A literal in quotes, or a NULL, of which nothing has told the type yet.
    Unknown,
}

/// A type with its length or precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlType {
    /// Of an array the type of its elements.
    pub scalar: Scalar,
    /// Whether it is an array.
    pub is_array: bool,
    /// PostgreSQL's modifier: for `varchar` and `char` the length plus 4, for `numeric` 4 plus
    /// 65536 times the precision plus the scale (of which 11 bits count, with a sign), for times
    /// the digits of a second; -1 for none. Ours are `VECTOR` of an array, and the number of its
    /// fields' names of a row.
    pub modifier: i32,
}

/// The modifier of `int2vector` and `oidvector`, which are arrays of the catalogue that are counted
/// from 0 and have a text of their own.
pub(crate) const VECTOR: i32 = -2;

impl SqlType {
    /// A type without modifier.
    #[must_use]
    pub const fn new(scalar: Scalar) -> Self {
        Self { scalar, is_array: false, modifier: -1 }
    }

    /// The array of such elements.
    #[must_use]
    pub const fn array(scalar: Scalar) -> Self {
        Self { scalar, is_array: true, modifier: -1 }
    }

    /// `int2vector` or `oidvector`, by the type of the elements.
    #[must_use]
    pub const fn vector(scalar: Scalar) -> Self {
        Self { scalar, is_array: true, modifier: VECTOR }
    }

    /// Whether it is `int2vector` or `oidvector`.
    #[must_use]
    pub const fn is_vector(self) -> bool {
        self.is_array && self.modifier == VECTOR
    }

    /// The modifier as clients know it.
    #[must_use]
    pub const fn shown_modifier(self) -> i32 {
        match self.scalar {
            Scalar::Record => -1,
            _ if self.modifier < 0 => -1,
            _ => self.modifier,
        }
    }

    /// `boolean`.
    pub const BOOL: Self = Self::new(Scalar::Bool);
    /// `smallint`.
    pub const INT2: Self = Self::new(Scalar::Int2);
    /// `integer`.
    pub const INT4: Self = Self::new(Scalar::Int4);
    /// `bigint`.
    pub const INT8: Self = Self::new(Scalar::Int8);
    /// `real`.
    pub const FLOAT4: Self = Self::new(Scalar::Float4);
    /// `double precision`.
    pub const FLOAT8: Self = Self::new(Scalar::Float8);
    /// `numeric` of any precision.
    pub const NUMERIC: Self = Self::new(Scalar::Numeric);
    /// `character varying` of any length.
    pub const VARCHAR: Self = Self::new(Scalar::Varchar);
    /// `name`.
    pub const NAME: Self = Self::new(Scalar::Name);
    /// `bytea`.
    pub const BYTEA: Self = Self::new(Scalar::Bytea);
    /// `date`.
    pub const DATE: Self = Self::new(Scalar::Date);
    /// `time without time zone`.
    pub const TIME: Self = Self::new(Scalar::Time);
    /// `timestamp without time zone`.
    pub const TIMESTAMP: Self = Self::new(Scalar::Timestamp);
    /// `timestamp with time zone`.
    pub const TIMESTAMPTZ: Self = Self::new(Scalar::TimestampTz);
    /// `interval`.
    pub const INTERVAL: Self = Self::new(Scalar::Interval);
    /// `uuid`.
    pub const UUID: Self = Self::new(Scalar::Uuid);
    /// `json`.
    pub const JSON: Self = Self::new(Scalar::Json);
    /// `jsonb`.
    pub const JSONB: Self = Self::new(Scalar::Jsonb);
    /// `oid`.
    pub const OID: Self = Self::new(Scalar::Oid);
    /// A row.
    pub const RECORD: Self = Self::new(Scalar::Record);
    /// The type of nothing.
    pub const VOID: Self = Self::new(Scalar::Void);
    /// `text`.
    pub const TEXT: Self = Self::new(Scalar::Text);
    /// The type of a literal in quotes.
    pub const UNKNOWN: Self = Self::new(Scalar::Unknown);

    /// With this modifier.
    #[must_use]
    pub const fn with_modifier(self, modifier: i32) -> Self {
        Self { modifier, ..self }
    }

    /// The type of the elements of an array; of anything else the type itself.
    #[must_use]
    pub const fn element(self) -> Self {
        if self.is_vector() { Self::new(self.scalar) } else { Self { is_array: false, ..self } }
    }

    /// The same without its modifier, but that of a vector.
    #[must_use]
    pub const fn plain(self) -> Self {
        if self.is_vector() { self } else { Self { modifier: -1, ..self } }
    }
}
