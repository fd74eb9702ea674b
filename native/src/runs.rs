//! Runs of the entries of light queues: made of a shard's batches, and batches made of runs.
//! Layouts: `duramen/queues/runs.py`, `duramen/queues/operations.py`.

use std::collections::HashMap;

use crate::batches::{self, CODEC_MASK, CONTROL, CRC_START, HEADER_BYTES, Header, LENGTH_END};
use crate::compression::decompress;
use crate::crc;
use crate::portions::{LARGEST_OFFSET, checked};
use crate::records::{Field, Records, damage};
use crate::refused::{Refused, corrupt};
use crate::varint;

pub(crate) const RUN_BYTES: usize = 16;
pub(crate) const BODY_BYTES: usize = 9;
const LONGEST_NAME_BYTES: usize = 255;
/// What an entry counts beside its key, value and headers: as `duramen.queues.reading` has it.
const OVERHEAD: usize = 64;
const EPOCH: std::ops::Range<usize> = 12..16;
pub(crate) const VALUE: u8 = 1;
pub(crate) const KEY: u8 = 2;
pub(crate) const HEADERS: u8 = 4;
pub(crate) const VERSION: u8 = 8;
pub(crate) const VISIBLE: u8 = 16;
pub(crate) const EXPIRES: u8 = 32;
const RESERVED_PREFIX: &[u8] = b"duramen-queue-";
const KEY_HEADER: &[u8] = b"duramen-queue-key";
const VERSION_HEADER: &[u8] = b"duramen-queue-version";

/// A queue's name, the offset of a run's last entry, and the run.
pub type NamedRun = (Vec<u8>, i64, Vec<u8>);

/// Whether a queue can be called that.
pub(crate) fn is_name(name: &[u8]) -> bool {
    (1..=LONGEST_NAME_BYTES).contains(&name.len()) && std::str::from_utf8(name).is_ok()
}

/// A record with a key and no headers.
struct Plain {
    offset: i64,
    timestamp_ms: i64,
    key: Field,
    value: Field,
}

/// The records of a batch into `out`; false where one has headers or no key, or the batch is not sound.
fn plain_records(head: &Header, body: &[u8], out: &mut Vec<Plain>) -> Result<bool, Refused> {
    out.clear();
    let (mut records, mut next) = (Records::new(head, body), head.base_offset);
    loop {
        let record = match records.advance() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(true),
            Err(Refused::Corrupt(_)) => return Ok(false),
            Err(refused) => return Err(refused),
        };
        if record.key.size < 0 || record.headers.count != 0 || record.offset < next {
            return Ok(false);
        }
        next = record.offset + 1;
        out.try_reserve(1)?;
        out.push(Plain {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key,
            value: record.value,
        });
    }
}

pub(crate) fn bytes_of(body: &[u8], field: Field) -> &[u8] {
    &body[field.at..field.at + field.size.max(0) as usize]
}

/// The entries of a queue that are not in a run yet, and its runs.
struct Building {
    name: Vec<u8>,
    first: i64,
    last: i64,
    offsets: Vec<u32>,
    ends: Vec<u32>,
    bodies: Vec<u8>,
    runs: Vec<(i64, Vec<u8>)>,
}

impl Building {
    fn new(name: &[u8]) -> Self {
        let (offsets, ends, bodies, runs) = Default::default();
        Building { name: name.to_vec(), first: 0, last: 0, offsets, ends, bodies, runs }
    }

    fn put(&mut self, one: &Plain, value: &[u8], limit: usize, epoch: i32) -> Result<(), Refused> {
        let size = BODY_BYTES + value.len();
        let far = u32::try_from(one.offset - self.first).is_err();
        if !self.offsets.is_empty() && (self.bodies.len() + size > limit || far) {
            self.close(epoch)?;
        }
        if self.offsets.is_empty() {
            self.first = one.offset;
        }
        self.last = one.offset;
        self.bodies.try_reserve(size)?;
        self.bodies.push(if one.value.size < 0 { 0 } else { VALUE });
        self.bodies.extend_from_slice(&one.timestamp_ms.to_le_bytes());
        self.bodies.extend_from_slice(value);
        self.offsets.push((one.offset - self.first) as u32);
        self.ends.push(self.bodies.len() as u32);
        Ok(())
    }

