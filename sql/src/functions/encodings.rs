//! Byte strings as texts, and the MD5 hash.

use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::text_format::{parse_bytes, parse_hex, print_hex};

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of a line of base64.
const LINE: usize = 76;

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

/// Refuses an encoding of characters that is not UTF-8.
pub(super) fn check_utf8(name: &str) -> SqlResult<()> {
    match name.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(SqlError::unsupported(format!("the encoding \"{name}\""))),
    }
}

/// `encode` of SQL.
pub(super) fn encode(bytes: &[u8], format: &str) -> SqlResult<String> {
    let mut out = String::new();
    match format.to_ascii_lowercase().as_str() {
        "hex" => print_hex(bytes, &mut out),
        "base64" => print_base64(bytes, &mut out),
        "escape" => {
            // Only zero bytes and those of no ASCII are escaped here, unlike in a value's text.
            for &byte in bytes {
                match byte {
                    b'\\' => out.push_str("\\\\"),
                    0 | 128.. => out.push_str(&format!("\\{byte:03o}")),
                    _ => out.push(char::from(byte)),
                }
            }
        }
        _ => return Err(invalid(format!("unrecognized encoding: \"{format}\""))),
    }
    Ok(out)
}

/// `decode` of SQL.
pub(super) fn decode(text: &str, format: &str) -> SqlResult<Vec<u8>> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => parse_hex(text),
        "base64" => parse_base64(text),
        "escape" if !text.starts_with("\\x") => parse_bytes(text),
        "escape" => {
            Err(SqlError::new(SqlState::INVALID_TEXT, "invalid input syntax for type bytea"))
        }
        _ => Err(invalid(format!("unrecognized encoding: \"{format}\""))),
    }
}

fn print_base64(bytes: &[u8], out: &mut String) {
    let mut column = 0;
    for chunk in bytes.chunks(3) {
        if column == LINE {
            out.push('\n');
            column = 0;
        }
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let all = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = BASE64.get((all >> shift & 63) as usize).copied().unwrap_or(b'=');
            out.push(if at > chunk.len() { '=' } else { char::from(digit) });
        }
        column += 4;
    }
}

fn parse_base64(text: &str) -> SqlResult<Vec<u8>> {
    let (mut out, mut group, mut count, mut padding) = (Vec::new(), 0u32, 0, 0);
    for c in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let digit = BASE64.iter().position(|known| *known == c);
        let digit = match digit.and_then(|digit| u32::try_from(digit).ok()) {
            Some(digit) if padding == 0 => digit,
            None if c == b'=' && count >= 2 => {
                padding += 1;
                0
            }
            _ => {
                let shown = char::from(c);
                return Err(invalid(format!(
                    "invalid symbol \"{shown}\" found while decoding base64 sequence"
                )));
            }
        };
        group = group << 6 | digit;
        count += 1;
        if count == 4 {
            let [_, bytes @ ..] = group.to_be_bytes();
            out.extend(bytes.iter().take(3 - padding));
            (group, count) = (0, 0);
        }
    }
    if count != 0 {
        return Err(invalid("invalid base64 end sequence")
            .hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

/// How far each step of MD5 turns its sum.
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The MD5 hash in hexadecimal digits (RFC 1321).
pub(super) fn md5(bytes: &[u8]) -> String {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - bytes.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    padded.truncate(padded.len() - 8);
    padded.extend((bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        }
        let next = md5_block(state, &words);
        for (sum, part) in state.iter_mut().zip(next) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut out = String::new();
    for part in state {
        print_hex(&part.to_le_bytes(), &mut out);
    }
    out
}

fn md5_block(state: [u32; 4], words: &[u32; 16]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = state;
    for step in 0..64usize {
        let (mixed, word) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "RFC 1321")]
        let constant = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let word = words.get(word % 16).copied().unwrap_or(0);
        let turn = TURNS.get(step / 16).and_then(|row| row.get(step % 4)).copied().unwrap_or(0);
        let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(word);
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(turn)));
    }
    [a, b, c, d]
}
