//! Views of keyed streams, for Python: the table, the bits, and which batches a snapshot needs.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffers::{Bytes, Words, apart, disjoint};
use crate::latest::{self, Table};
use crate::siphash::Secret;
use crate::visible::{self, Entries, Step};

type Pairs = Vec<(i64, i64)>;

fn pairs(found: Vec<[i64; 2]>) -> Pairs {
    found.into_iter().map(|[one, other]| (one, other)).collect()
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
    let secret = <&[u8; 16]>::try_from(secret.as_bytes())
        .map_err(|_| PyValueError::new_err("the secret of a hash has 16 bytes"))?;
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
        secret: Secret::new(secret),
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

/// Where to go on, and where the batches lie that have a visible record.
#[pyfunction]
#[pyo3(name = "filter_batches")]
pub fn filter_(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    position: usize,
    first: i64,
    end: i64,
    bits: &Bound<'_, PyAny>,
    base: i64,
) -> PyResult<(usize, Vec<(usize, usize)>)> {
    let (data, bits) = (Bytes::of(data)?, Bytes::of(bits)?);
    let (data, bits) = (data.get(), bits.get());
    apart(py, || visible::filter(data, position, first, end, bits, base))
}
