//! Atomic memory operations: A. Harts take turns, so an operation is atomic by
//! not being interrupted.
//!
//! A store-conditional succeeds if its address is the reserved one and still
//! holds the value that was loaded. Another hart may have changed it and changed
//! it back in between; programs written for LR/SC cannot tell.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa};
use ichnos_isa_rv64::Insn;

use crate::cpu::{Cpu, Reservation};
use crate::memory::{World, load, store};
use crate::observe::Observer;
use crate::trap::{Access, Cause, Stop, Trap};

/// Atomic accesses must be aligned; the table of translations tells the rest.
fn aligned<const N: usize>(va: u64, cause: Cause) -> Result<(), Stop> {
    if va.is_multiple_of(N as u64) { Ok(()) } else { Err(Stop::Trap(Trap::new(cause, va))) }
}

fn extend<const N: usize>(value: u64) -> u64 {
    if N == 4 { value as i32 as u64 } else { value }
}

/// Load-reserved.
#[inline(always)]
pub(crate) fn lr<const N: usize, W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    i: &Insn,
) -> Result<(), Stop> {
    let va = cpu.x(i.rs1);
    aligned::<N>(va, Cause::LoadMisaligned)?;
    let value = load::<N, W>(cpu, world, va)?;
    watch.load(GuestVa(va), N as u32, AccessFlags::ATOMIC, value);
    cpu.reservation = Some(Reservation { va, value });
    cpu.set_decoded(i.rd, extend::<N>(value));
    Ok(())
}

/// Store-conditional.
#[inline(always)]
pub(crate) fn sc<const N: usize, W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    i: &Insn,
) -> Result<(), Stop> {
    let va = cpu.x(i.rs1);
    aligned::<N>(va, Cause::StoreMisaligned)?;
    let reserved = cpu.reservation.take().filter(|r| r.va == va);
    // Rights are checked even if the store fails for want of a reservation.
    if cpu.tlb.write::<N>(va).is_none() {
        world.reach(cpu, va, Access::Store)?;
    }
    let holds = match reserved {
        Some(r) => load::<N, W>(cpu, world, va)? == r.value,
        None => false,
    };
    let mut result = Ok(());
    if holds {
        let value = cpu.x(i.rs2);
        result = store::<N, W>(cpu, world, va, value);
        if !matches!(result, Err(Stop::Trap(_))) {
            watch.store(GuestVa(va), N as u32, AccessFlags::ATOMIC, value);
        }
    }
    if !matches!(result, Err(Stop::Trap(_))) {
        cpu.set_decoded(i.rd, u64::from(!holds));
    }
    result
}

/// Read-modify-write: `rd = old; memory = f(old, rs2)`.
#[inline(always)]
pub(crate) fn amo<const N: usize, W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    i: &Insn,
    f: impl Fn(u64, u64) -> u64,
) -> Result<(), Stop> {
    let va = cpu.x(i.rs1);
    aligned::<N>(va, Cause::StoreMisaligned)?;
    // A read-modify-write faults as a store, so the right to write comes first.
    let old = match cpu.tlb.write::<N>(va) {
        Some(index) => world.ram().read::<N>(index),
        None => {
            world.reach(cpu, va, Access::Store)?;
            load::<N, W>(cpu, world, va)?
        }
    };
    let new = f(extend::<N>(old), extend::<N>(cpu.x(i.rs2)));
    let result = store::<N, W>(cpu, world, va, new);
    if !matches!(result, Err(Stop::Trap(_))) {
        watch.load(GuestVa(va), N as u32, AccessFlags::ATOMIC, old);
        watch.store(GuestVa(va), N as u32, AccessFlags::ATOMIC, new);
        cpu.set_decoded(i.rd, extend::<N>(old));
    }
    result
}

/// `amoswap`.
#[inline(always)]
pub(crate) const fn swap(_: u64, b: u64) -> u64 {
    b
}
