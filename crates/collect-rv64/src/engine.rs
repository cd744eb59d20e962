//! Drives one hart: finds and decodes code, runs it, and hands everything that
//! concerns the machine back to it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{Insn, is_compressed};

use crate::code::{Code, Decoded, runnable};
use crate::cpu::Cpu;
use crate::exec::{Exit, run, run_single};
use crate::memory::{World, fetch_page};
use crate::observe::Observer;
use crate::ram::PAGE_SIZE;
use crate::trap::{Cause, Trap};

/// Decoded code, and what other harts must still be told about it.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    code: Code,
    /// Pages whose code was decoded since the last [`Engine::take_opened`].
    opened: Vec<usize>,
}

impl Engine {
    /// Runs a hart until `limit` more instructions have retired or the machine
    /// must act. Never returns [`Exit::Fetch`].
    pub(crate) fn drive<W: World, O: Observer>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        watch: &mut O,
        limit: u64,
    ) -> Exit {
        let end = cpu.retired.saturating_add(limit);
        self.forget_overwritten(world);
        loop {
            let left = end.saturating_sub(cpu.retired);
            if left == 0 {
                return Exit::Limit;
            }
            let exit = match fetch_page(cpu, world, cpu.pc) {
                Err(trap) => Exit::Trap(trap),
                Ok(page_index) => self.run_page(cpu, world, watch, (page_index, left)),
            };
            match exit {
                Exit::Fetch => {}
                Exit::Trap(Trap { cause: Cause::Illegal, value: 0 }) => {
                    let word = instruction_word(cpu, world).unwrap_or(0);
                    return Exit::Trap(Trap::new(Cause::Illegal, word.into()));
                }
                Exit::Look if world.ram().code_was_written() && !watch.is_full() => {
                    self.forget_overwritten(world);
                    return Exit::Look;
                }
                other => return other,
            }
        }
    }

    /// Runs in the page at `page_index`, decoding the first instruction if need be.
    fn run_page<W: World, O: Observer>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        watch: &mut O,
        (page_index, left): (usize, u64),
    ) -> Exit {
        let offset = cpu.pc as usize % PAGE_SIZE;
        match self.code.page(page_index) {
            Some(page) if page[offset / 2].insn.is_some() => {
                return run(cpu, world, watch, (page, cpu.pc - offset as u64), left);
            }
            Some(_) => {}
            None => {
                if self.code.open(page_index, world.ram_mut()) {
                    cpu.tlb.protect(page_index);
                    self.opened.push(page_index);
                }
            }
        }
        match self.code.decode(page_index + offset, world.ram()) {
            Decoded::Insn => Exit::Fetch,
            Decoded::Illegal(word) => Exit::Trap(Trap::new(Cause::Illegal, word.into())),
            Decoded::Straddles => match instruction_word(cpu, world) {
                Err(trap) => Exit::Trap(trap),
                Ok(word) => match Insn::decode(word) {
                    Some(insn) => run_single(cpu, world, watch, runnable(insn)),
                    None => Exit::Trap(Trap::new(Cause::Illegal, word.into())),
                },
            },
        }
    }

    /// Drops what was decoded from memory that has been written since.
    pub(crate) fn forget_overwritten<W: World>(&mut self, world: &mut W) {
        while let Some(write) = world.ram_mut().take_code_write() {
            self.code.forget(write, world.ram_mut());
        }
    }

    /// Pages that harts other than the one that ran must stop writing to unseen.
    pub(crate) fn take_opened(&mut self) -> std::vec::Drain<'_, usize> {
        self.opened.drain(..)
    }
}

/// The instruction at `pc`, fetched halfword by halfword, as it may lie in two
/// pages of which the second need not be there.
pub(crate) fn instruction_word<W: World>(cpu: &mut Cpu, world: &mut W) -> Result<u32, Trap> {
    let half = |cpu: &mut Cpu, world: &mut W, va: u64| {
        let page = fetch_page(cpu, world, va)?;
        Ok(world.ram().read::<2>(page + va as usize % PAGE_SIZE) as u32)
    };
    let low = half(cpu, world, cpu.pc)?;
    if is_compressed(low) {
        return Ok(low);
    }
    Ok(low | half(cpu, world, cpu.pc.wrapping_add(2))? << 16)
}
