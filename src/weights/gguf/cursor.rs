//! A place in bytes that are not believed: every step forward is checked.

use crate::weights::limits;

/// Bytes and how far they are read. `None` from any step means that the file ends before it says it does.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Begins at the first byte and ends where no header of ours reaches.
    pub(super) fn new(file: &'a [u8]) -> Self {
        Self { bytes: &file[..file.len().min(limits::GGUF_HEADER_BYTES)], at: 0 }
    }

    /// How many bytes are read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next bytes, if there are so many.
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Four bytes, the lowest first.
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, the lowest first.
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Eight bytes that are a size.
    pub(super) fn size(&mut self) -> Option<usize> {
        usize::try_from(self.u64()?).ok()
    }

    /// A length and so many bytes of text, no longer than any text of ours.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.size().filter(|&length| length <= limits::GGUF_TEXT_BYTES)?;
        self.take(length)
    }
}
