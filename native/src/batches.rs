//! Whole record batches in a buffer: their headers, and where the next batch begins. Layout: `duramen/codec/batch.py`.

use crate::refused::{Refused, corrupt};

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;
/// What the length field does not count.
pub const LENGTH_END: usize = 12;
/// Where what the CRC covers begins.
pub const CRC_START: usize = 21;
/// The codec's bits of the attributes.
pub const CODEC_MASK: i16 = 0x07;
/// Timestamps are the append's.
pub const APPEND_TIME: i16 = 0x08;
/// Control batches have markers, not records.
pub const CONTROL: i16 = 0x20;

/// What is read of a batch's header.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// The offset that deltas count from.
    pub base_offset: i64,
    /// Bytes behind the length field; at least what the header has.
    pub length: usize,
    /// The format's version; 2.
    pub magic: i8,
    /// CRC-32C of everything from `CRC_START` on.
    pub crc: u32,
    /// Codec, kind of timestamps, control.
    pub attributes: i16,
    /// The largest offset delta that is allowed.
    pub last_offset_delta: i32,
    /// The timestamp that deltas count from, in ms.
    pub base_timestamp: i64,
    /// The largest timestamp, in ms.
    pub max_timestamp: i64,
    /// How many records there are.
    pub records: i32,
}

impl Header {
    /// The offset behind the batch's last; of more than 64 bits in hostile ones.
    pub fn next_offset(&self) -> i128 {
        i128::from(self.base_offset) + i128::from(self.last_offset_delta) + 1
    }

    /// Bytes of the whole batch.
    pub fn size(&self) -> usize {
        self.length + LENGTH_END
    }
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

/// The header at `position` and the whole batch; None where what is left is no whole batch.
pub fn next(buffer: &[u8], position: usize) -> Result<Option<(Header, &[u8])>, Refused> {
    let rest = buffer.get(position..).unwrap_or_default();
    let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(field(header, 8));
    if length < (HEADER_BYTES - LENGTH_END) as i32 {
        return corrupt(format!("a record batch says it has {} bytes", i64::from(length) + LENGTH_END as i64));
    }
    let found = Header {
        base_offset: i64::from_be_bytes(field(header, 0)),
        length: length as usize,
        magic: i8::from_be_bytes(field(header, 16)),
        crc: u32::from_be_bytes(field(header, 17)),
        attributes: i16::from_be_bytes(field(header, 21)),
        last_offset_delta: i32::from_be_bytes(field(header, 23)),
        base_timestamp: i64::from_be_bytes(field(header, 27)),
        max_timestamp: i64::from_be_bytes(field(header, 35)),
        records: i32::from_be_bytes(field(header, 57)),
    };
    Ok(rest.get(..found.size()).map(|batch| (found, batch)))
}
