//! The checksum a split carries, by which a corrupt one is known without any other.

/// CRC-32C (Castagnoli) of these bytes: every error of up to 32 bits in a row shows, and every one
/// of up to three bits in splits of any length here.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::checksum;

    /// The definition, a bit at a time.
    fn by_definition(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1)))
        })
    }

    #[test]
    fn it_is_what_the_standard_lists() {
        // RFC 3720, appendix B.4.
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
        assert_eq!(checksum(&[0; 32]), 0x8A91_36AA);
        assert_eq!(checksum(&[0xFF; 32]), 0x62A8_AB43);
    }

    #[test]
    fn every_length_of_a_split_agrees_with_the_definition() {
        let bytes: Vec<u8> =
            (0..8192u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
        for length in (0..=300).chain([512, 819, 1024, 1366, 2048, 4096, 8192]) {
            assert_eq!(checksum(&bytes[..length]), by_definition(&bytes[..length]), "{length}");
        }
    }
}
