//! Columns to record batches.

use std::ops::Range;

use arrow_array::{Array, BinaryArray, ListArray, StringArray, StructArray, TimestampMicrosecondArray, cast::AsArray};

use arrow_buffer::NullBuffer;

use crate::batches::{HEADER_BYTES, LENGTH_END};
use crate::binary::{PIECE_BYTES, append};
use crate::columns::{header_fields, timestamp_type};
use crate::compression;
use crate::crc;
use crate::refused::{Refused, invalid};
use crate::varint;

/// The size of what is null.
const NULL: i64 = -1;
/// A byte, and as a varint the same.
const NO_ATTRIBUTES: i64 = 0;
const LONGEST_VARINT: usize = 10;
/// About what a record has beside its key and its value.
const RECORDS_OWN_BYTES: usize = 12;
const LARGEST_BODY_BYTES: usize = i32::MAX as usize - HEADER_BYTES;

/// Batches one behind the other: of each where it ends, and how many records it has.
#[derive(Default)]
pub struct Encoded {
    /// All of them.
    pub bytes: Vec<u8>,
    /// One of them each.
    pub batches: Vec<(usize, usize)>,
}

struct Rows<'a> {
    keys: Option<Strings<'a>>,
    values: Strings<'a>,
    headers: Option<Lists<'a>>,
    timestamps: Option<&'a TimestampMicrosecondArray>,
    now_ms: i64,
}

/// A column of byte strings, looked at with every bound checked: it comes from outside.
struct Strings<'a> {
    ends: &'a [i32],
    content: &'a [u8],
    nulls: Option<&'a NullBuffer>,
}

struct Lists<'a> {
    lists: &'a ListArray,
    headers: &'a StructArray,
    names: Strings<'a>,
    values: Strings<'a>,
}

/// Where a string lies in its column; None where it is null.
type Place = Option<Range<usize>>;

impl<'a> Strings<'a> {
    fn binary(array: &'a BinaryArray) -> Self {
        Strings { ends: array.value_offsets(), content: array.value_data(), nulls: array.nulls() }
    }

    fn text(array: &'a StringArray) -> Self {
        Strings { ends: array.value_offsets(), content: array.value_data(), nulls: array.nulls() }
    }

    fn rows(&self) -> usize {
        self.ends.len() - 1
    }

    /// Bytes of all of them, as far as they are there.
    fn bytes(&self) -> usize {
        let (first, last) = (self.ends[0], self.ends[self.rows()]);
        usize::try_from(last.saturating_sub(first)).unwrap_or(0).min(self.content.len())
    }

    #[inline(always)]
    fn place(&self, row: usize) -> Result<Place, Refused> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(None);
        }
        let (start, end) = (self.ends[row], self.ends[row + 1]);
        if start < 0 || end < start || end as usize > self.content.len() {
            return invalid("a column's offsets do not ascend");
        }
        Ok(Some(start as usize..end as usize))
    }

    /// The string behind its size; `out` has room for both and for one of `PIECE_BYTES` more.
    #[inline(always)]
    fn write(&self, out: &mut Vec<u8>, place: Place) {
        varint::write_all(out, [length(&place)]);
        if let Some(place) = place {
            append(out, self.content, place);
        }
    }
}

/// A row, its parts where they lie.
struct Row {
    key: Place,
    value: Place,
    timestamp: i64,
    headers: Range<usize>,
    headers_bytes: usize,
}

fn column<'a>(rows: &'a StructArray, name: &str) -> Option<&'a dyn Array> {
    rows.column_by_name(name).map(|array| array.as_ref())
}

fn mistyped<T>(name: &str, array: &dyn Array) -> Result<T, Refused> {
    invalid(format!("the column {name} is of the type {}", array.data_type()))
}

fn strings<'a>(name: &str, array: &'a dyn Array) -> Result<Strings<'a>, Refused> {
    match array.as_any().downcast_ref::<BinaryArray>() {
        Some(array) => Ok(Strings::binary(array)),
        None => mistyped(name, array),
    }
}

