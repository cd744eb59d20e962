//! The interpreter: runs decoded instructions until something else must happen.
//!
//! ```text
//! loop:  slot = page[(pc - page start) / 2]     // leaves if outside or empty
//!        one arm per operation                  // semantics in int, bits, atomic, float
//!        pc = next
//! ```
//!
//! The program counter alone says where we are; a jump out of the page is an
//! index out of bounds, so one check covers page ends, far jumps and undecoded
//! slots. Operations that concern the machine rather than the hart (control
//! registers, environment calls, fences of translations) leave the loop.
//!
//! [`run`] is the reference that generated code is compared with. The file is
//! long because `step` is one flat table with a line per instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod atomic;
mod bits;
mod float;
mod int;

use ichnos_base::{AccessFlags, GuestVa};
use ichnos_isa_rv64::{Insn, Op};

use crate::code::{Page, Slot};
use crate::cpu::{BOX, Cpu};
use crate::exec::float::Negated;
use crate::float::{Double, Single, host};
use crate::memory::{World, load, store, zero_block};
use crate::observe::Observer;
use crate::trap::{Stop, Trap};

/// Why [`run`] returned. The hart's `pc` names the next instruction to execute,
/// or the one that did not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// As many instructions retired as were asked for.
    Limit,
    /// The next instruction lies in another page or is not decoded yet.
    Fetch,
    /// The instruction at `pc` trapped.
    Trap(Trap),
    /// The instruction at `pc` is for the machine to carry out.
    System(Insn),
    /// Something outside the hart wants to be looked at.
    Look,
}

/// What an instruction leads to.
enum Flow {
    Next,
    Jump(u64),
    Stop(Stop),
    System,
}

/// How far to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// The page's end.
    PageEnd,
    /// The first taken jump: generated code may know what follows.
    Jump,
}

/// Runs at most `limit` instructions of the decoded page that stands at `page_va`.
pub(crate) fn run<W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    (page, page_va): (&Page, u64),
    (limit, until): (u64, Until),
) -> Exit {
    let mut left = limit;
    let mut pc = cpu.pc;
    let exit = loop {
        // By reference: an operation then reads only the fields it needs.
        let Some(Slot { insn: Some(i), kind }) = page.get((pc.wrapping_sub(page_va) >> 1) as usize)
        else {
            break Exit::Fetch;
        };
        if left == 0 {
            break Exit::Limit;
        }
        watch.insn(GuestVa(pc), i.len, *kind);
        match step(cpu, world, watch, i, pc) {
            Flow::Next => pc = pc.wrapping_add(u64::from(i.len)),
            Flow::Jump(target) => {
                pc = target;
                if O::GENERATED && until == Until::Jump {
                    left -= 1;
                    break Exit::Fetch;
                }
            }
            Flow::System => {
                watch.abandon();
                break Exit::System(*i);
            }
            Flow::Stop(Stop::Trap(trap)) => {
                watch.abandon();
                break Exit::Trap(trap);
            }
            Flow::Stop(Stop::Completed) => {
                pc = pc.wrapping_add(u64::from(i.len));
                left -= 1;
                break Exit::Look;
            }
        }
        left -= 1;
        if watch.is_full() {
            break Exit::Look;
        }
    };
    cpu.pc = pc;
    cpu.retired = cpu.retired.wrapping_add(limit - left);
    exit
}

/// Runs one instruction that has no slot because it straddles two pages.
pub(crate) fn run_single<W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    insn: Insn,
) -> Exit {
    let pc = cpu.pc;
    watch.insn(GuestVa(pc), insn.len, insn.kind());
    let (next, exit) = match step(cpu, world, watch, &insn, pc) {
        Flow::Next => (pc.wrapping_add(u64::from(insn.len)), Exit::Fetch),
        Flow::Jump(target) => (target, Exit::Fetch),
        Flow::Stop(Stop::Completed) => (pc.wrapping_add(u64::from(insn.len)), Exit::Look),
        Flow::System => {
            watch.abandon();
            return Exit::System(insn);
        }
        Flow::Stop(Stop::Trap(trap)) => {
            watch.abandon();
            return Exit::Trap(trap);
        }
    };
    cpu.pc = next;
    cpu.retired = cpu.retired.wrapping_add(1);
    exit
}

