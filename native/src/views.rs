//! Views of keyed streams, for Python: the table, the bits, and the records that a snapshot shows.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::batches::{self, CONTROL, Header};
use crate::buffers::{Bytes, Words, apart, disjoint};
use crate::extract::{self, Shown};
use crate::latest::{self, Table};
use crate::portions::checked;
use crate::records::{self, Field, Records};
use crate::rows;
use crate::siphash::Secret;
use crate::visible::{self, Entries, Step};

type Pairs = Vec<(i64, i64)>;

fn pairs(found: Vec<[i64; 2]>) -> Pairs {
    found.into_iter().map(|[one, other]| (one, other)).collect()
}

fn secret_of(secret: &Bound<'_, PyBytes>) -> PyResult<Secret> {
    match <&[u8; 16]>::try_from(secret.as_bytes()) {
        Ok(bytes) => Ok(Secret::new(bytes)),
        Err(_) => Err(PyValueError::new_err("the secret of a hash has 16 bytes")),
    }
}

/// Where to go on, the next offset, the partition that is full or -1, how many records, their runs, and the far ones.
#[pyfunction]
#[pyo3(name = "apply")]
#[allow(clippy::too_many_arguments)]
pub fn apply_(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    position: usize,
    first: i64,
    end: i64,
    partitions: Vec<Bound<'_, PyAny>>,
    counts: &Bound<'_, PyAny>,
    base: i64,
    secret: &Bound<'_, PyBytes>,
    distances: &Bound<'_, PyAny>,
) -> PyResult<(usize, i64, i64, usize, Pairs, Pairs)> {
    let secret = secret_of(secret)?;
    let bytes = Bytes::of(data)?;
    let mut partitions = partitions.iter().map(Words::<u64>::of).collect::<PyResult<Vec<_>>>()?;
    let mut counts = Words::<u64>::of(counts)?;
    let mut distances = Words::<u32>::of(distances)?;
    let mut places: Vec<_> = partitions.iter().map(Words::place).collect();
    places.extend([bytes.place(), counts.place(), distances.place()]);
    disjoint(places)?;
    let mut table = Table {
        partitions: partitions.iter_mut().map(Words::get_mut).collect(),
        counts: counts.get_mut(),
        base,
        secret,
    };
    let (buffer, distances) = (bytes.get(), distances.get_mut());
    let done = apart(py, || latest::apply(buffer, position, first, end, &mut table, distances))?;
    let full = done.full.map_or(-1, |partition| partition as i64);
    Ok((done.position, done.next, full, done.records, pairs(done.runs), pairs(done.far)))
}

/// How many keys were copied into the partition `to`.
#[pyfunction]
#[pyo3(name = "copy")]
pub fn copy_(
    py: Python<'_>,
    from: &Bound<'_, PyAny>,
    to: &Bound<'_, PyAny>,
    gone: &Bound<'_, PyAny>,
    first: i64,
    base: i64,
) -> PyResult<usize> {
    let (from, mut to, gone) = (Words::<u64>::of(from)?, Words::<u64>::of(to)?, Bytes::of(gone)?);
    disjoint(vec![from.place(), to.place(), gone.place()])?;
    let (from, to, gone) = (from.get(), to.get_mut(), gone.get());
    apart(py, || latest::copy(from, to, gone, first, base))
}

/// Where to go on, the next offset, how many records, and their runs; `rows` are written.
#[pyfunction]
#[pyo3(name = "gather")]
#[allow(clippy::too_many_arguments)]
pub fn gather_(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    position: usize,
    first: i64,
    end: i64,
    base: i64,
    secret: &Bound<'_, PyBytes>,
    to: &Bound<'_, PyAny>,
) -> PyResult<(usize, i64, usize, Pairs)> {
    let secret = secret_of(secret)?;
    let (bytes, mut to) = (Bytes::of(data)?, Words::<u64>::of(to)?);
    disjoint(vec![bytes.place(), to.place()])?;
    let (buffer, to) = (bytes.get(), to.get_mut());
    let done = apart(py, || rows::gather(buffer, position, first, end, base, secret, to))?;
    Ok((done.position, done.next, done.records, pairs(done.runs)))
}

/// Where each partition begins in `to`, which gets the numbers of the rows, and the end.
#[pyfunction]
#[pyo3(name = "order")]
pub fn order_(
    py: Python<'_>,
    rows: &Bound<'_, PyAny>,
    to: &Bound<'_, PyAny>,
    partitions: usize,
) -> PyResult<Vec<usize>> {
    let (rows, mut to) = (Words::<u64>::read(rows)?, Words::<u32>::of(to)?);
    disjoint(vec![rows.place(), to.place()])?;
    let (rows, to) = (rows.get(), to.get_mut());
    apart(py, || rows::order(rows, to, partitions))
}

