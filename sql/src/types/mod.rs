//! Types of SQL and their values: formats, casts, order and arithmetic, as in PostgreSQL.

mod array_text;
pub mod binary_format;
pub mod calendar;
pub mod cast;
pub(crate) mod conversions;
mod datum;
pub(crate) mod interval_text;
pub mod json;
pub(crate) mod limits;
mod name_text;
pub mod numeric;
pub mod object_names;
pub mod order;
pub(crate) mod pseudo_types;
pub mod settings;
mod sql_type;
pub mod stored;
pub mod text_format;
pub(crate) mod time_print;
pub(crate) mod time_text;
mod type_names;
pub mod zone;
mod zone_abbreviations;

pub use cast::CastContext;
pub use datum::{Array, Datum, Field, Record};
pub use settings::{ByteaOutput, DateOrder, DateStyle, FormatSettings, IntervalStyle, ReadMoment};
pub use sql_type::{Scalar, SqlType};
pub use zone::TimeZone;
