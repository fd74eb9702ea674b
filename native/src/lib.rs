//! Record batches to Arrow and back, the key scan, views of keyed streams and runs of queues: the loops that run once
//! per record; the Produce requests that come most often; and names of the inventory's topics.
//!
//! Each function has a twin in `duramen.spark`, `duramen.keyed`, `duramen.queues`, `duramen.inventory` or
//! `duramen.codec`, written in Python, which is its reference. What is here knows no Python but in `buffers`,
//! `inventory`, `python`, `requests`, `shards` and `views`, and no pointers but in `buffers` and `python`; `prefetch`
//! gives the processor a hint.

pub mod batches;
pub mod binary;
pub mod columns;
pub mod compression;
pub mod crc;
pub mod decode;
pub mod encode;
pub mod extract;
pub mod keys;
pub mod latest;
pub mod lz4;
pub mod names;
pub mod operations;
pub mod portions;
pub mod prefetch;
pub mod produce;
pub mod records;
pub mod refused;
pub mod rows;
pub mod runs;
pub mod siphash;
pub mod supersedes;
pub mod varint;
pub mod visible;

#[cfg(feature = "python")]
mod buffers;
#[cfg(feature = "python")]
mod inventory;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod requests;
#[cfg(feature = "python")]
mod shards;
#[cfg(feature = "python")]
mod views;

/// Arrays of megabytes come and go: glibc gives such memory back and asks for it again, page by page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
