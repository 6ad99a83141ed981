//! Tests of requests and responses as bytes; what holds for arbitrary ones is in `fuzz`.

use proptest::prelude::*;

use super::*;
use crate::buf::Buf;

const PEER: PeerId = PeerId::memory(3);

fn at(region: u32, offset: u64) -> RemoteAddr {
    RemoteAddr::new(RegionKey::from_raw(region), offset)
}

fn buf(words: &[u64]) -> Buf {
    let mut buf = Buf::zeroed(words.len() * 8);
    buf.words_mut().copy_from_slice(words);
    buf
}

/// A verb, and how the other side must see it.
fn verbs() -> impl Strategy<Value = Vec<(u8, u32, u64, u64, Vec<u64>)>> {
    let payload = prop::collection::vec(any::<u64>(), 0..20);
    let verb = (1_u8..=5, any::<u32>(), any::<u64>(), any::<u64>(), payload);
    prop::collection::vec(verb, 0..10)
}

fn chain_of(verbs: &[(u8, u32, u64, u64, Vec<u64>)]) -> Chain {
    let mut chain = Chain::new();
    for (opcode, region, offset, value, words) in verbs {
        let at = at(*region, *offset);
        chain.push(match *opcode {
            READ => Verb::read(at, Buf::zeroed(words.len() * 8)),
            WRITE => Verb::write(at, buf(words)),
            WRITE_WITH_DOORBELL => Verb::write_with_doorbell(at, buf(words)),
            COMPARE_AND_SWAP => Verb::compare_and_swap(at, *value, !*value),
            _ => Verb::fetch_and_add(at, *value),
        });
    }
    chain
}

