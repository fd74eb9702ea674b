//! The Produce request that comes most often: one batch for one partition, with nothing to say against it.
//!
//! Twin and reference: `duramen/codec/kafka/hot_produce.py`. Whatever is unusual is left to the decoder in Python.

use crate::batches::{APPEND_TIME, CODEC_MASK, CONTROL, CRC_START, HEADER_BYTES, LENGTH_END};
use crate::crc::crc32c;
use crate::varint;

const PRODUCE: i16 = 0;
const OLDEST: i16 = 3;
const FIRST_WITH_ZSTD: i16 = 7;
const FLEXIBLE: i16 = 9;
const NEWEST: i16 = 12;
const LONGEST_CLIENT_ID: i16 = 255;
const LONGEST_TOPIC: usize = 126;
const ZSTD: i16 = 4;
const TRANSACTIONAL: i16 = 0x10;
const DELETE_HORIZON: i16 = 0x40;
const SMALLEST_RECORD_BYTES: i64 = 7;
/// How many fields the header of a batch has.
pub const FIELDS: usize = 13;

/// What such a request says; the batch lies in `data[start..stop]`, the frame ends at `end`.
#[derive(Debug)]
pub struct Found<'a> {
    /// Where what follows the frame begins.
    pub end: usize,
    /// The request's version.
    pub version: i16,
    /// What the answer has to repeat.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<&'a str>,
    /// 1 or -1.
    pub acks: i16,
    /// The topic's name.
    pub topic: &'a str,
    /// The number of the partition.
    pub partition: i32,
    /// Where the batch begins.
    pub start: usize,
    /// Where it ends.
    pub stop: usize,
    /// The fields of its header, in their order.
    pub header: [i64; FIELDS],
}

/// Reads one field after another.
struct Fields<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, size: usize) -> Option<&'a [u8]> {
        let found = self.data.get(self.at..self.at.checked_add(size)?)?;
        self.at += size;
        Some(found)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn int8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    fn int16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn int32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn int64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn text(&mut self, size: usize) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(size)?).ok()
    }

    /// Whether the next byte is this one.
    fn is(&mut self, wanted: u8) -> Option<()> {
        (self.array::<1>()? == [wanted]).then_some(())
    }
}

/// The request that `data` begins with; None where it is not whole, or unusual in any way.
pub fn read(data: &[u8]) -> Option<Found<'_>> {
    let size = usize::try_from(Fields { data, at: 0 }.int32()?).ok()?;
    let end = size.checked_add(4)?;
    let mut fields = Fields { data: data.get(..end)?, at: 4 };
    let (api, version, correlation_id) = (fields.int16()?, fields.int16()?, fields.int32()?);
    if api != PRODUCE || !(OLDEST..=NEWEST).contains(&version) {
        return None;
    }
    let client_id = match fields.int16()? {
        ..0 => None,
        size @ 0..=LONGEST_CLIENT_ID => Some(fields.text(size as usize)?),
        _ => return None,
    };
    let (acks, topic, partition, size) = if version >= FLEXIBLE { flexible(&mut fields)? } else { plain(&mut fields)? };
    let (start, tags) = (fields.at, if version >= FLEXIBLE { 3 } else { 0 });
    let batch = fields.bytes(size)?;
    let stop = fields.at;
    // Behind it come the tags of the partition, of the topic and of the request: none.
    if !matches!(acks, -1 | 1) || end - stop != tags || fields.bytes(tags)?.iter().any(|byte| *byte != 0) {
        return None;
    }
    let header = sound(batch, version)?;
    Some(Found { end, version, correlation_id, client_id, acks, topic, partition, start, stop, header })
}

type Head<'a> = (i16, &'a str, i32, usize);

/// Acks, topic, partition, and the size of the batch, which follows; versions from 9 on.
fn flexible<'a>(fields: &mut Fields<'a>) -> Option<Head<'a>> {
    fields.is(0)?; // the header's tags
    fields.is(0)?; // no transactional id
    let (acks, _timeout_ms) = (fields.int16()?, fields.int32()?);
    fields.is(2)?; // one topic
    let [length] = fields.array()?;
    let topic = fields.text(usize::from(length).checked_sub(1).filter(|size| *size <= LONGEST_TOPIC)?)?;
    fields.is(2)?; // one partition
    let partition = fields.int32()?;
    let (length, at) = varint::read_bits(fields.data, fields.at)?;
    fields.at = at;
    Some((acks, topic, partition, usize::try_from(length.checked_sub(1)?).ok()?))
}

/// As `flexible`, of the versions before.
fn plain<'a>(fields: &mut Fields<'a>) -> Option<Head<'a>> {
    if fields.int16()? >= 0 {
        return None; // a transactional id
    }
    let (acks, _timeout_ms, topics) = (fields.int16()?, fields.int32()?, fields.int32()?);
    let length = usize::try_from(fields.int16()?).ok().filter(|size| *size <= LONGEST_TOPIC)?;
    let (topic, partitions) = (fields.text(length)?, fields.int32()?);
    let (partition, size) = (fields.int32()?, usize::try_from(fields.int32()?).ok()?);
    (topics == 1 && partitions == 1).then_some((acks, topic, partition, size))
}

/// The header's fields of a batch that may be appended as it is; None where `Partition.check` has something to do.
fn sound(batch: &[u8], version: i16) -> Option<[i64; FIELDS]> {
    let mut fields = Fields { data: batch.get(..HEADER_BYTES)?, at: 0 };
    let (base_offset, length, epoch) = (fields.int64()?, fields.int32()?, fields.int32()?);
    let (magic, crc) = (fields.int8()?, u32::from_be_bytes(fields.array()?));
    let (attributes, last_offset_delta) = (fields.int16()?, fields.int32()?);
    let (base_timestamp, max_timestamp) = (fields.int64()?, fields.int64()?);
    let (producer_id, producer_epoch) = (fields.int64()?, fields.int16()?);
    let (base_sequence, records) = (fields.int32()?, fields.int32()?);
    let codec = attributes & CODEC_MASK;
    let fits = magic == 2
        && i64::from(length) == (batch.len() - LENGTH_END) as i64
        && records > 0
        && last_offset_delta == records - 1
        && codec <= ZSTD
        && (codec != ZSTD || version >= FIRST_WITH_ZSTD)
        && (codec != 0 || i64::from(records) * SMALLEST_RECORD_BYTES <= (batch.len() - HEADER_BYTES) as i64)
        && attributes & (CONTROL | APPEND_TIME | DELETE_HORIZON | TRANSACTIONAL) == 0
        && (producer_id < 0 || (producer_epoch >= 0 && base_sequence >= 0))
        && max_timestamp >= -1;
    if !fits || (records == 1 && codec == 0 && first_timestamp(batch, base_timestamp)? != max_timestamp) {
        return None;
    }
    (crc32c(&batch[CRC_START..]) == crc).then_some([
        base_offset,
        length.into(),
        epoch.into(),
        magic.into(),
        crc.into(),
        attributes.into(),
        last_offset_delta.into(),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch.into(),
        base_sequence.into(),
        records.into(),
    ])
}

/// The timestamp (ms) of the first record, which is not compressed.
fn first_timestamp(batch: &[u8], base_timestamp: i64) -> Option<i64> {
    let (_, position) = varint::read(batch, HEADER_BYTES)?;
    let (delta, _) = varint::read(batch, position + 1)?;
    base_timestamp.checked_add(delta)
}
