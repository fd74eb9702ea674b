//! Bits for offsets: which records a snapshot shows. Bit `i % 8` of byte `i / 8` is the offset `base + i`.

use crate::refused::{Refused, invalid};
use crate::supersedes::{DEAD, FAR, NOTHING};

/// What is done for each record, in the order in which records count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It becomes visible, and what it supersedes is not any more.
    Forward,
    /// What it supersedes becomes visible again, and it is not any more. The newest records come first.
    Back,
    /// What it supersedes becomes visible again; it stays what it is.
    Keep,
}

/// Some records: runs of them as first offset and count, and of each its distance; beside them the far ones.
pub struct Entries<'a> {
    /// First offset and count of each run.
    pub runs: &'a [i64],
    /// One for each record.
    pub distances: &'a [u32],
    /// Offset and superseded offset of those that are far, sorted.
    pub far: &'a [i64],
}

/// Takes `step` for each record.
pub fn mark(bits: &mut [u8], base: i64, entries: &Entries<'_>, step: Step) -> Result<(), Refused> {
    let (runs, odd) = entries.runs.as_chunks::<2>();
    let (far, odd_far) = entries.far.as_chunks::<2>();
    let count = runs.iter().try_fold(0i64, |sum, [first, count]| {
        let sound = *first >= 0 && *count >= 0 && first.checked_add(*count).is_some();
        sum.checked_add(*count).filter(|_| sound)
    });
    if !odd.is_empty() || !odd_far.is_empty() || count != i64::try_from(entries.distances.len()).ok() {
        return invalid("runs do not have as many records as there are distances");
    }
    let mut at = 0;
    for &[first, count] in runs {
        let distances = &entries.distances[at..at + count as usize];
        at += count as usize;
        if step == Step::Forward {
            fill(bits, base, first, count, true);
        }
        for (offset, &distance) in (first..).zip(distances) {
            let previous = match distance {
                NOTHING => continue,
                DEAD if step == Step::Forward => offset,
                DEAD => continue,
                FAR => match far.binary_search_by_key(&offset, |pair| pair[0]) {
                    Ok(found) => far[found][1],
                    Err(_) => return invalid(format!("nothing says what the record at offset {offset} supersedes")),
                },
                near => offset - i64::from(near),
            };
            put(bits, base, previous, step != Step::Forward);
        }
    }
    if step == Step::Back {
        for &[first, count] in runs {
            fill(bits, base, first, count, false);
        }
    }
    Ok(())
}

#[inline(always)]
fn put(bits: &mut [u8], base: i64, offset: i64, set: bool) {
    let at = offset.wrapping_sub(base) as u64;
    if let Some(byte) = usize::try_from(at / 8).ok().and_then(|place| bits.get_mut(place)) {
        let bit = 1 << (at % 8);
        *byte = if set { *byte | bit } else { *byte & !bit };
    }
}

/// Sets or clears those of the `count` bits from `first` on that there are.
fn fill(bits: &mut [u8], base: i64, first: i64, count: i64, set: bool) {
    let (start, end) = within(bits, base, i128::from(first), i128::from(first) + i128::from(count));
    if start >= end {
        return;
    }
    let (low, high) = (start / 8, (end - 1) / 8);
    let (head, tail) = (0xFFu8 << (start % 8), 0xFFu8 >> (7 - (end - 1) % 8));
    for (place, byte) in bits.iter_mut().enumerate().take(high + 1).skip(low) {
        let mask = if place == low { head } else { 0xFF } & if place == high { tail } else { 0xFF };
        *byte = if set { *byte | mask } else { *byte & !mask };
    }
}

/// Those places of the offsets `[first, end)` that there are bits for.
fn within(bits: &[u8], base: i64, first: i128, end: i128) -> (usize, usize) {
    let size = bits.len() as i128 * 8;
    let place = |offset: i128| (offset - i128::from(base)).clamp(0, size) as usize;
    (place(first), place(end))
}

/// Whether a bit of the offsets `[first, end)` is set.
pub fn any(bits: &[u8], base: i64, first: i128, end: i128) -> bool {
    let (start, end) = within(bits, base, first, end);
    if start >= end {
        return false;
    }
    let (low, high) = (start / 8, (end - 1) / 8);
    let (head, tail) = (0xFFu8 << (start % 8), 0xFFu8 >> (7 - (end - 1) % 8));
    if low == high {
        return bits[low] & head & tail != 0;
    }
    bits[low] & head != 0 || bits[high] & tail != 0 || bits[low + 1..high].iter().any(|&byte| byte != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_and_back_again() {
        let (runs, distances) = ([3, 4, 20, 2], [0, 1, 0, 3, 15, DEAD]);
        let entries = Entries { runs: &runs, distances: &distances, far: &[] };
        let mut bits = [0; 3];
        mark(&mut bits, 0, &entries, Step::Forward).unwrap();
        assert_eq!(bits, [0b0101_0000 & !(1 << 5), 0, 1 << 4]);
        mark(&mut bits, 0, &entries, Step::Back).unwrap();
        assert_eq!(bits, [0; 3]);
    }

    #[test]
    fn wild_entries_are_refused_or_miss() {
        let wild = [(&[0, 2][..], &[1][..]), (&[i64::MAX, 1][..], &[1][..]), (&[1][..], &[][..])];
        for (runs, distances) in wild {
            let entries = Entries { runs, distances, far: &[] };
            assert!(mark(&mut [0], 0, &entries, Step::Back).is_err());
        }
        let entries = Entries { runs: &[5, 1], distances: &[DEAD - 1], far: &[] };
        let mut bits = [0xFF];
        mark(&mut bits, i64::MIN, &entries, Step::Forward).unwrap();
        assert_eq!(bits, [0xFF]);
    }
}
