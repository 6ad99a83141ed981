//! The hash SHA-224 of FIPS 180-4, which the library for hashes does not have.

/// The first 32 bits behind the point of the cube roots of the first 64 primes.
#[rustfmt::skip]
const ROUNDS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// Bits 33 to 64 behind the point of the square roots of the 9th to the 16th prime.
#[rustfmt::skip]
const FIRST: [u32; 8] = [
    0xc1059ed8, 0x367cd507, 0x3070dd17, 0xf70e5939, 0xffc00b31, 0x68581511, 0x64f98fa7, 0xbefa4fa4,
];

const BLOCK_BYTES: usize = 64;

/// The hash of bytes.
pub(super) fn sha224(bytes: &[u8]) -> [u8; 28] {
    let mut state = FIRST;
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    blocks.iter().for_each(|block| compress(&mut state, block));
    // A one, zeros up to the end of a block, and there the number of bits.
    let mut last = rest.to_vec();
    last.push(0x80);
    while last.len() % BLOCK_BYTES != BLOCK_BYTES - 8 {
        last.push(0);
    }
    last.extend((8 * bytes.len() as u64).to_be_bytes());
    last.as_chunks::<BLOCK_BYTES>().0.iter().for_each(|block| compress(&mut state, block));
    let mut hash = [0; 28];
    for (out, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *out = word.to_be_bytes();
    }
    hash
}

/// Takes a block into the state.
fn compress(state: &mut [u32; 8], block: &[u8; BLOCK_BYTES]) {
    let words = block.as_chunks::<4>().0.iter().map(|bytes| u32::from_be_bytes(*bytes));
    let mut schedule: Vec<u32> = words.collect();
    // Each further word is made of four before it: the 16th, 15th, 7th and 2nd last.
    while schedule.len() < ROUNDS.len() {
        let Some(&[w0, w1, .., w9, _, _, _, _, w14, _]) = schedule.last_chunk::<16>() else {
            return;
        };
        let small = w1.rotate_right(7) ^ w1.rotate_right(18) ^ (w1 >> 3);
        let large = w14.rotate_right(17) ^ w14.rotate_right(19) ^ (w14 >> 10);
        schedule.push(w0.wrapping_add(small).wrapping_add(w9).wrapping_add(large));
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in schedule.into_iter().zip(ROUNDS) {
        let mixed = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = (e & f) ^ (!e & g);
        let first = h.wrapping_add(mixed).wrapping_add(chosen);
        let first = first.wrapping_add(constant).wrapping_add(word);
        let mixed = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = mixed.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (own, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *own = own.wrapping_add(new);
    }
}

#[cfg(test)]
mod tests {
    use super::sha224;

    #[test]
    fn hashes_are_those_of_the_standard() {
        let shown = |bytes: &[u8]| -> String {
            sha224(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        assert_eq!(shown(b""), "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f");
        assert_eq!(shown(b"abc"), "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(shown(two_blocks), "75388b16512776cc5dba5da1fd890150b0c6455cb4f58b1952522525");
    }
}
