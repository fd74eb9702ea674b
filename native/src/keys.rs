//! The key scan: of each key the last of its offsets, which is what a keyed snapshot and compaction ask; and whether
//! every record of a producer's batch has a key.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, StructArray};
use arrow_schema::{DataType, Field as ArrowField, Fields};

use crate::binary::Binary;
use crate::portions::Portion;
use crate::records::{Field, Records};
use crate::refused::{Refused, corrupt};
use crate::runs::unchecked;

struct Last {
    offset: i64,
    tombstone: bool,
}

/// Of each key in the batches from `position` on, as many as make one portion, the last record with an offset in
/// `[first, end)`: rows of key, offset and whether its value is null, by offset. And where to go on, as `decode`.
///
/// Records without a key are passed over.
pub fn scan(buffer: &[u8], position: usize, first: i64, end: i64) -> Result<(usize, StructArray), Refused> {
    let mut portion = Portion::new(buffer, position, first, end);
    let mut found: HashMap<Box<[u8]>, Last> = HashMap::new();
    while portion.step(|head, body, _| {
        let mut records = Records::new(head, body);
        while let Some(record) = records.advance()? {
            if record.key.size >= 0 && first <= record.offset && record.offset < end {
                let key = &body[record.key.at..record.key.at + record.key.size as usize];
                let last = Last { offset: record.offset, tombstone: record.value.size < 0 };
                match found.get_mut(key) {
                    Some(known) => *known = last,
                    None => {
                        found.try_reserve(1)?;
                        found.insert(key.into(), last);
                    }
                }
            }
        }
        Ok(())
    })? {}
    Ok((portion.position, rows(found)?))
}

/// The largest timestamp of a batch whose records all have a key; None where one has none, or the batch is not sound.
///
/// Its CRC is not looked at.
pub fn newest(batch: &[u8], limit: usize) -> Result<Option<i64>, Refused> {
    let mut scratch = Vec::new();
    let Some((head, body)) = unchecked(batch, limit, &mut scratch)? else { return Ok(None) };
    let (mut records, mut next, mut newest) = (Records::new(&head, body), head.base_offset, None);
    loop {
        match records.advance() {
            Ok(Some(one)) => {
                if one.key.size < 0 || one.offset < next || !one.headers.each(body, |_, _| {}) {
                    return Ok(None);
                }
                next = one.offset + 1;
                newest = newest.max(Some(one.timestamp_ms));
            }
            Ok(None) => return Ok(newest),
            Err(Refused::Corrupt(_)) => return Ok(None),
            Err(refused) => return Err(refused),
        }
    }
}

fn rows(found: HashMap<Box<[u8]>, Last>) -> Result<StructArray, Refused> {
    let mut rows: Vec<(Box<[u8]>, Last)> = found.into_iter().collect();
    rows.sort_unstable_by(|one, other| (one.1.offset, &one.0).cmp(&(other.1.offset, &other.0)));
    let mut keys = Binary::default();
    for (key, _) in &rows {
        keys.reserve(1, key.len())?;
        keys.push(key, Field { at: 0, size: key.len() as i64 });
    }
    let offsets: Int64Array = rows.iter().map(|(_, last)| Some(last.offset)).collect();
    let tombstones: BooleanArray = rows.iter().map(|(_, last)| Some(last.tombstone)).collect();
    let arrays: Vec<ArrayRef> = vec![Arc::new(keys.finish()?), Arc::new(offsets), Arc::new(tombstones)];
    let fields = Fields::from(vec![
        ArrowField::new("key", DataType::Binary, true),
        ArrowField::new("offset", DataType::Int64, true),
        ArrowField::new("tombstone", DataType::Boolean, true),
    ]);
    StructArray::try_new(fields, arrays, None).or_else(|error| corrupt(error.to_string()))
}
