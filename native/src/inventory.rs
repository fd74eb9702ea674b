//! Names of the inventory's topics, for Python.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::buffers::apart;
use crate::names;

type Named<'py> = (u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, usize, Bound<'py, PyBytes>);

/// How many different names there are, and of each block of at most `most` of them its shard, first and last name, count
/// and body; None where a name is not plain ASCII of 1 to `longest` characters.
#[pyfunction]
pub fn pack_names<'py>(
    py: Python<'py>,
    names: &Bound<'py, PyList>,
    namespace: u32,
    shards: u32,
    longest: usize,
    most: usize,
) -> PyResult<Option<(usize, Vec<Named<'py>>)>> {
    let texts = names.iter().map(Bound::cast_into::<PyString>).collect::<Result<Vec<_>, _>>()?;
    let mut slices = Vec::with_capacity(texts.len());
    for text in &texts {
        match text.to_str() {
            Ok(text) => slices.push(text.as_bytes()),
            Err(_) => return Ok(None),
        }
    }
    let packed = apart(py, || {
        if names::plain(&slices, longest) { names::pack(slices, namespace, shards, most).map(Some) } else { Ok(None) }
    })?;
    Ok(packed.map(|(count, blocks)| {
        let named = |block: names::Block| {
            let [first, last, body] = [block.first, block.last, block.body].map(|bytes| PyBytes::new(py, &bytes));
            (block.shard, first, last, block.count, body)
        };
        (count, blocks.into_iter().map(named).collect())
    }))
}

/// The names of a body with a line end between two.
#[pyfunction]
pub fn unpack_names<'py>(py: Python<'py>, body: &Bound<'py, PyBytes>, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &names::unpack(body.as_bytes(), limit)?))
}

/// The place of a name among those of a body; None where it is none of them.
#[pyfunction]
pub fn find_name(body: &Bound<'_, PyBytes>, name: &Bound<'_, PyBytes>, limit: usize) -> PyResult<Option<usize>> {
    Ok(names::find(body.as_bytes(), name.as_bytes(), limit)?)
}
