//! A user's own functions, called from P_inst: before each block, load and store.
//!
//! The library is one that the program was linked with (`ichnos cc --tool`), so the program's loader brings it in; what
//! it exports decides what is called. Calls go through a page of our own near P_inst: the functions' addresses, which
//! are known when the program's own code begins, and for each function a sequence that saves what a function may
//! change. Arguments go by way of the thread's context, so that a call's place needs no register.
//!
//! Invariant (*not seen*): from the first instruction of such a sequence to its last, the thread is on this page or
//! [`IN_TOOL`] is not zero, so that a signal can be held back until the function has returned.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};

use iced_x86::{BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock};
use iced_x86::{MemoryOperand, Register as Name};
use ichnos_isa_x86::{AddrExpr, AddrWidth, Index, Inst, MemOperand, Rep, Role, Segment, Shape};
use object::read::elf::{Dyn, ElfFile64};
use object::{Object, ObjectSymbol, elf};

use super::emit::{ASIDE, ASIDE_TOO, Emitter, at, context, name, narrow};
use super::ways::AWAY;
use crate::Error;

/// The arguments of a call, and whether one is under way.
const ADDRESS: i64 = 64;
const NUMBER: i64 = 72;
pub(crate) const IN_TOOL: i64 = 80;

const PAGE: u64 = 4096;
/// Where the page lies, counted from P_inst.
pub(crate) const AT: u64 = AWAY - PAGE;
/// Where the first sequence lies on it, and how far they are apart.
const FIRST: u64 = 64;
const EACH: u64 = 512;

/// What can be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// A block: its address, and how many instructions it has.
    Block,
    /// A load: its address and size.
    Load,
    /// A store, likewise.
    Store,
    /// An instruction whose accesses vary: its address.
    Varying,
}

impl Call {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Block, Self::Load, Self::Store, Self::Varying];

    /// The function's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Block => "ichnos_tool_block",
            Self::Load => "ichnos_tool_load",
            Self::Store => "ichnos_tool_store",
            Self::Varying => "ichnos_tool_varying",
        }
    }

    /// Where its address goes, counted from the page.
    pub(crate) const fn slot(self) -> u64 {
        8 * self as u64
    }
}

/// Named so by libraries whose functions change no vector register.
const GENERAL_ONLY: &str = "ichnos_tool_general_registers_only";

/// What is saved around a call besides the general registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Saved {
    /// Nothing.
    Nothing,
    /// The vector registers and the state of the floating-point unit.
    Vectors,
}

/// A library with functions to be called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tool {
    /// The library's file.
    pub(crate) path: PathBuf,
    has: [bool; 4],
    saved: Saved,
}

impl Tool {
    /// The first library with such functions that an executable needs and that lies where it says.
    pub(crate) fn of(program: &Path) -> Option<Self> {
        let bytes = std::fs::read(program).ok()?;
        candidates(&bytes)?.into_iter().find_map(|path| Self::open(&path))
    }

    fn open(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let file: ElfFile64<'_> = ElfFile64::parse(bytes.as_slice()).ok()?;
        let names: Vec<&str> = file
            .dynamic_symbols()
            .filter(ObjectSymbol::is_definition)
            .filter_map(|s| s.name().ok())
            .collect();
        let has = Call::ALL.map(|call| names.contains(&call.name()));
        let saved = match names.contains(&GENERAL_ONLY) {
            true => Saved::Nothing,
            false => Saved::Vectors,
        };
        let path = std::fs::canonicalize(path).ok()?;
        has.contains(&true).then_some(Self { path, has, saved })
    }

    fn calls(&self, call: Call) -> bool {
        self.has[call as usize]
    }

    /// The page's bytes, if it lies at `page`; the functions' addresses are not there yet.
    pub(crate) fn page(&self, page: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; PAGE as usize];
        for call in Call::ALL {
            let mut emitter = Emitter::default();
            emitter.around(page + call.slot(), self.saved);
            let place = FIRST + EACH * call as u64;
            let block = InstructionBlock::new(&emitter.instrs, page + place);
            let failed = |why: String| Error::Layout { base: page, why };
            let made = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
                .map_err(|e| failed(e.to_string()))?;
            let from = usize::try_from(place).unwrap_or(0);
            let room = bytes.get_mut(from..from + made.code_buffer.len().min(EACH as usize));
            let room = room.filter(|r| r.len() == made.code_buffer.len());
            let room = room.ok_or_else(|| failed("a call's sequence is too long".into()))?;
            room.copy_from_slice(&made.code_buffer);
        }
        Ok(bytes)
    }
}

