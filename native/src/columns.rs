//! The columns of a record as Spark wants them, filled row by row, of which only those asked for exist.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, ListArray, StructArray, TimestampMicrosecondArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field as ArrowField, FieldRef, Fields, TimeUnit};

use crate::batches::{APPEND_TIME, Header};
use crate::binary::{Binary, filled};
use crate::prefetch::Ahead;
use crate::records::{self, Records};
use crate::refused::{Refused, corrupt, invalid};

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `key`, binary.
    pub key: bool,
    /// `value`, binary.
    pub value: bool,
    /// `offset`, int64.
    pub offset: bool,
    /// `timestamp`, in microseconds of UTC.
    pub timestamp: bool,
    /// `timestampType`: int32, 0 the producer's, 1 the append's.
    pub timestamp_type: bool,
    /// `headers`: lists of name and value; null where there are none.
    pub headers: bool,
}

impl Wanted {
    /// The columns of these names.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, Refused> {
        let mut wanted = Wanted::default();
        for name in names {
            *match name {
                "key" => &mut wanted.key,
                "value" => &mut wanted.value,
                "offset" => &mut wanted.offset,
                "timestamp" => &mut wanted.timestamp,
                "timestampType" => &mut wanted.timestamp_type,
                "headers" => &mut wanted.headers,
                _ => return invalid(format!("no column of a record is called {name:?}")),
            } = true;
        }
        Ok(wanted)
    }
}

struct HeaderLists {
    ends: Vec<i32>,
    names: Binary,
    values: Binary,
}

/// Rows as they are collected.
pub struct Columns {
    rows: usize,
    keys: Option<Binary>,
    values: Option<Binary>,
    offsets: Option<Vec<i64>>,
    timestamps: Option<Vec<i64>>,
    types: Option<Vec<i32>>,
    headers: Option<HeaderLists>,
}

impl Columns {
    /// Empty columns.
    pub fn new(wanted: Wanted) -> Self {
        let headers = || HeaderLists { ends: vec![0], names: Binary::default(), values: Binary::default() };
        Columns {
            rows: 0,
            keys: wanted.key.then(Binary::default),
            values: wanted.value.then(Binary::default),
            offsets: wanted.offset.then(Vec::new),
            timestamps: wanted.timestamp.then(Vec::new),
            types: wanted.timestamp_type.then(Vec::new),
            headers: wanted.headers.then(headers),
        }
    }

    /// Room for what a batch may bring; `take` asks for no more memory than this, how many headers there are apart.
    fn reserve(&mut self, rows: usize, bytes: usize) -> Result<(), Refused> {
        for column in [&mut self.keys, &mut self.values].into_iter().flatten() {
            column.reserve(rows, bytes)?;
        }
        for column in [&mut self.offsets, &mut self.timestamps].into_iter().flatten() {
            column.try_reserve(rows)?;
        }
        if let Some(types) = &mut self.types {
            types.try_reserve(rows)?;
        }
        if let Some(headers) = &mut self.headers {
            headers.ends.try_reserve(rows)?;
            headers.names.reserve(0, bytes)?;
            headers.values.reserve(0, bytes)?;
        }
        Ok(())
    }

    /// Room for `times` more batches like the one that is there, of `bytes` each: a guess, so that memory is asked for
    /// once and in the same sizes portion after portion. Pages that are new cost more than what is written to them.
    pub fn expect(&mut self, times: usize, bytes: usize) -> Result<(), Refused> {
        for column in [&mut self.keys, &mut self.values].into_iter().flatten() {
            column.expect(times, bytes)?;
        }
        for column in [&mut self.offsets, &mut self.timestamps].into_iter().flatten() {
            column.try_reserve(times * self.rows)?;
        }
        if let Some(types) = &mut self.types {
            types.try_reserve(times * self.rows)?;
        }
        if let Some(headers) = &mut self.headers {
            headers.ends.try_reserve(times * self.rows)?;
            headers.names.expect(times, bytes)?;
            headers.values.expect(times, bytes)?;
        }
        Ok(())
    }