    fn close(&mut self, epoch: i32) -> Result<(), Refused> {
        if self.offsets.is_empty() {
            return Ok(());
        }
        let mut run = Vec::new();
        run.try_reserve_exact(RUN_BYTES + 8 * self.offsets.len() + self.bodies.len())?;
        run.extend_from_slice(&self.first.to_le_bytes());
        run.extend_from_slice(&epoch.to_le_bytes());
        run.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        for number in self.offsets.iter().chain(&self.ends) {
            run.extend_from_slice(&number.to_le_bytes());
        }
        run.extend_from_slice(&self.bodies);
        self.runs.push((self.last, run));
        self.offsets.clear();
        self.ends.clear();
        self.bodies.clear();
        Ok(())
    }
}

pub(crate) fn epoch_of(batch: &[u8]) -> i32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&batch[EPOCH]);
    i32::from_be_bytes(bytes)
}

/// The body of a whole sound batch with records; None where it is something else.
pub(crate) fn sound<'a>(batch: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Option<(Header, &'a [u8])>, Refused> {
    let Ok(Some((head, whole))) = batches::next(batch, 0) else {
        return Ok(None);
    };
    if whole.len() != batch.len() || head.attributes & CONTROL != 0 {
        return Ok(None);
    }
    match checked(&head, batch, scratch) {
        Ok(body) => Ok(Some((head, body))),
        Err(Refused::Corrupt(_)) => Ok(None),
        Err(refused) => Err(refused),
    }
}

/// The runs that batches come to, of their entries from the offset `first` on, and how many batches these are: those
/// of one leader epoch before the first one whose records are not all entries without headers.
pub fn split(all: &[&[u8]], first: i64, limit: usize) -> Result<(usize, Vec<NamedRun>), Refused> {
    let (mut queues, mut places) = (Vec::<Building>::new(), HashMap::<Vec<u8>, Option<usize>>::new());
    let (mut scratch, mut found, mut taken, mut epoch) = (Vec::new(), Vec::new(), 0, 0);
    let mut latest: Option<usize> = None;
    for batch in all {
        let Some((head, body)) = sound(batch, &mut scratch)? else { break };
        if taken > 0 && epoch_of(batch) != epoch || !plain_records(&head, body, &mut found)? {
            break;
        }
        epoch = epoch_of(batch);
        taken += 1;
        for one in found.iter().filter(|one| one.offset >= first) {
            let name = bytes_of(body, one.key);
            let place = match latest.filter(|place| queues[*place].name == name) {
                Some(place) => Some(place),
                None => place_of(name, &mut queues, &mut places),
            };
            if let Some(place) = place {
                queues[place].put(one, bytes_of(body, one.value), limit, epoch)?;
                latest = Some(place);
            }
        }
    }
    let mut runs = Vec::new();
    for mut queue in queues {
        queue.close(epoch)?;
        runs.extend(queue.runs.into_iter().map(|(last, run)| (queue.name.clone(), last, run)));
    }
    Ok((taken, runs))
}

fn place_of(name: &[u8], queues: &mut Vec<Building>, places: &mut HashMap<Vec<u8>, Option<usize>>) -> Option<usize> {
    if let Some(place) = places.get(name) {
        return *place;
    }
    let place = is_name(name).then_some(queues.len());
    if place.is_some() {
        queues.push(Building::new(name));
    }
    places.insert(name.to_vec(), place);
    place
}

/// The records of a batch, decompressed to at most `limit` bytes; None where it is not sound. Its CRC is not looked at.
pub fn unchecked<'a>(
    batch: &'a [u8],
    limit: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<Option<(Header, &'a [u8])>, Refused> {
    let Ok(Some((head, whole))) = batches::next(batch, 0) else {
        return Ok(None);
    };
    let possible = (0..LARGEST_OFFSET).contains(&head.base_offset) && head.magic == 2 && head.records > 0;
    if whole.len() != batch.len() || head.attributes & CONTROL != 0 || !possible {
        return Ok(None);
    }
    match head.attributes & CODEC_MASK {
        0 => Ok(Some((head, &batch[HEADER_BYTES..]))),
        codec => match decompress(codec, &batch[HEADER_BYTES..], limit, scratch) {
            Ok(body) => Ok(Some((head, body))),
            Err(Refused::Corrupt(_)) => Ok(None),
            Err(refused) => Err(refused),
        },
    }
}