fn lists(array: &dyn Array) -> Result<Lists<'_>, Refused> {
    let Some(lists) = array.as_any().downcast_ref::<ListArray>() else {
        return mistyped("headers", array);
    };
    let Some(element) = lists.values().as_struct_opt() else {
        return mistyped("headers", array);
    };
    if !element.fields().iter().map(|field| field.data_type()).eq(header_fields().iter().map(|f| f.data_type())) {
        return mistyped("headers", array);
    }
    let names = Strings::text(element.column(0).as_string());
    let values = Strings::binary(element.column(1).as_binary());
    Ok(Lists { lists, headers: element, names, values })
}

impl<'a> Rows<'a> {
    fn new(rows: &'a StructArray, now_ms: i64) -> Result<Self, Refused> {
        let Some(values) = column(rows, "value") else {
            return invalid("there is no column value");
        };
        let timestamps = match column(rows, "timestamp") {
            Some(array) if *array.data_type() == timestamp_type() => array.as_any().downcast_ref(),
            Some(array) => return mistyped("timestamp", array),
            None => None,
        };
        Ok(Rows {
            keys: column(rows, "key").map(|array| strings("key", array)).transpose()?,
            values: strings("value", values)?,
            headers: column(rows, "headers").map(lists).transpose()?,
            timestamps,
            now_ms,
        })
    }

    /// About as many bytes as they take when they are not compressed, their headers left out.
    fn about_bytes(&self) -> usize {
        let keys = self.keys.as_ref().map_or(0, Strings::bytes);
        keys + self.values.bytes() + self.values.rows() * RECORDS_OWN_BYTES
    }

    #[inline(always)]
    fn row(&self, row: usize) -> Result<Row, Refused> {
        let timestamp = match self.timestamps {
            Some(column) if !column.is_null(row) => column.value(row).div_euclid(1000),
            _ => self.now_ms,
        };
        let key = match &self.keys {
            Some(keys) => keys.place(row)?,
            None => None,
        };
        let (headers, headers_bytes) = self.headers(row)?;
        Ok(Row { key, value: self.values.place(row)?, timestamp, headers, headers_bytes })
    }

    #[inline(always)]
    fn headers(&self, row: usize) -> Result<(Range<usize>, usize), Refused> {
        let Some(lists) = self.headers.as_ref().filter(|lists| !lists.lists.is_null(row)) else {
            return Ok((0..0, 0));
        };
        let ends = lists.lists.value_offsets();
        let range = match usize::try_from(ends[row]).ok().zip(usize::try_from(ends[row + 1]).ok()) {
            Some((start, end)) if start <= end && end <= lists.names.rows() => start..end,
            _ => return invalid("a column's offsets do not ascend"),
        };
        let mut bytes = 0;
        for header in range.clone() {
            let name = lists.names.place(header)?;
            if name.is_none() || lists.headers.is_null(header) {
                return invalid("a header has no key");
            }
            bytes += field_size(&name) + field_size(&lists.values.place(header)?);
        }
        Ok((range, bytes))
    }

    fn write_headers(&self, out: &mut Vec<u8>, range: Range<usize>) -> Result<(), Refused> {
        varint::write(out, range.len() as i64);
        if let Some(lists) = &self.headers {
            for header in range {
                lists.names.write(out, lists.names.place(header)?);
                lists.values.write(out, lists.values.place(header)?);
            }
        }
        Ok(())
    }
}

/// What stands before a string.
#[inline(always)]
fn length(place: &Place) -> i64 {
    place.as_ref().map_or(NULL, |place| place.len() as i64)
}

#[inline(always)]
fn field_size(place: &Place) -> usize {
    place.as_ref().map_or(1, |place| varint::size(place.len() as i64) + place.len())
}

/// A batch that grows at the end of `out`, behind a header of zeros.
struct Batch<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: usize,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl<'a> Batch<'a> {
    fn new(out: &'a mut Vec<u8>) -> Result<Self, Refused> {
        let start = out.len();
        out.try_reserve(HEADER_BYTES)?;
        out.resize(start + HEADER_BYTES, 0);
        Ok(Batch { out, start, count: 0, base_timestamp: 0, max_timestamp: 0 })
    }

