//! SipHash-2-4 with 128 bits: a hash that nobody can foresee who does not know its key.
//!
//! Aumasson, Bernstein: SipHash, a fast short-input PRF (2012); the 128-bit variant is that of its reference code.

/// The secret of a hash.
#[derive(Clone, Copy)]
pub struct Secret(u64, u64);

struct State(u64, u64, u64, u64);

impl Secret {
    /// The secret with these bytes.
    pub fn new(bytes: &[u8; 16]) -> Self {
        let whole = u128::from_le_bytes(*bytes);
        Secret(whole as u64, (whole >> 64) as u64)
    }

    /// The two halves of the hash of `data`.
    #[inline]
    pub fn hash(self, data: &[u8]) -> (u64, u64) {
        let Secret(k0, k1) = self;
        let mut state = State(
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xEE,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        );
        let (words, rest) = data.as_chunks::<8>();
        for word in words {
            state.take(u64::from_le_bytes(*word));
        }
        let mut last = (data.len() as u64) << 56;
        for (place, &byte) in rest.iter().enumerate() {
            last |= u64::from(byte) << (8 * place);
        }
        state.take(last);
        state.2 ^= 0xEE;
        let low = state.finish();
        state.1 ^= 0xDD;
        (low, state.finish())
    }
}

impl State {
    #[inline(always)]
    fn round(&mut self) {
        let State(v0, v1, v2, v3) = self;
        *v0 = v0.wrapping_add(*v1);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v3);
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.wrapping_add(*v3);
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.wrapping_add(*v1);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v2 = v2.rotate_left(32);
    }

    #[inline(always)]
    fn take(&mut self, word: u64) {
        self.3 ^= word;
        self.round();
        self.round();
        self.0 ^= word;
    }

    #[inline(always)]
    fn finish(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.0 ^ self.1 ^ self.2 ^ self.3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_reference() {
        let key: [u8; 16] = std::array::from_fn(|at| at as u8);
        let (low, high) = Secret::new(&key).hash(b"");
        assert_eq!(low.to_le_bytes(), [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6]);
        assert_eq!(high.to_le_bytes(), [0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93]);
        let (low, high) = Secret::new(&key).hash(&[0]);
        assert_eq!(low.to_le_bytes(), [0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44]);
        assert_eq!(high.to_le_bytes(), [0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45]);
    }
}
