//! What comes of statements at a server: rows, data of COPY in both directions, errors.

use bytes::BufMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, Message, RowDescriptionBody};
use postgres_protocol::message::frontend;
use selkie_sql::TransactionState;

use super::client::{CancelRequest, Receiver, Row};
use super::link::{Link, Look, WireError, Wish};
use super::report::Report;

/// Rows that are given at a time.
const ROWS_AT_A_TIME: usize = 512;

/// What comes of a text of statements.
pub(super) struct Talk<'r> {
    receiver: &'r dyn Receiver,
    /// The first error of the server.
    pub(super) failed: Option<Report>,
    /// The first error of the receiver.
    pub(super) own: Option<Report>,
    /// Nothing more is given to the receiver.
    is_void: bool,
}

impl<'r> Talk<'r> {
    pub(super) fn new(receiver: &'r dyn Receiver) -> Self {
        Self { receiver, failed: None, own: None, is_void: false }
    }

    /// Sends what is to be sent and takes what comes of it, until the server is ready for more.
    ///
    /// # Errors
    /// [`WireError`].
    pub(super) fn run(
        &mut self,
        link: &mut Link,
        cancel: &CancelRequest,
        look: Look<'_>,
    ) -> Result<TransactionState, WireError> {
        link.send(look)?;
        let mut rows = Vec::new();
        loop {
            let message = match link.buffered()? {
                Some(message) => message,
                None => {
                    self.give(&mut rows, cancel);
                    link.next(look)?
                }
            };
            if let Message::DataRow(body) = message {
                rows.push(row_of(&body)?);
                if rows.len() >= ROWS_AT_A_TIME {
                    self.give(&mut rows, cancel);
                }
                continue;
            }
            self.give(&mut rows, cancel);
            match message {
                Message::RowDescription(body) => self.receiver.described(&columns_of(&body)?),
                Message::CommandComplete(body) if !self.is_void => {
                    self.receiver.ended(body.tag().map_err(garbled)?);
                }
                Message::CopyInResponse(body) => {
                    self.copy_in(link, body.format() != 0, look)?;
                }
                Message::CopyData(body) if !self.is_void => {
                    let taken = self.receiver.copied(body.data().to_vec());
                    self.settle(taken, cancel);
                }
                Message::ReadyForQuery(body) => {
                    return match body.status() {
                        b'I' => Ok(TransactionState::Idle),
                        b'T' => Ok(TransactionState::InTransaction),
                        b'E' => Ok(TransactionState::Failed),
                        other => Err(WireError::Garbled(format!("a state {other}"))),
                    };
                }
                other => self.heard(&other),
            }
        }
    }

    /// Takes a message that may come at any time.
    pub(super) fn heard(&mut self, message: &Message) {
        match message {
            Message::ErrorResponse(body) => {
                if let Ok(report) = Report::read(body.fields()) {
                    self.failed.get_or_insert(report);
                }
            }
            Message::NoticeResponse(body) => {
                if let Ok(notice) = Report::read(body.fields()) {
                    self.receiver.noticed(&notice);
                }
            }
            _ => {}
        }
    }

    fn give(&mut self, rows: &mut Vec<Row>, cancel: &CancelRequest) {
        let rows = std::mem::take(rows);
        if !rows.is_empty() && !self.is_void {
            let taken = self.receiver.given(rows);
            self.settle(taken, cancel);
        }
    }

    /// What the receiver does not take is not to be sent.
    fn settle(&mut self, taken: Result<(), Report>, cancel: &CancelRequest) {
        if let Err(report) = taken {
            self.is_void = true;
            self.own.get_or_insert(report);
            cancel.send(self.receiver);
        }
    }

    /// Sends the data of a COPY, until its end or until the server has refused it. A user who wants
    /// it cancelled is heard between any two parts, also by a server that takes all at once.
    fn copy_in(
        &mut self,
        link: &mut Link,
        is_binary: bool,
        look: Look<'_>,
    ) -> Result<(), WireError> {
        if let Err(report) = self.receiver.asked_for_data(is_binary) {
            return self.fail_copy(link, report, look);
        }
        loop {
            match look() {
                Wish::Wait => {}
                Wish::Leave => return Err(WireError::Left),
                Wish::Cancel => {
                    let message = "COPY from stdin failed: canceled by user";
                    return self.fail_copy(link, Report::error("57014", message), look);
                }
            }
            // Up to an error: what ends the statement comes right behind it, and is awaited later.
            while self.failed.is_none()
                && let Some(message) = link.arrived()?
            {
                self.heard(&message);
            }
            let next = match self.failed {
                None => self.receiver.next_data(),
                // It takes no more, but its end.
                Some(_) => Ok(None),
            };
            match next {
                Ok(Some(data)) => {
                    let length = i32::try_from(data.len() + 4);
                    let length =
                        length.map_err(|_| WireError::Garbled("too much data".to_owned()))?;
                    link.unsent.put_u8(b'd');
                    link.unsent.put_i32(length);
                    link.unsent.put_slice(&data);
                    link.send(look)?;
                }
                Ok(None) => {
                    frontend::copy_done(&mut link.unsent);
                    return link.send(look);
                }
                Err(report) => return self.fail_copy(link, report, look),
            }
        }
    }

    /// Tells the server that there is no more data, and why.
    fn fail_copy(
        &mut self,
        link: &mut Link,
        report: Report,
        look: Look<'_>,
    ) -> Result<(), WireError> {
        let message = report.message.replace('\0', " ");
        frontend::copy_fail(&message, &mut link.unsent).map_err(garbled)?;
        self.own.get_or_insert(report);
        link.send(look)
    }
}