/// Kafka's partition of a key: murmur2 as Java's client has it.
fn shard_of(key: &[u8], shards: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ key.len() as u32;
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k = (k ^ k >> 24).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    ((hash ^ hash >> 15) & 0x7FFF_FFFF) % shards.max(1)
}

/// The largest timestamp of a batch whose records all are entries without headers of queues of that shard; else None.
pub fn newest(batch: &[u8], shard: u32, shards: u32, limit: usize) -> Result<Option<i64>, Refused> {
    let (mut scratch, mut found) = (Vec::new(), Vec::new());
    let Some((head, body)) = unchecked(batch, limit, &mut scratch)? else { return Ok(None) };
    if !plain_records(&head, body, &mut found)? {
        return Ok(None);
    }
    let mut right: &[u8] = &[];
    for one in &found {
        let name = bytes_of(body, one.key);
        if name != right && !(is_name(name) && shard_of(name, shards) == shard) || name.is_empty() {
            return Ok(None);
        }
        right = name;
    }
    Ok(found.iter().map(|one| one.timestamp_ms).max())
}

/// A shard, a batch of the entries that are for it, and their places among all.
pub type ShardPart = (u32, Vec<u8>, Vec<u32>);

/// The batches that a batch of entries comes to, one for each shard, in the order of their first entries; None where
/// it is not sound, or a record is no entry.
pub fn split_shards(batch: &[u8], shards: u32, limit: usize) -> Result<Option<Vec<ShardPart>>, Refused> {
    struct Part {
        shard: u32,
        base_ms: i64,
        newest_ms: i64,
        batch: Vec<u8>,
        places: Vec<u32>,
    }
    let mut scratch = Vec::new();
    let Some((head, body)) = unchecked(batch, limit, &mut scratch)? else { return Ok(None) };
    let (mut parts, mut record, mut next, mut place) = (Vec::<Part>::new(), Vec::new(), head.base_offset, 0);
    let mut records = Records::new(&head, body);
    loop {
        let one = match records.advance() {
            Ok(Some(one)) => one,
            Ok(None) => break,
            Err(Refused::Corrupt(_)) => return Ok(None),
            Err(refused) => return Err(refused),
        };
        let name = bytes_of(body, one.key);
        let Some(headers) = one.headers.read(body) else { return Ok(None) };
        let reserved = headers.iter().any(|(name, _)| {
            let name = bytes_of(body, *name);
            name.starts_with(RESERVED_PREFIX) && name != KEY_HEADER
        });
        if one.offset < next || one.key.size < 0 || !is_name(name) || reserved {
            return Ok(None);
        }
        next = one.offset + 1;
        let shard = shard_of(name, shards);
        let index = match parts.iter().position(|part| part.shard == shard) {
            Some(index) => index,
            None => {
                let (base_ms, newest_ms) = (one.timestamp_ms, one.timestamp_ms);
                parts.push(Part { shard, base_ms, newest_ms, batch: vec![0; HEADER_BYTES], places: Vec::new() });
                parts.len() - 1
            }
        };
        let part = &mut parts[index];
        let Some(delta) = one.timestamp_ms.checked_sub(part.base_ms) else { return Ok(None) };
        part.newest_ms = part.newest_ms.max(one.timestamp_ms);
        record.clear();
        record.push(0);
        varint::write(&mut record, delta);
        varint::write(&mut record, part.places.len() as i64);
        field(&mut record, Some(name));
        field(&mut record, option(body, one.value));
        varint::write(&mut record, headers.len() as i64);
        for (name, value) in headers {
            field(&mut record, option(body, name));
            field(&mut record, option(body, value));
        }
        part.batch.try_reserve(record.len() + 10)?;
        varint::write(&mut part.batch, record.len() as i64);
        part.batch.extend_from_slice(&record);
        part.places.push(place);
        place += 1;
    }
    let sealed = parts.into_iter().map(|mut part| {
        let count = part.places.len();
        seal(&mut part.batch, 0, -1, count as i32 - 1, part.base_ms, part.newest_ms, count);
        (part.shard, part.batch, part.places)
    });
    Ok(Some(sealed.collect()))
}

