//! Runs of light queues and operations on their entries, for Python.

use std::collections::HashMap;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::buffers::{Bytes, apart};
use crate::operations::{self, Edit, Kind};
use crate::runs;

type Records<'py> = (Bound<'py, PyBytes>, usize, usize, i64, bool);
type Part<'py> = (u32, Bound<'py, PyBytes>, Vec<u32>);
type Named<'py> = (Bound<'py, PyBytes>, i64, Bound<'py, PyBytes>);

/// How many of the batches from `position` on are entries of one leader epoch, and their runs.
#[pyfunction]
pub fn split_runs<'py>(
    py: Python<'py>,
    batches: Vec<Bound<'py, PyAny>>,
    position: usize,
    first: i64,
    limit: usize,
) -> PyResult<(usize, Vec<Named<'py>>)> {
    let all = batches.iter().skip(position).map(Bytes::of).collect::<PyResult<Vec<_>>>()?;
    let slices: Vec<&[u8]> = all.iter().map(Bytes::get).collect();
    let (taken, found) = apart(py, || runs::split(&slices, first, limit))?;
    let named = found.into_iter().map(|(name, last, run)| (PyBytes::new(py, &name), last, PyBytes::new(py, &run)));
    Ok((taken, named.collect()))
}

/// The largest timestamp of a batch of entries of that shard; None where it has something else.
#[pyfunction]
pub fn newest_entry(
    py: Python<'_>,
    batch: &Bound<'_, PyAny>,
    shard: u32,
    shards: u32,
    limit: usize,
) -> PyResult<Option<i64>> {
    let batch = Bytes::of(batch)?;
    let buffer = batch.get();
    apart(py, || runs::newest(buffer, shard, shards, limit))
}

/// A batch of entries as one for each shard, with the places of its entries; None where it has something else.
#[pyfunction]
pub fn split_shards<'py>(
    py: Python<'py>,
    batch: &Bound<'py, PyAny>,
    shards: u32,
    limit: usize,
) -> PyResult<Option<Vec<Part<'py>>>> {
    let batch = Bytes::of(batch)?;
    let buffer = batch.get();
    let found = apart(py, || runs::split_shards(buffer, shards, limit))?;
    let parts = |parts: Vec<runs::ShardPart>| {
        parts.into_iter().map(|(shard, batch, places)| (shard, PyBytes::new(py, &batch), places)).collect()
    };
    Ok(found.map(parts))
}

/// A batch of the entries of a run, how many they are, what they count, the last one's offset, and whether there are more; None
/// where one has what is not known here.
#[pyfunction]
#[pyo3(signature = (run, name, start, most, most_bytes, first_in_any_case))]
pub fn run_records<'py>(
    py: Python<'py>,
    run: &Bound<'py, PyBytes>,
    name: &Bound<'py, PyBytes>,
    start: i64,
    most: usize,
    most_bytes: usize,
    first_in_any_case: bool,
) -> PyResult<Option<Records<'py>>> {
    let made = runs::records(run.as_bytes(), name.as_bytes(), start, most, most_bytes, first_in_any_case)?;
    Ok(made.map(|made| (PyBytes::new(py, &made.batch), made.count, made.size, made.last, made.more)))
}

/// Of each entry in an answer its position, version, timestamp in ms, key, value and headers.
#[pyfunction]
pub fn entry_fields<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let data = Bytes::of(data)?;
    let lists: [Bound<'py, PyList>; 6] = std::array::from_fn(|_| PyList::empty(py));
    let [positions, versions, timestamps, keys, values, headers] = &lists;
    let none = PyTuple::empty(py);
    runs::each_entry::<PyErr>(data.get(), |found| {
        positions.append(PyString::new(py, &format!("{}.{}", found.epoch, found.offset)))?;
        versions.append(found.version.unwrap_or(found.offset))?;
        timestamps.append(found.timestamp_ms)?;
        keys.append(found.key.map(|key| PyBytes::new(py, key)))?;
        values.append(found.value.map(|value| PyBytes::new(py, value)))?;
        if found.headers.is_empty() {
            return headers.append(&none);
        }
        let pairs = found
            .headers
            .into_iter()
            .map(|(name, value)| (PyBytes::new(py, name), value.map(|value| PyBytes::new(py, value))));
        headers.append(PyTuple::new(py, pairs.collect::<Vec<_>>())?)
    })?;
    PyTuple::new(py, &lists)
}

/// Entries, each the name of a queue and a value, as a batch; None where one is more than bytes or text.
#[pyfunction]
pub fn encode_entries<'py>(
    py: Python<'py>,
    entries: &Bound<'py, PyList>,
    now_ms: i64,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let mut batch = runs::Batch::default();
    for entry in entries {
        let Ok(pair) = entry.cast_into::<PyTuple>() else { return Ok(None) };
        if pair.len() != 2 {
            return Ok(None);
        }
        let (name, value) = (pair.get_item(0)?, pair.get_item(1)?);
        let Some(Ok(name)) = name.cast::<PyString>().ok().map(|name| name.to_cow()) else { return Ok(None) };
        let known = if value.is_none() {
            batch.put(name.as_bytes(), None)
        } else if let Ok(bytes) = value.cast::<PyBytes>() {
            batch.put(name.as_bytes(), Some(bytes.as_bytes()))
        } else if let Some(Ok(text)) = value.cast::<PyString>().ok().map(|text| text.to_cow()) {
            batch.put(name.as_bytes(), Some(text.as_bytes()))
        } else {
            return Ok(None);
        };
        if !known? {
            return Ok(None);
        }
    }
    Ok(Some(PyBytes::new(py, &batch.finish(now_ms))))
}

