//! The records of a batch, one behind the other. A record's fields are read within its own length.

use crate::batches::{APPEND_TIME, Header};
use crate::refused::{Refused, corrupt};
use crate::varint;

/// A record; what it has of keys, values and headers are places in the body.
pub struct Record {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp in ms.
    pub timestamp: i64,
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
    append_time: bool,
    left: i32,
    position: usize,
}

impl<'a> Records<'a> {
    /// The records of the batch with this header, decompressed.
    pub fn new(head: &'a Header, body: &'a [u8]) -> Self {
        Records { head, body, append_time: head.attributes & APPEND_TIME != 0, left: head.records, position: 0 }
    }

    /// The next one; None behind the last.
    #[inline(always)]
    pub fn advance(&mut self) -> Result<Option<Record>, Refused> {
        if self.left == 0 {
            return self.end();
        }
        let record = match short(self.head, self.body, self.position, self.append_time) {
            Some(record) => record,
            None => self.any()?,
        };
        self.left -= 1;
        self.position = record.headers.end;
        Ok(Some(record))
    }

    #[cold]
    #[inline(never)]
    fn any(&self) -> Result<Record, Refused> {
        match one(self.head, self.body, self.position, self.append_time) {
            Some(record) => Ok(record),
            None => corrupt(damage(self.head, "its fields do not fill its length")),
        }
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

/// The record at `position`, if what stands before its key is as short as it mostly is; None says nothing of it.
///
/// Its fields follow one another, so that all of them lie within its length if the last one ends there.
#[inline(always)]
fn short(head: &Header, body: &[u8], position: usize, append_time: bool) -> Option<Record> {
    let window = body.get(position..)?.first_chunk()?;
    let (length, start) = varint::read_short(window, 0)?;
    let (timestamp_delta, at) = varint::read_short(window, start + 1)?;
    let (offset_delta, at) = varint::read_short(window, at)?;
    let (size, at) = varint::read_short(window, at)?;
    let end = position + start + usize::try_from(length).ok()?;
    let data = body.get(..end)?;
    let key = Field { at: position + at, size };
    let (value, at) = field(data, key.at + size.max(0) as usize)?;
    let count = *data.get(at)?;
    if count != 0 && (count & 0x81 != 0 || at + 1 > end) || count == 0 && at + 1 != end {
        return None;
    }
    if offset_delta < 0 || offset_delta > i64::from(head.last_offset_delta) {
        return None;
    }
    let timestamp = if append_time { head.max_timestamp } else { head.base_timestamp.checked_add(timestamp_delta)? };
    if timestamp == i64::MIN {
        return None;
    }
    let offset = head.base_offset + offset_delta;
    let headers = Headers { count: i64::from(count >> 1), at: at + 1, end };
    Some(Record { offset, timestamp, key, value, headers })
}

fn one(head: &Header, body: &[u8], position: usize, append_time: bool) -> Option<Record> {
    let (length, start) = varint::read(body, position)?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    let data = body.get(..end)?;
    let (timestamp_delta, at) = varint::read(data, start + 1)?;
    let (offset_delta, at) = varint::read(data, at)?;
    let (key, at) = field(data, at)?;
    let (value, at) = field(data, at)?;
    let (count, at) = varint::read(data, at)?;
    if count < 0 || (count == 0 && at != end) {
        return None;
    }
    if offset_delta < 0 || offset_delta > i64::from(head.last_offset_delta) {
        return None;
    }
    let timestamp = if append_time { head.max_timestamp } else { head.base_timestamp.checked_add(timestamp_delta)? };
    if timestamp == i64::MIN {
        return None;
    }
    let offset = head.base_offset + offset_delta;
    Some(Record { offset, timestamp, key, value, headers: Headers { count, at, end } })
}

/// A field that begins with its size at `at`, and where the next one begins.
#[inline(always)]
pub fn field(data: &[u8], at: usize) -> Option<(Field, usize)> {
    let (size, at) = varint::read(data, at)?;
    if size < 0 {
        return Some((Field { at, size }, at));
    }
    let end = at.checked_add(usize::try_from(size).ok()?)?;
    if end > data.len() { None } else { Some((Field { at, size }, end)) }
}
