//! GF(2^8): bytes as polynomials over GF(2), modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11D), of which x
//! is a generator.

/// What remains of x^8: the polynomial without its highest term.
pub(crate) const POLYNOMIAL: u8 = 0x1D;

/// `byte` times x.
const fn double(byte: u8) -> u8 {
    (byte << 1) ^ (POLYNOMIAL * (byte >> 7))
}

/// The product.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut a, mut b) = (0, a, b);
    while b != 0 {
        product ^= a * (b & 1);
        a = double(a);
        b >>= 1;
    }
    product
}

/// `base` times itself, `exponent` factors; 1 of none, also of 0.
pub(crate) fn power(base: u8, exponent: usize) -> u8 {
    let (mut product, mut square, mut exponent) = (1, base, exponent);
    while exponent != 0 {
        if exponent & 1 == 1 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    product
}

/// What gives 1 when multiplied by `byte`; 0 has none, and gives 0.
pub(crate) fn inverse(byte: u8) -> u8 {
    // The group has 255 elements: byte^255 is 1.
    power(byte, 254)
}

#[cfg(test)]
mod tests {
    use reed_solomon_erasure::galois_8;

    use super::*;

    #[test]
    fn all_products_are_those_of_the_reference() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), galois_8::mul(a, b), "{a} times {b}");
            }
        }
    }

    #[test]
    fn inverses_and_powers() {
        assert!((1..=255).all(|byte| multiply(byte, inverse(byte)) == 1));
        assert_eq!((power(0, 0), power(7, 0), power(0, 3)), (1, 1, 0));
        assert_eq!(power(2, 8), POLYNOMIAL);
        for base in 0..=255 {
            let mut expected = 1;
            for exponent in 0..20 {
                assert_eq!(power(base, exponent), expected);
                expected = multiply(expected, base);
            }
        }
    }
}
