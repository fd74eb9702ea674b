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

/// How many bits of the hash's other half there are.
pub const HIGH_BITS: u32 = 24;
const OFFSET_BITS: u32 = 40;
/// The bits of a slot's second word that say the offset.
pub const OFFSETS: u64 = (1 << OFFSET_BITS) - 1;
/// How many partitions a table has at most.
pub const MOST_PARTITIONS: usize = 64;
const FEWEST_SLOTS: usize = 4;
/// Slots that are asked for before the first of them is looked at.
pub const AT_ONCE: usize = 32;

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

/// A record that is wanted.
pub struct Key<H> {
    /// Its offset.
    pub offset: i64,
    /// None where it has no key.
    pub hash: Option<H>,
}

/// What takes the keys of batches.
pub trait Keys {
    /// What becomes of a key.
    type Hash;
    /// The offset that slots count from.
    fn base(&self) -> i64;
    /// The hash of a key.
    fn hash(&self, key: &[u8]) -> Self::Hash;
    /// Takes the keys of one batch from `done.next` on; false where there is no room for the next one.
    fn take(&mut self, keys: &[Key<Self::Hash>], done: &mut Applied) -> bool;
}

#[derive(Clone, Copy)]
struct Place {
    low: u64,
    high: u64,
    partition: usize,
    slot: usize,
}

/// What became of a key.
pub enum Put {
    /// The offset that was the newest of the key, as its slot has it.
    Was(u64),
    /// The key was not there.
    New,
    /// There is no room for the key.
    Full,
}

/// The second word of a slot.
#[inline(always)]
pub fn packed(high: u64, relative: u64) -> u64 {
    (high << OFFSET_BITS) | relative
}

/// The partition, of so many, of the key that a slot is of.
#[inline(always)]
pub fn partition_of(packed: u64, partitions: usize) -> usize {
    (packed >> (u64::BITS - partitions.trailing_zeros().max(1))) as usize % partitions
}

/// Makes the record the newest of its key, in a partition that has so many `keys`; `slot` is where its search begins.
#[inline(always)]
pub fn put(words: &mut [u64], keys: &mut u64, [low, new]: [u64; 2], mut slot: usize) -> Put {
    let slots = words.len() / 2;
    for _ in 0..slots {
        let [half, packed] = &mut words[2 * slot..2 * slot + 2] else {
            break;
        };
        let known = *packed & OFFSETS;
        if known == 0 {
            if *keys >= most_keys(slots) as u64 {
                return Put::Full;
            }
            *keys += 1;
            (*half, *packed) = (low, new);
            return Put::New;
        }
        if *half == low && *packed >> OFFSET_BITS == new >> OFFSET_BITS {
            if known < new & OFFSETS {
                *packed = new;
            }
            return Put::Was(known);
        }
        slot = if slot + 1 == slots { 0 } else { slot + 1 };
    }
    Put::Full
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
    fn put(&mut self, place: Place, relative: u64) -> Put {
        let keys = &mut self.counts[place.partition];
        put(self.partitions[place.partition], keys, [place.low, packed(place.high, relative)], place.slot)
    }
}

/// A table, and where distances are written.
struct Entering<'a, 'b> {
    table: &'a mut Table<'b>,
    distances: &'a mut [u32],
}

impl Keys for Entering<'_, '_> {
    type Hash = Place;

    fn base(&self) -> i64 {
        self.table.base
    }

    #[inline(always)]
    fn hash(&self, key: &[u8]) -> Place {
        let (low, high) = self.table.secret.hash(key);
        let high = high & ((1 << HIGH_BITS) - 1);
        let partition = (high >> (HIGH_BITS - self.table.partitions.len().trailing_zeros())) as usize;
        Place { low, high, partition, slot: home(low, self.table.partitions[partition].len() / 2) }
    }

    fn take(&mut self, keys: &[Key<Place>], done: &mut Applied) -> bool {
        let Entering { table, distances } = self;
        for near in keys.chunks(AT_ONCE) {
            for key in near.iter().filter_map(|key| key.hash) {
                if let Some(word) = table.partitions[key.partition].get(2 * key.slot) {
                    line_of(word);
                }
            }
            for key in near {
                let Some(to) = distances.get_mut(done.records) else {
                    return false;
                };
                *to = match key.hash.map(|place| (place, table.put(place, (key.offset - table.base) as u64 + 1))) {
                    None | Some((_, Put::New)) => NOTHING,
                    Some((place, Put::Full)) => {
                        done.full = Some(place.partition);
                        return false;
                    }
                    Some((_, Put::Was(known))) => done.distance(key.offset, known as i64 - 1 + table.base),
                };
                done.took(key.offset);
            }
        }
        true
    }
}

impl Applied {
    #[inline(always)]
    fn distance(&mut self, offset: i64, previous: i64) -> u32 {
        let found = distance(offset, previous);
        if found == FAR {
            self.far.push([offset, previous]);
        }
        found
    }

    /// One more record.
    #[inline(always)]
    pub fn took(&mut self, offset: i64) {
        self.records += 1;
        self.next = offset + 1;
        match self.runs.last_mut() {
            Some([first, count]) if *first + *count == offset => *count += 1,
            _ => self.runs.push([offset, 1]),
        }
    }
}

/// Whether this can be a partition.
pub fn sound(words: &[u64]) -> bool {
    words.len().is_multiple_of(2) && words.len() / 2 >= FEWEST_SLOTS && words.len() / 2 <= u32::MAX as usize
}

/// The slot that is tried first.
#[inline(always)]
pub fn home(low: u64, slots: usize) -> usize {
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
    walk(data, position, first, end, &mut Entering { table, distances })
}

/// Hands the records of the batches from `position` on, with an offset in `[first, end)`, to what takes them.
pub fn walk<K: Keys>(data: &[u8], position: usize, first: i64, end: i64, to: &mut K) -> Result<Applied, Refused> {
    let mut done = Applied { position, next: first, ..Applied::default() };
    let (mut keys, mut scratch) = (Vec::new(), Vec::new());
    loop {
        let taken = match batch(data, end, to, &mut keys, &mut scratch, &done) {
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
        if !to.take(&keys, &mut done) {
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
fn batch<K: Keys>(
    data: &[u8],
    end: i64,
    to: &K,
    keys: &mut Vec<Key<K::Hash>>,
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
        let base = to.base();
        if record.offset < base || (record.offset - base) as u64 >= OFFSETS {
            return invalid(format!("the offset {} is out of a table that counts from {base}", record.offset));
        }
        let key = body.get(record.key.at..record.key.at + record.key.size.max(0) as usize).unwrap_or_default();
        let hash = (record.key.size >= 0).then(|| to.hash(key));
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
