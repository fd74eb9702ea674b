//! The batches of a buffer, checked and decompressed one after another, until there are enough of them for one array.

use crate::batches::{self, CODEC_MASK, CONTROL, CRC_START, HEADER_BYTES, Header};
use crate::compression::decompress;
use crate::crc;
use crate::refused::{Refused, corrupt};

/// What a batch's records may take when they are decompressed.
pub const LARGEST_BODY_BYTES: usize = 256 * 1024 * 1024;
const PORTION_BYTES: usize = 2 * 1024 * 1024;
const PORTION_RECORDS: usize = 16 * 1024;
/// Arrow's offsets have 31 bits.
const LARGEST_PORTION_BYTES: usize = 1 << 30;
/// So that every record's offset is a 64-bit number.
pub const LARGEST_OFFSET: i64 = i64::MAX - (1 << 31) + 1;
const SMALLEST_RECORD_BYTES: usize = 7;

/// Goes through the batches from `position` on that may hold offsets in `[first, end)`, as many as make one array.
pub struct Portion<'a> {
    buffer: &'a [u8],
    /// Where the next batch begins; the buffer's end where nothing more is wanted.
    pub position: usize,
    /// The first offset that is wanted.
    pub first: i64,
    /// The offset behind the last that is wanted.
    pub end: i64,
    held_bytes: usize,
    held_records: usize,
    last_bytes: usize,
    scratch: Vec<u8>,
}

impl<'a> Portion<'a> {
    /// A portion that begins at `position`.
    pub fn new(buffer: &'a [u8], position: usize, first: i64, end: i64) -> Self {
        Portion { buffer, position, first, end, held_bytes: 0, held_records: 0, last_bytes: 0, scratch: Vec::new() }
    }

    /// Hands the next batch with records, its decompressed records, and as many bytes behind it as it has itself, to
    /// `take`; false where the portion ends.
    pub fn step(&mut self, take: impl FnOnce(&Header, &[u8], &[u8]) -> Result<(), Refused>) -> Result<bool, Refused> {
        while self.held_bytes < PORTION_BYTES && self.held_records < PORTION_RECORDS {
            let found = batches::next(self.buffer, self.position)?;
            let Some((head, batch)) = found.filter(|(head, _)| head.base_offset < self.end) else {
                self.position = self.buffer.len();
                return Ok(false);
            };
            let next = self.position + batch.len();
            if head.next_offset() <= i128::from(self.first) {
                self.position = next;
                continue;
            }
            if self.held_bytes > 0 && self.held_bytes + batch.len() - HEADER_BYTES > LARGEST_PORTION_BYTES {
                return Ok(false);
            }
            let body = checked(&head, batch, &mut self.scratch)?;
            self.position = next;
            if head.attributes & CONTROL != 0 || head.records == 0 {
                continue;
            }
            let records = head.records as usize;
            self.last_bytes = batch.len();
            self.held_bytes += body.len();
            self.held_records += records;
            let behind = &self.buffer[next..];
            take(&head, body, &behind[..behind.len().min(batch.len())])?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Decompressed bytes of what was taken.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many more batches like the first this portion will have, which has been taken: a guess.
    pub fn expected_batches(&self) -> usize {
        let room = (PORTION_BYTES / self.held_bytes.max(1)).min(PORTION_RECORDS / self.held_records.max(1));
        let there = (self.buffer.len() - self.position) / self.last_bytes.max(1);
        room.min(there)
    }
}

/// The records of a batch that matches its CRC and its header, decompressed; those of compressed ones lie in `scratch`.
pub fn checked<'a>(head: &Header, batch: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Refused> {
    check(head, batch)?;
    let codec = head.attributes & CODEC_MASK;
    let body = match codec {
        0 => &batch[HEADER_BYTES..],
        _ => decompress(codec, &batch[HEADER_BYTES..], LARGEST_BODY_BYTES, scratch)?,
    };
    if head.attributes & CONTROL == 0 && head.records as usize > body.len() / SMALLEST_RECORD_BYTES {
        return corrupt(format!(
            "a record of the batch at offset {} is damaged: {} do not fit into {} bytes",
            head.base_offset,
            head.records,
            body.len()
        ));
    }
    Ok(body)
}

fn check(head: &Header, batch: &[u8]) -> Result<(), Refused> {
    if head.magic != 2 {
        return corrupt(format!(
            "record batches have the magic 2; the one at offset {} has {}",
            head.base_offset, head.magic
        ));
    }
    if crc::crc32c(&batch[CRC_START..]) != head.crc {
        return corrupt(format!("the record batch at offset {} does not match its CRC", head.base_offset));
    }
    if head.records < 0 || head.base_offset < 0 || head.base_offset >= LARGEST_OFFSET {
        return corrupt(format!("the record batch at offset {} has {} records", head.base_offset, head.records));
    }
    Ok(())
}
