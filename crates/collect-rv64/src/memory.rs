//! Loads and stores: the fast way through the translation table, and the slow
//! way through the world's page tables and devices.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::Cpu;
use crate::ram::{PAGE_SIZE, Ram};
use crate::trap::{Access, Stop, Trap};

/// Where an access goes after translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// To RAM, at this index.
    Ram(usize),
    /// To a device, at this physical address.
    Device(u64),
}

/// What surrounds a hart: memory, page tables and devices.
pub(crate) trait World {
    fn ram(&self) -> &Ram;
    fn ram_mut(&mut self) -> &mut Ram;

    /// Translates an address after the hart's own table missed, checks rights,
    /// and enters the translation there if it may be used again.
    fn reach(&mut self, cpu: &mut Cpu, va: u64, access: Access) -> Result<Place, Trap>;

    /// Reads `size` bytes (1 to 8) of a device.
    fn device_read(&mut self, pa: u64, size: usize) -> Option<u64>;

    /// Writes `size` bytes (1 to 8) of a device; `None` if there is no device.
    /// True if the machine must look around before the next instruction.
    fn device_write(&mut self, pa: u64, size: usize, value: u64) -> Option<bool>;
}

/// Loads `N` bytes, zero-extended.
#[inline(always)]
pub(crate) fn load<const N: usize, W: World>(
    cpu: &mut Cpu,
    world: &mut W,
    va: u64,
) -> Result<u64, Stop> {
    match cpu.tlb.read::<N>(va) {
        Some(index) => Ok(world.ram().read::<N>(index)),
        None => load_slowly(cpu, world, va, N),
    }
}

/// Stores the low `N` bytes of a value.
#[inline(always)]
pub(crate) fn store<const N: usize, W: World>(
    cpu: &mut Cpu,
    world: &mut W,
    va: u64,
    value: u64,
) -> Result<(), Stop> {
    match cpu.tlb.write::<N>(va) {
        Some(index) => {
            world.ram_mut().write::<N>(index, value);
            Ok(())
        }
        None => store_slowly(cpu, world, va, N, value),
    }
}

/// The index into RAM of the code page at `va`.
#[inline]
pub(crate) fn fetch_page<W: World>(cpu: &mut Cpu, world: &mut W, va: u64) -> Result<usize, Trap> {
    if let Some(index) = cpu.tlb.exec(va) {
        return Ok(index);
    }
    match world.reach(cpu, va, Access::Fetch)? {
        Place::Ram(index) => Ok(index & !(PAGE_SIZE - 1)),
        Place::Device(_) => Err(Trap::new(Access::Fetch.access_fault(), va)),
    }
}

const fn bytes_in_page(va: u64) -> usize {
    PAGE_SIZE - (va as usize & (PAGE_SIZE - 1))
}

/// Loads `size` bytes, zero-extended, not found in the hart's own table.
#[cold]
#[inline(never)]
pub(crate) fn load_slowly<W: World>(
    cpu: &mut Cpu,
    world: &mut W,
    va: u64,
    size: usize,
) -> Result<u64, Stop> {
    let first = size.min(bytes_in_page(va));
    let low = load_in_page(cpu, world, va, first)?;
    if first == size {
        return Ok(low);
    }
    let high = load_in_page(cpu, world, va.wrapping_add(first as u64), size - first)?;
    Ok(low | high << (8 * first))
}

fn load_in_page<W: World>(cpu: &mut Cpu, world: &mut W, va: u64, size: usize) -> Result<u64, Stop> {
    match world.reach(cpu, va, Access::Load)? {
        Place::Ram(index) => Ok(read_bytes(world.ram(), index, size)),
        Place::Device(pa) => world
            .device_read(pa, size)
            .ok_or(Stop::Trap(Trap::new(Access::Load.access_fault(), va))),
    }
}

fn read_bytes(ram: &Ram, index: usize, size: usize) -> u64 {
    let mut word = [0; 8];
    if let (Some(to), Some(from)) = (word.get_mut(..size), ram.slice(index, size)) {
        to.copy_from_slice(from);
    }
    u64::from_le_bytes(word)
}

/// A store that crosses into a page that cannot be written must not write the
/// first page either, so both are translated before anything is written.
#[cold]
#[inline(never)]
pub(crate) fn store_slowly<W: World>(
    cpu: &mut Cpu,
    world: &mut W,
    va: u64,
    size: usize,
    value: u64,
) -> Result<(), Stop> {
    let first = size.min(bytes_in_page(va));
    let low = world.reach(cpu, va, Access::Store)?;
    let mut look = false;
    if first < size {
        let next = va.wrapping_add(first as u64);
        let high = world.reach(cpu, next, Access::Store)?;
        look |= store_at(world, high, next, size - first, value >> (8 * first))?;
    }
    look |= store_at(world, low, va, first, value)?;
    if look { Err(Stop::Completed) } else { Ok(()) }
}

fn store_at<W: World>(
    world: &mut W,
    place: Place,
    va: u64,
    size: usize,
    value: u64,
) -> Result<bool, Stop> {
    let index = match place {
        Place::Ram(index) => index,
        Place::Device(pa) => {
            return world
                .device_write(pa, size, value)
                .ok_or(Stop::Trap(Trap::new(Access::Store.access_fault(), va)));
        }
    };
    let ram = world.ram_mut();
    if let (Some(to), Some(from)) = (ram.slice_mut(index, size), value.to_le_bytes().get(..size)) {
        to.copy_from_slice(from);
    }
    Ok(ram.code_was_written())
}

/// Zeroes an aligned block of 64 bytes.
pub(crate) fn zero_block<W: World>(cpu: &mut Cpu, world: &mut W, va: u64) -> Result<(), Stop> {
    match world.reach(cpu, va, Access::Store)? {
        Place::Device(_) => Err(Stop::Trap(Trap::new(Access::Store.access_fault(), va))),
        Place::Ram(index) => {
            let ram = world.ram_mut();
            if let Some(block) = ram.slice_mut(index, 64) {
                block.fill(0);
            }
            if ram.code_was_written() { Err(Stop::Completed) } else { Ok(()) }
        }
    }
}
