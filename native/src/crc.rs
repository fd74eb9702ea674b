//! CRC-32C (Castagnoli, RFC 3720), which covers a batch from its attributes on.

use crc_fast::{CrcAlgorithm, checksum};

/// The CRC-32C of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_value_of_the_standard() {
        assert_eq!(super::crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(super::crc32c(&[0; 32]), 0x8A91_36AA);
    }
}
