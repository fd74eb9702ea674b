//! Zigzag varints of Kafka's records: base 128, low groups first, at most 64 bits in ten bytes.

/// The varint that begins at `at`, and where it ends; None where it is cut off or too long.
#[inline(always)]
pub fn read(data: &[u8], at: usize) -> Option<(i64, usize)> {
    let low = *data.get(at)?;
    if low < 0x80 {
        return Some((zigzag(u64::from(low)), at + 1));
    }
    let high = *data.get(at + 1)?;
    if high < 0x80 {
        return Some((zigzag(u64::from(low & 0x7F) | u64::from(high) << 7), at + 2));
    }
    read_long(data, at)
}

/// Bytes that `read_short` looks into.
pub const WINDOW_BYTES: usize = 16;

/// `read` where the varint has one or two bytes; None where it has more. It begins in the window's first bytes.
#[inline(always)]
pub fn read_short(window: &[u8; WINDOW_BYTES], at: usize) -> Option<(i64, usize)> {
    let low = window[at % WINDOW_BYTES];
    if low < 0x80 {
        return Some((zigzag(u64::from(low)), at + 1));
    }
    let high = window[(at + 1) % WINDOW_BYTES];
    if high < 0x80 {
        return Some((zigzag(u64::from(low & 0x7F) | u64::from(high) << 7), at + 2));
    }
    None
}

#[cold]
#[inline(never)]
fn read_long(data: &[u8], at: usize) -> Option<(i64, usize)> {
    let mut value = 0u64;
    for (place, &byte) in data.get(at..)?.iter().take(10).enumerate() {
        if place == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7F) << (7 * place);
        if byte < 0x80 {
            return Some((zigzag(value), at + place + 1));
        }
    }
    None
}

#[inline(always)]
fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// How many bytes `write` takes for `value`.
#[inline(always)]
pub fn size(value: i64) -> usize {
    let bits = 64 - (unsigned(value) | 1).leading_zeros() as usize;
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
