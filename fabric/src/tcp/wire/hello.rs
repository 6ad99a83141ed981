//! The begin of a connection: the hello of the node that connects, and the reply to it.
//!
//! All numbers are little-endian. The first three fields of a hello, and of a reply, are the same
//! in every version. The length of a hello is the same from version 3 on; version 1 ended before
//! the key, version 2 with 8 bytes of zero behind it.
//!
//! ```text
//! hello                                     reply
//! 0   magic         u64  HELLO_MAGIC        0   magic     u64  REPLY_MAGIC
//! 8   version       u32  VERSION            8   version   u32  VERSION of the replying node
//! 12  keepalive_ms  u32  longest silence    12  verdict   u32  0, or why the connection is refused
//! 16  pool          u64  number of the pool 16  executed  u64  chains executed in this session
//! 24  from          u16  the connecting node 24
//! 26  to            u16  the node it connects to
//! 28  has_key       u32  0 or 1
//! 32  incarnation   u64  of the connecting node, not 0
//! 40  key           16 bytes, 0 without a key
//! 56  session       u64  random, not 0: one queue pair
//! 64  received      u64  responses of the session that the node has
//! 72  attempt       u32  1, 2, ...: number of the connection within its session
//! 76  resumes       u32  1 if the host has accepted a connection of the session before, else 0
//! 80
//! ```
//! Behind the reply the host sends the responses from `received` to `executed` again, and the node
//! the requests from `executed` on. A host that does not know a session that is to be resumed, or
//! has seen a later connection of it, refuses.

use super::error::WireError;
use super::fields::FieldReader;
use crate::error::Refusal;
use crate::id::PeerId;
use crate::tcp::security::key::{AccessKey, KEY_BYTES};

/// First word of a hello.
const HELLO_MAGIC: u64 = u64::from_le_bytes(*b"SELKTCP?");
/// First word of a reply.
const REPLY_MAGIC: u64 = u64::from_le_bytes(*b"SELKTCP!");
/// Version of everything behind the first three fields.
pub(crate) const VERSION: u32 = 3;

pub(crate) const MAGIC_BYTES: usize = 8;
pub(crate) const HELLO_BYTES: usize = 80;
/// Length of a hello of version 2.
const SECOND_HELLO_BYTES: usize = 64;
/// Length of a hello of version 1.
const FIRST_HELLO_BYTES: usize = 40;
/// Where the version of a hello ends.
const VERSION_END: usize = MAGIC_BYTES + 4;
pub(crate) const REPLY_BYTES: usize = 24;
/// Length of a reply of an earlier version.
const EARLIER_REPLY_BYTES: usize = 16;

const _: () = assert!(HELLO_BYTES == SECOND_HELLO_BYTES + 8 + 4 + 4);
const _: () = assert!(SECOND_HELLO_BYTES == FIRST_HELLO_BYTES + KEY_BYTES + 8);
const _: () = assert!(FIRST_HELLO_BYTES == VERSION_END + 4 + 8 + 2 + 2 + 4 + 8);
const _: () = assert!(REPLY_BYTES == EARLIER_REPLY_BYTES + 8 && EARLIER_REPLY_BYTES == 8 + 4 + 4);

const ACCEPTED: u32 = 0;
const REFUSED_VERSION: u32 = 1;
const REFUSED_POOL: u32 = 2;
const REFUSED_NAME: u32 = 3;
const REFUSED_REVOKED: u32 = 4;
const REFUSED_FULL: u32 = 5;
const REFUSED_KEY: u32 = 6;
const REFUSED_ROLE: u32 = 7;
const REFUSED_SESSION: u32 = 8;

/// The first message of a node that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) keepalive_ms: u32,
    pub(crate) pool: u64,
    pub(crate) from: PeerId,
    pub(crate) to: PeerId,
    pub(crate) incarnation: u64,
    pub(crate) key: Option<AccessKey>,
    pub(crate) session: SessionHello,
}

/// What a hello says of the session that the connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionHello {
    pub(crate) id: u64,
    /// Responses that the node has received.
    pub(crate) received: u64,
    /// Number of the connection within the session, from 1 on.
    pub(crate) attempt: u32,
    /// The host has accepted a connection of the session before.
    pub(crate) resumes: bool,
}

/// The first word of `received`, unless it is the magic of a hello.
pub(crate) fn other_magic(received: &[u8]) -> Option<u64> {
    FieldReader(received).u64().filter(|magic| *magic != HELLO_MAGIC)
}

