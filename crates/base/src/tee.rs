//! One trace, two listeners.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::{error, fmt};

use crate::{About, Batch, Code, Event, Sink, ThreadId};

/// Passes everything on to two sinks. A sink that has seen enough is left alone
/// from then on; the tee has seen enough when both have.
#[derive(Debug)]
pub struct Tee<A, B> {
    first: A,
    second: B,
    first_open: bool,
    second_open: bool,
}

impl<A: Sink, B: Sink> Tee<A, B> {
    /// A tee over two sinks.
    pub const fn new(first: A, second: B) -> Self {
        Self { first, second, first_open: true, second_open: true }
    }

    /// The two sinks.
    pub fn into_inner(self) -> (A, B) {
        (self.first, self.second)
    }

    fn both(
        &mut self,
        first: impl FnOnce(&mut A) -> Result<bool, A::Error>,
        second: impl FnOnce(&mut B) -> Result<bool, B::Error>,
    ) -> Result<bool, TeeError<A::Error, B::Error>> {
        if self.first_open {
            self.first_open = first(&mut self.first).map_err(TeeError::First)?;
        }
        if self.second_open {
            self.second_open = second(&mut self.second).map_err(TeeError::Second)?;
        }
        Ok(self.first_open || self.second_open)
    }
}

impl<A: Sink, B: Sink> Sink for Tee<A, B> {
    type Error = TeeError<A::Error, B::Error>;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        self.both(|s| s.records(batch), |s| s.records(batch))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Self::Error> {
        self.both(|s| s.event(thread, event), |s| s.event(thread, event))
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Self::Error> {
        self.both(|s| s.code(thread, code), |s| s.code(thread, code))
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Self::Error> {
        self.both(|s| s.begin(about), |s| s.begin(about))
    }

    fn finish(&mut self) -> Result<(), Self::Error> {
        self.first.finish().map_err(TeeError::First)?;
        self.second.finish().map_err(TeeError::Second)
    }
}

/// Which side of a [`Tee`] failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeeError<A, B> {
    /// The first sink.
    First(A),
    /// The second sink.
    Second(B),
}

impl<A: fmt::Display, B: fmt::Display> fmt::Display for TeeError<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(e) => e.fmt(f),
            Self::Second(e) => e.fmt(f),
        }
    }
}

impl<A: error::Error, B: error::Error> error::Error for TeeError<A, B> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::First(e) => e.source(),
            Self::Second(e) => e.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;

    use super::*;
    use crate::{GuestVa, InsnKind, Record};

    /// Has seen enough after so many batches.
    struct Takes(u32, u32);

    impl Sink for Takes {
        type Error = Infallible;
        fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
            self.1 += 1;
            Ok(self.1 < self.0)
        }
    }

    #[test]
    fn each_side_stops_by_itself() {
        let records = [Record::insn(GuestVa(1), 1, InsnKind::OTHER)];
        let batch = Batch::new(ThreadId(0), 0, &records);
        let mut tee = Tee::new(Takes(2, 0), Takes(3, 0));
        assert_eq!(tee.records(&batch), Ok(true));
        assert_eq!(tee.records(&batch), Ok(true));
        assert_eq!(tee.records(&batch), Ok(false));
        let (a, b) = tee.into_inner();
        assert_eq!((a.1, b.1), (2, 3));
    }
}
