//! The Python module: buffers in, Arrow's capsules out, and the other way round. Unsafe code is here and in
//! `buffers`, and one hint in `prefetch`.
//!
//! Arrow's PyCapsule interface: https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, StructArray, UInt8Array};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::buffers::{Bytes, apart};
use crate::columns::Wanted;
use crate::{decode, encode, keys};

const SCHEMA: &std::ffi::CStr = c"arrow_schema";
const ARRAY: &std::ffi::CStr = c"arrow_array";

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

/// The largest timestamp of a batch whose records all have a key; None where one has none, or the batch is not sound.
#[pyfunction]
fn newest_keyed(py: Python<'_>, batch: &Bound<'_, PyAny>, limit: usize) -> PyResult<Option<i64>> {
    let batch = Bytes::of(batch)?;
    let buffer = batch.get();
    apart(py, || keys::newest(buffer, limit))
}

#[pymodule]
mod duramen_native {
    #[pymodule_export]
    use super::{Batches, Rows, decode_, encode_, newest_keyed, scan_keys};
    #[pymodule_export]
    use crate::inventory::{find_name, pack_names, unpack_names};
    #[pymodule_export]
    use crate::requests::read_produce;
    #[pymodule_export]
    use crate::shards::{
        edited_run, encode_entries, encode_records, entry_fields, newest_entry, run_records, split_changes, split_runs,
        split_shards,
    };
    #[pymodule_export]
    use crate::views::{apply_, copy_, enter_, extract_, gather_, order_, shown_fields, visible_};

    /// Which signatures the functions have: `duramen.base.native` takes only the one it knows.
    #[pymodule_export]
    const INTERFACE: u32 = 12;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