/// The length of the hello that begins with `received`. More bytes may give a greater length.
pub(crate) fn hello_bytes(received: &[u8]) -> Result<usize, WireError> {
    if let Some(found) = other_magic(received) {
        return Err(WireError::Magic { found });
    }
    let mut fields = FieldReader(received);
    Ok(match (fields.u64(), fields.u32()) {
        (None, _) => MAGIC_BYTES,
        (_, None) => VERSION_END,
        (_, Some(0 | 1)) => FIRST_HELLO_BYTES,
        (_, Some(2)) => SECOND_HELLO_BYTES,
        _ => HELLO_BYTES,
    })
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HELLO_BYTES);
        out.extend(HELLO_MAGIC.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend(self.keepalive_ms.to_le_bytes());
        out.extend(self.pool.to_le_bytes());
        out.extend(self.from.to_raw().to_le_bytes());
        out.extend(self.to.to_raw().to_le_bytes());
        out.extend(u32::from(self.key.is_some()).to_le_bytes());
        out.extend(self.incarnation.to_le_bytes());
        out.extend(self.key.map_or([0; KEY_BYTES], AccessKey::to_bytes));
        let SessionHello { id, received, attempt, resumes } = self.session;
        out.extend(id.to_le_bytes());
        out.extend(received.to_le_bytes());
        out.extend(attempt.to_le_bytes());
        out.extend(u32::from(resumes).to_le_bytes());
        out
    }

    /// Decodes a hello. Of another version only the version is decoded.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Result<Self, Refusal>, WireError> {
        let mut fields = FieldReader(bytes);
        let magic = fields.u64().ok_or(WireError::Length)?;
        if magic != HELLO_MAGIC {
            return Err(WireError::Magic { found: magic });
        }
        let version = fields.u32().ok_or(WireError::Length)?;
        if version != VERSION {
            return Ok(Err(Refusal::Version { ours: VERSION, theirs: version }));
        }
        let mut rest = || {
            let (keepalive_ms, pool) = (fields.u32()?, fields.u64()?);
            let (from, to) = (fields.u16()?, fields.u16()?);
            let (has_key, incarnation) = (fields.u32()?, fields.u64()?);
            let key = fields.take::<KEY_BYTES>()?;
            let (id, received) = (fields.u64()?, fields.u64()?);
            let (attempt, resumes) = (fields.u32()?, fields.u32()?);
            let session = SessionHello { id, received, attempt, resumes: resumes == 1 };
            let (from, to) = (PeerId::from_raw(from), PeerId::from_raw(to));
            let key_is = (has_key, key);
            let key = None;
            let hello = Self { version, keepalive_ms, pool, from, to, incarnation, key, session };
            fields.0.is_empty().then_some((hello, key_is, resumes))
        };
        let (hello, (has_key, key), resumes) = rest().ok_or(WireError::Length)?;
        let SessionHello { id, received, attempt, .. } = hello.session;
        // A session that is not resumed has no responses.
        let is_new = resumes == 0 && received == 0;
        if id == 0 || attempt == 0 || !(is_new || resumes == 1) || hello.incarnation == 0 {
            return Err(WireError::Reserved);
        }
        match has_key {
            0 if key == [0; KEY_BYTES] => Ok(Ok(hello)),
            1 => Ok(Ok(Self { key: Some(AccessKey::from_bytes(key)), ..hello })),
            _ => Err(WireError::Reserved),
        }
    }
}

/// The reply to a hello: how many chains of the session were executed, or a refusal.
pub(crate) fn encode_reply(verdict: Result<u64, Refusal>) -> Vec<u8> {
    let executed = verdict.unwrap_or(0);
    let verdict = match verdict {
        Ok(_) => ACCEPTED,
        Err(Refusal::Version { .. }) => REFUSED_VERSION,
        Err(Refusal::Pool) => REFUSED_POOL,
        Err(Refusal::Name) => REFUSED_NAME,
        Err(Refusal::Revoked) => REFUSED_REVOKED,
        Err(Refusal::Full) => REFUSED_FULL,
        Err(Refusal::Key) => REFUSED_KEY,
        Err(Refusal::Role) => REFUSED_ROLE,
        Err(Refusal::Session) => REFUSED_SESSION,
    };
    let mut out = Vec::with_capacity(REPLY_BYTES);
    out.extend(REPLY_MAGIC.to_le_bytes());
    out.extend(VERSION.to_le_bytes());
    out.extend(verdict.to_le_bytes());
    out.extend(executed.to_le_bytes());
    out
}

