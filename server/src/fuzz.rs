//! Fuzz targets of what clients send: bytes to frames to messages.
//!
//! Under `cargo test` each of them runs over some hundred random inputs. With
//! `cargo bolero test -p selkie-server fuzz::any_bytes` a fuzzer looks for more.
//!
//! For every input: nothing panics, every byte is read once, and what is kept is not more than
//! what has come. The order of messages is not looked at here.

use std::sync::Arc;

use crate::frames::{FrameError, Frames};
use crate::frontend::decode;
use crate::memory_limit::MemoryLimit;

/// Inputs of a target under `cargo test`.
const ITERATIONS: usize = 500;

/// Longest input, in bytes.
const LONGEST: usize = 512;

/// The kinds of messages that clients send.
const KINDS: &[u8] = b"BCDEHPQSXcdfFp";

/// Reads all that bytes are; gives the bytes of whole frames.
fn read(data: &[u8]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let memory = Arc::new(MemoryLimit::new(1 << 20));
        let reader = std::io::Cursor::new(data.to_vec());
        let mut frames = Frames::new(Box::new(reader), &memory);
        let mut bytes = 0;
        loop {
            match frames.buffered() {
                Ok(Some((kind, body))) => {
                    bytes += body.len() + 5;
                    // A message or an error of the protocol.
                    let _ = decode(kind, body);
                }
                Ok(None) => match frames.read().await {
                    Ok(()) => {}
                    Err(FrameError::Gone(_) | FrameError::Broken(_)) => break,
                },
                Err(_) => break,
            }
        }
        assert!(bytes <= data.len(), "{bytes} of {} bytes", data.len());
        assert_eq!(memory.used(), 0, "a short message is not counted");
        bytes
    })
}

#[test]
fn any_bytes() {
    let target = bolero::check!(name = "any_bytes");
    target.with_iterations(ITERATIONS).with_max_len(LONGEST).for_each(|data: &[u8]| {
        read(data);
    });
}

/// Frames of a right length with any body: all of them are read.
#[test]
fn any_bodies() {
    let target = bolero::check!(name = "any_bodies").with_type::<Vec<(u8, Vec<u8>)>>();
    target.with_iterations(ITERATIONS).for_each(|frames| {
        let mut data = Vec::new();
        for (kind, body) in frames {
            let Some(kind) = KINDS.get(usize::from(*kind) % KINDS.len()) else { continue };
            let Some(body) = body.get(..body.len().min(64)) else { continue };
            data.push(*kind);
            data.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
            data.extend(body);
        }
        let bytes = read(&data);
        assert!(bytes <= data.len());
    });
}
