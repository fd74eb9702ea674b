//! Names of the inventory's topics: checked, in order and packed by shard; and one of them found in a packed block.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use crate::compression;
use crate::refused::{Refused, corrupt, invalid};

const RAW: u8 = 0;
const PACKED: u8 = 1;
const LEAST_PACKED: usize = 4;
const LEVEL: i32 = 1;
const ZSTD: i16 = 4;

/// Names that follow one another in a shard: the first, the last, how many they are, and all of them packed.
pub struct Block {
    /// The shard that they belong to.
    pub shard: u32,
    /// The first of them.
    pub first: Vec<u8>,
    /// The last of them.
    pub last: Vec<u8>,
    /// How many they are.
    pub count: usize,
    /// All of them.
    pub body: Vec<u8>,
}

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether all of these are names in plain ASCII, which need no closer look.
pub fn plain(names: &[&[u8]], longest: usize) -> bool {
    names.iter().all(|name| (1..=longest).contains(&name.len()) && name.iter().all(|one| (0x20..0x7f).contains(one)))
}

/// Names in blocks of at most `most`, by shard and in order, each name once; and how many they are.
pub fn pack(mut names: Vec<&[u8]>, namespace: u32, shards: u32, most: usize) -> Result<(usize, Vec<Block>), Refused> {
    if shards == 0 || most == 0 {
        return invalid("there is no shard, or no room in a block");
    }
    if !names.is_sorted_by(|one, other| one < other) {
        names.sort_unstable();
        names.dedup();
    }
    let mut by_shard: Vec<Vec<&[u8]>> = vec![Vec::new(); shards as usize];
    for name in &names {
        by_shard[(digest(namespace, name) % shards) as usize].push(name);
    }
    let mut blocks = Vec::new();
    for (shard, of_shard) in (0..).zip(&by_shard) {
        for some in of_shard.chunks(most) {
            blocks.push(block(shard, some)?);
        }
    }
    Ok((names.len(), blocks))
}

/// As Python's `zlib.crc32(name, namespace)`.
fn digest(namespace: u32, name: &[u8]) -> u32 {
    let mut crc = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32IsoHdlc, u64::from(!namespace));
    crc.update(name);
    crc.finalize() as u32
}

fn block(shard: u32, names: &[&[u8]]) -> Result<Block, Refused> {
    let joined = names.join(&b'\n');
    let mut body = vec![RAW];
    if names.len() < LEAST_PACKED {
        body.extend_from_slice(&joined);
    } else {
        body[0] = PACKED;
        body.extend(compressed(&joined)?);
    }
    let (first, last) = (names[0].to_vec(), names[names.len() - 1].to_vec());
    Ok(Block { shard, first, last, count: names.len(), body })
}

fn compressed(data: &[u8]) -> Result<Vec<u8>, Refused> {
    COMPRESSOR.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = Compressor::new(LEVEL).ok();
        }
        kept.as_mut().and_then(|compressor| compressor.compress(data).ok()).ok_or(Refused::Memory)
    })
}

/// The names of a body, of at most `limit` bytes, with a line end between two.
pub fn unpack(body: &[u8], limit: usize) -> Result<Vec<u8>, Refused> {
    unpacked(body, limit, |joined| joined.to_vec())
}

/// The place of a name among those of a body.
pub fn find(body: &[u8], name: &[u8], limit: usize) -> Result<Option<usize>, Refused> {
    unpacked(body, limit, |joined| joined.split(|one| *one == b'\n').position(|one| one == name))
}

fn unpacked<T>(body: &[u8], limit: usize, read: impl FnOnce(&[u8]) -> T) -> Result<T, Refused> {
    match body.split_first() {
        Some((&RAW, joined)) => Ok(read(joined)),
        Some((&PACKED, data)) => ROOM.with_borrow_mut(|room| {
            // Most bodies say how much they hold, and are taken apart by what is there from the last time.
            match zstd::zstd_safe::get_frame_content_size(data) {
                Ok(Some(size)) if size <= limit as u64 => {
                    room.clear();
                    room.try_reserve(size as usize)?;
                    DECOMPRESSOR.with_borrow_mut(|kept| {
                        if kept.is_none() {
                            *kept = Decompressor::new().ok();
                        }
                        match kept.as_mut().map(|decompressor| decompressor.decompress_to_buffer(data, room)) {
                            Some(Ok(_)) => Ok(()),
                            Some(Err(error)) => corrupt(format!("names are damaged: {error}")),
                            None => Err(Refused::Memory),
                        }
                    })?;
                    Ok(read(room))
                }
                _ => compression::decompress(ZSTD, data, limit, room).map(read),
            }
        }),
        _ => corrupt("names are damaged: there are none"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_they_were_packed() {
        let names: Vec<String> = (0..1000).map(|number| format!("device-{number}")).collect();
        let (count, blocks) = pack(names.iter().rev().map(String::as_bytes).collect(), 7, 3, 128).unwrap();
        assert_eq!(count, 1000);
        assert_eq!(blocks.iter().map(|block| block.count).sum::<usize>(), 1000);
        for block in &blocks {
            let joined = unpack(&block.body, 1 << 20).unwrap();
            for (place, name) in joined.split(|one| *one == b'\n').enumerate() {
                assert_eq!(find(&block.body, name, 1 << 20).unwrap(), Some(place));
                assert_eq!(digest(7, name) % 3, block.shard);
            }
            assert_eq!(find(&block.body, b"device", 1 << 20).unwrap(), None);
            assert!(find(&block.body[..block.body.len() - 1], b"device", 1 << 20).is_err());
            assert!(find(&block.body, b"device", 10).is_err());
        }
    }

    #[test]
    fn a_digest_goes_on_from_the_namespace() {
        assert_eq!(digest(0, b"123456789"), 0xcbf4_3926);
    }
}
