//! Drives one hart: finds and decodes code, runs it, and hands everything that
//! concerns the machine back to it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{Insn, is_compressed};

use crate::code::{Code, Decoded, Slot, Stood, runnable};
use crate::cpu::Cpu;
use crate::exec::{Exit, First, Known, Until, run};
use crate::jit::{Found, Jit, Reason};
use crate::memory::{World, fetch_page};
use crate::observe::Observer;
use crate::ram::PAGE_SIZE;
use crate::trap::{Cause, Trap};

/// How harts that nobody watches are run. Watched ones are always interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Speed {
    /// As generated code, where the host allows it.
    #[default]
    Generated,
    /// By the interpreter, the reference.
    Interpreted,
}

/// Decoded code, and what other harts must still be told about it.
#[derive(Debug)]
pub(crate) struct Engine {
    code: Code,
    known: Known,
    jit: Option<Jit>,
    /// Pages whose code was decoded since the last [`Engine::take_opened`].
    opened: Vec<usize>,
    /// The jump by which generated code came to the present place.
    site: Option<u64>,
    /// The computed transfer by which it did.
    indirect: Option<u32>,
}

impl Engine {
    pub(crate) fn new(speed: Speed) -> Self {
        let jit = (speed == Speed::Generated).then(Jit::new).flatten();
        Self {
            code: Code::default(),
            known: Known::default(),
            jit,
            opened: Vec::new(),
            site: None,
            indirect: None,
        }
    }

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
        if let Some(shift) = watch.line_shift() {
            self.code.set_line(shift);
        }
        (self.site, self.indirect) = (None, None);
        loop {
            let left = end.saturating_sub(cpu.retired);
            if left == 0 {
                return Exit::Limit;
            }
            let exit = match fetch_page(cpu, world, cpu.pc) {
                Err(trap) => Exit::Trap(trap),
                Ok(page_index) if O::GENERATED && self.jit.is_some() => {
                    self.run_fast(cpu, world, watch, (page_index, left))
                }
                Ok(page_index) => {
                    self.run_page(cpu, world, watch, (page_index, left, Until::PageEnd))
                }
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

    /// Runs generated code from `pc` on if there is some, or interprets up to the
    /// next jump.
    fn run_fast<W: World, O: Observer>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        watch: &mut O,
        (page_index, limit): (usize, u64),
    ) -> Exit {
        let end = cpu.retired.saturating_add(limit);
        let index = page_index + cpu.pc as usize % PAGE_SIZE;
        let Some(jit) = &mut self.jit else { return Exit::Fetch };
        let found = jit.find((index, cpu.pc), (&mut self.code, world.ram()), watch);
        cpu.tlb.follow_generation(jit.generation());
        if let Found::Block { at, side, insns } = found {
            if let Some(site) = self.site.take() {
                jit.link((site, cpu.pc), (at, side), cpu.tlb.linkable_state());
            }
            cpu.tlb.enter_jump(cpu.pc, jit.address(at));
            if let Some(site) = self.indirect.take() {
                watch.enter_indirect(site, cpu.pc, (cpu.tlb.key, jit.address(at)));
            }
            if insns <= limit {
                let (reason, indirect) = jit.enter(cpu, world, watch, (at, limit));
                self.indirect = indirect;
                match reason {
                    Reason::Lookup | Reason::Indirect => return Exit::Fetch,
                    Reason::Link => {
                        self.site = Some(cpu.shared.site);
                        return Exit::Fetch;
                    }
                    Reason::Interpret | Reason::Limit => {}
                }
            }
        }
        (self.site, self.indirect) = (None, None);
        let left = end.saturating_sub(cpu.retired);
        if left == 0 {
            return Exit::Limit;
        }
        let page_index = match fetch_page(cpu, world, cpu.pc) {
            Ok(page_index) => page_index,
            Err(trap) => return Exit::Trap(trap),
        };
        self.run_page(cpu, world, watch, (page_index, left, Until::Jump))
    }

    /// Runs in the page at `page_index`, decoding the first instruction if need be.
    fn run_page<W: World, O: Observer>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        watch: &mut O,
        (page_index, left, until): (usize, u64, Until),
    ) -> Exit {
        let offset = cpu.pc as usize % PAGE_SIZE;
        match self.code.page(page_index) {
            Some(page) if page[offset / 2].is_filled() => {
                let place = (&self.code, &mut self.known, First::Page(page_index));
                return run(cpu, world, watch, place, (left, until));
            }
            Some(_) => {}
            None => {
                if self.code.open(page_index, world.ram_mut()) {
                    cpu.tlb.protect(page_index);
                    self.opened.push(page_index);
                }
            }
        }
        let before = self.code.version(page_index);
        match self.code.decode(page_index + offset, world.ram()) {
            Decoded::Insn(word) => {
                if O::COUNTS && until == Until::PageEnd {
                    let versions = (before, self.code.version(page_index));
                    let ordinal = self.code.ordinal(page_index + offset);
                    watch.decoded((cpu.pc, page_index), Stood { word, ordinal }, versions);
                }
                Exit::Fetch
            }
            Decoded::Illegal(word) => Exit::Trap(Trap::new(Cause::Illegal, word.into())),
            Decoded::Straddles => match instruction_word(cpu, world) {
                Err(trap) => Exit::Trap(trap),
                Ok(word) => match Insn::decode(word) {
                    Some(insn) => {
                        if O::COUNTS && until == Until::PageEnd {
                            watch.decoded_alone(cpu.pc, word);
                        }
                        let slots = Slot::alone(runnable(insn));
                        let place = (&self.code, &mut self.known, First::Alone(&slots));
                        run(cpu, world, watch, place, (left, until))
                    }
                    None => Exit::Trap(Trap::new(Cause::Illegal, word.into())),
                },
            },
        }
    }

    /// Drops what was decoded from memory that has been written since.
    pub(crate) fn forget_overwritten<W: World>(&mut self, world: &mut W) {
        while let Some(write) = world.ram_mut().take_code_write() {
            if let Some(jit) = &mut self.jit {
                jit.forget(write);
            }
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
