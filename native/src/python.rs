//! The Python module: buffers in, Arrow's capsules out, and the other way round. Unsafe code is here, and one hint in
//! `prefetch`.
//!
//! Arrow's PyCapsule interface: https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, StructArray, UInt8Array};
use pyo3::buffer::{Element, PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::columns::Wanted;
use crate::refused::Refused;
use crate::{decode, encode, keys};

const SCHEMA: &std::ffi::CStr = c"arrow_schema";
const ARRAY: &std::ffi::CStr = c"arrow_array";

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> PyErr {
        match refused {
            Refused::Memory => PyMemoryError::new_err(refused.to_string()),
            Refused::Corrupt(what) | Refused::Invalid(what) => PyValueError::new_err(what),
        }
    }
}

/// Does `work` without the GIL; a panic, which would be a bug, becomes a RuntimeError.
pub fn apart<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Refused> + Send) -> PyResult<T> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(done) => Ok(done?),
        Err(_) => Err(PyRuntimeError::new_err("the native package has a bug: a panic, see standard error")),
    }
}

/// What nobody writes while it is read: a read-only buffer as it is, of any other a copy made with the GIL held.
pub struct Bytes {
    buffer: PyBuffer<u8>,
    copy: Option<Vec<u8>>,
}

impl Bytes {
    /// Those of a Python buffer.
    pub fn of(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(data)?;
        let as_it_is = buffer.readonly() && buffer.is_c_contiguous();
        let copy = if as_it_is { None } else { Some(buffer.to_vec(data.py())?) };
        Ok(Bytes { buffer, copy })
    }

    /// Where they lie, for `disjoint`.
    pub fn place(&self) -> (usize, usize) {
        let bytes = self.get();
        (bytes.as_ptr() as usize, bytes.len())
    }

    /// The bytes.
    #[allow(unsafe_code)]
    pub fn get(&self) -> &[u8] {
        match (&self.copy, self.buffer.as_slice_ptr()) {
            (Some(copy), _) => copy,
            // SAFETY: the exporter keeps the memory where it is until the buffer is released, which is when `self` is
            // dropped; it is read-only, and whoever passes a read-only view of what somebody may write is told not to.
            (None, Some(slice)) => unsafe { slice.as_ref() },
            (None, None) => &[],
        }
    }
}

/// Numbers in one piece that Python lends: nobody else touches them while a call lasts.
pub struct Words<T: Element> {
    /// None where there are no numbers: then they lie anywhere.
    buffer: Option<PyBuffer<T>>,
}

impl<T: Element> Words<T> {
    /// Those of a Python buffer that can be written.
    pub fn of(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let found = Self::read(data)?;
        if found.buffer.as_ref().is_some_and(|buffer| buffer.readonly()) {
            return Err(PyValueError::new_err("the buffer can only be read"));
        }
        Ok(found)
    }

    /// Those of a Python buffer, to be read.
    pub fn read(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(data)?;
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the buffer is not in one piece"));
        }
        let buffer = if buffer.len_bytes() == 0 { None } else { Some(buffer.into_typed()?) };
        Ok(Words { buffer })
    }

    /// Where they lie, for `disjoint`.
    pub fn place(&self) -> (usize, usize) {
        self.buffer.as_ref().map_or((0, 0), |buffer| (buffer.buf_ptr() as usize, buffer.len_bytes()))
    }

    /// The numbers.
    #[allow(unsafe_code)]
    pub fn get(&self) -> &[T] {
        match self.buffer.as_ref().and_then(PyBuffer::as_slice_ptr) {
            // SAFETY: as that of `Bytes`; whoever lends the numbers is told not to touch them.
            Some(slice) => unsafe { slice.as_ref() },
            None => &[],
        }
    }

    /// The numbers, to be written; `disjoint` has seen that nothing else of the call lies there.
    #[allow(unsafe_code)]
    pub fn get_mut(&mut self) -> &mut [T] {
        match self.buffer.as_ref().filter(|buffer| !buffer.readonly()).and_then(PyBuffer::as_slice_ptr) {
            // SAFETY: as above; the buffer can be written, and no other slice of this call overlaps it.
            Some(mut slice) => unsafe { slice.as_mut() },
            None => &mut [],
        }
    }
}

