//! Why bytes or columns are not taken.

use std::collections::TryReserveError;
use std::fmt;

/// What is said to the caller; never a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Bytes that are not a sound record batch.
    Corrupt(String),
    /// Columns that cannot be written, or arguments that cannot be.
    Invalid(String),
    /// There is not enough memory.
    Memory,
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Corrupt(what) | Refused::Invalid(what) => to.write_str(what),
            Refused::Memory => to.write_str("not enough memory"),
        }
    }
}

impl From<TryReserveError> for Refused {
    fn from(_: TryReserveError) -> Self {
        Refused::Memory
    }
}

/// Bytes that are not a sound record batch.
pub fn corrupt<T>(what: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::Corrupt(what.into()))
}

/// Columns or arguments that cannot be.
pub fn invalid<T>(what: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::Invalid(what.into()))
}