/// Files that an executable may mean by the libraries that it needs.
fn candidates(bytes: &[u8]) -> Option<Vec<PathBuf>> {
    let file: ElfFile64<'_> = ElfFile64::parse(bytes).ok()?;
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let (entries, strings) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, strings).ok()?;
    let named = |tag: elf::DynamicTag| {
        let of = move |d: &&elf::Dyn64<_>| d.d_tag(endian) == tag;
        let text = |d: &elf::Dyn64<_>| d.string(endian, strings).ok();
        let texts = entries.iter().filter(of).filter_map(text);
        texts.map(|t| String::from_utf8_lossy(t).into_owned()).collect::<Vec<_>>()
    };
    let folders: Vec<String> =
        [elf::DT_RUNPATH, elf::DT_RPATH].into_iter().flat_map(&named).collect();
    let folders: Vec<&str> = folders.iter().flat_map(|f| f.split(':')).collect();
    let of = |needed: String| match needed.contains('/') {
        true => vec![PathBuf::from(needed)],
        false => folders.iter().map(|f| Path::new(f).join(&needed)).collect(),
    };
    Some(named(elf::DT_NEEDED).into_iter().flat_map(of).collect())
}

/// Where P_inst calls its functions: what they are, and where the page lies.
#[derive(Clone, Copy)]
pub(crate) struct Calls<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) page: u64,
}

const RAX: u8 = 0;
const RDI: u8 = 7;
/// Below the stack pointer a function may keep what it likes.
const RED_ZONE: i64 = 128;

impl Emitter {
    /// Before an instruction of a block: the calls about it. `begins` is how many instructions the basic block has that
    /// begins with it, if one does.
    pub(crate) fn tell_tool(&mut self, calls: Calls<'_>, inst: &Inst, begins: Option<u32>) {
        if let Some(count) = begins.filter(|_| calls.tool.calls(Call::Block)) {
            self.call_about(calls, Call::Block, (inst.pc().0, count));
        }
        let plain = |m: &MemOperand| {
            matches!(m.shape, Shape::Plain | Shape::String(Rep::Once))
                && !matches!(m.address.index, Index::LowByte(_))
        };
        let touches = |m: &&MemOperand| matches!(m.role, Role::Load | Role::Store | Role::Both);
        if inst.memory().iter().filter(touches).any(|m| !plain(m)) {
            if calls.tool.calls(Call::Varying) {
                self.call_about(calls, Call::Varying, (inst.pc().0, 0));
            }
            return;
        }
        for operand in inst.memory() {
            for call in accesses(operand.role) {
                if calls.tool.calls(*call) {
                    self.call_with(calls, *call, operand);
                }
            }
        }
    }

    /// A call with a constant for address.
    fn call_about(&mut self, calls: Calls<'_>, call: Call, (address, number): (u64, u32)) {
        self.store(context(ASIDE), RDI);
        self.value(RDI, address);
        self.call_now(calls, call, number);
    }

    fn call_with(&mut self, calls: Calls<'_>, call: Call, operand: &MemOperand) {
        let address = &operand.address;
        self.store(context(ASIDE), RDI);
        self.address(RDI, address);
        if address.segment == Segment::Fs {
            self.store(context(ASIDE_TOO), RAX);
            self.push(Instruction::with1(Code::Rdfsbase_r64, Name::RAX));
            let sum = MemoryOperand::new(Name::RDI, Name::RAX, 1, 0, 0, false, Name::None);
            self.push(Instruction::with2(Code::Lea_r64_m, Name::RDI, sum));
            self.load(RAX, context(ASIDE_TOO));
        }
        self.call_now(calls, call, operand.size);
    }

    /// Computes an address, without the segment's base.
    pub(super) fn address(&mut self, to: u8, address: &AddrExpr) {
        match (address.base, address.index) {
            (None, Index::None) => self.value(to, address.disp as u64),
            (base, index) => {
                let (index, scale) = match index {
                    Index::Scaled(register, scale) => (name(register.number()), scale),
                    _ => (Name::None, 1),
                };
                let base = base.map_or(Name::None, |b| name(b.number()));
                let scale = u32::from(scale);
                let size = if base == Name::None { 8 } else { 1 };
                let place =
                    MemoryOperand::new(base, index, scale, address.disp, size, false, Name::None);
                self.push(Instruction::with2(Code::Lea_r64_m, name(to), place));
            }
        }
        if address.width == AddrWidth::Bits32 {
            self.push(Instruction::with2(Code::Mov_r32_rm32, narrow(to), narrow(to)));
        }
    }