/// One instruction. Long because it is a flat table: an operation, its semantics.
#[inline(always)]
fn step<W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    i: &Insn,
    pc: u64,
) -> Flow {
    let imm = i.imm as i64 as u64;
    macro_rules! reg {
        ($f:path) => {{
            cpu.set_decoded(i.rd, $f(cpu.x(i.rs1), cpu.x(i.rs2)));
            Flow::Next
        }};
    }
    macro_rules! one {
        ($f:path) => {{
            cpu.set_decoded(i.rd, $f(cpu.x(i.rs1)));
            Flow::Next
        }};
    }
    macro_rules! imm {
        ($f:path) => {{
            cpu.set_decoded(i.rd, $f(cpu.x(i.rs1), imm));
            Flow::Next
        }};
    }
    macro_rules! branch {
        ($a:ident, $b:ident, $taken:expr) => {{
            let ($a, $b) = (cpu.x(i.rs1), cpu.x(i.rs2));
            let (taken, target) = ($taken, pc.wrapping_add(imm));
            watch.branch(taken, GuestVa(target));
            if taken { Flow::Jump(target) } else { Flow::Next }
        }};
    }
    macro_rules! load {
        ($n:literal, $value:ident => $set:expr) => {{
            let va = cpu.x(i.rs1).wrapping_add(imm);
            match load::<$n, W>(cpu, world, va) {
                Ok($value) => {
                    watch.load(GuestVa(va), $n, AccessFlags::NONE, $value);
                    $set;
                    Flow::Next
                }
                Err(stop) => Flow::Stop(stop),
            }
        }};
    }
    macro_rules! load_x {
        ($n:literal, $as:ty) => {
            load!($n, value => cpu.set_decoded(i.rd, value as $as as u64))
        };
    }
    macro_rules! load_f {
        ($n:literal, $box:expr) => {
            match cpu.need_float() {
                Ok(()) => load!($n, value => cpu.set_f(i.rd, value | $box)),
                Err(stop) => Flow::Stop(stop),
            }
        };
    }
    macro_rules! store {
        ($n:literal, $value:expr) => {{
            let va = cpu.x(i.rs1).wrapping_add(imm);
            let value = $value;
            match store::<$n, W>(cpu, world, va, value) {
                Err(stop @ Stop::Trap(_)) => Flow::Stop(stop),
                done => {
                    watch.store(GuestVa(va), $n, AccessFlags::NONE, value);
                    done.map_or_else(Flow::Stop, |()| Flow::Next)
                }
            }
        }};
    }
    macro_rules! store_f {
        ($n:literal) => {
            match cpu.need_float() {
                Ok(()) => store!($n, cpu.f(i.rs2)),
                Err(stop) => Flow::Stop(stop),
            }
        };
    }
    macro_rules! done {
        ($result:expr) => {
            match $result {
                Ok(()) => Flow::Next,
                Err(stop) => Flow::Stop(stop),
            }
        };
    }
    macro_rules! amo {
        ($n:literal, $f:path) => {
            done!(atomic::amo::<$n, W, O>(cpu, world, watch, i, $f))
        };
    }
    macro_rules! fused {
        ($format:ty, $op:path, $product:literal, $addend:literal) => {
            done!(float::fused::<$format>(
                cpu,
                i,
                Negated { product: $product, addend: $addend },
                $op
            ))
        };
    }
    use crate::float as soft;
    match i.op {
        Op::Lui => {
            cpu.set_decoded(i.rd, imm);
            Flow::Next
        }
        Op::Auipc => {
            cpu.set_decoded(i.rd, pc.wrapping_add(imm));
            Flow::Next
        }
        Op::Jal => {
            let target = pc.wrapping_add(imm);
            cpu.set_decoded(i.rd, pc.wrapping_add(u64::from(i.len)));
            watch.branch(true, GuestVa(target));
            Flow::Jump(target)
        }
        Op::Jalr => {
            let target = cpu.x(i.rs1).wrapping_add(imm) & !1;
            cpu.set_decoded(i.rd, pc.wrapping_add(u64::from(i.len)));
            watch.branch(true, GuestVa(target));
            Flow::Jump(target)
        }
        Op::Beq => branch!(a, b, a == b),
        Op::Bne => branch!(a, b, a != b),
        Op::Blt => branch!(a, b, (a as i64) < b as i64),
        Op::Bge => branch!(a, b, a as i64 >= b as i64),
        Op::Bltu => branch!(a, b, a < b),
        Op::Bgeu => branch!(a, b, a >= b),
        Op::Lb => load_x!(1, i8),
        Op::Lh => load_x!(2, i16),
        Op::Lw => load_x!(4, i32),
        Op::Ld => load_x!(8, u64),
        Op::Lbu => load_x!(1, u8),
        Op::Lhu => load_x!(2, u16),
        Op::Lwu => load_x!(4, u32),
        Op::Sb => store!(1, cpu.x(i.rs2)),
        Op::Sh => store!(2, cpu.x(i.rs2)),
        Op::Sw => store!(4, cpu.x(i.rs2)),
        Op::Sd => store!(8, cpu.x(i.rs2)),
        Op::Addi => imm!(int::add),
        Op::Slti => imm!(int::slt),
        Op::Sltiu => imm!(int::sltu),
        Op::Xori => imm!(int::xor),
        Op::Ori => imm!(int::or),
        Op::Andi => imm!(int::and),
        Op::Slli => imm!(int::sll),
        Op::Srli => imm!(int::srl),
        Op::Srai => imm!(int::sra),
        Op::Add => reg!(int::add),
        Op::Sub => reg!(int::sub),
        Op::Sll => reg!(int::sll),
        Op::Slt => reg!(int::slt),
        Op::Sltu => reg!(int::sltu),
        Op::Xor => reg!(int::xor),
        Op::Srl => reg!(int::srl),
        Op::Sra => reg!(int::sra),
        Op::Or => reg!(int::or),
        Op::And => reg!(int::and),
        Op::Addiw => imm!(int::addw),
        Op::Slliw => imm!(int::sllw),
        Op::Srliw => imm!(int::srlw),
        Op::Sraiw => imm!(int::sraw),
        Op::Addw => reg!(int::addw),
        Op::Subw => reg!(int::subw),
        Op::Sllw => reg!(int::sllw),
        Op::Srlw => reg!(int::srlw),
        Op::Sraw => reg!(int::sraw),
        // Harts take turns and see each other's stores at once.
        Op::Fence => Flow::Next,

        Op::Mul => reg!(int::mul),
        Op::Mulh => reg!(int::mulh),
        Op::Mulhsu => reg!(int::mulhsu),
        Op::Mulhu => reg!(int::mulhu),
        Op::Div => reg!(int::div),
        Op::Divu => reg!(int::divu),
        Op::Rem => reg!(int::rem),
        Op::Remu => reg!(int::remu),
        Op::Mulw => reg!(int::mulw),
        Op::Divw => reg!(int::divw),
        Op::Divuw => reg!(int::divuw),
        Op::Remw => reg!(int::remw),
        Op::Remuw => reg!(int::remuw),

        Op::LrW => done!(atomic::lr::<4, W, O>(cpu, world, watch, i)),
        Op::LrD => done!(atomic::lr::<8, W, O>(cpu, world, watch, i)),
        Op::ScW => done!(atomic::sc::<4, W, O>(cpu, world, watch, i)),
        Op::ScD => done!(atomic::sc::<8, W, O>(cpu, world, watch, i)),
        Op::AmoswapW => amo!(4, atomic::swap),
        Op::AmoaddW => amo!(4, int::add),
        Op::AmoxorW => amo!(4, int::xor),
        Op::AmoandW => amo!(4, int::and),
        Op::AmoorW => amo!(4, int::or),
        Op::AmominW => amo!(4, bits::min),
        Op::AmomaxW => amo!(4, bits::max),
        Op::AmominuW => amo!(4, bits::minu),
        Op::AmomaxuW => amo!(4, bits::maxu),
        Op::AmoswapD => amo!(8, atomic::swap),
        Op::AmoaddD => amo!(8, int::add),
        Op::AmoxorD => amo!(8, int::xor),
        Op::AmoandD => amo!(8, int::and),
        Op::AmoorD => amo!(8, int::or),
        Op::AmominD => amo!(8, bits::min),
        Op::AmomaxD => amo!(8, bits::max),
        Op::AmominuD => amo!(8, bits::minu),
        Op::AmomaxuD => amo!(8, bits::maxu),

        Op::Flw => load_f!(4, BOX),
        Op::Fsw => store_f!(4),
        Op::FmaddS => fused!(Single, host::mul_add_s, false, false),
        Op::FmsubS => fused!(Single, host::mul_add_s, false, true),
        Op::FnmsubS => fused!(Single, host::mul_add_s, true, false),
        Op::FnmaddS => fused!(Single, host::mul_add_s, true, true),
        Op::FaddS => done!(float::binary::<Single>(cpu, i, host::add_s)),
        Op::FsubS => done!(float::binary::<Single>(cpu, i, host::sub_s)),
        Op::FmulS => done!(float::binary::<Single>(cpu, i, host::mul_s)),
        Op::FdivS => done!(float::binary::<Single>(cpu, i, host::div_s)),
        Op::FsqrtS => done!(float::unary::<Single>(cpu, i, host::sqrt_s)),
        Op::FsgnjS => done!(float::select::<Single>(cpu, i, float::sgnj::<Single>)),
        Op::FsgnjnS => done!(float::select::<Single>(cpu, i, float::sgnjn::<Single>)),
        Op::FsgnjxS => done!(float::select::<Single>(cpu, i, float::sgnjx::<Single>)),
        Op::FminS => done!(float::select::<Single>(cpu, i, soft::min::<Single>)),
        Op::FmaxS => done!(float::select::<Single>(cpu, i, soft::max::<Single>)),
        Op::FcvtWS => done!(float::to_integer::<Single>(cpu, i, soft::to_i32::<Single>)),
        Op::FcvtWuS => done!(float::to_integer::<Single>(cpu, i, soft::to_u32::<Single>)),
        Op::FcvtLS => done!(float::to_integer::<Single>(cpu, i, soft::to_i64::<Single>)),
        Op::FcvtLuS => done!(float::to_integer::<Single>(cpu, i, soft::to_u64::<Single>)),
        Op::FmvXW => done!(float::to_bits::<4>(cpu, i)),
        Op::FclassS => done!(float::classify::<Single>(cpu, i)),
        Op::FeqS => done!(float::compare::<Single>(cpu, i, soft::equal::<Single>)),
        Op::FltS => done!(float::compare::<Single>(cpu, i, soft::less::<Single>)),
        Op::FleS => done!(float::compare::<Single>(cpu, i, soft::less_equal::<Single>)),
        Op::FcvtSW => done!(float::from_integer::<Single>(
            cpu,
            i,
            |x, e| soft::from_i64::<Single>(x as i32 as i64, e)
        )),
        Op::FcvtSWu => done!(float::from_integer::<Single>(
            cpu,
            i,
            |x, e| soft::from_u64::<Single>(x as u32 as u64, e)
        )),
        Op::FcvtSL => {
            done!(float::from_integer::<Single>(cpu, i, |x, e| soft::from_i64::<Single>(
                x as i64, e
            )))
        }
        Op::FcvtSLu => done!(float::from_integer::<Single>(cpu, i, soft::from_u64::<Single>)),
        Op::FmvWX => done!(float::from_bits::<4>(cpu, i)),

        Op::Fld => load_f!(8, 0),
        Op::Fsd => store_f!(8),
        Op::FmaddD => fused!(Double, host::mul_add_d, false, false),
        Op::FmsubD => fused!(Double, host::mul_add_d, false, true),
        Op::FnmsubD => fused!(Double, host::mul_add_d, true, false),
        Op::FnmaddD => fused!(Double, host::mul_add_d, true, true),
        Op::FaddD => done!(float::binary::<Double>(cpu, i, host::add_d)),
        Op::FsubD => done!(float::binary::<Double>(cpu, i, host::sub_d)),
        Op::FmulD => done!(float::binary::<Double>(cpu, i, host::mul_d)),
        Op::FdivD => done!(float::binary::<Double>(cpu, i, host::div_d)),
        Op::FsqrtD => done!(float::unary::<Double>(cpu, i, host::sqrt_d)),
        Op::FsgnjD => done!(float::select::<Double>(cpu, i, float::sgnj::<Double>)),
        Op::FsgnjnD => done!(float::select::<Double>(cpu, i, float::sgnjn::<Double>)),
        Op::FsgnjxD => done!(float::select::<Double>(cpu, i, float::sgnjx::<Double>)),
        Op::FminD => done!(float::select::<Double>(cpu, i, soft::min::<Double>)),
        Op::FmaxD => done!(float::select::<Double>(cpu, i, soft::max::<Double>)),
        Op::FcvtSD => done!(float::reformat::<Double, Single>(cpu, i)),
        Op::FcvtDS => done!(float::reformat::<Single, Double>(cpu, i)),
        Op::FeqD => done!(float::compare::<Double>(cpu, i, soft::equal::<Double>)),
        Op::FltD => done!(float::compare::<Double>(cpu, i, soft::less::<Double>)),
        Op::FleD => done!(float::compare::<Double>(cpu, i, soft::less_equal::<Double>)),
        Op::FclassD => done!(float::classify::<Double>(cpu, i)),
        Op::FcvtWD => done!(float::to_integer::<Double>(cpu, i, soft::to_i32::<Double>)),
        Op::FcvtWuD => done!(float::to_integer::<Double>(cpu, i, soft::to_u32::<Double>)),
        Op::FcvtLD => done!(float::to_integer::<Double>(cpu, i, soft::to_i64::<Double>)),
        Op::FcvtLuD => done!(float::to_integer::<Double>(cpu, i, soft::to_u64::<Double>)),
        Op::FcvtDW => done!(float::from_integer::<Double>(
            cpu,
            i,
            |x, e| soft::from_i64::<Double>(x as i32 as i64, e)
        )),
        Op::FcvtDWu => done!(float::from_integer::<Double>(
            cpu,
            i,
            |x, e| soft::from_u64::<Double>(x as u32 as u64, e)
        )),
        Op::FcvtDL => {
            done!(float::from_integer::<Double>(cpu, i, |x, e| soft::from_i64::<Double>(
                x as i64, e
            )))
        }
        Op::FcvtDLu => done!(float::from_integer::<Double>(cpu, i, soft::from_u64::<Double>)),
        Op::FmvXD => done!(float::to_bits::<8>(cpu, i)),
        Op::FmvDX => done!(float::from_bits::<8>(cpu, i)),

        Op::AddUw => reg!(bits::add_uw),
        Op::Sh1add => reg!(bits::sh1add),
        Op::Sh2add => reg!(bits::sh2add),
        Op::Sh3add => reg!(bits::sh3add),
        Op::Sh1addUw => reg!(bits::sh1add_uw),
        Op::Sh2addUw => reg!(bits::sh2add_uw),
        Op::Sh3addUw => reg!(bits::sh3add_uw),
        Op::SlliUw => imm!(bits::slli_uw),
        Op::Andn => reg!(bits::andn),
        Op::Orn => reg!(bits::orn),
        Op::Xnor => reg!(bits::xnor),
        Op::Clz => one!(bits::clz),
        Op::Ctz => one!(bits::ctz),
        Op::Cpop => one!(bits::cpop),
        Op::Clzw => one!(bits::clzw),
        Op::Ctzw => one!(bits::ctzw),
        Op::Cpopw => one!(bits::cpopw),
        Op::Max => reg!(bits::max),
        Op::Maxu => reg!(bits::maxu),
        Op::Min => reg!(bits::min),
        Op::Minu => reg!(bits::minu),
        Op::SextB => one!(bits::sext_b),
        Op::SextH => one!(bits::sext_h),
        Op::ZextH => one!(bits::zext_h),
        Op::Rol => reg!(bits::rol),
        Op::Ror => reg!(bits::ror),
        Op::Rori => imm!(bits::ror),
        Op::Rolw => reg!(bits::rolw),
        Op::Rorw => reg!(bits::rorw),
        Op::Roriw => imm!(bits::rorw),
        Op::OrcB => one!(bits::orc_b),
        Op::Rev8 => one!(bits::rev8),
        Op::Bclr => reg!(bits::bclr),
        Op::Bclri => imm!(bits::bclr),
        Op::Bext => reg!(bits::bext),
        Op::Bexti => imm!(bits::bext),
        Op::Binv => reg!(bits::binv),
        Op::Binvi => imm!(bits::binv),
        Op::Bset => reg!(bits::bset),
        Op::Bseti => imm!(bits::bset),
        Op::CzeroEqz => reg!(bits::czero_eqz),
        Op::CzeroNez => reg!(bits::czero_nez),

        // The machine decides whether cache-block operations are allowed here.
        Op::CboInval
        | Op::CboClean
        | Op::CboFlush
        | Op::CboZero
        | Op::FenceI
        | Op::Ecall
        | Op::Ebreak
        | Op::Csrrw
        | Op::Csrrs
        | Op::Csrrc
        | Op::Csrrwi
        | Op::Csrrsi
        | Op::Csrrci
        | Op::Sret
        | Op::Mret
        | Op::Wfi
        | Op::SfenceVma => Flow::System,
    }
}

/// Carries out a cache-block operation that the machine allows. Memory is
/// coherent, so only zeroing does anything.
pub(crate) fn cache_block<W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    i: &Insn,
) -> Result<(), Stop> {
    let va = cpu.x(i.rs1) & !63;
    if i.op == Op::CboZero {
        let result = zero_block(cpu, world, va);
        if !matches!(result, Err(Stop::Trap(_))) {
            watch.zero(GuestVa(va), 64);
        }
        return result;
    }
    load::<1, W>(cpu, world, va).map(|_| watch.flush(GuestVa(va), 64))
}
