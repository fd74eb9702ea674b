//! The newest offset of each key, by the key's hash: open addressing with linear probing, in slots of two words.
//!
//! ```text
//! word 0   the first half of the hash; from its upper 32 bits comes the slot that is tried first
//! word 1   24 bits of the other half, of which the uppermost choose the partition; 40 bits: the offset from the
//!          table's base on, plus one; 0 where the slot is free
//! ```
//!
//! A partition takes as many keys as fill three quarters of its slots; then it is copied into a larger one.

use crate::batches::{self, CONTROL, Header};
use crate::portions::checked;
use crate::prefetch::line_of;
use crate::records::Records;
use crate::refused::{Refused, corrupt, invalid};
use crate::siphash::Secret;
use crate::supersedes::{FAR, NOTHING, distance};

const HIGH_BITS: u32 = 24;
const OFFSET_BITS: u32 = 40;
const OFFSETS: u64 = (1 << OFFSET_BITS) - 1;
const MOST_PARTITIONS: usize = 64;
const FEWEST_SLOTS: usize = 4;
/// Slots that are asked for before the first of them is looked at.
const AT_ONCE: usize = 32;

/// How many keys a partition of so many slots takes.
pub fn most_keys(slots: usize) -> usize {
    slots - slots / 4
}

/// The partitions of a table, their counts of keys, the offset that slots count from, and the hash's secret.
pub struct Table<'a> {
    /// Two words a slot.
    pub partitions: Vec<&'a mut [u64]>,
    /// Keys in each partition.
    pub counts: &'a mut [u64],
    /// The offset that slots count from.
    pub base: i64,
    /// The secret of the hash.
    pub secret: Secret,
}

/// What `apply` has done.
#[derive(Debug, Default)]
pub struct Applied {
    /// Where the batch begins with which it goes on.
    pub position: usize,
    /// The first offset that was not applied.
    pub next: i64,
    /// The partition that has no room for the next key.
    pub full: Option<usize>,
    /// Records applied; as many distances are written.
    pub records: usize,
    /// First offset and count of records that follow one another.
    pub runs: Vec<[i64; 2]>,
    /// Offset and superseded offset where the distance says that it is far.
    pub far: Vec<[i64; 2]>,
}

struct Key {
    offset: i64,
    /// None where the record has no key.
    hash: Option<Hash>,
}

#[derive(Clone, Copy)]
struct Hash {
    low: u64,
    high: u64,
    partition: usize,
    slot: usize,
}

enum Put {
    Was(i64),
    New,
    Full,
}

impl Table<'_> {
    fn check(&self) -> Result<(), Refused> {
        let count = self.partitions.len();
        if !count.is_power_of_two() || count > MOST_PARTITIONS || self.counts.len() != count {
            return invalid(format!("a table has 1, 2, 4 … 64 partitions and as many counts, not {count}"));
        }
        if self.partitions.iter().any(|one| !sound(one)) {
            return invalid("a partition has two words a slot and at least four slots");
        }
        if self.base < 0 {
            return invalid("a table counts from an offset");
        }
        Ok(())
    }

    #[inline(always)]
    fn hash(&self, key: &[u8]) -> Hash {
        let (low, high) = self.secret.hash(key);
        let high = high & ((1 << HIGH_BITS) - 1);
        let partition = (high >> (HIGH_BITS - self.partitions.len().trailing_zeros())) as usize;
        Hash { low, high, partition, slot: home(low, self.partitions[partition].len() / 2) }
    }

    #[inline(always)]
    fn put(&mut self, hash: Hash, relative: u64) -> Put {
        let words = &mut *self.partitions[hash.partition];
        let slots = words.len() / 2;
        let mut slot = hash.slot;
        for _ in 0..slots {
            let [low, packed] = &mut words[2 * slot..2 * slot + 2] else {
                break;
            };
            let known = *packed & OFFSETS;
            if known == 0 {
                if self.counts[hash.partition] >= most_keys(slots) as u64 {
                    return Put::Full;
                }
                self.counts[hash.partition] += 1;
                *low = hash.low;
                *packed = (hash.high << OFFSET_BITS) | relative;
                return Put::New;
            }
            if *low == hash.low && *packed >> OFFSET_BITS == hash.high {
                if known < relative {
                    *packed = (hash.high << OFFSET_BITS) | relative;
                }
                return Put::Was(known as i64 - 1 + self.base);
            }
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        Put::Full
    }

    /// Enters the keys of one batch from `done.next` on, until there is no room for one or for a distance.
    fn enter(&mut self, keys: &[Key], distances: &mut [u32], done: &mut Applied) -> bool {
        for near in keys.chunks(AT_ONCE) {
            for key in near.iter().filter_map(|key| key.hash) {
                if let Some(word) = self.partitions[key.partition].get(2 * key.slot) {
                    line_of(word);
                }
            }
            for key in near {
                let Some(to) = distances.get_mut(done.records) else {
                    return false;
                };
                *to = match key.hash.map(|hash| (hash, self.put(hash, (key.offset - self.base) as u64 + 1))) {
                    None | Some((_, Put::New)) => NOTHING,
                    Some((hash, Put::Full)) => {
                        done.full = Some(hash.partition);
                        return false;
                    }
                    Some((_, Put::Was(previous))) => {
                        let found = distance(key.offset, previous);
                        if found == FAR {
                            done.far.push([key.offset, previous]);
                        }
                        found
                    }
                };
                done.took(key.offset);
            }
        }
        true
    }
}

