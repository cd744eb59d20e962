//! The accesses of the xsave family: which stretches of an XSAVE area are
//! touched, by what is enabled, requested and in use.
//!
//! The rules are those of the SDM, volume 1, chapter 13. An access is one
//! contiguous stretch; touching stretches join.
//!
//! - Legacy region: bytes 0..24 and 32..160 are x87 state (component 0), 24..32
//!   are MXCSR and its mask (saved and restored for components 1 and 2), 160..416
//!   are the XMM registers (component 1). Bytes 416..512 are never touched.
//! - Header: `XSTATE_BV` at 512, `XCOMP_BV` at 520. `xsave` and `xsaveopt` read and
//!   write the former; `xsavec` and `xsaves` write both; `xrstor` reads all 64
//!   bytes of the header to check them.
//! - Components from 2 on lie at the places that `cpuid` tells, or one behind the
//!   other in the compacted format.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, Record};

use crate::{Error, Gpr, Inst, MemOperand, Regs, StateOp, XLayout, access};

const X87: u64 = 1;
const SSE: u64 = 2;
const AVX: u64 = 4;
const COMPACTED: u64 = 1 << 63;
const HEADER: u64 = 512;
const EXTENDED: u64 = 576;

pub(crate) fn accesses(
    op: StateOp,
    inst: &Inst,
    operand: &MemOperand,
    regs: &impl Regs,
    out: &mut Vec<Record>,
) -> Result<(), Error> {
    let missing = |what| Error::Missing { pc: inst.pc(), what };
    let x = regs.xstate().ok_or(missing("the enabled and used state components"))?;
    let mask = regs.gpr(Gpr::Rdx) << 32 | regs.gpr(Gpr::Rax) & 0xffff_ffff;
    let requested = mask & x.xcr0;
    let mut area =
        Area { start: access::address(&operand.address, regs), flags: operand.flags, out };
    match op {
        StateOp::Xsave | StateOp::Xsaveopt => {
            let saved = if op == StateOp::Xsave { requested } else { requested & x.in_use };
            area.load(HEADER, HEADER + 8);
            area.transfer(Direction::Save, saved, requested & (SSE | AVX) != 0, |i| {
                x.layout.components.get(i).map(|c| (u64::from(c.offset), u64::from(c.size)))
            });
            area.store(HEADER, HEADER + 8);
        }
        StateOp::Xsavec | StateOp::Xsaves => {
            // MXCSR belongs to SSE here, and counts as in use when it is not at
            // its initial value (SDM volume 1, 13.10).
            let mxcsr = regs.mxcsr().ok_or(missing("mxcsr"))?;
            let in_use = x.in_use | if mxcsr == 0x1f80 { 0 } else { SSE };
            let saved = requested & in_use;
            let places = Compact::new(&x.layout, requested);
            area.transfer(Direction::Save, saved, saved & SSE != 0, |i| places.get(i));
            area.store(HEADER, HEADER + 16);
        }
        StateOp::Xrstor | StateOp::Xrstors => {
            let mut header = [0; 16];
            if !regs.peek(area.start.offset(HEADER), &mut header) {
                return Err(missing("the header of the XSAVE area"));
            }
            let (bv, comp) = split(header);
            area.load(HEADER, HEADER + 64);
            let loaded = requested & bv;
            if comp & COMPACTED == 0 {
                area.transfer(Direction::Restore, loaded, requested & (SSE | AVX) != 0, |i| {
                    x.layout.components.get(i).map(|c| (u64::from(c.offset), u64::from(c.size)))
                });
            } else {
                let places = Compact::new(&x.layout, comp);
                area.transfer(Direction::Restore, loaded, loaded & SSE != 0, |i| places.get(i));
            }
        }
    }
    Ok(())
}

fn split(header: [u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(header);
    (both as u64, (both >> 64) as u64)
}

#[derive(Clone, Copy)]
enum Direction {
    Save,
    Restore,
}

/// An XSAVE area and where its accesses go.
struct Area<'a> {
    start: GuestVa,
    flags: AccessFlags,
    out: &'a mut Vec<Record>,
}

impl Area<'_> {
    /// Touches the state of `components`, the lowest address first. `place` gives
    /// offset and size of component `i + 2`.
    fn transfer(
        &mut self,
        direction: Direction,
        components: u64,
        mxcsr: bool,
        place: impl Fn(usize) -> Option<(u64, u64)>,
    ) {
        let x87 = components & X87 != 0;
        let legacy =
            [(x87, 0, 24), (mxcsr, 24, 32), (x87, 32, 160), (components & SSE != 0, 160, 416)];
        let extended = (0..61)
            .filter(|i| components >> (i + 2) & 1 != 0)
            .filter_map(|i| place(i).map(|(offset, size)| (size != 0, offset, offset + size)));
        let mut open: Option<(u64, u64)> = None;
        for (_, from, to) in legacy.into_iter().chain(extended).filter(|(is, ..)| *is) {
            open = match open {
                Some((start, end)) if end == from => Some((start, to)),
                Some(done) => {
                    self.touch(direction, done);
                    Some((from, to))
                }
                None => Some((from, to)),
            };
        }
        if let Some(done) = open {
            self.touch(direction, done);
        }
    }

    fn touch(&mut self, direction: Direction, (from, to): (u64, u64)) {
        match direction {
            Direction::Save => self.store(from, to),
            Direction::Restore => self.load(from, to),
        }
    }

    fn load(&mut self, from: u64, to: u64) {
        let (addr, size) = self.stretch(from, to);
        self.out.push(Record::Load { flags: self.flags, size, addr });
    }

    fn store(&mut self, from: u64, to: u64) {
        let (addr, size) = self.stretch(from, to);
        self.out.push(Record::Store { flags: self.flags, size, addr });
    }

    fn stretch(&self, from: u64, to: u64) -> (GuestVa, u32) {
        (self.start.offset(from), u32::try_from(to - from).unwrap_or(u32::MAX))
    }
}

/// Places of components in the compacted format (SDM volume 1, 13.4.3).
struct Compact([(u64, u64); 62]);

impl Compact {
    fn new(layout: &XLayout, present: u64) -> Self {
        let mut places = [(0, 0); 62];
        let mut next = EXTENDED;
        for (i, (slot, component)) in places.iter_mut().zip(&layout.components).enumerate() {
            if i == 61 || present >> (i + 2) & 1 == 0 {
                continue;
            }
            if component.aligned {
                next = next.next_multiple_of(64);
            }
            *slot = (next, u64::from(component.size));
            next += u64::from(component.size);
        }
        Self(places)
    }

    fn get(&self, i: usize) -> Option<(u64, u64)> {
        self.0.get(i).copied()
    }
}
