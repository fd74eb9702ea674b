//! Record batches to columns.

use arrow_array::StructArray;

use crate::columns::{Columns, Wanted};
use crate::portions::Portion;
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
    if portion.step(|head, body, behind| columns.take(head, body, behind, first, end))? {
        columns.expect(portion.expected_batches(), 2 * portion.held_bytes())?;
        while portion.step(|head, body, behind| columns.take(head, body, behind, first, end))? {}
    }
    Ok((portion.position, columns.finish()?))
}