/// How many of the batches from `position` on are operations on single entries of one leader epoch, and these: the
/// queue, what is done, the offset of the entry, that of the operation, and its value.
#[pyfunction]
pub fn split_changes<'py>(
    py: Python<'py>,
    batches: Vec<Bound<'py, PyAny>>,
    position: usize,
    first: i64,
) -> PyResult<(usize, Bound<'py, PyList>)> {
    let all = batches.iter().skip(position).map(Bytes::of).collect::<PyResult<Vec<_>>>()?;
    let slices: Vec<&[u8]> = all.iter().map(Bytes::get).collect();
    let found = PyList::empty(py);
    let mut latest = PyBytes::new(py, b"");
    let taken = operations::split::<PyErr>(&slices, first, |change| {
        if latest.as_bytes() != change.name {
            latest = PyBytes::new(py, change.name);
        }
        let kind = match change.kind {
            Kind::Edit => intern!(py, "edit"),
            Kind::Delete => intern!(py, "delete"),
            Kind::Ack => intern!(py, "ack"),
        };
        let value = change.value.map(|value| PyBytes::new(py, value));
        found.append((&latest, kind, change.at, change.offset, value))
    })?;
    Ok((taken, found))
}

/// A run with the results of operations, each a version, whether the entry is deleted, and the value, by the offsets of
/// entries; None where an entry has what is not known here.
#[pyfunction]
pub fn edited_run<'py>(
    py: Python<'py>,
    run: &Bound<'py, PyBytes>,
    overlays: &Bound<'py, PyDict>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let mut values = Vec::with_capacity(overlays.len());
    for (offset, overlay) in overlays {
        let (version, deleted, value): (u64, bool, Option<Bound<'py, PyBytes>>) = overlay.extract()?;
        values.push((offset.extract::<i64>()?, version, deleted, value));
    }
    let edits: HashMap<_, _> = values
        .iter()
        .map(|(offset, version, deleted, value)| match deleted {
            true => (*offset, Edit::Deleted),
            false => (*offset, Edit::Changed(*version, value.as_ref().map(|value| value.as_bytes()))),
        })
        .collect();
    Ok(operations::edited(run.as_bytes(), &edits)?.map(|run| PyBytes::new(py, &run)))
}

/// Records, each a timestamp in ms, a key, a value and headers, as the body of a batch, with the first timestamp and the
/// largest; None where one is not of these types, or too far from the first.
#[pyfunction]
pub fn encode_records<'py>(
    py: Python<'py>,
    new: &Bound<'py, PyList>,
) -> PyResult<Option<(Bound<'py, PyBytes>, i64, i64)>> {
    let mut body = runs::Body::default();
    for record in new {
        let Ok(fields) = record.cast_into::<PyTuple>() else { return Ok(None) };
        if fields.len() != 4 {
            return Ok(None);
        }
        let (key, value) = (fields.get_item(1)?, fields.get_item(2)?);
        let (Ok(timestamp_ms), Some(key), Some(value)) =
            (fields.get_item(0)?.extract::<i64>(), optional_bytes(&key), optional_bytes(&value))
        else {
            return Ok(None);
        };
        let given = fields.get_item(3)?;
        let Some(pairs) = header_pairs(&given)? else { return Ok(None) };
        let mut headers = Vec::with_capacity(pairs.len());
        for (name, value) in &pairs {
            let (Ok(name), Some(value)) = (name.cast::<PyBytes>(), optional_bytes(value)) else { return Ok(None) };
            headers.push((name.as_bytes(), value));
        }
        if !body.put(timestamp_ms, key, value, &headers)? {
            return Ok(None);
        }
    }
    let (bytes, first_ms, newest_ms) = body.finish();
    Ok(Some((PyBytes::new(py, &bytes), first_ms, newest_ms)))
}

/// Bytes, or none; None where it is something else.
fn optional_bytes<'a>(value: &'a Bound<'_, PyAny>) -> Option<Option<&'a [u8]>> {
    if value.is_none() {
        return Some(None);
    }
    value.cast::<PyBytes>().ok().map(|bytes| Some(bytes.as_bytes()))
}

type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The names and values of headers; None where they are not in a tuple or a list of pairs.
fn header_pairs<'py>(given: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Pair<'py>>>> {
    let items: Vec<Bound<'py, PyAny>> = if let Ok(tuple) = given.cast::<PyTuple>() {
        tuple.iter().collect()
    } else if let Ok(list) = given.cast::<PyList>() {
        list.iter().collect()
    } else {
        return Ok(None);
    };
    let mut pairs = Vec::with_capacity(items.len());
    for item in items {
        let Some(pair) = item.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2) else { return Ok(None) };
        pairs.push((pair.get_item(0)?, pair.get_item(1)?));
    }
    Ok(Some(pairs))
}
