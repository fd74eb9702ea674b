//! A hint to the processor that bytes will be read soon. Elsewhere than on x86-64 it is nothing.

/// Bytes that come with one that is asked for.
const LINE_BYTES: usize = 64;

/// Has bytes fetched from memory little by little, ahead of whoever will read them.
pub struct Ahead<'a> {
    rest: &'a [u8],
    lines: usize,
}

impl<'a> Ahead<'a> {
    /// Of these bytes none is asked for yet; all are after so many steps.
    ///
    /// Each step asks for as much as any other, so that the processor foresees where its loop ends.
    pub fn new(bytes: &'a [u8], steps: usize) -> Self {
        Ahead { rest: bytes, lines: bytes.len().div_ceil(LINE_BYTES).div_ceil(steps.max(1)) }
    }

    /// Asks for the bytes of one step.
    #[inline(always)]
    pub fn step(&mut self) {
        for _ in 0..self.lines {
            let Some(byte) = self.rest.first() else {
                return;
            };
            prefetch(byte);
            self.rest = self.rest.get(LINE_BYTES..).unwrap_or_default();
        }
    }
}

/// Asks for the line in which `word` lies.
#[inline(always)]
pub fn line_of(word: &u64) {
    hint(std::ptr::from_ref(word).cast());
}

#[inline(always)]
fn prefetch(byte: &u8) {
    hint(std::ptr::from_ref(byte).cast());
}

#[inline(always)]
#[allow(unsafe_code)]
fn hint(place: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of x86-64, and only a hint: it reads nothing that a program can tell and never
    // faults, whatever the address. This one is of a byte that is there.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(place);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_asked_for_in_so_many_steps() {
        for (size, steps, left) in [(1000, 4, [744, 488, 232, 0]), (1000, 3, [616, 232, 0, 0]), (0, 1, [0; 4])] {
            let bytes = vec![0; size];
            let mut ahead = Ahead::new(&bytes, steps);
            for left in left {
                ahead.step();
                assert_eq!(ahead.rest.len(), left);
            }
        }
        Ahead::new(&[0], 0).step();
    }
}
