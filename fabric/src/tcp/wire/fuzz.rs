//! Fuzz targets of the bytes on a connection, those of `hello` too.
//!
//! Under `cargo test` each of them runs over the corpus in `__fuzz__` and a thousand random inputs.
//! With `cargo bolero test -p selkie-fabric tcp::wire::frames::fuzz::frames` a fuzzer looks for
//! more.
//!
//! For every input: decoding does not panic. A whole frame lies within the input and does not
//! depend on the bytes behind it. A partial frame claims more bytes than there are. What was
//! decoded encodes to the same bytes.

use std::path::Path;

use super::super::hello::{
    HELLO_BYTES, Hello, REPLY_BYTES, decode_reply, encode_reply, hello_bytes,
};
use super::*;
use crate::buf::Buf;
use crate::error::Refusal;

const PEER: PeerId = PeerId::memory(3);

/// What a node may have requested for when a response comes.
fn posted() -> Vec<Chain> {
    let at = RemoteAddr::new(RegionKey::from_raw(7), 64);
    vec![
        Chain::new(),
        Verb::read(at, Buf::zeroed(32)).into(),
        [Verb::fetch_and_add(at, 1), Verb::read(at, Buf::zeroed(16))].into(),
        [Verb::write(at, Buf::zeroed(8)), Verb::compare_and_swap(at, 1, 2)].into(),
    ]
}

fn verb_of(requested: RequestedVerb<'_>) -> Verb {
    match requested {
        RequestedVerb::Read { at, bytes } => Verb::read(at, Buf::zeroed(bytes)),
        RequestedVerb::Write { at, payload, rings } => {
            let mut from = Buf::zeroed(payload.len());
            from.copy_from_slice(payload);
            if rings { Verb::write_with_doorbell(at, from) } else { Verb::write(at, from) }
        }
        RequestedVerb::CompareAndSwap { at, expected, desired } => {
            Verb::compare_and_swap(at, expected, desired)
        }
        RequestedVerb::FetchAndAdd { at, delta } => Verb::fetch_and_add(at, delta),
    }
}

/// Checks how long a frame is said to be; its bytes if it is whole.
fn frame<'d, T: std::fmt::Debug + PartialEq>(
    data: &'d [u8],
    decode: impl Fn(&'d [u8]) -> Result<Decoded<T>, WireError>,
) -> Option<(&'d [u8], T)> {
    match decode(data).ok()? {
        Decoded::Partial(bytes) => {
            assert!(bytes > data.len(), "{bytes} bytes are partial, {} have come", data.len());
            None
        }
        Decoded::Whole(bytes, decoded) => {
            let (frame, _) = data.split_at(bytes);
            let Ok(Decoded::Whole(same_bytes, same)) = decode(frame) else {
                panic!("what comes behind a frame makes it one");
            };
            assert_eq!((bytes, &decoded), (same_bytes, &same));
            Some((frame, decoded))
        }
    }
}

/// Whether `data` begins with a whole request that was understood.
fn request(data: &[u8]) -> bool {
    let Some((bytes, request)) = frame(data, decode_request) else { return false };
    let chain = Chain { verbs: request.verbs().map(verb_of).collect() };
    check_chain(&chain).unwrap();
    let mut again = Vec::new();
    encode_request(&mut again, request.sequence, request.unanswered, &chain);
    assert!(again == bytes, "{chain:?}");
    true
}

/// Whether `data` begins with a whole response to `chain`.
fn response(data: &[u8], mut chain: Chain) -> bool {
    let limit = max_response_bytes(&chain);
    let Some((bytes, response)) = frame(data, |data| decode_response(data, limit)) else {
        return false;
    };
    let Ok((executed, failure)) = response.fill(&mut chain, PEER) else { return false };
    assert_eq!(failure.is_none(), executed == chain.verbs.len());
    let mut again = Vec::new();
    let mut writer = ResponseWriter::begin(&mut again, response.sequence);
    chain.verbs.iter().take(executed).for_each(|verb| writer.result(verb));
    writer.end(failure.as_ref());
    assert!(again == bytes, "{executed} verbs of {chain:?}, then {failure:?}");
    true
}

/// Whether `data` is a hello of this version.
fn hello(data: &[u8]) -> bool {
    if let Ok(bytes) = hello_bytes(data) {
        assert!(bytes <= HELLO_BYTES);
        let is_whole = data.len() >= bytes;
        assert!(
            !is_whole || !matches!(Hello::decode(&data[..bytes]), Err(WireError::Magic { .. }))
        );
    }
    let Ok(Ok(hello)) = Hello::decode(data) else { return false };
    assert_eq!(hello.encode(), data);
    true
}

/// Whether `data` begins with a reply.
fn reply(data: &[u8]) -> bool {
    match decode_reply(data) {
        Ok(Some(Err(Refusal::Version { .. }))) => true,
        Ok(Some(verdict)) => {
            assert_eq!(encode_reply(verdict), data[..REPLY_BYTES]);
            true
        }
        Ok(None) => {
            assert!(data.len() < REPLY_BYTES);
            false
        }
        Err(_) => false,
    }
}

/// What `data` is understood as.
fn kinds(data: &[u8]) -> Vec<&'static str> {
    let responses =
        posted().into_iter().map(|chain| response(data, chain)).filter(|is| *is).count();
    let is = [
        (hello(data), "hello"),
        (reply(data), "reply"),
        (request(data), "request"),
        (responses > 0, "response"),
    ];
    is.into_iter().filter_map(|(is, kind)| is.then_some(kind)).collect()
}

/// The frames of the corpus with their names.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tcp/wire/__fuzz__/frames/corpus");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut corpus: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    corpus.sort();
    corpus
}

/// Any bytes at all.
#[test]
fn frames() {
    bolero::check!(name = "frames").for_each(|data: &[u8]| {
        kinds(data);
    });
}

/// Frames of the corpus with some of their bytes changed, cut short, or followed by others: nearer
/// to what is understood than any bytes at all.
#[test]
fn changed_frames() {
    let corpus = corpus();
    let changes =
        bolero::check!(name = "changed_frames").with_type::<(u8, Vec<(u8, u8)>, u8, Option<u8>)>();
    changes.for_each(|(which, changes, length, followed_by)| {
        let mut data = corpus[usize::from(*which) % corpus.len()].1.clone();
        for (index, value) in changes.iter().take(4) {
            let index = usize::from(*index) % data.len().max(1);
            data.get_mut(index).into_iter().for_each(|byte| *byte = *value);
        }
        match followed_by {
            Some(byte) => data.extend(vec![*byte; usize::from(*length)]),
            None => data.truncate(usize::from(*length)),
        }
        kinds(&data);
    });
}

#[test]
fn the_corpus_is_what_its_names_say() {
    let mut counts = [0; 8];
    for (name, data) in corpus() {
        let (is_bad, kind) = match name.strip_prefix("bad_") {
            None => (false, name.as_str()),
            Some(kind) => (true, kind),
        };
        let known = ["hello", "reply", "request", "response"];
        let index = known.iter().position(|known| kind.starts_with(known)).unwrap();
        counts[2 * index + usize::from(is_bad)] += 1;
        let kinds = kinds(&data);
        assert_eq!(kinds.contains(&known[index]), !is_bad, "{name} is {kinds:?}");
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
