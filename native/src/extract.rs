//! Batches made anew of the records that a snapshot shows: the others are stepped over by their length.

use crate::batches::{self, APPEND_TIME, CONTROL, CRC_START, HEADER_BYTES, Header, LENGTH_END};
use crate::crc;
use crate::portions::checked;
use crate::records::damage;
use crate::refused::{Refused, corrupt};
use crate::varint;
use crate::visible::any;

/// Where a batch names its producer: id, epoch and sequence, all -1 where there is none.
const PRODUCER: std::ops::Range<usize> = 43..57;
/// What stays of a batch's attributes besides its kind of timestamps: that its base timestamp is a delete horizon.
const DELETE_HORIZON: i16 = 0x40;

/// Which records are shown: those with offsets in `[first, end)` whose bits are set, which begin at `base`.
pub struct Shown<'a> {
    /// Bit `i % 8` of byte `i / 8` is the offset `base + i`.
    pub bits: &'a [u8],
    /// The offset of the first bit.
    pub base: i64,
    /// The first offset.
    pub first: i64,
    /// The offset behind the last.
    pub end: i64,
}

impl Shown<'_> {
    /// Whether the record at this offset is.
    #[inline(always)]
    pub fn has(&self, offset: i64) -> bool {
        let at = offset.wrapping_sub(self.base) as u64;
        let byte = usize::try_from(at / 8).ok().and_then(|place| self.bits.get(place));
        offset >= self.base
            && byte.is_some_and(|byte| byte >> (at % 8) & 1 != 0)
            && self.first <= offset
            && offset < self.end
    }

    /// Whether a record that the batch may have is.
    fn has_some(&self, head: &Header) -> bool {
        let low = i128::from(head.base_offset.max(self.first));
        any(self.bits, self.base, low, head.next_offset().min(i128::from(self.end)))
    }
}

/// What was made.
pub struct Extracted {
    /// Where to go on.
    pub position: usize,
    /// The offset behind everything that was looked at.
    pub next: i64,
    /// Batches, one behind the other.
    pub bytes: Vec<u8>,
}

/// Of the batches from `position` on, those with records that are shown, with these records only; it ends before a
/// batch with some once there are `most` bytes. Control batches are left out.
pub fn extract(data: &[u8], position: usize, shown: &Shown<'_>, most: usize) -> Result<Extracted, Refused> {
    let mut done = Extracted { position, next: shown.first, bytes: Vec::new() };
    let mut scratch = Vec::new();
    loop {
        let next = match batches::next(data, done.position) {
            Err(refused) if done.position == position => return Err(refused),
            next => next.unwrap_or(None),
        };
        let Some((head, batch)) = next else {
            return Ok(done);
        };
        if head.base_offset >= shown.end {
            done.next = done.next.max(shown.end);
            return Ok(done);
        }
        if head.attributes & CONTROL == 0 && shown.has_some(&head) {
            let there = done.bytes.len();
            if there > 0 && there >= most {
                return Ok(done);
            }
            let taken =
                checked(&head, batch, &mut scratch).and_then(|body| take(&head, batch, body, shown, &mut done.bytes));
            match taken {
                Err(Refused::Corrupt(_)) if done.position != position => {
                    done.bytes.truncate(there);
                    return Ok(done);
                }
                taken => taken?,
            }
        }
        done.position += batch.len();
        let behind = head.next_offset().min(i128::from(shown.end));
        done.next = done.next.max(i64::try_from(behind).unwrap_or(i64::MIN));
    }
}

/// The batch with the records that are shown, uncompressed, behind what `out` holds; as it is where that is no longer.
fn take(head: &Header, batch: &[u8], body: &[u8], shown: &Shown<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
    let start = out.len();
    append(out, &batch[..HEADER_BYTES])?;
    let (mut at, mut run, mut kept, mut next) = (0, 0, 0i32, 0);
    let deltas = (i64::from(head.last_offset_delta) + 1).max(0) as u64;
    for _ in 0..head.records {
        let Some((end, delta)) = span(body, at).filter(|(_, delta)| (next..deltas).contains(delta)) else {
            return corrupt(damage(head, "its fields do not fill its length"));
        };
        if shown.has(head.base_offset + delta as i64) {
            kept += 1;
        } else {
            append(out, &body[run..at])?;
            run = end;
        }
        (at, next) = (end, delta + 1);
    }
    if at != body.len() {
        return corrupt(damage(head, "bytes follow the last one"));
    }
    append(out, &body[run..])?;
    if kept == 0 {
        out.truncate(start);
    } else if out.len() - start >= batch.len() {
        out.truncate(start);
        append(out, batch)?;
    } else {
        seal(head, kept, &mut out[start..]);
    }
    Ok(())
}

fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Refused> {
    out.try_reserve(bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Where the record at `at` ends, and its offset delta.
#[inline(always)]
fn span(body: &[u8], at: usize) -> Option<(usize, u64)> {
    let (length, start) = varint::read_size(body, at)?;
    let end = start.checked_add(usize::try_from(length?).ok()?)?;
    let data = body.get(..end)?;
    let (_, at) = varint::read(data, start + 1)?;
    let (delta, _) = varint::read_size(data, at)?;
    Some((end, delta?))
}

/// Makes the header that of a batch of so many records, without codec, producer and transaction.
fn seal(head: &Header, records: i32, batch: &mut [u8]) {
    let attributes = head.attributes & (APPEND_TIME | DELETE_HORIZON);
    let length = (batch.len() - LENGTH_END) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[CRC_START..CRC_START + 2].copy_from_slice(&attributes.to_be_bytes());
    batch[PRODUCER].fill(0xFF);
    batch[57..61].copy_from_slice(&records.to_be_bytes());
    let crc = crc::crc32c(&batch[CRC_START..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