/// How many of the numbered rows were entered, how many keys the partition has then, and the far ones.
#[pyfunction]
#[pyo3(name = "enter")]
#[allow(clippy::too_many_arguments)]
pub fn enter_(
    py: Python<'_>,
    words: &Bound<'_, PyAny>,
    keys: u64,
    rows: &Bound<'_, PyAny>,
    order: &Bound<'_, PyAny>,
    base: i64,
    distances: &Bound<'_, PyAny>,
) -> PyResult<(usize, u64, Pairs)> {
    let (mut words, rows, order) = (Words::<u64>::of(words)?, Words::<u64>::read(rows)?, Words::<u32>::read(order)?);
    let mut distances = Words::<u32>::of(distances)?;
    disjoint(vec![words.place(), rows.place(), order.place(), distances.place()])?;
    let (words, rows, order, distances) = (words.get_mut(), rows.get(), order.get(), distances.get_mut());
    let done = apart(py, || rows::enter(words, keys, rows, order, base, distances))?;
    Ok((done.rows, done.keys, pairs(done.far)))
}

/// Changes the bits by the records; `step` is 0 forward, 1 back, 2 keep.
#[pyfunction]
#[pyo3(name = "visible")]
#[allow(clippy::too_many_arguments)]
pub fn visible_(
    py: Python<'_>,
    bits: &Bound<'_, PyAny>,
    base: i64,
    runs: &Bound<'_, PyAny>,
    distances: &Bound<'_, PyAny>,
    far: &Bound<'_, PyAny>,
    step: u8,
) -> PyResult<()> {
    let step = match step {
        0 => Step::Forward,
        1 => Step::Back,
        2 => Step::Keep,
        _ => return Err(PyValueError::new_err("a step is 0 forward, 1 back or 2 keep")),
    };
    let mut bits = Words::<u8>::of(bits)?;
    let (runs, distances, far) = (Words::<i64>::read(runs)?, Words::<u32>::read(distances)?, Words::<i64>::read(far)?);
    let places = vec![bits.place(), runs.place(), distances.place(), far.place()];
    disjoint(places)?;
    let entries = Entries { runs: runs.get(), distances: distances.get(), far: far.get() };
    let bits = bits.get_mut();
    apart(py, || visible::mark(bits, base, &entries, step))
}

/// Where to go on, the next offset, and batches of the records that are shown.
#[pyfunction]
#[pyo3(name = "extract")]
#[allow(clippy::too_many_arguments)]
pub fn extract_<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    position: usize,
    first: i64,
    end: i64,
    bits: &Bound<'py, PyAny>,
    base: i64,
    most: usize,
) -> PyResult<(usize, i64, Bound<'py, PyBytes>)> {
    let (data, bits) = (Bytes::of(data)?, Bytes::of(bits)?);
    let (data, shown) = (data.get(), Shown { bits: bits.get(), base, first, end });
    let done = apart(py, || extract::extract(data, position, &shown, most))?;
    Ok((done.position, done.next, PyBytes::new(py, &done.bytes)))
}

/// Of each record that is shown its offset, its timestamp in ms, its key, its value, and its headers.
#[pyfunction]
pub fn shown_fields<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    first: i64,
    end: i64,
    bits: &Bound<'py, PyAny>,
    base: i64,
) -> PyResult<Bound<'py, PyTuple>> {
    let (data, bits) = (Bytes::of(data)?, Bytes::of(bits)?);
    let (data, shown) = (data.get(), Shown { bits: bits.get(), base, first, end });
    let (mut position, mut scratch) = (0, Vec::new());
    let lists: [Bound<'py, PyList>; 5] = std::array::from_fn(|_| PyList::empty(py));
    let [offsets, timestamps, keys, values, headers] = &lists;
    let none = PyTuple::empty(py);
    while let Some((head, batch)) = batches::next(data, position)? {
        position += batch.len();
        if head.attributes & CONTROL != 0 {
            continue;
        }
        let body = checked(&head, batch, &mut scratch)?;
        let (mut records, mut next) = (Records::new(&head, body), head.base_offset);
        while let Some(record) = records.advance()? {
            let found = record.headers.read(body).filter(|_| record.offset >= next);
            let Some(found) = found else {
                return Err(damaged(&head, "its fields do not fit"));
            };
            next = record.offset + 1;
            if !shown.has(record.offset) {
                continue;
            }
            offsets.append(record.offset)?;
            timestamps.append(record.timestamp_ms)?;
            keys.append(bytes_of(py, body, record.key))?;
            values.append(bytes_of(py, body, record.value))?;
            if found.is_empty() {
                headers.append(&none)?;
            } else {
                let pairs =
                    found.into_iter().map(|(name, value)| (bytes_of(py, body, name), bytes_of(py, body, value)));
                headers.append(PyTuple::new(py, pairs.collect::<Vec<_>>())?)?;
            }
        }
    }
    PyTuple::new(py, &lists)
}

fn damaged(head: &Header, what: &str) -> PyErr {
    PyValueError::new_err(records::damage(head, what))
}

fn bytes_of<'py>(py: Python<'py>, body: &[u8], field: Field) -> Option<Bound<'py, PyBytes>> {
    let size = usize::try_from(field.size).ok()?;
    Some(PyBytes::new(py, &body[field.at..field.at + size]))
}
