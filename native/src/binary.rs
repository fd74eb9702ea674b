//! A column of byte strings as it is filled: what Arrow calls a binary array with 32-bit offsets.

use std::ops::Range;

use arrow_array::{BinaryArray, StringArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};

use crate::records::Field;
use crate::refused::{Refused, corrupt};

/// Strings up to this size are copied in one piece, of which the rest is written over: quicker than a call.
pub const PIECE_BYTES: usize = 128;
/// Many are no longer than this, and need a shorter piece.
const SHORT_BYTES: usize = 32;
/// Most keys and names of headers are not even that.
const SHORTEST_BYTES: usize = 16;

/// What lies at `place` in `data`, behind what `out` holds; quickest where `out` has `PIECE_BYTES` of room more.
#[inline(always)]
pub fn append(out: &mut Vec<u8>, data: &[u8], place: Range<usize>) {
    let size = place.len();
    if size <= SHORT_BYTES && append_piece::<SHORT_BYTES>(out, data, place.start, size) {
        return;
    }
    if size <= PIECE_BYTES && append_piece::<PIECE_BYTES>(out, data, place.start, size) {
        return;
    }
    out.extend_from_slice(&data[place]);
}

/// The `size` bytes from `at` on in `data`, as `append`; quicker where most are a few, and a little slower elsewhere.
#[inline(always)]
fn append_short(out: &mut Vec<u8>, data: &[u8], at: usize, size: usize) {
    if size <= SHORTEST_BYTES && append_piece::<SHORTEST_BYTES>(out, data, at, size) {
        return;
    }
    append(out, data, at..at + size);
}

/// Whether `data` had a whole piece behind `start`, of which `size` bytes, at most all, are behind `out` now.
#[inline(always)]
fn append_piece<const PIECE: usize>(out: &mut Vec<u8>, data: &[u8], start: usize, size: usize) -> bool {
    let Some(piece) = data.get(start..).and_then(|rest| rest.first_chunk::<PIECE>()) else {
        return false;
    };
    let end = out.len() + size;
    out.extend_from_slice(piece);
    out.truncate(end);
    true
}

/// Grows string by string.
pub struct Binary {
    ends: Vec<i32>,
    content: Vec<u8>,
    nulls: Nulls,
}

/// Which rows are null; nothing as long as none is.
#[derive(Default)]
pub struct Nulls {
    valid: Option<BooleanBufferBuilder>,
}

impl Nulls {
    /// The row behind `rows` others; `valid` says whether it is not null.
    #[inline(always)]
    pub fn push(&mut self, rows: usize, valid: bool) {
        match &mut self.valid {
            Some(builder) => builder.append(valid),
            None if !valid => self.begin(rows),
            None => {}
        }
    }

    #[cold]
    fn begin(&mut self, rows: usize) {
        let mut builder = BooleanBufferBuilder::new(rows + 1);
        builder.append_n(rows, true);
        builder.append(false);
        self.valid = Some(builder);
    }

    fn finish(self) -> Option<NullBuffer> {
        self.valid.map(|mut builder| NullBuffer::new(builder.finish()))
    }
}

impl Default for Binary {
    fn default() -> Self {
        Binary { ends: vec![0], content: Vec::new(), nulls: Nulls::default() }
    }
}

impl Binary {
    /// Room for so many more; `push` asks for no more memory than this.
    pub fn reserve(&mut self, rows: usize, bytes: usize) -> Result<(), Refused> {
        self.ends.try_reserve(rows)?;
        self.content.try_reserve(bytes + PIECE_BYTES)?;
        Ok(())
    }

    /// Room for so many more rows, their bytes apart.
    #[inline(always)]
    pub fn reserve_rows(&mut self, rows: usize) -> Result<(), Refused> {
        Ok(self.ends.try_reserve(rows)?)
    }

