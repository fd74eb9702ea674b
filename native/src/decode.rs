//! Record batches to columns.

use arrow_array::StructArray;

use crate::batches::Header;
use crate::columns::{Columns, Wanted};
use crate::portions::Portion;
use crate::records;
use crate::refused::Refused;

/// The records with offsets in `[first, end)` of the batches from `position` on, as many as make one array; and where
/// to go on, which is the buffer's length where nothing more is wanted.
pub fn decode(
    buffer: &[u8],
    position: usize,
    first: i64,
    end: i64,
    wanted: Wanted,
) -> Result<(usize, StructArray), Refused> {
    let mut portion = Portion::new(buffer, position, first, end);
    let mut columns = Columns::new(wanted);
    let take = |columns: &mut Columns, head: &Header, body: &[u8]| {
        columns.reserve(head.records as usize, body.len())?;
        records::each(head, body, |record| {
            columns.push(head, body, record, first <= record.offset && record.offset < end)
        })?;
        columns.end_batch(head);
        Ok(())
    };
    if portion.step(|head, body| take(&mut columns, head, body))? {
        columns.expect(portion.expected_batches(), 2 * portion.held_bytes())?;
        while portion.step(|head, body| take(&mut columns, head, body))? {}
    }
    Ok((portion.position, columns.finish()?))
}
