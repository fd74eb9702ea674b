//! The records of a batch, one behind the other. A record's fields are read within its own length.

use crate::batches::{APPEND_TIME, Header};
use crate::refused::{Refused, corrupt};
use crate::varint::{self, Short};

/// The largest number of milliseconds that is a 64-bit number of microseconds.
const LARGEST_MS: i64 = i64::MAX / 1000;
/// No varint of two bytes is further from zero.
const SHORT_DELTA: i64 = 1 << 13;

/// A record; what it has of keys, values and headers are places in the body.
pub struct Record {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp in µs, those that are no 64-bit number cut to the nearest that is a whole ms.
    pub timestamp_us: i64,
    /// Its timestamp in ms.
    pub timestamp_ms: i64,
    /// Where its key lies; a negative size is null.
    pub key: Field,
    /// Where its value lies.
    pub value: Field,
    /// How many headers there are, and where they lie.
    pub headers: Headers,
}

/// `size` bytes from `at` on; a negative size is null.
#[derive(Clone, Copy)]
pub struct Field {
    /// Where it begins.
    pub at: usize,
    /// Its bytes; negative where it is null.
    pub size: i64,
}

/// `count` headers from `at` up to `end`.
#[derive(Clone, Copy)]
pub struct Headers {
    /// How many there are.
    pub count: i64,
    /// Where they begin.
    pub at: usize,
    /// Where they and the record end.
    pub end: usize,
}

/// The records that a batch says it has; they fill its body exactly.
pub struct Records<'a> {
    head: &'a Header,
    body: &'a [u8],
    bounds: Bounds,
    left: i32,
    position: usize,
}

impl<'a> Records<'a> {
    /// The records of the batch with this header, decompressed.
    pub fn new(head: &'a Header, body: &'a [u8]) -> Self {
        Records { head, body, bounds: Bounds::new(head), left: head.records, position: 0 }
    }

    /// The next one; None behind the last.
    #[inline(always)]
    pub fn advance(&mut self) -> Result<Option<Record>, Refused> {
        if self.left == 0 {
            return self.end();
        }
        let record = match self.bounds.short(self.body, self.position) {
            Some(record) => record,
            None => any(self.head, self.body, self.position)?,
        };
        self.left -= 1;
        self.position = record.headers.end;
        Ok(Some(record))
    }

    fn end(&self) -> Result<Option<Record>, Refused> {
        match self.body.len() - self.position {
            0 => Ok(None),
            more => corrupt(damage(self.head, &format!("{more} bytes follow the last one"))),
        }
    }
}

/// What is said of a damaged record.
pub fn damage(head: &Header, what: &str) -> String {
    format!("a record of the batch at offset {} is damaged: {what}", head.base_offset)
}

/// What a batch's header says of each of its records.
struct Bounds {
    base_offset: i64,
    /// Offset deltas are less.
    deltas: u64,
    /// The same for records that `short` may read.
    short_deltas: u64,
    base_timestamp: i64,
    /// ms in a timestamp's delta; none where timestamps are the append's.
    delta_ms: i64,
}

impl Bounds {
    fn new(head: &Header) -> Self {
        let append_time = head.attributes & APPEND_TIME != 0;
        let base_timestamp = if append_time { head.max_timestamp } else { head.base_timestamp };
        let deltas = (i64::from(head.last_offset_delta) + 1).max(0) as u64;
        let ordinary = (-LARGEST_MS + SHORT_DELTA..=LARGEST_MS - SHORT_DELTA).contains(&base_timestamp);
        Bounds {
            base_offset: head.base_offset,
            deltas,
            short_deltas: if ordinary { deltas } else { 0 },
            base_timestamp,
            delta_ms: if append_time { 0 } else { 1 },
        }
    }