/// A batch of some entries of a run.
pub struct Made {
    /// Empty where there are none.
    pub batch: Vec<u8>,
    /// Entries in it.
    pub count: usize,
    /// Their keys, values and headers, and something for each.
    pub size: usize,
    /// The offset of the last one; -1 where there is none.
    pub last: i64,
    /// Whether the run has more.
    pub more: bool,
}

pub(crate) fn number<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N], Refused> {
    match data.get(at..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => Ok(*bytes),
        None => corrupt("a run of entries is cut off"),
    }
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> Result<usize, Refused> {
    Ok(u32::from_le_bytes(number(data, at)?) as usize)
}

pub(crate) fn piece(data: &[u8], at: usize, size: usize) -> Result<&[u8], Refused> {
    match at.checked_add(size).and_then(|end| data.get(at..end)) {
        Some(piece) => Ok(piece),
        None => corrupt("an entry of a run is cut off"),
    }
}

/// An entry of a run.
struct Entry<'a> {
    timestamp_ms: i64,
    version: Option<u64>,
    key: Option<&'a [u8]>,
    headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
    value: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// The entry that a body is; None where it has what is not known here.
    fn read(body: &'a [u8]) -> Result<Option<Self>, Refused> {
        let [flags] = number(body, 0)?;
        if flags & !(VALUE | KEY | HEADERS | VERSION) != 0 {
            return Ok(None);
        }
        let timestamp_ms = i64::from_le_bytes(number(body, 1)?);
        let (mut at, mut version, mut key, mut headers) = (BODY_BYTES, None, None, Vec::new());
        if flags & VERSION != 0 {
            version = Some(u64::from_le_bytes(number(body, at)?));
            at += 8;
        }
        if flags & KEY != 0 {
            let size = u32_at(body, at)?;
            key = Some(piece(body, at + 4, size)?);
            at += 4 + size;
        }
        if flags & HEADERS != 0 {
            let count = u32_at(body, at)?;
            at += 4;
            for _ in 0..count {
                let size = u32_at(body, at)?;
                let name = piece(body, at + 4, size)?;
                at += 4 + size;
                let size = i32::from_le_bytes(number(body, at)?);
                at += 4;
                let held = size.max(0) as usize;
                let value = piece(body, at, held)?;
                headers.push((name, (size >= 0).then_some(value)));
                at += held;
            }
        }
        let value = piece(body, at, body.len() - at)?;
        let value = (flags & VALUE != 0).then_some(value);
        Ok(Some(Entry { timestamp_ms, version, key, headers, value }))
    }

    fn size(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.unwrap_or_default().len()).sum();
        OVERHEAD + self.key.unwrap_or_default().len() + self.value.unwrap_or_default().len() + headers
    }

    /// The entry as a record behind what `out` holds; `record` is room for it.
    fn write(&self, name: &[u8], timestamp_delta: i64, offset_delta: i64, record: &mut Vec<u8>, out: &mut Vec<u8>) {
        record.clear();
        record.push(0);
        varint::write(record, timestamp_delta);
        varint::write(record, offset_delta);
        field(record, Some(name));
        field(record, self.value);
        let version = self.version.map(|version| version.to_string());
        let own = usize::from(version.is_some()) + usize::from(self.key.is_some());
        varint::write(record, (own + self.headers.len()) as i64);
        if let Some(version) = &version {
            field(record, Some(VERSION_HEADER));
            field(record, Some(version.as_bytes()));
        }
        if self.key.is_some() {
            field(record, Some(KEY_HEADER));
            field(record, self.key);
        }
        for (name, value) in &self.headers {
            field(record, Some(name));
            field(record, *value);
        }
        varint::write(out, record.len() as i64);
        out.extend_from_slice(record);
    }
}

pub(crate) fn field(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            varint::write(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
        None => varint::write(out, -1),
    }
}