    /// Bytes that it has.
    #[inline(always)]
    fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Bytes of the row as a record of this batch, without its length.
    #[inline(always)]
    fn size(&self, row: &Row) -> usize {
        let delta = if self.count == 0 { 0 } else { row.timestamp - self.base_timestamp };
        1 + varint::size(delta)
            + varint::size(self.count as i64)
            + field_size(&row.key)
            + field_size(&row.value)
            + varint::size(row.headers.len() as i64)
            + row.headers_bytes
    }

    #[inline(always)]
    fn add(&mut self, rows: &Rows, row: Row, size: usize) -> Result<(), Refused> {
        if self.count == 0 {
            (self.base_timestamp, self.max_timestamp) = (row.timestamp, row.timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(row.timestamp);
        self.out.try_reserve(size + LONGEST_VARINT + PIECE_BYTES)?;
        let (delta, count) = (row.timestamp - self.base_timestamp, self.count as i64);
        varint::write_all(self.out, [size as i64, NO_ATTRIBUTES, delta, count, length(&row.key)]);
        if let Some((keys, place)) = rows.keys.as_ref().zip(row.key) {
            append(self.out, keys.content, place);
        }
        rows.values.write(self.out, row.value);
        rows.write_headers(self.out, row.headers)?;
        self.count += 1;
        Ok(())
    }

    /// Where the batch ends, its header filled in, and how many records it has; offset 0 and no producer, which whoever
    /// sends it knows.
    fn seal(self, codec: i16) -> Result<(usize, usize), Refused> {
        let (start, body) = (self.start, self.start + HEADER_BYTES);
        if codec != 0 {
            let compressed = compression::compress(codec, &self.out[body..])?;
            self.out.truncate(body);
            self.out.try_reserve(compressed.len())?;
            self.out.extend_from_slice(&compressed);
        }
        let length = match i32::try_from(self.len() - LENGTH_END) {
            Ok(length) => length,
            Err(_) => return invalid("records do not fit into a batch"),
        };
        let count = self.count as i32;
        let batch = &mut self.out[start..];
        let mut put = |at: usize, bytes: &[u8]| batch[at..at + bytes.len()].copy_from_slice(bytes);
        put(8, &length.to_be_bytes());
        put(12, &(-1i32).to_be_bytes());
        put(16, &[2]);
        put(21, &codec.to_be_bytes());
        put(23, &(count - 1).to_be_bytes());
        put(27, &self.base_timestamp.to_be_bytes());
        put(35, &self.max_timestamp.to_be_bytes());
        put(43, &(-1i64).to_be_bytes());
        put(51, &(-1i16).to_be_bytes());
        put(53, &(-1i32).to_be_bytes());
        put(57, &count.to_be_bytes());
        let crc = crc::crc32c(&batch[crate::batches::CRC_START..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        Ok((self.out.len(), self.count))
    }
}

/// The rows as record batches of at most `batch_bytes` before compression; one that is larger has a batch of its own.
///
/// Columns: `value`, and if they are there `key`, `headers` and `timestamp`; where there is no timestamp it is `now_ms`.
pub fn encode(rows: &StructArray, batch_bytes: usize, codec: i16, now_ms: i64) -> Result<Encoded, Refused> {
    if !(0..=4).contains(&codec) {
        return invalid(format!("no codec has the number {codec}"));
    }
    if now_ms.unsigned_abs() > i64::MAX as u64 / 1000 {
        return invalid(format!("{now_ms} ms is no time that a timestamp can be"));
    }
    let source = Rows::new(rows, now_ms)?;
    let mut done = Encoded::default();
    if codec == 0 {
        done.bytes.try_reserve(source.about_bytes())?;
    }
    let mut batch = Batch::new(&mut done.bytes)?;
    for index in 0..rows.len() {
        let row = source.row(index)?;
        let mut size = batch.size(&row);
        if batch.count > 0 && batch.len() + varint::size(size as i64) + size > batch_bytes {
            done.batches.push(batch.seal(codec)?);
            batch = Batch::new(&mut done.bytes)?;
            size = batch.size(&row);
        }
        if batch.len() + size > LARGEST_BODY_BYTES {
            return invalid(format!("a record of {size} bytes does not fit into a batch"));
        }
        batch.add(&source, row, size)?;
    }
    if batch.count > 0 {
        done.batches.push(batch.seal(codec)?);
    } else {
        done.bytes.clear();
    }
    Ok(done)
}
