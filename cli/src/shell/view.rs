//! How the shell shows what statements give.

use clap::ValueEnum;
use selkie_sql::{Scalar, SqlType};

/// How rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table, as psql's.
    Table,
    /// A line a column, as \x of psql.
    Expanded,
    /// Comma-separated values with a line of names; NULL is nothing, an empty text is "".
    Csv,
    /// A JSON object a row.
    Json,
}

impl Format {
    /// The names of all formats.
    pub(super) fn names() -> Vec<String> {
        Self::value_variants().iter().map(|own| own.name()).collect()
    }

    /// Its name, as it is chosen by.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |own| own.get_name().to_owned())
    }

    /// Whether it is for people.
    pub(super) fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Expanded)
    }
}

/// What the user has chosen to see.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) format: Format,
    /// A table that is wider than the terminal is shown as [`Format::Expanded`].
    pub(super) expands_wide: bool,
    /// How NULL is shown; nothing said: as nothing.
    pub(super) null: String,
    /// How long each statement took is said.
    pub(super) timing: bool,
    /// Columns of the terminal, if rows go to one.
    pub(super) width: Option<usize>,
}

impl View {
    pub(super) fn new(format: Format, timing: bool) -> Self {
        Self { format, expands_wide: false, null: String::new(), timing, width: None }
    }
}

/// A column of what is shown.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// What values of a column are to a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Bool,
    Json,
}

impl Column {
    pub(super) fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: Kind::Text }
    }
}

impl Kind {
    pub(super) fn of(ty: SqlType) -> Self {
        use Scalar::{Bool, Float4, Float8, Int2, Int4, Int8, Json, Jsonb, Numeric, Oid};
        match ty.scalar {
            _ if ty.is_array => Self::Text,
            Int2 | Int4 | Int8 | Float4 | Float8 | Numeric | Oid => Self::Number,
            Bool => Self::Bool,
            Json | Jsonb => Self::Json,
            _ => Self::Text,
        }
    }

    /// Of the type that a server numbers so.
    pub(super) fn of_oid(oid: u32) -> Self {
        match SqlType::from_oid(oid) {
            Some(ty) => Self::of(ty),
            None => Self::Text,
        }
    }
}

/// The cells of a row; `None` is NULL.
pub(super) type Cells = Vec<Option<String>>;