/// The entries of a run from the offset `start` on as a batch, `most` at most, and no more bytes than `most_bytes` but
/// for the first where that is allowed; as many as a batch can have. None where one has what is not known here.
pub fn records(
    run: &[u8],
    name: &[u8],
    start: i64,
    most: usize,
    most_bytes: usize,
    first_in_any_case: bool,
) -> Result<Option<Made>, Refused> {
    let first = i64::from_le_bytes(number(run, 0)?);
    let epoch = i32::from_le_bytes(number(run, 8)?);
    let count = u32_at(run, 12)?;
    let base = RUN_BYTES + 8 * count;
    piece(run, 0, base)?;
    let mut made = Made { batch: vec![0; HEADER_BYTES], count: 0, size: 0, last: -1, more: false };
    let (mut record, mut begin, mut times, mut last) = (Vec::new(), base, None::<(i64, i64, i64)>, 0);
    for index in 0..count {
        let offset = first.wrapping_add(u32_at(run, RUN_BYTES + 4 * index)? as i64);
        let end = base + u32_at(run, RUN_BYTES + 4 * (count + index))?;
        let body = piece(run, begin, end.saturating_sub(begin))?;
        begin = end;
        if offset < start || body.is_empty() {
            continue;
        }
        let Some(entry) = Entry::read(body)? else { return Ok(None) };
        let (base_offset, base_ms, newest) = times.unwrap_or((offset, entry.timestamp_ms, entry.timestamp_ms));
        let (delta, timestamp_delta) = (offset - base_offset, entry.timestamp_ms.checked_sub(base_ms));
        let full =
            made.count >= most || made.size + entry.size() > most_bytes && (made.count > 0 || !first_in_any_case);
        let Some(timestamp_delta) = timestamp_delta.filter(|_| !full && i32::try_from(delta).is_ok()) else {
            made.more = true;
            break;
        };
        times = Some((base_offset, base_ms, newest.max(entry.timestamp_ms)));
        made.batch.try_reserve(body.len() + name.len() + 100)?;
        entry.write(name, timestamp_delta, delta, &mut record, &mut made.batch);
        made.count += 1;
        made.size += entry.size();
        (last, made.last) = (delta as i32, offset);
    }
    match times {
        None => made.batch.clear(),
        Some((base_offset, base_ms, newest)) => {
            seal(&mut made.batch, base_offset, epoch, last, base_ms, newest, made.count)
        }
    }
    Ok(Some(made))
}