impl Applied {
    fn took(&mut self, offset: i64) {
        self.records += 1;
        self.next = offset + 1;
        match self.runs.last_mut() {
            Some([first, count]) if *first + *count == offset => *count += 1,
            _ => self.runs.push([offset, 1]),
        }
    }
}

fn sound(words: &[u64]) -> bool {
    words.len().is_multiple_of(2) && words.len() / 2 >= FEWEST_SLOTS && words.len() / 2 <= u32::MAX as usize
}

#[inline(always)]
fn home(low: u64, slots: usize) -> usize {
    (((low >> 32) * slots as u64) >> 32) as usize
}

/// Makes each record of the batches from `position` on, with an offset in `[first, end)`, the newest of its key, and
/// writes how far back the one is that it supersedes.
///
/// Control batches are passed over. It ends where the batches do, at one with offsets from `end` on, or where a
/// partition or the distances are full: then it goes on from `position` with `next` as `first`. What is wrong with a
/// batch is said by the call that begins with it; nothing of such a batch is entered.
pub fn apply(
    data: &[u8],
    position: usize,
    first: i64,
    end: i64,
    table: &mut Table<'_>,
    distances: &mut [u32],
) -> Result<Applied, Refused> {
    table.check()?;
    let mut done = Applied { position, next: first, ..Applied::default() };
    let (mut keys, mut scratch) = (Vec::new(), Vec::new());
    loop {
        let taken = match batch(data, end, table, &mut keys, &mut scratch, &done) {
            Ok(taken) => taken,
            Err(refused) if done.position == position && done.records == 0 => return Err(refused),
            Err(_) => None,
        };
        let Some(head) = taken else {
            return Ok(done);
        };
        let behind = i64::try_from(head.next_offset()).unwrap_or(i64::MAX);
        if behind <= done.next {
            done.position += head.size();
            continue;
        }
        if !table.enter(&keys, distances, &mut done) {
            return Ok(done);
        }
        if behind > end {
            done.next = done.next.max(end);
            return Ok(done);
        }
        done.next = done.next.max(behind);
        done.position += head.size();
    }
}

/// The keys that are wanted of the batch at `done.position`; None where there is none.
fn batch(
    data: &[u8],
    end: i64,
    table: &Table<'_>,
    keys: &mut Vec<Key>,
    scratch: &mut Vec<u8>,
    done: &Applied,
) -> Result<Option<Header>, Refused> {
    keys.clear();
    let Some((head, whole)) = batches::next(data, done.position)?.filter(|(head, _)| head.base_offset < end) else {
        return Ok(None);
    };
    if head.next_offset() <= i128::from(done.next) {
        return Ok(Some(head));
    }
    let body = checked(&head, whole, scratch)?;
    if head.attributes & CONTROL != 0 || head.records == 0 {
        return Ok(Some(head));
    }
    let mut records = Records::new(&head, body);
    let mut previous = -1;
    keys.try_reserve(head.records as usize)?;
    while let Some(record) = records.advance()? {
        if record.offset <= previous {
            return corrupt(format!("a record of the batch at offset {} is out of order", head.base_offset));
        }
        previous = record.offset;
        if record.offset < done.next || record.offset >= end {
            continue;
        }
        if record.offset < table.base || (record.offset - table.base) as u64 >= OFFSETS {
            return invalid(format!("the offset {} is out of a table that counts from {}", record.offset, table.base));
        }
        let key = body.get(record.key.at..record.key.at + record.key.size.max(0) as usize).unwrap_or_default();
        let hash = (record.key.size >= 0).then(|| table.hash(key));
        keys.push(Key { offset: record.offset, hash });
    }
    Ok(Some(head))
}

/// Fills the partition `to` with the keys of `from`, but for those whose newest offset has its bit in `gone`, which
/// begins at the offset `first` of a table that counts from `base`. Says how many keys there are.
pub fn copy(from: &[u64], to: &mut [u64], gone: &[u8], first: i64, base: i64) -> Result<usize, Refused> {
    if !sound(from) || !sound(to) {
        return invalid("a partition has two words a slot and at least four slots");
    }
    to.fill(0);
    let slots = to.len() / 2;
    let mut count = 0;
    for pair in from.as_chunks::<2>().0 {
        let [low, packed] = *pair;
        let relative = packed & OFFSETS;
        if relative == 0 || is_set(gone, i128::from(relative) - 1 + i128::from(base) - i128::from(first)) {
            continue;
        }
        if count == most_keys(slots) {
            return invalid("the keys do not fit into the partition");
        }
        let mut slot = home(low, slots);
        while to[2 * slot + 1] & OFFSETS != 0 {
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        to[2 * slot] = low;
        to[2 * slot + 1] = packed;
        count += 1;
    }
    Ok(count)
}

fn is_set(bits: &[u8], at: i128) -> bool {
    usize::try_from(at).ok().and_then(|at| bits.get(at / 8).map(|byte| (byte >> (at % 8)) & 1 == 1)).unwrap_or(false)
}
