//! Record batches to Arrow and back, and the key scan: the loops of Duramen that run once per record.
//!
//! Each function has a twin in `duramen.spark`, written in Python, which is its reference. What is here knows no
//! Python but in `python`, and no pointers but there; `prefetch` gives the processor a hint.

pub mod batches;
pub mod binary;
pub mod columns;
pub mod compression;
pub mod crc;
pub mod decode;
pub mod encode;
pub mod keys;
pub mod lz4;
pub mod portions;
pub mod prefetch;
pub mod records;
pub mod refused;
pub mod varint;

#[cfg(feature = "python")]
mod python;

/// Arrays of megabytes come and go: glibc gives such memory back and asks for it again, page by page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
