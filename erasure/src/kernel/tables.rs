//! What kernels look up for a coefficient, computed when this is compiled.

use crate::field::multiply;

/// Something for each byte.
#[repr(align(64))]
pub(super) struct PerByte<T>([T; 256]);

impl<T> PerByte<T> {
    #[expect(clippy::indexing_slicing, reason = "there is an entry for each byte")]
    #[inline(always)]
    pub(super) const fn of(&self, byte: u8) -> &T {
        &self.0[byte as usize]
    }
}

/// Nibble tables of multiplications: entry c is c times 0 to 15, then c times 0x00, 0x10 to 0xF0.
pub(super) static NIBBLES: PerByte<[[u8; 16]; 2]> = PerByte(nibbles());

/// Multiplications as 8x8 bit matrices: entry c maps a byte to c times it. Bit i of a product is
/// the parity of the byte under row i; row i is byte 7 - i, as `GF2P8AFFINEQB` has it.
///
/// (`GF2P8MULB` would multiply in another field, that of AES, with 0x11B.)
pub(super) static MATRICES: PerByte<u64> = PerByte(matrices());

#[expect(clippy::indexing_slicing, reason = "loops end at the arrays' lengths")]
const fn nibbles() -> [[[u8; 16]; 2]; 256] {
    let mut tables = [[[0; 16]; 2]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[factor][0][nibble] = multiply(factor as u8, nibble as u8);
            tables[factor][1][nibble] = multiply(factor as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        factor += 1;
    }
    tables
}

#[expect(clippy::indexing_slicing, reason = "the loop ends at the array's length")]
const fn matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        // Column j is what becomes of bit j: bit i of it goes to row i.
        let mut column = 0;
        while column < 8 {
            let image = multiply(factor as u8, 1 << column);
            let mut row = 0;
            while row < 8 {
                matrices[factor] |= ((image >> row & 1) as u64) << (8 * (7 - row) + column);
                row += 1;
            }
            column += 1;
        }
        factor += 1;
    }
    matrices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_matrices_multiply() {
        for a in 0..=255 {
            for b in 0..=255 {
                let product = multiply(a, b);
                let [low, high] = NIBBLES.of(a);
                let halves = low[usize::from(b & 15)] ^ high[usize::from(b >> 4)];
                assert_eq!(halves, product, "{a} times {b} by nibbles");
                let rows = MATRICES.of(a).to_be_bytes();
                let bit = |i: usize| (((rows[i] & b).count_ones() & 1) as u8) << i;
                assert_eq!((0..8).map(bit).sum::<u8>(), product, "{a} times {b} by bits");
            }
        }
    }
}
