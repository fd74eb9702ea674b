//! Distances: for each record, in the order in which records count, how far back the record is that it supersedes.

/// The record supersedes nothing.
pub const NOTHING: u32 = 0;
/// A record with a higher offset counted before it, so it is never visible.
pub const DEAD: u32 = u32::MAX - 1;
/// The distance does not fit: the superseded offset is in a list beside the distances.
pub const FAR: u32 = u32::MAX;

/// The distance from `offset` back to `previous`.
#[inline(always)]
pub fn distance(offset: i64, previous: i64) -> u32 {
    if previous >= offset {
        return DEAD;
    }
    match u32::try_from(offset - previous) {
        Ok(near) if near < DEAD => near,
        _ => FAR,
    }
}
