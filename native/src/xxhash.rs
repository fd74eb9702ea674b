//! XXH32, the checksum of LZ4 frames, of a seed of 0. Algorithm: xxHash's specification, 0.1.1, by Yann Collet.
//!
//! Half of its multiplications depend on nothing but the data. They are made for many words at once, by the vector unit,
//! while the other multiplier is busy with the half that goes from one word to the next.

const PRIMES: [u32; 5] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1];
/// Four words, one for each lane.
const STRIPE_BYTES: usize = 16;
const WORD_BYTES: usize = 4;
/// Words that are multiplied before the first goes into its lane.
const RUN_WORDS: usize = 64;

/// The checksum of `data`.
pub fn xxh32(data: &[u8]) -> u32 {
    let (stripes, rest) = data.as_chunks::<STRIPE_BYTES>();
    let mut hash = if stripes.is_empty() { PRIMES[4] } else { lanes(stripes) };
    hash = hash.wrapping_add(data.len() as u32);
    let (words, bytes) = rest.as_chunks::<WORD_BYTES>();
    for word in words {
        hash = mixed(hash, u32::from_le_bytes(*word).wrapping_mul(PRIMES[2]), 17, PRIMES[3]);
    }
    for byte in bytes {
        hash = mixed(hash, u32::from(*byte).wrapping_mul(PRIMES[4]), 11, PRIMES[0]);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(PRIMES[1]);
    hash = (hash ^ hash >> 13).wrapping_mul(PRIMES[2]);
    hash ^ hash >> 16
}

/// What the four lanes come to.
fn lanes(stripes: &[[u8; STRIPE_BYTES]]) -> u32 {
    let mut lanes = [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, 0u32.wrapping_sub(PRIMES[0])];
    let mut products = [0; RUN_WORDS];
    for run in stripes.chunks(RUN_WORDS * WORD_BYTES / STRIPE_BYTES) {
        let (words, _) = run.as_flattened().as_chunks::<WORD_BYTES>();
        for (product, word) in products.iter_mut().zip(words) {
            *product = u32::from_le_bytes(*word).wrapping_mul(PRIMES[1]);
        }
        let (stripes, _) = products[..words.len()].as_chunks::<4>();
        for stripe in stripes {
            for (lane, product) in lanes.iter_mut().zip(stripe) {
                *lane = mixed(*lane, *product, 13, PRIMES[0]);
            }
        }
    }
    lanes.iter().zip([1, 7, 12, 18]).fold(0, |sum, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)))
}

#[inline(always)]
fn mixed(hash: u32, product: u32, turn: u32, prime: u32) -> u32 {
    hash.wrapping_add(product).rotate_left(turn).wrapping_mul(prime)
}

#[cfg(test)]
mod tests {
    use super::xxh32;

    #[test]
    fn known_checksums() {
        assert_eq!(xxh32(b""), 0x02CC_5D05);
        assert_eq!(xxh32(b"a"), 0x550D_7456);
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition"), 0xE229_3B2F);
    }

    #[test]
    fn of_any_length_what_another_makes_of_it() {
        let data: Vec<u8> = (0..2000u32).map(|number| (number.wrapping_mul(number) >> 5) as u8).collect();
        for size in 0..data.len() {
            assert_eq!(xxh32(&data[..size]), twox_hash::XxHash32::oneshot(0, &data[..size]), "{size}");
        }
    }
}