    /// The record at `position`, if what stands before its key is as short as it mostly is, and its timestamp as far
    /// from the ends of time; None says nothing of it.
    ///
    /// Its fields follow one another, so that all of them lie within its length if the last one ends there.
    #[inline(always)]
    fn short(&self, body: &[u8], position: usize) -> Option<Record> {
        let mut varints = Short::new(body.get(position..)?.first_chunk()?);
        let length = varints.size()??;
        let end = position + varints.at + length as usize;
        varints.at += 1;
        let timestamp_delta = varints.number()?;
        let offset_delta = varints.size()??;
        let size = varints.size()?;
        let data = body.get(..end)?;
        let (key, at) = Field::within(data, position + varints.at, size)?;
        let (value, at) = field(data, at)?;
        let count = *data.get(at)?;
        // An even byte below 128 is a whole varint, and not negative.
        if count & 0x81 != 0 || offset_delta >= self.short_deltas {
            return None;
        }
        let ms = self.base_timestamp + timestamp_delta * self.delta_ms;
        let headers = Headers { count: i64::from(count >> 1), at: at + 1, end };
        headers.record(self.base_offset + offset_delta as i64, (ms, ms * 1000), key, value)
    }

    /// The record at `position`, whatever its fields take.
    fn any(&self, body: &[u8], position: usize) -> Option<Record> {
        let (length, start) = varint::read_size(body, position)?;
        let end = start.checked_add(usize::try_from(length?).ok()?)?;
        let data = body.get(..end)?;
        let (timestamp_delta, at) = varint::read(data, start + 1)?;
        let (offset_delta, at) = varint::read_size(data, at)?;
        let (key, at) = field(data, at)?;
        let (value, at) = field(data, at)?;
        let (count, at) = varint::read_size(data, at)?;
        let offset_delta = offset_delta.filter(|delta| *delta < self.deltas)? as i64;
        let timestamp_delta = if self.delta_ms == 0 { 0 } else { timestamp_delta };
        let ms = self.base_timestamp.checked_add(timestamp_delta).filter(|ms| *ms != i64::MIN)?;
        let us = ms.clamp(-LARGEST_MS, LARGEST_MS) * 1000;
        let headers = Headers { count: i64::try_from(count?).ok()?, at, end };
        headers.record(self.base_offset + offset_delta, (ms, us), key, value)
    }
}

impl Headers {
    /// The record that they end, which they fill; None where it has more bytes and no headers.
    #[inline(always)]
    fn record(self, offset: i64, timestamp: (i64, i64), key: Field, value: Field) -> Option<Record> {
        if self.count == 0 && self.at != self.end {
            return None;
        }
        let (timestamp_ms, timestamp_us) = timestamp;
        Some(Record { offset, timestamp_us, timestamp_ms, key, value, headers: self })
    }

    /// How many there are; None where they cannot lie there: a header takes two bytes at least.
    #[inline(always)]
    pub fn bounded(&self) -> Option<usize> {
        usize::try_from(self.count).ok().filter(|count| *count <= (self.end - self.at) / 2)
    }

    /// Calls `take` with the name and the value of each; false where they do not fill their place.
    #[inline(always)]
    pub fn each(&self, body: &[u8], mut take: impl FnMut(Field, Field)) -> bool {
        let (data, mut at) = (&body[..self.end], self.at);
        for _ in 0..self.count {
            let Some((name, next)) = field(data, at).filter(|(name, _)| name.size >= 0) else {
                return false;
            };
            let Some((value, next)) = field(data, next) else {
                return false;
            };
            take(name, value);
            at = next;
        }
        at == self.end
    }

    /// All of them; None where they do not fill their place.
    #[inline(always)]
    pub fn read(&self, body: &[u8]) -> Option<Vec<(Field, Field)>> {
        let mut found = Vec::with_capacity(self.bounded()?);
        self.each(body, |name, value| found.push((name, value))).then_some(found)
    }
}

impl Field {
    /// The field of this size from `at` on, null if there is none, and where the next one begins.
    #[inline(always)]
    fn within(data: &[u8], at: usize, size: Option<u64>) -> Option<(Self, usize)> {
        let Some(size) = size else {
            return Some((Field { at, size: -1 }, at));
        };
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        if end > data.len() { None } else { Some((Field { at, size: size as i64 }, end)) }
    }
}

#[cold]
#[inline(never)]
fn any(head: &Header, body: &[u8], position: usize) -> Result<Record, Refused> {
    match Bounds::new(head).any(body, position) {
        Some(record) => Ok(record),
        None => corrupt(damage(head, "its fields do not fill its length")),
    }
}

/// A field that begins with its size at `at`, and where the next one begins.
#[inline(always)]
pub fn field(data: &[u8], at: usize) -> Option<(Field, usize)> {
    let (size, at) = varint::read_size(data, at)?;
    Field::within(data, at, size)
}
