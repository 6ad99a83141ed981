//! Where records end. The first end of a line says what all of them are, as in PostgreSQL.

use super::CopyKind;
use super::binary::invalid;
use crate::error::SqlError;

/// What the lines of data end with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// None was seen yet.
    #[default]
    Unknown,
    Feed,
    Return,
    ReturnAndFeed,
}

/// What a line feed or a carriage return of data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The end of a line, of so many bytes.
    End(usize),
    /// That is told by the next byte, which is not there.
    Open,
    /// A line feed that may not stand there.
    WrongFeed,
    /// A carriage return that may not stand there.
    WrongReturn,
}

impl LineEnd {
    /// What a line feed or carriage return is, by what is behind it. `is_end` says that no more
    /// data follows.
    pub(super) fn find(&mut self, bytes: &[u8], is_end: bool) -> Found {
        let (is_return, next) = (bytes.first() == Some(&b'\r'), bytes.get(1));
        let (end, found) = match (is_return, *self) {
            (false, Self::Unknown | Self::Feed) => (Self::Feed, Found::End(1)),
            (false, _) => return Found::WrongFeed,
            (true, Self::Return) => (Self::Return, Found::End(1)),
            (true, Self::Feed) => return Found::WrongReturn,
            (true, _) if next.is_none() && !is_end => return Found::Open,
            (true, _) if next == Some(&b'\n') => (Self::ReturnAndFeed, Found::End(2)),
            (true, Self::ReturnAndFeed) => return Found::WrongReturn,
            (true, Self::Unknown) => (Self::Return, Found::End(1)),
        };
        *self = end;
        found
    }
}

impl Found {
    /// The error of what may not stand where it does.
    pub(super) fn error(self, kind: CopyKind) -> SqlError {
        let (what, escape) = match self {
            Self::WrongReturn => ("carriage return", "\\r"),
            _ => ("newline", "\\n"),
        };
        match kind {
            CopyKind::Csv => invalid(format!("unquoted {what} found in data"))
                .hint(format!("Use quoted CSV field to represent {what}.")),
            _ => invalid(format!("literal {what} found in data"))
                .hint(format!("Use \"{escape}\" to represent {what}.")),
        }
    }
}
