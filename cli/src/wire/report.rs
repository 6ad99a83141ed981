//! Errors and notices, of a server or of a session of this process.

use std::io;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;
use selkie_sql::{Notice, SqlError};

/// An error or a notice in its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// `ERROR`, `FATAL`, `NOTICE`.
    pub(crate) level: String,
    /// The code of five characters.
    pub(crate) state: String,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) context: Option<String>,
    /// Of the character that it is about; the first is 1.
    pub(crate) position: Option<usize>,
}

impl Report {
    /// An error of this side.
    pub(crate) fn error(state: &str, message: impl Into<String>) -> Self {
        Self {
            level: "ERROR".to_owned(),
            state: state.to_owned(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// What a server has sent.
    ///
    /// # Errors
    /// If it is no such message.
    pub(super) fn read(mut fields: ErrorFields<'_>) -> io::Result<Self> {
        let mut own = Self { level: "ERROR".to_owned(), ..Self::default() };
        while let Some(field) = fields.next()? {
            let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                // The second is in the language of the server, and comes first.
                b'S' | b'V' => own.level = text,
                b'C' => own.state = text,
                b'M' => own.message = text,
                b'D' => own.detail = Some(text),
                b'H' => own.hint = Some(text),
                b'W' => own.context = Some(text),
                b'P' => own.position = text.parse().ok(),
                _ => {}
            }
        }
        Ok(own)
    }
}

impl From<&SqlError> for Report {
    fn from(error: &SqlError) -> Self {
        Self {
            level: "ERROR".to_owned(),
            state: error.state().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail_text().map(str::to_owned),
            hint: error.hint_text().map(str::to_owned),
            context: error.context_text().map(str::to_owned),
            position: error.position(),
        }
    }
}

impl From<SqlError> for Report {
    fn from(error: SqlError) -> Self {
        Self::from(&error)
    }
}

impl From<&Notice> for Report {
    fn from(notice: &Notice) -> Self {
        Self { level: notice.level().name().to_owned(), ..Self::from(notice.parts()) }
    }
}
