//! The table of keys in files: rows of batches, which are entered later, partition by partition.
//!
//! A row is what a slot becomes: two words, the second 0 where the record has no key.

use crate::latest::{
    AT_ONCE, Applied, HIGH_BITS, Key, Keys, MOST_PARTITIONS, OFFSETS, Put, home, packed, partition_of, put, sound, walk,
};
use crate::prefetch::line_of;
use crate::refused::{Refused, invalid};
use crate::siphash::Secret;
use crate::supersedes::{FAR, NOTHING, distance};

struct Gathering<'a> {
    rows: &'a mut [[u64; 2]],
    base: i64,
    secret: Secret,
}

impl Keys for Gathering<'_> {
    type Hash = (u64, u64);

    fn base(&self) -> i64 {
        self.base
    }

    #[inline(always)]
    fn hash(&self, key: &[u8]) -> (u64, u64) {
        self.secret.hash(key)
    }

    fn take(&mut self, keys: &[Key<(u64, u64)>], done: &mut Applied) -> bool {
        for key in keys {
            let Some(row) = self.rows.get_mut(done.records) else {
                return false;
            };
            *row = key.hash.map_or([0, 0], |(low, high)| {
                [low, packed(high & ((1 << HIGH_BITS) - 1), (key.offset - self.base) as u64 + 1)]
            });
            done.took(key.offset);
        }
        true
    }
}

/// Makes a row of each record of the batches from `position` on, with an offset in `[first, end)`; where it ends is as
/// `latest::apply` says it, but that no partition becomes full.
pub fn gather(
    data: &[u8],
    position: usize,
    first: i64,
    end: i64,
    base: i64,
    secret: Secret,
    rows: &mut [u64],
) -> Result<Applied, Refused> {
    if base < 0 {
        return invalid("a table counts from an offset");
    }
    walk(data, position, first, end, &mut Gathering { rows: rows.as_chunks_mut::<2>().0, base, secret })
}

/// Writes the numbers of the rows that have a key, by partition and then as they are; says where each partition begins,
/// and the end.
pub fn order(rows: &[u64], order: &mut [u32], partitions: usize) -> Result<Vec<usize>, Refused> {
    if !partitions.is_power_of_two() || partitions > MOST_PARTITIONS {
        return invalid(format!("a table has 1, 2, 4 … 64 partitions, not {partitions}"));
    }
    let (rows, _) = rows.as_chunks::<2>();
    if order.len() < rows.len() || u32::try_from(rows.len()).is_err() {
        return invalid("there is no room for the numbers of the rows");
    }
    let mut starts = vec![0; partitions + 1];
    for [_, packed] in rows.iter().filter(|[_, packed]| packed & OFFSETS != 0) {
        starts[partition_of(*packed, partitions) + 1] += 1;
    }
    for partition in 0..partitions {
        starts[partition + 1] += starts[partition];
    }
    let mut next = starts.clone();
    for (number, [_, packed]) in rows.iter().enumerate().filter(|(_, [_, packed])| packed & OFFSETS != 0) {
        let at = &mut next[partition_of(*packed, partitions)];
        order[*at] = number as u32;
        *at += 1;
    }
    Ok(starts)
}

/// What `enter` has done.
pub struct Entered {
    /// How many of the numbered rows were entered.
    pub rows: usize,
    /// Keys of the partition.
    pub keys: u64,
    /// Offset and superseded offset where the distance says that it is far.
    pub far: Vec<[i64; 2]>,
}

/// Makes the rows that `order` numbers, in this order, the newest of their keys in a partition with so many keys, and
/// writes the distance of each where its number says; it ends where the partition is full.
pub fn enter(
    words: &mut [u64],
    keys: u64,
    rows: &[u64],
    order: &[u32],
    base: i64,
    distances: &mut [u32],
) -> Result<Entered, Refused> {
    if !sound(words) {
        return invalid("a partition has two words a slot and at least four slots");
    }
    if base < 0 || base > i64::MAX - OFFSETS as i64 {
        return invalid("a table counts from an offset");
    }
    let (rows, slots) = (rows.as_chunks::<2>().0, words.len() / 2);
    let there = rows.len().min(distances.len());
    if order.iter().any(|&row| row as usize >= there || rows[row as usize][1] & OFFSETS == 0) {
        return invalid("a row that is to be entered is not there");
    }
    let mut done = Entered { rows: 0, keys, far: Vec::new() };
    for near in order.chunks(AT_ONCE) {
        for &row in near {
            line_of(&words[2 * home(rows[row as usize][0], slots)]);
        }
        for &number in near {
            let row = rows[number as usize];
            let offset = (row[1] & OFFSETS) as i64 - 1 + base;
            distances[number as usize] = match put(words, &mut done.keys, row, home(row[0], slots)) {
                Put::Full => return Ok(done),
                Put::New => NOTHING,
                Put::Was(known) => {
                    let previous = known as i64 - 1 + base;
                    let found = distance(offset, previous);
                    if found == FAR {
                        done.far.push([offset, previous]);
                    }
                    found
                }
            };
            done.rows += 1;
        }
    }
    Ok(done)
}
