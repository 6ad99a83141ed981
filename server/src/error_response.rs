//! Errors, as clients are told of them.

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};
use selkie_sql::{Notice, SqlError};

/// How bad an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// A statement has failed.
    Error,
    /// The connection ends.
    Fatal,
}

/// The message of an error.
pub(crate) fn error_response(severity: Severity, error: &SqlError) -> PgWireBackendMessage {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    PgWireBackendMessage::ErrorResponse(ErrorResponse::new(fields(severity, error)))
}

/// The message of what is no error.
pub(crate) fn notice_response(notice: &Notice) -> PgWireBackendMessage {
    let fields = fields(notice.level().name(), notice.parts());
    PgWireBackendMessage::NoticeResponse(NoticeResponse::new(fields))
}

fn fields(severity: &str, error: &SqlError) -> Vec<(u8, String)> {
    // A zero byte would end the field.
    let clean = |text: &str| text.replace('\0', "\u{fffd}");
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', error.state().code().to_owned()),
        (b'M', clean(error.message())),
    ];
    fields.extend(error.detail_text().map(|text| (b'D', clean(text))));
    fields.extend(error.hint_text().map(|text| (b'H', clean(text))));
    fields.extend(error.context_text().map(|text| (b'W', clean(text))));
    let subject = error.subject();
    for (field, name) in [
        (b's', &subject.schema),
        (b't', &subject.table),
        (b'c', &subject.column),
        (b'n', &subject.constraint),
    ] {
        fields.extend(name.as_ref().map(|name| (field, clean(name))));
    }
    fields.extend(error.position().map(|position| (b'P', position.to_string())));
    fields
}
