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

/// Calls `take` for every record that the batch says it has; they fill `body` exactly.
#[inline(always)]
pub fn each(head: &Header, body: &[u8], mut take: impl FnMut(&Record) -> Result<(), Refused>) -> Result<(), Refused> {
    let append_time = head.attributes & APPEND_TIME != 0;
    let mut position = 0;
    for _ in 0..head.records {
        let Some(record) = one(head, body, position, append_time) else {
            return corrupt(damage(head, "its fields do not fill its length"));
        };
        position = record.headers.end;
        take(&record)?;
    }
    if position != body.len() {
        return corrupt(damage(head, &format!("{} bytes follow the last one", body.len() - position)));
    }
    Ok(())
}

/// What is said of a damaged record.
pub fn damage(head: &Header, what: &str) -> String {
    format!("a record of the batch at offset {} is damaged: {what}", head.base_offset)
}

#[inline(always)]
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
