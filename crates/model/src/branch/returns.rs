//! The return-address stack (Webb, 1988; Kaeli and Emma, ISCA 1991): calls push
//! the address behind them, returns pop it. A full stack forgets its oldest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

/// A circular stack of return addresses.
#[derive(Debug)]
pub struct ReturnStack {
    places: Box<[GuestVa]>,
    top: usize,
    used: usize,
}

impl ReturnStack {
    /// For `depth` calls; zero is taken as one.
    #[must_use]
    pub fn new(depth: u32) -> Self {
        let places = vec![GuestVa(0); depth.max(1) as usize].into_boxed_slice();
        Self { places, top: 0, used: 0 }
    }

    /// A call that will return to `back`.
    pub fn call(&mut self, back: GuestVa) {
        self.top = (self.top + 1) % self.places.len();
        self.places[self.top] = back;
        self.used = (self.used + 1).min(self.places.len());
    }

    /// A return: where it is predicted to go, unless the stack is empty.
    pub fn ret(&mut self) -> Option<GuestVa> {
        if self.used == 0 {
            return None;
        }
        let predicted = self.places[self.top];
        self.top = (self.top + self.places.len() - 1) % self.places.len();
        self.used -= 1;
        Some(predicted)
    }
}