    /// Calls with the address in `rdi`, which was put aside.
    fn call_now(&mut self, calls: Calls<'_>, call: Call, number: u32) {
        const RSP: u8 = 4;
        self.store(context(ADDRESS), RDI);
        self.load(RDI, context(ASIDE));
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        self.push(Instruction::with2(Code::Mov_rm64_imm32, context(NUMBER), number));
        self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, at(RSP, -RED_ZONE)));
        let to = calls.page + FIRST + EACH * call as u64;
        self.push(Instruction::with_branch(Code::Call_rel32_64, to));
        let back = MemoryOperand::new(Name::RSP, Name::None, 1, RED_ZONE, 1, false, Name::None);
        self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, back));
    }

    /// What comes around a call of the function whose address lies in `slot`.
    fn around(&mut self, slot: u64, saved: Saved) {
        const KEPT: [Name; 10] = [
            Name::RAX,
            Name::RCX,
            Name::RDX,
            Name::RSI,
            Name::RDI,
            Name::R8,
            Name::R9,
            Name::R10,
            Name::R11,
            Name::RBP,
        ];
        let flag = |on: i32| Instruction::with2(Code::Mov_rm64_imm32, context(IN_TOOL), on);
        self.push(flag(1));
        self.push(Ok(Instruction::with(Code::Pushfq)));
        KEPT.iter().for_each(|r| self.push(Instruction::with1(Code::Push_r64, *r)));
        self.push(Instruction::with2(Code::Mov_r64_rm64, Name::RBP, Name::RSP));
        self.push(Instruction::with2(Code::And_rm64_imm8, Name::RSP, -64));
        if saved == Saved::Vectors {
            self.save_vectors();
        }
        self.load(RDI, context(ADDRESS));
        self.push(Instruction::with2(Code::Mov_r64_rm64, Name::RSI, context(NUMBER)));
        self.push(Ok(Instruction::with(Code::Cld)));
        let place = MemoryOperand::new(Name::RIP, Name::None, 1, slot as i64, 8, false, Name::None);
        self.push(Instruction::with2(Code::Mov_r64_rm64, Name::RAX, place));
        let skip = self.part();
        self.push(Instruction::with2(Code::Test_rm64_r64, Name::RAX, Name::RAX));
        self.branch(Code::Je_rel32_64, skip);
        self.push(Instruction::with1(Code::Call_rm64, Name::RAX));
        self.label = skip;
        if saved == Saved::Vectors {
            self.vector_state(Code::Xrstor64_mem);
        } else {
            self.push(Ok(Instruction::with(Code::Nopd)));
        }
        self.push(Instruction::with2(Code::Mov_r64_rm64, Name::RSP, Name::RBP));
        KEPT.iter().rev().for_each(|r| self.push(Instruction::with1(Code::Pop_r64, *r)));
        self.push(Ok(Instruction::with(Code::Popfq)));
        self.push(flag(0));
        self.push(Ok(Instruction::with(Code::Retnq)));
    }

    fn save_vectors(&mut self) {
        /// Enough for all vector registers of today, in either form.
        const AREA: i32 = 2816;
        /// Behind the legacy part, and the words of the header that the processor does not write itself.
        const HEADER: i64 = 512;
        self.push(Instruction::with2(Code::Sub_rm64_imm32, Name::RSP, AREA));
        for word in 2..8 {
            let place = MemoryOperand::new(
                Name::RSP,
                Name::None,
                1,
                HEADER + 8 * word,
                1,
                false,
                Name::None,
            );
            self.push(Instruction::with2(Code::Mov_rm64_imm32, place, 0));
        }
        self.vector_state(Code::Xsavec64_mem);
    }

    /// Saves or restores x87, SSE, AVX and AVX-512 state.
    fn vector_state(&mut self, how: Code) {
        const STATE: u32 = 0xe7;
        self.push(Instruction::with2(Code::Mov_r32_imm32, Name::EAX, STATE));
        self.push(Instruction::with2(Code::Xor_r32_rm32, Name::EDX, Name::EDX));
        let area = MemoryOperand::new(Name::RSP, Name::None, 1, 0, 0, false, Name::None);
        self.push(Instruction::with1(how, area));
    }
}

const fn accesses(role: Role) -> &'static [Call] {
    match role {
        Role::Load => &[Call::Load],
        Role::Store => &[Call::Store],
        Role::Both => &[Call::Load, Call::Store],
        _ => &[],
    }
}