/// Refuses buffers of one call that overlap.
pub fn disjoint(mut places: Vec<(usize, usize)>) -> PyResult<()> {
    places.retain(|(_, size)| *size > 0);
    places.sort_unstable();
    if places.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        return Err(PyValueError::new_err("two buffers lie in the same memory"));
    }
    Ok(())
}

/// An array as Arrow's capsules.
fn capsules<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Bound<'py, PyTuple>> {
    let (array, schema) = to_ffi(&array.to_data()).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}

/// Rows; pyarrow.record_batch takes it.
#[pyclass(frozen)]
struct Rows {
    rows: StructArray,
}

#[pymethods]
impl Rows {
    /// Schema and array; `requested_schema` is not looked at, which the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema;
        capsules(py, &self.rows)
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }
}

/// Bytes; pyarrow.array takes it. Python's own would be a copy, in memory that is new each time.
#[pyclass(frozen)]
struct Batches {
    bytes: UInt8Array,
}

#[pymethods]
impl Batches {
    /// As that of `Rows`.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema;
        capsules(py, &self.bytes)
    }
}

#[allow(unsafe_code)]
fn imported(rows: &Bound<'_, PyAny>) -> PyResult<StructArray> {
    let capsules = rows.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
    let schema = capsules.get_item(0)?.cast_into::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?;
    let array = capsules.get_item(1)?.cast_into::<PyCapsule>()?.pointer_checked(Some(ARRAY))?;
    // SAFETY: capsules of these names hold these structures, by the interface. The array is moved out, which leaves
    // it released, so that the capsule's destructor does nothing; the schema is only looked at while its capsule lives.
    let data = unsafe {
        let array = FFI_ArrowArray::from_raw(array.cast::<FFI_ArrowArray>().as_ptr());
        from_ffi(array, schema.cast::<FFI_ArrowSchema>().as_ref())
    };
    let data = data.map_err(|error| PyValueError::new_err(error.to_string()))?;
    match data.data_type() {
        arrow_schema::DataType::Struct(_) => Ok(StructArray::from(data)),
        other => Err(PyValueError::new_err(format!("rows are needed, and this is an array of {other}"))),
    }
}

/// Where to go on, and the rows with offsets in `[first, end)` of the record batches from `position` on.
#[pyfunction]
#[pyo3(name = "decode")]
fn decode_(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    position: usize,
    first: i64,
    end: i64,
    columns: Vec<String>,
) -> PyResult<(usize, Rows)> {
    let wanted = Wanted::named(columns.iter().map(String::as_str))?;
    let bytes = Bytes::of(data)?;
    let buffer = bytes.get();
    let (next, rows) = apart(py, || decode::decode(buffer, position, first, end, wanted))?;
    Ok((next, Rows { rows }))
}

/// Where to go on, and of each key the last record: rows of key, offset and tombstone.
#[pyfunction]
fn scan_keys(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    position: usize,
    first: i64,
    end: i64,
) -> PyResult<(usize, Rows)> {
    let bytes = Bytes::of(data)?;
    let buffer = bytes.get();
    let (next, rows) = apart(py, || keys::scan(buffer, position, first, end))?;
    Ok((next, Rows { rows }))
}

/// Record batches of the rows, one behind the other: of each where it ends, and its count of records.
#[pyfunction]
#[pyo3(name = "encode")]
fn encode_(
    py: Python<'_>,
    rows: &Bound<'_, PyAny>,
    batch_bytes: usize,
    codec: i16,
    now_ms: i64,
) -> PyResult<(Batches, Vec<(usize, usize)>)> {
    let rows = imported(rows)?;
    let done = apart(py, || encode::encode(&rows, batch_bytes, codec, now_ms))?;
    Ok((Batches { bytes: UInt8Array::from(done.bytes) }, done.batches))
}

#[pymodule]
mod duramen_native {
    #[pymodule_export]
    use super::{Batches, Rows, decode_, encode_, scan_keys};
    #[pymodule_export]
    use crate::views::{apply_, copy_, filter_, visible_};

    /// Which signatures the functions have: `duramen.base.native` takes only the one it knows.
    #[pymodule_export]
    const INTERFACE: u32 = 3;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
