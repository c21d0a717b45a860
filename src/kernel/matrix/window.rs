//! Where a convolution looks.

/// The kernel's size, its stride and the zeros around the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Side of the square kernel in pixels.
    pub size: usize,
    /// Pixels from one output to the next.
    pub stride: usize,
    /// Zeros before the first row and column.
    pub before: usize,
    /// Zeros after the last row and column.
    pub after: usize,
}

impl Window {
    /// A kernel of this side that keeps the picture's size at stride 1.
    pub fn same(size: usize) -> Self {
        Self { size, stride: 1, before: size / 2, after: size / 2 }
    }

    /// Length of one side after the convolution, `None` if the kernel does not fit.
    pub fn output(&self, side: usize) -> Option<usize> {
        Some((side + self.before + self.after).checked_sub(self.size)? / self.stride + 1)
    }
}