fn seal(batch: &mut [u8], base_offset: i64, epoch: i32, last: i32, base_ms: i64, newest_ms: i64, count: usize) {
    let length = (batch.len() - LENGTH_END) as i32;
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[EPOCH].copy_from_slice(&epoch.to_be_bytes());
    batch[16] = 2;
    batch[23..27].copy_from_slice(&last.to_be_bytes());
    batch[27..35].copy_from_slice(&base_ms.to_be_bytes());
    batch[35..43].copy_from_slice(&newest_ms.to_be_bytes());
    batch[43..57].fill(0xFF);
    batch[57..61].copy_from_slice(&(count as i32).to_be_bytes());
    let crc = crc::crc32c(&batch[CRC_START..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Records of any times, as the body of a batch.
#[derive(Default)]
pub struct Body {
    bytes: Vec<u8>,
    record: Vec<u8>,
    count: i64,
    times: Option<(i64, i64)>,
}

impl Body {
    /// One record more; false where it is too far in time from the first.
    pub fn put(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<bool, Refused> {
        let (first_ms, newest_ms) = self.times.unwrap_or((timestamp_ms, timestamp_ms));
        let Some(delta) = timestamp_ms.checked_sub(first_ms) else { return Ok(false) };
        self.times = Some((first_ms, newest_ms.max(timestamp_ms)));
        self.record.clear();
        let size = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let pairs: usize = headers.iter().map(|(name, value)| 20 + name.len() + size(*value)).sum();
        self.record.try_reserve(60 + size(key) + size(value) + pairs)?;
        self.record.push(0);
        varint::write(&mut self.record, delta);
        varint::write(&mut self.record, self.count);
        field(&mut self.record, key);
        field(&mut self.record, value);
        varint::write(&mut self.record, headers.len() as i64);
        for (name, value) in headers {
            field(&mut self.record, Some(name));
            field(&mut self.record, *value);
        }
        self.bytes.try_reserve(self.record.len() + 10)?;
        varint::write(&mut self.bytes, self.record.len() as i64);
        self.bytes.extend_from_slice(&self.record);
        self.count += 1;
        Ok(true)
    }

    /// The body, the timestamp of the first record, and the largest; -1 where there is none.
    pub fn finish(self) -> (Vec<u8>, i64, i64) {
        let (first_ms, newest_ms) = self.times.unwrap_or((-1, -1));
        (self.bytes, first_ms, newest_ms)
    }
}

/// Entries as a producer's batch, all of one time.
pub struct Batch {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Batch { bytes: vec![0; HEADER_BYTES], count: 0 }
    }
}

impl Batch {
    /// One entry more; false where no queue can be called that.
    pub fn put(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        if !is_name(name) {
            return Ok(false);
        }
        let (delta, held) = (self.count as i64, value.unwrap_or_default().len());
        let sizes = varint::size(name.len() as i64) + varint::size(value.map_or(-1, |value| value.len() as i64));
        let length = 3 + varint::size(delta) + sizes + name.len() + held;
        self.bytes.try_reserve(length + 10)?;
        varint::write(&mut self.bytes, length as i64);
        self.bytes.extend_from_slice(&[0, 0]);
        varint::write(&mut self.bytes, delta);
        field(&mut self.bytes, Some(name));
        field(&mut self.bytes, value);
        self.bytes.push(0);
        self.count += 1;
        Ok(true)
    }

    /// The batch; empty where nothing was put into it.
    pub fn finish(mut self, now_ms: i64) -> Vec<u8> {
        if self.count == 0 {
            return Vec::new();
        }
        seal(&mut self.bytes, 0, -1, self.count as i32 - 1, now_ms, now_ms, self.count);
        self.bytes
    }
}

/// What a record of an answer says of an entry.
pub struct Found<'a> {
    /// The record's offset.
    pub offset: i64,
    /// The leader epoch of its batch.
    pub epoch: i32,
    /// When it came, in ms.
    pub timestamp_ms: i64,
    /// The version, where it was edited.
    pub version: Option<i64>,
    /// The entry's key.
    pub key: Option<&'a [u8]>,
    /// The entry's value.
    pub value: Option<&'a [u8]>,
    /// Its own headers.
    pub headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

pub(crate) fn option(body: &[u8], field: Field) -> Option<&[u8]> {
    (field.size >= 0).then(|| bytes_of(body, field))
}

/// Calls `take` with each entry of an answer.
pub fn each_entry<E: From<Refused>>(data: &[u8], mut take: impl FnMut(Found<'_>) -> Result<(), E>) -> Result<(), E> {
    let (mut position, mut scratch) = (0, Vec::new());
    while let Some((head, batch)) = batches::next(data, position)? {
        position += batch.len();
        let body = checked(&head, batch, &mut scratch)?;
        let (mut records, epoch) = (Records::new(&head, body), epoch_of(batch));
        let mut next = head.base_offset;
        while let Some(record) = records.advance()? {
            let Some(pairs) = record.headers.read(body).filter(|_| record.offset >= next) else {
                return Err(Refused::Corrupt(damage(&head, "its fields do not fit")).into());
            };
            next = record.offset + 1;
            let (mut version, mut key, mut headers) = (None, None, Vec::new());
            for (name, value) in pairs {
                match (bytes_of(body, name), option(body, value)) {
                    (VERSION_HEADER, value) => {
                        version = value.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).or(version);
                    }
                    (KEY_HEADER, value) => key = value,
                    (name, _) if name.starts_with(RESERVED_PREFIX) => {}
                    pair => headers.push(pair),
                }
            }
            let (offset, timestamp_ms, value) = (record.offset, record.timestamp_ms, option(body, record.value));
            take(Found { offset, epoch, timestamp_ms, version, key, value, headers })?;
        }
    }
    if position != data.len() {
        return Err(Refused::Corrupt("an answer is cut off".into()).into());
    }
    Ok(())
}
