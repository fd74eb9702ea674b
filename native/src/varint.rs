//! Zigzag varints of Kafka's records: base 128, low groups first, at most 64 bits in ten bytes.

/// The varint that begins at `at`, and where it ends; None where it is cut off or too long.
#[inline(always)]
pub fn read(data: &[u8], at: usize) -> Option<(i64, usize)> {
    read_bits(data, at).map(|(bits, end)| (zigzag(bits), end))
}

/// A size and where it ends, as `read`; it is negative where the first of the two is None.
#[inline(always)]
pub fn read_size(data: &[u8], at: usize) -> Option<(Option<u64>, usize)> {
    read_bits(data, at).map(|(bits, end)| (size_of(bits), end))
}

/// How many numbers of two bytes `write_all` packs.
const SHORT_IN_A_WORD: usize = 8;

/// Bytes that `Short` looks into.
pub const WINDOW_BYTES: usize = 16;

/// Goes through varints of one or two bytes that begin in the first half of some bytes; None where one has more.
pub struct Short<'a> {
    window: &'a [u8; WINDOW_BYTES],
    /// Where the next one begins.
    pub at: usize,
}

impl<'a> Short<'a> {
    /// The first begins where the window does.
    #[inline(always)]
    pub fn new(window: &'a [u8; WINDOW_BYTES]) -> Self {
        Short { window, at: 0 }
    }

    /// The next number.
    #[inline(always)]
    pub fn number(&mut self) -> Option<i64> {
        self.bits().map(zigzag)
    }

    /// The next number, which is a size: negative where it is None.
    #[inline(always)]
    pub fn size(&mut self) -> Option<Option<u64>> {
        self.bits().map(size_of)
    }

    #[inline(always)]
    fn bits(&mut self) -> Option<u64> {
        let at = self.at % (WINDOW_BYTES / 2);
        let (bits, size) = short([self.window[at], self.window[at + 1]])?;
        self.at += size;
        Some(bits)
    }
}

/// The bits of the varint at `at`, and where it ends; None where it is cut off or too long.
#[inline(always)]
pub fn read_bits(data: &[u8], at: usize) -> Option<(u64, usize)> {
    if let Some(pair) = data.get(at..)?.first_chunk()
        && let Some((bits, size)) = short(*pair)
    {
        return Some((bits, at + size));
    }
    read_long(data, at)
}

/// The bits of a varint of one or two bytes, and how many it has.
#[inline(always)]
fn short(pair: [u8; 2]) -> Option<(u64, usize)> {
    let pair = u64::from(u16::from_le_bytes(pair));
    if pair & 0x80 == 0 {
        return Some((pair & 0x7F, 1));
    }
    if pair & 0x8000 == 0 {
        return Some((pair & 0x7F | pair >> 1 & 0x3F80, 2));
    }
    None
}

#[cold]
#[inline(never)]
fn read_long(data: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (place, &byte) in data.get(at..)?.iter().take(10).enumerate() {
        if place == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7F) << (7 * place);
        if byte < 0x80 {
            return Some((value, at + place + 1));
        }
    }
    None
}

#[inline(always)]
fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline(always)]
fn size_of(bits: u64) -> Option<u64> {
    if bits & 1 == 0 { Some(bits >> 1) } else { None }
}

/// How many bytes `write` takes for `value`.
#[inline(always)]
pub fn size(value: i64) -> usize {
    let rest = unsigned(value);
    if rest < 1 << 14 {
        return 1 + usize::from(rest >= 0x80);
    }
    let bits = 64 - rest.leading_zeros() as usize;
    bits.div_ceil(7)
}

/// `value` behind what `out` holds.
#[inline(always)]
pub fn write(out: &mut Vec<u8>, value: i64) {
    let mut rest = unsigned(value);
    if rest < 0x80 {
        return out.push(rest as u8);
    }
    if rest < 1 << 14 {
        return out.extend_from_slice(&[rest as u8 | 0x80, (rest >> 7) as u8]);
    }
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The values one behind the other, as `write` has them: quick where each takes one or two bytes, as nearly always.
#[inline(always)]
pub fn write_all<const N: usize>(out: &mut Vec<u8>, values: [i64; N]) {
    const { assert!(N <= SHORT_IN_A_WORD) };
    let (mut word, mut bits, mut all) = (0u128, 0, 0);
    for value in values {
        let rest = unsigned(value);
        let two = rest >= 0x80;
        let pair = if two { rest & 0x7F | 0x80 | rest >> 7 << 8 } else { rest };
        word |= u128::from(pair) << bits;
        bits += if two { 16 } else { 8 };
        all |= rest;
    }
    if all < 1 << 14 {
        let end = out.len() + bits / 8;
        out.extend_from_slice(&word.to_le_bytes());
        return out.truncate(end);
    }
    for value in values {
        write(out, value);
    }
}

#[inline(always)]
fn unsigned(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for power in 0..64 {
            for near in [-1i64, 0, 1] {
                for value in [(1i64 << power).wrapping_add(near), (-1i64 << power).wrapping_add(near)] {
                    let mut out = Vec::new();
                    write(&mut out, value);
                    assert_eq!(out.len(), size(value));
                    assert_eq!(read(&out, 0), Some((value, out.len())));
                    assert_eq!(read(&out[..out.len() - 1], 0), None);
                    let mut together = vec![7];
                    write_all(&mut together, [3, value, -1, value, 100]);
                    assert_eq!(together, [&[7, 6], &out[..], &[1], &out[..], &[0xC8, 1]].concat());
                }
            }
        }
    }

    #[test]
    fn more_than_64_bits_are_refused() {
        let mut long = vec![0xFF; 9];
        long.push(1);
        assert_eq!(read(&long, 0), Some((i64::MIN, 10)));
        long[9] = 2;
        assert_eq!(read(&long, 0), None);
        assert_eq!(read(&[0x80; 11], 0), None);
    }
}
