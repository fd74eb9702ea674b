//! Operations on entries of light queues: read from a shard's batches, and applied to runs.
//! Layouts: `duramen/queues/runs.py`, `duramen/queues/operations.py`.

use std::collections::HashMap;

use crate::records::{Field, Records};
use crate::refused::Refused;
use crate::runs::{
    BODY_BYTES, EXPIRES, HEADERS, KEY, RUN_BYTES, VALUE, VERSION, VISIBLE, bytes_of, epoch_of, is_name, number, option,
    piece, sound, u32_at,
};

const OP: &[u8] = b"duramen-queue-op";
const AT: &[u8] = b"duramen-queue-at";
const ALL_FLAGS: u8 = VALUE | KEY | HEADERS | VERSION | VISIBLE | EXPIRES;

/// What is done to an entry.
#[derive(Clone, Copy)]
pub enum Kind {
    /// It gets a new value.
    Edit,
    /// It is deleted.
    Delete,
    /// It was processed.
    Ack,
}

/// An operation on an entry.
pub struct Change<'a> {
    /// The queue.
    pub name: &'a [u8],
    /// What is done.
    pub kind: Kind,
    /// The offset of the entry.
    pub at: i64,
    /// That of the operation.
    pub offset: i64,
    /// The value of its record.
    pub value: Option<&'a [u8]>,
}

/// Digits without a leading zero, at most `most` of them.
fn digits(text: &[u8], most: usize) -> Option<i64> {
    let canonical = text.len() == 1 || text.first() != Some(&b'0');
    if !canonical || !(1..=most).contains(&text.len()) || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The offset of a position.
fn offset_of(position: &[u8]) -> Option<i64> {
    let point = position.iter().position(|byte| *byte == b'.')?;
    digits(&position[..point], 10).filter(|epoch| *epoch <= i64::from(i32::MAX))?;
    digits(&position[point + 1..], 19).filter(|offset| *offset < i64::MAX)
}

fn change<'a>(body: &'a [u8], headers: &[(Field, Field)]) -> Option<(Kind, i64)> {
    let [(op, kind), (at, position)] = headers else { return None };
    let kind: &'a [u8] = option(body, *kind)?;
    let kind = match kind {
        b"edit" => Kind::Edit,
        b"delete" => Kind::Delete,
        b"ack" => Kind::Ack,
        _ => return None,
    };
    if bytes_of(body, *op) != OP || bytes_of(body, *at) != AT {
        return None;
    }
    Some((kind, offset_of(option(body, *position)?)?))
}

/// Calls `take` with the operations from the offset `first` on of each batch; returns how many batches these are: those
/// of one leader epoch before the first one that has something else than edits, deletions and acknowledgements.
pub fn split<E: From<Refused>>(
    all: &[&[u8]],
    first: i64,
    mut take: impl FnMut(Change<'_>) -> Result<(), E>,
) -> Result<usize, E> {
    let (mut scratch, mut found, mut taken, mut epoch) = (Vec::new(), Vec::new(), 0, 0);
    for batch in all {
        let Some((head, body)) = sound(batch, &mut scratch)? else { break };
        if taken > 0 && epoch_of(batch) != epoch {
            break;
        }
        let (mut records, mut next) = (Records::new(&head, body), head.base_offset);
        found.clear();
        let whole = loop {
            let record = match records.advance() {
                Ok(Some(record)) => record,
                Ok(None) => break true,
                Err(Refused::Corrupt(_)) => break false,
                Err(refused) => return Err(refused.into()),
            };
            let headers = record.headers.read(body);
            let one = headers.as_deref().and_then(|headers| change(body, headers));
            let Some((kind, at)) = one.filter(|_| record.key.size >= 0 && record.offset >= next) else {
                break false;
            };
            next = record.offset + 1;
            if record.offset >= first && is_name(bytes_of(body, record.key)) {
                found.push((kind, at, record));
            }
        };
        if !whole {
            break;
        }
        (epoch, taken) = (epoch_of(batch), taken + 1);
        for (kind, at, record) in &found {
            let (name, value) = (bytes_of(body, record.key), option(body, record.value));
            take(Change { name, kind: *kind, at: *at, offset: record.offset, value })?;
        }
    }
    Ok(taken)
}

/// What becomes of an entry.
pub enum Edit<'a> {
    /// It is deleted.
    Deleted,
    /// It has that version and value.
    Changed(u64, Option<&'a [u8]>),
}

/// Where the value of a body begins; None where it has what is not known here.
fn value_at(body: &[u8]) -> Result<Option<usize>, Refused> {
    let [flags] = number(body, 0)?;
    if flags & !ALL_FLAGS != 0 {
        return Ok(None);
    }
    let mut at = BODY_BYTES;
    if flags & VERSION != 0 {
        at += 8;
    }
    if flags & KEY != 0 {
        at += 4 + u32_at(body, at)?;
    }
    if flags & HEADERS != 0 {
        let count = u32_at(body, at)?;
        at += 4;
        for _ in 0..count {
            at += 4 + u32_at(body, at)?;
            at += 4 + i32::from_le_bytes(number(body, at)?).max(0) as usize;
        }
    }
    at += 8 * (flags & (VISIBLE | EXPIRES)).count_ones() as usize;
    piece(body, 0, at)?;
    Ok(Some(at))
}

/// A run with the results of operations, by the offsets of entries; None where one has what is not known here.
pub fn edited(run: &[u8], edits: &HashMap<i64, Edit<'_>>) -> Result<Option<Vec<u8>>, Refused> {
    let first = i64::from_le_bytes(number(run, 0)?);
    let count = u32_at(run, 12)?;
    let base = RUN_BYTES + 8 * count;
    let mut made = piece(run, 0, base)?.to_vec();
    made.try_reserve(run.len() - base + 16 * count)?;
    let mut begin = base;
    for index in 0..count {
        let offset = first.wrapping_add(u32_at(run, RUN_BYTES + 4 * index)? as i64);
        let end = base + u32_at(run, RUN_BYTES + 4 * (count + index))?;
        let body = piece(run, begin, end.saturating_sub(begin))?;
        begin = end;
        match edits.get(&offset).filter(|_| !body.is_empty()) {
            None => made.extend_from_slice(body),
            Some(Edit::Deleted) => {}
            Some(Edit::Changed(version, value)) => {
                let Some(old) = value_at(body)? else { return Ok(None) };
                let value_flag = if value.is_some() { VALUE } else { 0 };
                let kept = if body[0] & VERSION != 0 { BODY_BYTES + 8 } else { BODY_BYTES };
                let value = value.unwrap_or_default();
                made.try_reserve(body.len() + 8 + value.len())?;
                made.push(body[0] & !VALUE | VERSION | value_flag);
                made.extend_from_slice(&body[1..BODY_BYTES]);
                made.extend_from_slice(&version.to_le_bytes());
                made.extend_from_slice(&body[kept..old]);
                made.extend_from_slice(value);
            }
        }
        let place = RUN_BYTES + 4 * (count + index);
        let size = ((made.len() - base) as u32).to_le_bytes();
        made[place..place + 4].copy_from_slice(&size);
    }
    Ok(Some(made))
}
