//! What clients send. Each message is read within its frame, and refused if it does not fill it.

use bytes::{Buf, Bytes};
use selkie_sql::{SqlError, SqlResult, SqlState};

/// A message of a client that has been let in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrontendMessage {
    /// Statements, to be run at once.
    Query(String),
    Parse {
        statement: String,
        sql: String,
        /// Types of parameters; 0 for one that the client does not know.
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe(Target),
    Execute {
        portal: String,
        /// Most rows; 0 for all.
        most: u32,
    },
    Close(Target),
    Sync,
    Flush,
    Terminate,
    Password(Bytes),
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
}

/// Values for the parameters of a statement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) portal: String,
    pub(crate) statement: String,
    /// Of the parameters: 0 for text, 1 for binary. None for all text, one for all.
    pub(crate) formats: Vec<i16>,
    /// `None` for NULL.
    pub(crate) parameters: Vec<Option<Bytes>>,
    /// Of the columns of the rows.
    pub(crate) result_formats: Vec<i16>,
}

/// What is described or closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Statement(String),
    Portal(String),
}

/// Longest message with statements, values or data, in bytes.
pub(crate) const LONGEST_MESSAGE: usize = 300 << 20;

/// Longest message of any other kind.
const LONGEST_SHORT_MESSAGE: usize = 10_000;

/// The longest message of a kind; `None` if there is no such kind.
pub(crate) fn longest(kind: u8) -> Option<usize> {
    match kind {
        b'Q' | b'P' | b'B' | b'd' => Some(LONGEST_MESSAGE),
        b'D' | b'E' | b'C' | b'S' | b'H' | b'X' | b'p' | b'c' | b'f' => Some(LONGEST_SHORT_MESSAGE),
        _ => None,
    }
}

/// The message in a frame of a kind.
pub(crate) fn decode(kind: u8, body: Bytes) -> SqlResult<FrontendMessage> {
    let mut fields = Fields(body);
    let message = match kind {
        b'Q' => FrontendMessage::Query(fields.text()?),
        b'P' => FrontendMessage::Parse {
            statement: fields.text()?,
            sql: fields.text()?,
            types: fields.many(|fields| fields.i32().map(i32::cast_unsigned))?,
        },
        b'B' => FrontendMessage::Bind(Bind {
            portal: fields.text()?,
            statement: fields.text()?,
            formats: fields.many(Fields::i16)?,
            parameters: fields.many(Fields::value)?,
            result_formats: fields.many(Fields::i16)?,
        }),
        b'D' => FrontendMessage::Describe(fields.target()?),
        b'E' => {
            let (portal, most) = (fields.text()?, fields.i32()?);
            // A negative number is no limit, as in PostgreSQL.
            FrontendMessage::Execute { portal, most: u32::try_from(most).unwrap_or(0) }
        }
        b'C' => FrontendMessage::Close(fields.target()?),
        b'S' => FrontendMessage::Sync,
        b'H' => FrontendMessage::Flush,
        b'X' => FrontendMessage::Terminate,
        b'p' => FrontendMessage::Password(fields.rest()),
        b'd' => FrontendMessage::CopyData(fields.rest()),
        b'c' => FrontendMessage::CopyDone,
        b'f' => FrontendMessage::CopyFail(fields.text()?),
        _ => return Err(violation(format!("invalid frontend message type {kind}"))),
    };
    if fields.0.has_remaining() {
        return Err(violation("invalid message format"));
    }
    Ok(message)
}

/// What is against the protocol.
pub(crate) fn violation(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, message)
}

/// The rest of a message.
pub(crate) struct Fields(pub(crate) Bytes);

impl Fields {
    fn u8(&mut self) -> SqlResult<u8> {
        self.0.try_get_u8().map_err(|_| no_data())
    }

    pub(crate) fn i16(&mut self) -> SqlResult<i16> {
        self.0.try_get_i16().map_err(|_| no_data())
    }

    pub(crate) fn i32(&mut self) -> SqlResult<i32> {
        self.0.try_get_i32().map_err(|_| no_data())
    }

    fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }

    /// Text up to a zero byte.
    pub(crate) fn text(&mut self) -> SqlResult<String> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| violation("invalid string in message"))?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        match std::str::from_utf8(&text) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => {
                let at = text.get(error.valid_up_to()).copied().unwrap_or_default();
                let message = format!("invalid byte sequence for encoding \"UTF8\": 0x{at:02x}");
                Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message))
            }
        }
    }

    /// A number of 16 bits, and as many of something.
    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> SqlResult<T>) -> SqlResult<Vec<T>> {
        let count = self.i16()?.cast_unsigned();
        // Each takes two bytes at least.
        if usize::from(count) * 2 > self.0.len() {
            return Err(no_data());
        }
        (0..count).map(|_| one(self)).collect()
    }

    /// A value with its length; `None` for NULL.
    fn value(&mut self) -> SqlResult<Option<Bytes>> {
        let length = self.i32()?;
        match usize::try_from(length) {
            Ok(length) if length <= self.0.len() => Ok(Some(self.0.split_to(length))),
            Err(_) if length == -1 => Ok(None),
            _ => Err(no_data()),
        }
    }

    fn target(&mut self) -> SqlResult<Target> {
        match self.u8()? {
            b'S' => Ok(Target::Statement(self.text()?)),
            b'P' => Ok(Target::Portal(self.text()?)),
            other => Err(violation(format!("invalid target of a message: {other}"))),
        }
    }
}

fn no_data() -> SqlError {
    violation("insufficient data left in message")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn state(kind: u8, body: &'static [u8]) -> SqlState {
        decode(kind, Bytes::from_static(body)).unwrap_err().state()
    }

    #[test]
    fn messages_are_read() {
        let bind = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\0";
        let expected = Bind {
            portal: "p".into(),
            statement: "s".into(),
            formats: vec![1],
            parameters: vec![Some(Bytes::from_static(b"ab")), None],
            result_formats: Vec::new(),
        };
        let read = decode(b'B', Bytes::from_static(bind)).unwrap();
        assert_eq!(read, FrontendMessage::Bind(expected));
        let read = decode(b'P', Bytes::from_static(b"\0select 1\0\0\x01\0\0\0\x17")).unwrap();
        let (statement, sql) = (String::new(), "select 1".into());
        assert_eq!(read, FrontendMessage::Parse { statement, sql, types: vec![23] });
    }

    #[test]
    fn a_message_that_does_not_fill_its_frame_is_refused() {
        for (kind, body) in [
            (b'Q', &b"select 1"[..]),
            (b'Q', b"select 1\0x"),
            (b'Q', b""),
            (b'P', b"\0select 1\0\xff\xff"),
            (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'B', b"\0\0\0\x05"),
            (b'D', b"Xname\0"),
            (b'D', b""),
            (b'E', b"\0\0\0"),
            (b'S', b"\0"),
            (b'?', b""),
        ] {
            assert_eq!(state(kind, body), SqlState::PROTOCOL_VIOLATION, "{kind} {body:?}");
        }
        assert_eq!(state(b'Q', b"\xff\0"), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
    }
}