/// Reads over what a statement gives that nobody waits for any more.
///
/// # Errors
/// [`WireError`].
pub(super) fn read_over(link: &mut Link, look: Look<'_>) -> Result<(), WireError> {
    while !matches!(link.next(look)?, Message::ReadyForQuery(_)) {}
    Ok(())
}

/// The same without a wait. Whether all of it has come.
pub(super) fn is_read_over(link: &mut Link) -> bool {
    // What is wrong with the connection is told to the next statement.
    while let Ok(Some(message)) = link.arrived() {
        if matches!(message, Message::ReadyForQuery(_)) {
            return true;
        }
    }
    false
}

fn garbled(error: std::io::Error) -> WireError {
    WireError::Garbled(error.to_string())
}

fn columns_of(body: &RowDescriptionBody) -> Result<Vec<(String, u32)>, WireError> {
    let columns = body.fields().map(|own| Ok((own.name().to_owned(), own.type_oid())));
    columns.collect().map_err(garbled)
}

fn row_of(body: &DataRowBody) -> Result<Row, WireError> {
    let cell = |range: Option<std::ops::Range<usize>>| {
        let bytes = range.map(|range| body.buffer().get(range).unwrap_or_default());
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    body.ranges().map(cell).collect().map_err(garbled)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use super::super::client::NotRun;
    use super::super::testing::{BOUND, Kept, frame, heard, server};
    use super::*;

    #[test]
    fn data_is_sent_until_the_server_wants_no_more() {
        let (mut client, server) = server(|mut stream, _| {
            heard(&mut stream);
            stream.write_all(&frame(b'G', b"\0\0\0")).unwrap();
            assert_eq!(heard(&mut stream), (b'd', b"second".to_vec()));
            assert_eq!(heard(&mut stream), (b'd', b"first".to_vec()));
            assert_eq!(heard(&mut stream).0, b'c');
            stream.write_all(&[frame(b'C', b"COPY 2\0"), frame(b'Z', b"I")].concat()).unwrap();
            heard(&mut stream);
            stream.write_all(&frame(b'G', b"\0\0\0")).unwrap();
            heard(&mut stream);
            let failed = frame(b'E', b"SERROR\0C22P04\0Mno\0\0");
            // A server waits for no end of the data that it has refused.
            stream.write_all(&[failed, frame(b'Z', b"I")].concat()).unwrap();
            while heard(&mut stream).0 != b'c' {}
            assert_eq!(heard(&mut stream).0, b'X');
        });
        let kept = Kept::with(vec![b"first".to_vec(), b"second".to_vec()]);
        client.run("copy", &kept, &mut || Wish::Wait).unwrap();
        assert_eq!(kept.told(), ["COPY 2"]);
        let endless = Kept::with(vec![b"line\n".to_vec(); 1_000_000]);
        let ran = client.run("copy", &endless, &mut || Wish::Wait);
        let Err(NotRun::Failed(report)) = ran else { panic!("{ran:?}") };
        assert_eq!(report.state, "22P04");
        assert!(endless.left() > 0);
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn a_copy_is_cancelled_at_a_server_that_takes_all_of_it() {
        let (mut client, server) = server(|mut stream, listener| {
            heard(&mut stream);
            stream.write_all(&frame(b'G', b"\0\0\0")).unwrap();
            drop(listener.accept().unwrap());
            loop {
                match heard(&mut stream).0 {
                    b'd' => {}
                    other => break assert_eq!(other, b'f'),
                }
            }
            let failed = frame(b'E', b"SERROR\0C57014\0Mcanceled\0\0");
            stream.write_all(&[failed, frame(b'Z', b"I")].concat()).unwrap();
            assert_eq!(heard(&mut stream).0, b'X');
        });
        let kept = Kept::with(vec![b"line\n".to_vec(); 1_000]);
        let mut look = || if kept.left() < 900 { Wish::Cancel } else { Wish::Wait };
        let ran = client.run("copy", &kept, &mut look);
        let Err(NotRun::Failed(report)) = ran else { panic!("{ran:?}") };
        assert_eq!((report.state.as_str(), kept.left()), ("57014", 899));
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_writes_before_it_reads_is_heard() {
        // More than any buffers of a connection hold.
        const EACH_WAY: usize = 48 << 20;
        let (mut client, server) = server(|mut stream, _| {
            heard(&mut stream);
            stream.write_all(&frame(b'G', b"\0\0\0")).unwrap();
            // The first part of the data is on its way.
            stream.peek(&mut [0]).unwrap();
            let notice = [&b"SNOTICE\0M"[..], &vec![b'a'; EACH_WAY], b"\0\0"].concat();
            stream.write_all(&frame(b'N', &notice)).unwrap();
            assert_eq!(heard(&mut stream).1.len(), EACH_WAY);
            assert_eq!(heard(&mut stream).0, b'c');
            stream.write_all(&[frame(b'C', b"COPY 1\0"), frame(b'Z', b"I")].concat()).unwrap();
            assert_eq!(heard(&mut stream).0, b'X');
        });
        let kept = Kept::with(vec![vec![b'a'; EACH_WAY]]);
        let began = Instant::now();
        let mut look = || if began.elapsed() > BOUND { Wish::Leave } else { Wish::Wait };
        client.run("copy", &kept, &mut look).unwrap();
        let told = kept.told();
        assert_eq!((told.len(), told[0].len()), (2, "NOTICE: ".len() + EACH_WAY));
        drop(client);
        server.join().unwrap();
    }
}
