//! Kafka's codecs: 1 gzip, 2 snappy (raw, or in the Java library's blocks), 3 lz4 frames, 4 zstd.
//!
//! Decompression never makes more than it is allowed to, whatever a batch claims.

use std::io::{self, Read, Write};

use crate::lz4;
use crate::refused::{Refused, corrupt, invalid};

const SNAPPY_MAGIC: &[u8] = b"\x82SNAPPY\x00";
const SNAPPY_HEADER: &[u8] = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01";
const SNAPPY_BLOCK_BYTES: usize = 32 * 1024;
/// Three bytes make 64 at most.
const SNAPPY_LARGEST_RATIO: usize = 22;
const FIRST_GUESS: usize = 4;
/// Zstandard's own default level is 3.
const ZSTD_DEFAULT_LEVEL: i32 = 0;

fn damaged<T>(error: impl std::fmt::Display) -> Result<T, Refused> {
    corrupt(format!("compressed records are damaged: {error}"))
}

/// What `data` holds, of at most `limit` bytes; it lies in `room`, of whose bytes nothing is looked at before.
pub fn decompress<'a>(codec: i16, data: &[u8], limit: usize, room: &'a mut Vec<u8>) -> Result<&'a [u8], Refused> {
    if data.is_empty() {
        return damaged("there are none");
    }
    if codec == 3 {
        let held = lz4::decompress(data, limit, room)?;
        return Ok(&room[..held]);
    }
    room.clear();
    let out = &mut *room;
    match codec {
        1 => stream(flate2::bufread::MultiGzDecoder::new(data), data.len(), limit, out),
        2 => snappy(data, limit, out),
        4 => match zstd::stream::read::Decoder::with_buffer(data) {
            Ok(decoder) => stream(decoder, data.len(), limit, out),
            Err(error) => damaged(error),
        },
        _ => corrupt(format!("no compression codec has the number {codec}")),
    }?;
    Ok(room)
}

fn stream(decoder: impl Read, compressed: usize, limit: usize, out: &mut Vec<u8>) -> Result<(), Refused> {
    out.try_reserve(limit.min(FIRST_GUESS * compressed))?;
    match decoder.take(limit as u64 + 1).read_to_end(out) {
        Ok(_) if out.len() > limit => corrupt(format!("compressed records hold more than {limit} bytes")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(Refused::Memory),
        Err(error) => damaged(error),
    }
}

fn snappy(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Refused> {
    if !data.starts_with(SNAPPY_MAGIC) {
        return snappy_block(data, limit, out);
    }
    let mut rest = data.get(SNAPPY_HEADER.len()..).unwrap_or_default();
    while !rest.is_empty() {
        let block = rest
            .split_first_chunk::<4>()
            .and_then(|(size, behind)| behind.split_at_checked(u32::from_be_bytes(*size) as usize));
        let Some((block, behind)) = block else {
            return damaged("a snappy block is cut off");
        };
        snappy_block(block, limit, out)?;
        rest = behind;
    }
    Ok(())
}

fn snappy_block(block: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Refused> {
    let size = match snap::raw::decompress_len(block) {
        Ok(size) => size,
        Err(error) => return damaged(error),
    };
    if size > limit - out.len() {
        return corrupt(format!("compressed records hold more than {limit} bytes"));
    }
    if size > SNAPPY_LARGEST_RATIO * block.len() {
        return corrupt(format!("{} bytes of snappy cannot hold {size}", block.len()));
    }
    let at = out.len();
    out.try_reserve(size)?;
    out.resize(at + size, 0);
    match snap::raw::Decoder::new().decompress(block, &mut out[at..]) {
        Ok(_) => Ok(()),
        Err(error) => damaged(error),
    }
}

/// `data` compressed with the codec of that number.
pub fn compress(codec: i16, data: &[u8]) -> Result<Vec<u8>, Refused> {
    let done = match codec {
        1 => gzip(data),
        2 => snappy_blocks(data),
        3 => lz4::compress(data),
        4 => zstd::stream::encode_all(data, ZSTD_DEFAULT_LEVEL),
        _ => return invalid(format!("no codec has the number {codec}")),
    };
    done.or_else(|error| invalid(format!("records cannot be compressed: {error}")))
}

fn gzip(data: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data)?;
    encoder.finish()
}

fn snappy_blocks(data: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = SNAPPY_HEADER.to_vec();
    let mut encoder = snap::raw::Encoder::new();
    for block in data.chunks(SNAPPY_BLOCK_BYTES) {
        let compressed = encoder.compress_vec(block)?;
        out.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        (0..200_000u32).map(|number| (number.wrapping_mul(number) >> 7) as u8 & 0x1F).collect()
    }

    #[test]
    fn every_codec_gives_back_what_it_took_and_refuses_less() {
        for codec in 1..=4 {
            let compressed = compress(codec, &sample()).unwrap();
            let mut out = Vec::new();
            let held = decompress(codec, &compressed, 200_000, &mut out).unwrap();
            assert_eq!(held, sample());
            for cut in [0, 1, 4, 7, compressed.len() / 2, compressed.len() - 4, compressed.len() - 1] {
                assert!(decompress(codec, &compressed[..cut], 200_000, &mut out).is_err(), "{codec} {cut}");
            }
            let mut longer = compressed.clone();
            longer.push(0);
            assert!(decompress(codec, &longer, 200_000, &mut out).is_err(), "{codec}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        for codec in 1..=4 {
            let bomb = compress(codec, &vec![0; 1 << 20]).unwrap();
            let mut room = Vec::new();
            let refused = decompress(codec, &bomb, (1 << 20) - 1, &mut room);
            assert_eq!(refused, Err(Refused::Corrupt("compressed records hold more than 1048575 bytes".into())));
        }
    }
}