/// Decodes a reply; `None` if bytes are missing.
pub(crate) fn decode_reply(data: &[u8]) -> Result<Option<Result<u64, Refusal>>, WireError> {
    let mut fields = FieldReader(data);
    let (Some(magic), Some(version), Some(verdict)) = (fields.u64(), fields.u32(), fields.u32())
    else {
        return Ok(None);
    };
    if magic != REPLY_MAGIC {
        return Err(WireError::Magic { found: magic });
    }
    // The other fields of another version are unknown here.
    if version != VERSION {
        return Ok(Some(Err(Refusal::Version { ours: VERSION, theirs: version })));
    }
    let Some(executed) = fields.u64() else { return Ok(None) };
    if verdict != ACCEPTED && executed != 0 {
        return Err(WireError::Reserved);
    }
    Ok(Some(match verdict {
        ACCEPTED => Ok(executed),
        REFUSED_VERSION => Err(Refusal::Version { ours: VERSION, theirs: version }),
        REFUSED_POOL => Err(Refusal::Pool),
        REFUSED_NAME => Err(Refusal::Name),
        REFUSED_REVOKED => Err(Refusal::Revoked),
        REFUSED_FULL => Err(Refusal::Full),
        REFUSED_KEY => Err(Refusal::Key),
        REFUSED_ROLE => Err(Refusal::Role),
        REFUSED_SESSION => Err(Refusal::Session),
        found => return Err(WireError::Verdict { found }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        version: VERSION,
        keepalive_ms: 2500,
        pool: 0x1122_3344_5566_7788,
        from: PeerId::compute(1),
        to: PeerId::memory(3),
        incarnation: 9,
        key: Some(AccessKey::from_bytes([7; KEY_BYTES])),
        session: SessionHello { id: 11, received: 5, attempt: 3, resumes: true },
    };

    #[test]
    fn hello_and_reply_arrive_or_say_what_is_wrong() {
        let new = SessionHello { id: 11, received: 0, attempt: 1, resumes: false };
        for hello in [HELLO, Hello { key: None, ..HELLO }, Hello { session: new, ..HELLO }] {
            let bytes = hello.encode();
            assert_eq!(Hello::decode(&bytes), Ok(Ok(hello)));
            assert_eq!([0, 7, 8, 11, 12, 80].map(|received| hello_bytes(&bytes[..received])), {
                [Ok(8), Ok(8), Ok(12), Ok(12), Ok(80), Ok(80)]
            });
            assert_eq!(Hello::decode(&bytes[..79]), Err(WireError::Length));
            assert_eq!(Hello::decode(&[&bytes[..], &[0]].concat()), Err(WireError::Length));
        }
        let changed = |index: usize, value: u8| {
            let mut bytes = HELLO.encode();
            bytes[index] = value;
            Hello::decode(&bytes)
        };
        assert!(matches!(changed(0, 0), Err(WireError::Magic { .. })));
        assert_eq!(changed(8, 4), Ok(Err(Refusal::Version { ours: VERSION, theirs: 4 })));
        assert_eq!(changed(28, 0), Err(WireError::Reserved), "a key, but none is announced");
        assert_eq!(changed(28, 2), Err(WireError::Reserved));
        assert_eq!(changed(32, 0), Err(WireError::Reserved), "no incarnation");
        assert_eq!(changed(56, 0), Err(WireError::Reserved), "no session");
        assert_eq!(changed(72, 0), Err(WireError::Reserved), "no attempt");
        assert_eq!(changed(76, 0), Err(WireError::Reserved), "responses, but nothing is resumed");
        assert_eq!(changed(76, 2), Err(WireError::Reserved));

        let prefix = |version: u32| {
            hello_bytes(&[HELLO_MAGIC.to_le_bytes().as_slice(), &version.to_le_bytes()].concat())
        };
        assert_eq!([1, 2, 3, u32::MAX].map(prefix), [Ok(40), Ok(64), Ok(80), Ok(80)]);
        assert_eq!(hello_bytes(&[1; 8]), Err(WireError::Magic { found: 0x0101_0101_0101_0101 }));
        let first = &HELLO.encode()[..40];
        let first = [&first[..8], &[1, 0, 0, 0], &first[12..]].concat();
        assert_eq!(Hello::decode(&first), Ok(Err(Refusal::Version { ours: VERSION, theirs: 1 })));

        let verdicts = [
            Ok(0),
            Ok(77),
            Err(Refusal::Version { ours: VERSION, theirs: VERSION }),
            Err(Refusal::Pool),
            Err(Refusal::Name),
            Err(Refusal::Revoked),
            Err(Refusal::Full),
            Err(Refusal::Key),
            Err(Refusal::Role),
            Err(Refusal::Session),
        ];
        for verdict in verdicts {
            let bytes = encode_reply(verdict);
            assert_eq!(decode_reply(&bytes), Ok(Some(verdict)));
            assert_eq!(
                [15, 23].map(|received| decode_reply(&bytes[..received])),
                [Ok(None), Ok(None)]
            );
        }
        let mut bytes = encode_reply(Ok(0));
        bytes[12] = 9;
        assert_eq!(decode_reply(&bytes), Err(WireError::Verdict { found: 9 }));
        bytes[16] = 1;
        assert_eq!(decode_reply(&bytes), Err(WireError::Reserved), "a refusal executed nothing");
        for theirs in [2, 4] {
            bytes[8] = theirs;
            let other = Refusal::Version { ours: VERSION, theirs: theirs.into() };
            assert_eq!(decode_reply(&bytes[..16]), Ok(Some(Err(other))), "whatever it means there");
        }
        bytes[7] = b'?';
        assert!(
            matches!(decode_reply(&bytes), Err(WireError::Magic { .. })),
            "a hello is no reply"
        );
    }
}
