//! A hint to the processor that bytes will be read soon. Elsewhere than on x86-64 it is nothing.

/// Bytes that come with one that is asked for.
const LINE_BYTES: usize = 64;

/// Has bytes fetched from memory little by little, ahead of whoever will read them.
pub struct Ahead<'a> {
    rest: &'a [u8],
    asked: usize,
}

impl<'a> Ahead<'a> {
    /// Of these bytes none is asked for yet.
    pub fn new(rest: &'a [u8]) -> Self {
        Ahead { rest, asked: 0 }
    }

    /// Asks for all before `end` that were not yet asked for; what lies behind the bytes is passed over.
    #[inline(always)]
    pub fn ask(&mut self, end: usize) {
        while self.asked < end {
            if let Some(byte) = self.rest.get(self.asked) {
                prefetch(byte);
            }
            self.asked += LINE_BYTES;
        }
    }
}

#[inline(always)]
#[allow(unsafe_code)]
fn prefetch(byte: &u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of x86-64, and only a hint: it reads nothing that a program can tell and never
    // faults, whatever the address. This one is of a byte that is there.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(byte).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = byte;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_twice_and_nothing_behind_the_end() {
        let bytes = [0; 100];
        let mut ahead = Ahead::new(&bytes);
        for (end, asked) in [(0, 0), (1, 64), (64, 64), (65, 128), (1000, 1024)] {
            ahead.ask(end);
            assert_eq!(ahead.asked, asked);
        }
        Ahead::new(&[]).ask(1 << 20);
    }
}