fn assert_is(requested: RequestedVerb<'_>, verb: &Verb) {
    match (requested, verb) {
        (RequestedVerb::Read { at, bytes }, Verb::Read { at: same, into }) => {
            assert_eq!((at, bytes), (*same, into.len()));
        }
        (RequestedVerb::Write { at, payload, rings }, Verb::Write { at: same, from }) => {
            assert_eq!((at, payload, rings), (*same, &from[..], false));
        }
        (
            RequestedVerb::Write { at, payload, rings },
            Verb::WriteWithDoorbell { at: same, from },
        ) => {
            assert_eq!((at, payload, rings), (*same, &from[..], true));
        }
        (
            RequestedVerb::CompareAndSwap { at, expected, desired },
            Verb::CompareAndSwap { at: same, expected: e, desired: d, .. },
        ) => assert_eq!((at, expected, desired), (*same, *e, *d)),
        (
            RequestedVerb::FetchAndAdd { at, delta },
            Verb::FetchAndAdd { at: same, delta: d, .. },
        ) => {
            assert_eq!((at, delta), (*same, *d));
        }
        (requested, verb) => panic!("{requested:?} is not {verb:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_arrive_as_they_were_sent(verbs in verbs(), sequence in any::<u64>()) {
        let chain = chain_of(&verbs);
        let mut bytes = Vec::new();
        let unanswered = (sequence % WINDOW_CHAINS as u64) as u16;
        encode_request(&mut bytes, sequence, unanswered, &chain);
        let whole = bytes.len();
        for length in 0..whole {
            match decode_request(&bytes[..length]) {
                Ok(Decoded::Partial(bytes)) => assert!(bytes > length && bytes <= whole),
                other => panic!("{length} of {whole} bytes are {other:?}"),
            }
        }
        bytes.extend([0xff; 7]);
        let Ok(Decoded::Whole(length, request)) = decode_request(&bytes) else {
            panic!("not understood")
        };
        assert_eq!((length, request.sequence), (whole, sequence));
        assert_eq!(request.unanswered, unanswered);
        assert_eq!(request.verbs().count(), chain.verbs.len());
        for (requested, verb) in request.verbs().zip(&chain.verbs) {
            assert_is(requested, verb);
        }
    }

    #[test]
    fn results_arrive_as_they_were_found(
        verbs in verbs(),
        stop in any::<prop::sample::Index>(),
        why in 0..5,
    ) {
        // As executed: payloads are read, old values found.
        let mut executed = chain_of(&verbs);
        for (verb, (.., value, words)) in executed.verbs.iter_mut().zip(&verbs) {
            match verb {
                Verb::Read { into, .. } => into.words_mut().copy_from_slice(words),
                Verb::CompareAndSwap { old, .. } | Verb::FetchAndAdd { old, .. } => {
                    *old = Some(value.wrapping_mul(7));
                }
                _ => {}
            }
        }
        let mut chain = chain_of(&verbs);
        let failure = (why > 0 && !verbs.is_empty()).then(|| stop.index(verbs.len()));
        let count = failure.unwrap_or(verbs.len());
        let error = failure.map(|stopped| {
            let verb = &chain.verbs[stopped];
            let bytes = verb.buf().map_or(8, |buf| buf.len()) as u64;
            match why {
                1 => FabricError::UnknownRegion { peer: PEER, region: verb.at().region },
                2 => FabricError::OutOfBounds { at: verb.at(), bytes, region_bytes: 4096 },
                3 if bytes > 0 => {
                    let (region, what) = (verb.at().region, verb.access());
                    let offset = verb.at().offset.saturating_add(bytes / 2);
                    FabricError::Forbidden { peer: PEER, region, offset, what }
                }
                _ => FabricError::Misaligned { at: verb.at() },
            }
        });
        let mut bytes = vec![1, 2, 3];
        let mut response = ResponseWriter::begin(&mut bytes, 77);
        executed.verbs.iter().take(count).for_each(|verb| response.result(verb));
        response.end(error.as_ref());

        let limit = max_response_bytes(&chain);
        for length in 0..bytes.len() - 3 {
            let partial = decode_response(&bytes[3..3 + length], limit);
            assert!(matches!(partial, Ok(Decoded::Partial(more)) if more > length));
        }
        let Ok(Decoded::Whole(length, response)) = decode_response(&bytes[3..], limit) else {
            panic!("not understood")
        };
        assert_eq!((length, response.sequence), (bytes.len() - 3, 77));
        assert_eq!(response.fill(&mut chain, PEER), Ok((count, error)));
        for (index, (verb, original)) in chain.verbs.iter().zip(&executed.verbs).enumerate() {
            if index < count {
                assert_eq!(format!("{:?}", verb.old()), format!("{:?}", original.old()));
                assert_eq!(verb.buf().map(|b| b.to_vec()), original.buf().map(|b| b.to_vec()));
            }
        }
    }
}

#[test]
fn a_request_has_the_bytes_of_the_map() {
    let chain = Chain::from([
        Verb::fetch_and_add(at(0x0102_0304, 0x10), 5),
        Verb::write_with_doorbell(at(0xa, 8), buf(&[0x1122])),
    ]);
    let mut bytes = Vec::new();
    encode_request(&mut bytes, 3, 2, &chain);
    let mut expected = vec![72, 0, 0, 0, 2, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([5, 0, 0, 0, 4, 3, 2, 1, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([3, 0, 0, 0, 0xa, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([0x22, 0x11, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes, expected);
}

#[test]
fn bad_requests_are_refused_for_what_is_wrong_with_them() {
    let good = || {
        let mut bytes = Vec::new();
        let chain =
            Chain::from([Verb::write(at(1, 0), buf(&[1, 2])), Verb::fetch_and_add(at(1, 8), 1)]);
        encode_request(&mut bytes, 0, 0, &chain);
        bytes
    };
    let cases: &[(&str, usize, &[u8], WireError)] = &[
        ("unanswered before the first", 6, &[1], WireError::Window { unanswered: 1, sequence: 0 }),
        ("unanswered beyond the window", 6, &[0, 32, 0, 0, 1], {
            WireError::Window { unanswered: 8192, sequence: 1 << 16 }
        }),
        ("more verbs than allowed", 4, &[1, 4], WireError::ChainVerbs { verbs: 1025 }),
        ("more verbs than there are", 4, &[3], WireError::Length),
        ("fewer verbs than there are", 4, &[1], WireError::Length),
        ("no verbs but a body", 4, &[0], WireError::Length),
        ("no such verb", 16, &[6], WireError::Opcode { found: 6 }),
        ("verb zero", 16, &[0], WireError::Opcode { found: 0 }),
        ("reserved field of a verb", 17, &[1], WireError::Reserved),
        ("second operand of a write", 40, &[1], WireError::Reserved),
        ("payload in half words", 32, &[12], WireError::PayloadBytes { bytes: 12 }),
        ("payload beyond the frame", 32, &[88], WireError::Length),
        ("payload one word too short", 32, &[8], WireError::Reserved),
        (
            "payload beyond the bound",
            32,
            &[0, 0, 0, 0, 1],
            WireError::PayloadBytes { bytes: 1 << 32 },
        ),
        ("body of 4 GiB", 0, &[255, 255, 255, 255], {
            let limit = (2 * RECORD_BYTES + MAX_CHAIN_BYTES) as u64;
            WireError::FrameBytes { bytes: u32::MAX.into(), limit }
        }),
        ("a body one byte shorter", 0, &[79], WireError::Length),
    ];
    assert!(matches!(decode_request(&good()), Ok(Decoded::Whole(96, _))));
    for (what, index, change, error) in cases {
        let mut bytes = good();
        bytes[*index..*index + change.len()].copy_from_slice(change);
        assert_eq!(decode_request(&bytes), Err(*error), "{what}");
    }
}

#[test]
fn reads_together_are_bounded() {
    let mut bytes = Vec::new();
    let chain =
        Chain::from([Verb::read(at(1, 0), Buf::zeroed(8)), Verb::read(at(1, 0), Buf::zeroed(8))]);
    encode_request(&mut bytes, 0, 0, &chain);
    for record in [16, 48] {
        bytes[record + 16..record + 24]
            .copy_from_slice(&(MAX_CHAIN_BYTES as u64 / 2 + 8).to_le_bytes());
    }
    let error = WireError::PayloadBytes { bytes: MAX_CHAIN_BYTES as u64 + 16 };
    assert_eq!(decode_request(&bytes), Err(error));
}

#[test]
fn chains_that_do_not_fit_are_not_sent() {
    let add = || Verb::fetch_and_add(at(1, 0), 1);
    let chain = |verbs: usize| Chain { verbs: (0..verbs).map(|_| add()).collect() };
    assert!(check_chain(&chain(MAX_CHAIN_VERBS)).is_ok());
    let error = check_chain(&chain(MAX_CHAIN_VERBS + 1)).unwrap_err();
    assert!(matches!(error, FabricError::ChainTooLong { verbs: 1025, bytes: 0, .. }), "{error}");
    let read = |bytes| Chain::from(Verb::read(at(1, 0), Buf::zeroed(bytes)));
    assert!(check_chain(&read(MAX_CHAIN_BYTES)).is_ok());
    assert!(check_chain(&read(MAX_CHAIN_BYTES + 8)).is_err());
}

#[test]
fn responses_that_no_execution_has_are_refused() {
    let chain =
        || Chain::from([Verb::fetch_and_add(at(1, 0), 1), Verb::write(at(1, 0), buf(&[1]))]);
    let response = |executed: u16, status: u16, body: usize| {
        let mut bytes = Vec::from((body as u32).to_le_bytes());
        bytes.extend(executed.to_le_bytes());
        bytes.extend(status.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(vec![0; body]);
        let limit = max_response_bytes(&chain());
        let Decoded::Whole(_, response) = decode_response(&bytes, limit)? else {
            panic!("all of it is there")
        };
        response.fill(&mut chain(), PEER).map(|(executed, _)| executed)
    };
    assert_eq!(response(2, DONE, 8), Ok(2));
    assert_eq!(response(1, MISALIGNED, 16), Ok(1));
    assert_eq!(response(0, DEAD, 8), Ok(0));
    let nonsense = |executed, status| Err(WireError::Response { status, executed, verbs: 2 });
    assert_eq!(response(1, DONE, 8), nonsense(1, DONE));
    assert_eq!(response(3, DONE, 8), nonsense(3, DONE));
    assert_eq!(response(2, MISALIGNED, 16), nonsense(2, MISALIGNED));
    assert_eq!(response(1, 9, 16), nonsense(1, 9));
    assert_eq!(response(1, FORBIDDEN, 16), Ok(1), "byte 0 of the write at 0");
    let with_detail = |status: u16, detail: u64| {
        let mut bytes = Vec::from([8, 0, 0, 0, 0, 0]);
        bytes.extend(status.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(detail.to_le_bytes());
        let limit = max_response_bytes(&chain());
        let Decoded::Whole(_, response) = decode_response(&bytes, limit)? else {
            panic!("all of it is there")
        };
        response.fill(&mut chain(), PEER).map(|(executed, _)| executed)
    };
    assert_eq!(with_detail(OUT_OF_BOUNDS, 5), Ok(0));
    assert_eq!([UNKNOWN_REGION, MISALIGNED, DEAD].map(|status| with_detail(status, 5)), {
        [Err(WireError::Reserved); 3]
    });
    assert_eq!(with_detail(FORBIDDEN, 7), Ok(0));
    let nonsense = WireError::Response { status: FORBIDDEN, executed: 0, verbs: 2 };
    assert_eq!(with_detail(FORBIDDEN, 8), Err(nonsense), "behind the add at 0");
    assert_eq!(response(2, DONE, 0), Err(WireError::Length));
    assert_eq!(response(1, MISALIGNED, 8), Err(WireError::Length));
    assert_eq!(response(2, DONE, 24), Err(WireError::FrameBytes { bytes: 24, limit: 16 }));
}