    /// Room for `times` what is there, and for `bytes` and what `push` needs beside it.
    pub fn expect(&mut self, times: usize, bytes: usize) -> Result<(), Refused> {
        self.ends.try_reserve(times * self.ends.len())?;
        self.content.try_reserve(times * self.content.len() + bytes + PIECE_BYTES)?;
        Ok(())
    }

    /// Rows for the strings of a batch, to be set one after another; `close` drops those that were not.
    pub fn open(&mut self, rows: usize) -> Open<'_> {
        let first = self.ends.len();
        self.ends.resize(first + rows, 0);
        let ends = &mut self.ends[first..];
        Open { ends, content: &mut self.content, nulls: &mut self.nulls, before: first - 1 }
    }

    /// To be called behind the strings of a batch, by which there are so many rows now.
    pub fn close(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
    }

    /// One string that lies in `data`, or null.
    #[inline(always)]
    pub fn push(&mut self, data: &[u8], field: Field) {
        put(&mut self.content, &mut self.nulls, self.ends.len() - 1, data, field);
        self.ends.push(self.content.len() as i32);
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.ends.len() - 1
    }

    fn parts(mut self) -> Result<(OffsetBuffer<i32>, Buffer, Option<NullBuffer>), Refused> {
        if i32::try_from(self.content.len()).is_err() {
            return corrupt("records hold more bytes than an array can");
        }
        if self.content.capacity() > 2 * self.content.len() {
            self.content.shrink_to_fit();
        }
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        Ok((ends, Buffer::from_vec(self.content), self.nulls.finish()))
    }

    /// As Arrow's array.
    pub fn finish(self) -> Result<BinaryArray, Refused> {
        let (ends, content, nulls) = self.parts()?;
        BinaryArray::try_new(ends, content, nulls).or_else(|error| corrupt(error.to_string()))
    }

    /// As Arrow's array of text; what is no UTF-8 is replaced, as Python does it.
    pub fn finish_text(self) -> Result<StringArray, Refused> {
        let (ends, content, nulls) = self.parts()?;
        if let Ok(text) = StringArray::try_new(ends.clone(), content.clone(), nulls.clone()) {
            return Ok(text);
        }
        let mut replaced = Binary::default();
        for edge in ends.windows(2) {
            let text = String::from_utf8_lossy(&content[edge[0] as usize..edge[1] as usize]);
            replaced.reserve(1, text.len())?;
            replaced.push(text.as_bytes(), Field { at: 0, size: text.len() as i64 });
        }
        let (ends, content, _) = replaced.parts()?;
        StringArray::try_new(ends, content, nulls).or_else(|error| corrupt(error.to_string()))
    }
}

/// Strings of a batch in rows that are there.
pub struct Open<'a> {
    ends: &'a mut [i32],
    content: &'a mut Vec<u8>,
    nulls: &'a mut Nulls,
    before: usize,
}

impl Open<'_> {
    /// The string of a row, which is the one behind the last that was set; it lies in `data`.
    #[inline(always)]
    pub fn set(&mut self, row: usize, data: &[u8], field: Field) {
        put(self.content, self.nulls, self.before + row, data, field);
        self.ends[row] = self.content.len() as i32;
    }
}

/// The string of the row behind `rows` others.
#[inline(always)]
fn put(content: &mut Vec<u8>, nulls: &mut Nulls, rows: usize, data: &[u8], field: Field) {
    nulls.push(rows, field.size >= 0);
    if field.size >= 0 {
        append_short(content, data, field.at, field.size as usize);
    }
}

/// Which lists hold something.
pub fn filled(ends: &[i32]) -> Option<NullBuffer> {
    let lists = ends.windows(2);
    if lists.clone().fold(true, |all, edge| all & (edge[0] < edge[1])) {
        return None;
    }
    let filled = BooleanBuffer::collect_bool(lists.len(), |row| ends[row] < ends[row + 1]);
    Some(NullBuffer::new(filled))
}
