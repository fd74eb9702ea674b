//! Python's buffers as slices, and work without the GIL. Unsafe code is here and in `python`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::buffer::{Element, PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::refused::Refused;

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
