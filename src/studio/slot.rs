//! A part of a model that comes when it is needed and goes when it is not.

use std::ops::Deref;

use crate::error::Result;

/// How long parts stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// A part leaves when its phase ends, so that the peak is one phase.
    Phase,
    /// A part stays for the next picture.
    Stay,
}

type Opener<T> = Box<dyn Fn() -> Result<Box<T>> + Send + Sync>;

/// One part: opened on the first lease.
pub struct Slot<T: ?Sized> {
    open: Opener<T>,
    part: Option<Box<T>>,
    /// What was open when it was changed, until the next lease: what both have in common need not be read again.
    before: Option<Box<T>>,
}

impl<T: ?Sized> Slot<T> {
    /// A part that is not open yet.
    pub fn new(open: impl Fn() -> Result<Box<T>> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), part: None, before: None }
    }

    /// Whether a lease would have to open it.
    pub fn is_open(&self) -> bool {
        self.part.is_some()
    }

    /// Lets the part go.
    pub fn close(&mut self) {
        (self.part, self.before) = (None, None);
    }

    /// From now on opens what the other does.
    pub fn succeed_by(&mut self, other: Self) {
        self.open = other.open;
        self.before = self.part.take().or(self.before.take());
    }

    /// The part, opened if it is not; when the lease ends it stays or leaves.
    ///
    /// # Errors
    /// What opening says.
    pub fn lease(&mut self, residency: Residency) -> Result<Lease<'_, T>> {
        if self.part.is_none() {
            let opened = (self.open)();
            self.before = None;
            self.part = Some(opened?);
        }
        Ok(Lease { slot: self, residency })
    }
}

/// A part in use.
pub struct Lease<'a, T: ?Sized> {
    slot: &'a mut Slot<T>,
    residency: Residency,
}

impl<T: ?Sized> Deref for Lease<'_, T> {
    type Target = T;

    #[expect(clippy::expect_used, reason = "`lease` opened it, and only `drop` takes it away")]
    fn deref(&self) -> &T {
        self.slot.part.as_deref().expect("a leased part is open")
    }
}

impl<T: ?Sized> Drop for Lease<'_, T> {
    fn drop(&mut self) {
        if self.residency == Residency::Phase {
            self.slot.part = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_part_is_opened_once_if_it_stays_and_each_time_if_it_leaves() -> Result<()> {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let mut slot: Slot<str> = Slot::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok("part".into())
        });
        assert_eq!(&*slot.lease(Residency::Stay)?, "part");
        assert_eq!(&*slot.lease(Residency::Phase)?, "part");
        assert!(!slot.is_open());
        drop(slot.lease(Residency::Stay)?);
        assert!(slot.is_open());
        assert_eq!(opened.load(Ordering::Relaxed), 2);
        Ok(())
    }
}