    /// The records of a batch with offsets in `[first, end)`. Headers are checked where they are wanted.
    ///
    /// Meanwhile what lies `behind` the batch comes from memory: its CRC, which is next, would only wait for it.
    pub fn take(&mut self, head: &Header, body: &[u8], behind: &[u8], first: i64, end: i64) -> Result<(), Refused> {
        let (there, before) = (head.records as usize, self.rows);
        self.reserve(there, body.len())?;
        let mut keys = self.keys.as_mut().map(|keys| keys.open(there));
        let mut values = self.values.as_mut().map(|values| values.open(there));
        let mut offsets = self.offsets.as_mut().map(|offsets| opened(offsets, there));
        let mut timestamps = self.timestamps.as_mut().map(|timestamps| opened(timestamps, there));
        let range = if first < end { end.wrapping_sub(first) as u64 } else { 0 };
        let (mut records, mut behind, mut rows) = (Records::new(head, body), Ahead::new(behind, there), 0);
        while let Some(record) = records.advance()? {
            behind.step();
            let kept = (record.offset.wrapping_sub(first) as u64) < range;
            if let Some(headers) = &mut self.headers {
                headers.push(head, body, record.headers, kept)?;
            }
            if !kept {
                continue;
            }
            if let Some(keys) = &mut keys {
                keys.set(rows, body, record.key);
            }
            if let Some(values) = &mut values {
                values.set(rows, body, record.value);
            }
            if let Some(offsets) = &mut offsets {
                offsets[rows] = record.offset;
            }
            if let Some(timestamps) = &mut timestamps {
                timestamps[rows] = record.timestamp_us;
            }
            rows += 1;
        }
        self.close(head, before + rows);
        Ok(())
    }

    /// Behind the records of a batch, by which there are so many rows now: what all its rows have in common.
    fn close(&mut self, head: &Header, rows: usize) {
        self.rows = rows;
        for column in [&mut self.keys, &mut self.values].into_iter().flatten() {
            column.close(rows);
        }
        for column in [&mut self.offsets, &mut self.timestamps].into_iter().flatten() {
            column.truncate(rows);
        }
        if let Some(types) = &mut self.types {
            types.resize(rows, i32::from(head.attributes & APPEND_TIME != 0));
        }
    }

    /// As one array of rows, columns in Spark's order.
    pub fn finish(self) -> Result<StructArray, Refused> {
        let mut columns: Vec<(FieldRef, ArrayRef)> = Vec::with_capacity(6);
        let mut add = |name: &str, array: ArrayRef| {
            columns.push((Arc::new(ArrowField::new(name, array.data_type().clone(), true)), array));
        };
        if let Some(keys) = self.keys {
            add("key", Arc::new(keys.finish()?));
        }
        if let Some(values) = self.values {
            add("value", Arc::new(values.finish()?));
        }
        if let Some(offsets) = self.offsets {
            add("offset", Arc::new(Int64Array::from(offsets)));
        }
        if let Some(timestamps) = self.timestamps {
            add("timestamp", Arc::new(TimestampMicrosecondArray::from(timestamps).with_timezone("UTC")));
        }
        if let Some(types) = self.types {
            add("timestampType", Arc::new(Int32Array::from(types)));
        }
        if let Some(headers) = self.headers {
            add("headers", Arc::new(headers.finish()?));
        }
        let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        StructArray::try_new_with_length(Fields::from(fields), arrays, None, self.rows)
            .or_else(|error| corrupt(error.to_string()))
    }
}

/// So many more of them, to be set.
fn opened(column: &mut Vec<i64>, rows: usize) -> &mut [i64] {
    let first = column.len();
    column.resize(first + rows, 0);
    &mut column[first..]
}

impl HeaderLists {
    #[inline(always)]
    fn push(&mut self, head: &Header, body: &[u8], headers: records::Headers, kept: bool) -> Result<(), Refused> {
        if headers.count > 0 && !self.read(body, headers, kept)? {
            return corrupt(records::damage(head, "its headers do not fill its length"));
        }
        if kept {
            match i32::try_from(self.names.rows()) {
                Ok(end) => self.ends.push(end),
                Err(_) => return corrupt("records have more headers than an array can"),
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn read(&mut self, body: &[u8], headers: records::Headers, kept: bool) -> Result<bool, Refused> {
        // What is reserved is bounded by what is there.
        let Some(count) = headers.bounded() else {
            return Ok(false);
        };
        if kept {
            self.names.reserve_rows(count)?;
            self.values.reserve_rows(count)?;
        }
        Ok(headers.each(body, |name, value| {
            if kept {
                self.names.push(body, name);
                self.values.push(body, value);
            }
        }))
    }

    fn finish(self) -> Result<ListArray, Refused> {
        let names: ArrayRef = Arc::new(self.names.finish_text()?);
        let values: ArrayRef = Arc::new(self.values.finish()?);
        let nulls = filled(&self.ends);
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        let header = StructArray::try_new(header_fields(), vec![names, values], None);
        let element = Arc::new(ArrowField::new("element", DataType::Struct(header_fields()), true));
        header
            .and_then(|header| ListArray::try_new(element, ends, Arc::new(header), nulls))
            .or_else(|error| corrupt(error.to_string()))
    }
}

/// What a header is to Arrow.
pub fn header_fields() -> Fields {
    Fields::from(vec![ArrowField::new("key", DataType::Utf8, true), ArrowField::new("value", DataType::Binary, true)])
}

/// What a timestamp is to Arrow.
pub fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}
