//! Requests of the Kafka door, for Python.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffers::Words;
use crate::produce;

type Request<'a, 'py> = (usize, i16, i32, Option<&'a str>, i16, &'a str, i32, usize, usize, Bound<'py, PyTuple>);

/// The usual Produce request that the bytes begin with; None where it is not whole, or not that. Keeps the GIL: what it
/// reads may be written by Python later, and takes less time than to let go of it.
#[pyfunction]
pub fn read_produce<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let bytes = Words::<u8>::read(data)?;
    let Some(found) = produce::read(bytes.get()) else {
        return Ok(None);
    };
    let request: Request<'_, 'py> = (
        found.end,
        found.version,
        found.correlation_id,
        found.client_id,
        found.acks,
        found.topic,
        found.partition,
        found.start,
        found.stop,
        PyTuple::new(py, found.header)?,
    );
    request.into_pyobject(py).map(Some)
}
