//! LZ4 frames, as Kafka has them: read into one buffer with a bound, written in independent blocks.
//!
//! A block that needs nothing of those before it is read by the reference implementation, which is quickest; one that
//! does by a crate that takes a window.
//!
//! Format: the LZ4 frame format 1.6.4. Several frames and skippable ones may follow each other; each is whole.

use std::io::Write;

use lz4::block::decompress_to_buffer;
use lz4_flex::block::decompress_into_with_dict;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use crate::refused::{Refused, corrupt};

const MAGIC: u32 = 0x184D_2204;
const SKIPPABLE: u32 = 0x184D_2A50;
const WINDOW_BYTES: usize = 64 * 1024;
const STORED: u32 = 1 << 31;

fn damaged<T>(what: &str) -> Result<T, Refused> {
    corrupt(format!("compressed records are damaged: lz4: {what}"))
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Refused> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => damaged("truncated frame"),
        }
    }

    fn u32(&mut self) -> Result<u32, Refused> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(bytes))
    }
}

struct Frame {
    independent: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_size: Option<u64>,
    block_bytes: usize,
}

/// Makes the first bytes of `out` what the frames in `data` hold, of at most `limit` bytes, and says how many these are.
///
/// What lies behind them is room that was made before, so that zeros are written once and not batch after batch.
pub fn decompress(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<usize, Refused> {
    let mut reader = Reader { rest: data };
    let mut held = 0;
    while !reader.rest.is_empty() {
        let magic = reader.u32()?;
        if magic & !0xF == SKIPPABLE {
            let size = reader.u32()?;
            reader.take(size as usize)?;
        } else if magic == MAGIC {
            let frame = frame(&mut reader)?;
            let start = held;
            while let Some(written) = block(&mut reader, &frame, start, held, out)? {
                held += written;
                if held > limit {
                    return corrupt(format!("compressed records hold more than {limit} bytes"));
                }
            }
            end(&mut reader, &frame, &out[start..held])?;
        } else {
            return damaged("not a frame");
        }
    }
    Ok(held)
}

fn frame(reader: &mut Reader) -> Result<Frame, Refused> {
    let descriptor = reader.rest;
    let bytes = reader.take(2)?;
    let (flags, sizes) = (bytes[0], bytes[1]);
    if flags >> 6 != 1 || flags & 0x02 != 0 || sizes & 0x8F != 0 || sizes >> 4 < 4 {
        return damaged("a frame of a kind that there is not");
    }
    let content_size = if flags & 0x08 != 0 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(reader.take(8)?);
        Some(u64::from_le_bytes(bytes))
    } else {
        None
    };
    if flags & 0x01 != 0 {
        reader.take(4)?;
    }
    let length = descriptor.len() - reader.rest.len();
    let expected = (XxHash32::oneshot(0, &descriptor[..length]) >> 8) as u8;
    if reader.take(1)?[0] != expected {
        return damaged("a frame's header does not match its checksum");
    }
    Ok(Frame {
        independent: flags & 0x20 != 0,
        block_checksums: flags & 0x10 != 0,
        content_checksum: flags & 0x04 != 0,
        content_size,
        block_bytes: 1 << (8 + 2 * (sizes >> 4)),
    })
}

/// One block, to `at` in `out`, and its bytes; None where it was the end mark. The frame's first one went to `start`.
fn block(
    reader: &mut Reader,
    frame: &Frame,
    start: usize,
    at: usize,
    out: &mut Vec<u8>,
) -> Result<Option<usize>, Refused> {
    let head = reader.u32()?;
    if head == 0 {
        return Ok(None);
    }
    let size = (head & !STORED) as usize;
    if size > frame.block_bytes {
        return damaged("a block is larger than its frame allows");
    }
    let content = reader.take(size)?;
    if frame.block_checksums && reader.u32()? != XxHash32::oneshot(0, content) {
        return damaged("a block does not match its checksum");
    }
    let needed = (at + frame.block_bytes).saturating_sub(out.len());
    out.try_reserve(needed)?;
    out.resize(out.len() + needed, 0);
    let (before, room) = out.split_at_mut(at);
    let room = &mut room[..frame.block_bytes];
    if head & STORED != 0 {
        room[..size].copy_from_slice(content);
        return Ok(Some(size));
    }
    let written = if frame.independent || at == start {
        decompress_to_buffer(content, Some(frame.block_bytes as i32), room).map_err(|error| error.to_string())
    } else {
        let window = &before[start.max(at.saturating_sub(WINDOW_BYTES))..];
        decompress_into_with_dict(content, room, window).map_err(|error| error.to_string())
    };
    written.map(Some).or_else(|error| damaged(&error))
}

fn end(reader: &mut Reader, frame: &Frame, content: &[u8]) -> Result<(), Refused> {
    if frame.content_size.is_some_and(|size| size != content.len() as u64) {
        return damaged("a frame holds more or less than it says");
    }
    if frame.content_checksum && reader.u32()? != XxHash32::oneshot(0, content) {
        return damaged("a frame does not match its checksum");
    }
    Ok(())
}

/// `data` as one frame of independent blocks, which is what Kafka's Java clients read.
pub fn compress(data: &[u8]) -> std::io::Result<Vec<u8>> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(data)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_blocks_and_a_buffer_that_is_used_again() {
        let sample: Vec<u8> = (0..300_000u32).map(|number| (number.wrapping_mul(number) >> 7) as u8 & 0x1F).collect();
        let info = FrameInfo::new().block_mode(BlockMode::Linked).block_size(BlockSize::Max64KB);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&sample).unwrap();
        let linked = encoder.finish().unwrap();
        let short = compress(&sample[7..1000]).unwrap();
        let mut room = Vec::new();
        for (data, wanted) in [(&linked, &sample[..]), (&short, &sample[7..1000]), (&linked, &sample[..])] {
            let held = decompress(data, sample.len(), &mut room).unwrap();
            assert_eq!(&room[..held], wanted);
        }
    }
}
