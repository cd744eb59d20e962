//! The return-address stack (Webb, 1988; Kaeli and Emma, ISCA 1991): calls push
//! the address behind them, returns pop it. A full stack forgets its oldest.
//!
//! What ran in a gap of the trace may have called and returned any number of times, so a gap empties the stack. Of the
//! returns behind it only those can be predicted whose calls were seen, too: those that answer a call made since the gap. The
//! others are *unmatched*: what a processor's stack would hold for them nobody knows (it saw the
//! calls in the gap), and they are neither predicted nor counted. Calls since the gap are counted beyond the
//! stack's depth, so that a return whose address a full stack forgot is predicted, wrongly, as ever. Without a gap
//! there are no unmatched returns: one without a call finds an empty stack, and is wrong.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

/// A circular stack of return addresses.
#[derive(Debug)]
pub struct ReturnStack {
    places: Box<[GuestVa]>,
    top: usize,
    used: usize,
    /// Calls since the last gap whose return is still to come; nothing if there was no gap.
    awaited: Option<u64>,
}

/// What a return finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// Where it is predicted to go, unless the stack is empty.
    To(Option<GuestVa>),
    /// Its call lies before or in a gap.
    Unmatched,
}

impl ReturnStack {
    /// For `depth` calls; zero is taken as one.
    #[must_use]
    pub fn new(depth: u32) -> Self {
        let places = vec![GuestVa(0); depth.max(1) as usize].into_boxed_slice();
        Self { places, top: 0, used: 0, awaited: None }
    }

    /// A call that will return to `back`.
    pub fn call(&mut self, back: GuestVa) {
        self.top = (self.top + 1) % self.places.len();
        self.places[self.top] = back;
        self.used = (self.used + 1).min(self.places.len());
        if let Some(awaited) = &mut self.awaited {
            *awaited += 1;
        }
    }

    /// Something was left out here.
    pub const fn gap(&mut self) {
        self.used = 0;
        self.awaited = Some(0);
    }

    /// A return.
    pub fn ret(&mut self) -> Return {
        if let Some(awaited) = &mut self.awaited {
            match awaited.checked_sub(1) {
                Some(less) => *awaited = less,
                None => return Return::Unmatched,
            }
        }
        if self.used == 0 {
            return Return::To(None);
        }
        let predicted = self.places[self.top];
        self.top = (self.top + self.places.len() - 1) % self.places.len();
        self.used -= 1;
        Return::To(Some(predicted))
    }
}
