//! Who called whom, how often, and what it cost until it came back.
//!
//! Each thread has a stack of open calls. A return closes the innermost open
//! call that expects it, and all above it: those were left by a long jump or an
//! exception. A return that no open call expects changes nothing. The cost of a
//! call is booked only if its function is not still open below it, so that the
//! calls into a function together cost what happened while the function was
//! open, and recursion counts nothing twice.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use super::Space;
use crate::hash::FastMap;

/// Open calls beyond this depth are counted but not followed.
const DEEPEST: usize = 1 << 16;
/// How far down a return looks for its call.
const SEARCHED: usize = 4096;

/// One call, from one instruction to one target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// In which program.
    pub space: Space,
    /// The call instruction.
    pub from: GuestVa,
    /// The function's first instruction.
    pub to: GuestVa,
    /// How often it was made.
    pub count: u64,
    /// What happened from the call to its return, one number per column, but
    /// for calls of a function that was open already.
    pub inclusive: Vec<u64>,
}

/// Where a call is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct From {
    pub space: u32,
    pub pc: GuestVa,
    pub len: u8,
}

/// All calls of a trace.
#[derive(Debug)]
pub(super) struct Calls {
    width: usize,
    numbers: FastMap<(u32, u64, u64), u32>,
    keys: Vec<(u32, GuestVa, GuestVa)>,
    counts: Vec<u64>,
    inclusive: Vec<u64>,
    pub dropped: u64,
}

/// The open calls of one thread.
#[derive(Debug)]
pub(super) struct Stack {
    so_far: Vec<u64>,
    frames: Vec<Frame>,
    /// What the thread had spent when each open call began.
    at_entry: Vec<u64>,
    /// How often each function is open.
    open: FastMap<GuestVa, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    call: u32,
    function: GuestVa,
    return_to: GuestVa,
}

impl Stack {
    pub fn new(width: usize) -> Self {
        let (frames, at_entry) = (Vec::new(), Vec::new());
        Self { so_far: vec![0; width], frames, at_entry, open: FastMap::default() }
    }

    /// All that the thread has spent.
    #[inline]
    pub fn so_far_mut(&mut self) -> &mut [u64] {
        &mut self.so_far
    }
}

impl Calls {
    pub fn new(width: usize) -> Self {
        Self {
            width,
            numbers: FastMap::default(),
            keys: Vec::new(),
            counts: Vec::new(),
            inclusive: Vec::new(),
            dropped: 0,
        }
    }

    pub fn enter(&mut self, stack: &mut Stack, from: From, to: GuestVa) {
        let next = self.keys.len() as u32;
        let call = *self.numbers.entry((from.space, from.pc.0, to.0)).or_insert(next);
        if call == next {
            self.keys.push((from.space, from.pc, to));
            self.counts.push(0);
            self.inclusive.resize(self.inclusive.len() + self.width, 0);
        }
        self.counts[call as usize] += 1;
        if stack.frames.len() >= DEEPEST {
            self.dropped += 1;
            return;
        }
        let return_to = from.pc.offset(from.len.into());
        stack.frames.push(Frame { call, function: to, return_to });
        stack.at_entry.extend_from_slice(&stack.so_far);
        *stack.open.entry(to).or_default() += 1;
    }

    pub fn leave(&mut self, stack: &mut Stack, to: GuestVa) {
        let expects = |frame: &Frame| frame.return_to == to;
        let found = stack.frames.iter().rev().take(SEARCHED).position(expects);
        for _ in 0..found.map_or(0, |above| above + 1) {
            self.close(stack);
        }
    }

    pub fn leave_all(&mut self, stack: &mut Stack) {
        while !stack.frames.is_empty() {
            self.close(stack);
        }
    }

    fn close(&mut self, stack: &mut Stack) {
        let Some(frame) = stack.frames.pop() else { return };
        let bottom = stack.frames.len() * self.width;
        let outermost = match stack.open.get_mut(&frame.function) {
            Some(open) if *open > 1 => {
                *open -= 1;
                false
            }
            _ => stack.open.remove(&frame.function).is_some(),
        };
        let at = frame.call as usize * self.width;
        if outermost && let Some(sums) = self.inclusive.get_mut(at..at + self.width) {
            let entry = &stack.at_entry[bottom..];
            for ((sum, now), then) in sums.iter_mut().zip(&stack.so_far).zip(entry) {
                *sum += now - then;
            }
        }
        stack.at_entry.truncate(bottom);
    }

    pub fn list(&self, spaces: &[Space]) -> Vec<Call> {
        let keys = self.keys.iter().zip(&self.counts).enumerate();
        keys.map(|(number, (&(space, from, to), &count))| Call {
            space: spaces.get(space as usize).copied().unwrap_or_default(),
            from,
            to,
            count,
            inclusive: self.inclusive[number * self.width..(number + 1) * self.width].to_vec(),
        })
        .collect()
    }
}
