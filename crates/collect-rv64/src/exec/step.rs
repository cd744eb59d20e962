//! What each instruction does: a flat table with a line per operation, and the
//! few forms that the lines have in common. The values are computed in `int`,
//! `bits`, `atomic` and `float`.
//!
//! [`step`] is compiled once for each operation, so that choosing a line costs
//! nothing. The file is long because the table is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa};
use ichnos_isa_rv64::{Insn, Op};

use crate::cpu::{BOX, Cpu};
use crate::exec::float::{self, Negated};
use crate::exec::{atomic, bits, int};
use crate::float::{Double, Single, host};
use crate::memory::{World, load, store, zero_block};
use crate::observe::{Here, How, Observer};
use crate::trap::Stop;

/// Each instruction is announced to whoever watches.
pub(super) const FINE: u8 = 0;
/// Only the common case is done.
pub(super) const COARSE: u8 = 1;
/// The same for cases that are not common.
pub(super) const SLOW: u8 = 2;

/// What an instruction leads to.
pub(super) enum Flow {
    Next,
    Jump(u64),
    Stop(Stop),
    System,
    /// This is not the common case: nothing is done yet.
    Uncommon,
}

/// Chooses a line by the number of an operation. Every operation must have one.
macro_rules! table {
    ($number:ident; $($($op:ident)|+ => $result:expr,)*) => {{
        #[allow(non_upper_case_globals, reason = "these are the architecture's own names")]
        mod numbers {
            use super::Op;
            $($(pub(super) const $op: u8 = Op::$op as u8;)+)*
        }
        const _: fn(Op) = |op| match op { $($(Op::$op)|+ => (),)* };
        match $number {
            $($(numbers::$op)|+ => $result,)*
            _ => Flow::System,
        }
    }};
}

/// Loads `N` bytes, seen by whoever watches.
#[inline(always)]
fn read<const N: usize, const MODE: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    va: u64,
    here: &Here,
) -> Result<u64, Stop> {
    if MODE == SLOW {
        return watch.read_slowly::<N, W>(cpu, world, va, here);
    }
    let value = load::<N, W>(cpu, world, va)?;
    watch.load(GuestVa(va), N as u32, AccessFlags::NONE, value);
    Ok(value)
}

/// Stores the low `N` bytes of a value, seen by whoever watches.
#[inline(always)]
fn write<const N: usize, const MODE: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    (va, value): (u64, u64),
    here: &Here,
) -> Result<(), Stop> {
    if MODE == SLOW {
        return watch.write_slowly::<N, W>(cpu, world, (va, value), here);
    }
    let done = store::<N, W>(cpu, world, va, value);
    if !matches!(done, Err(Stop::Trap(_))) {
        watch.store(GuestVa(va), N as u32, AccessFlags::NONE, value);
    }
    done
}

/// One instruction of the operation with this number. Long because it is a flat
/// table: an operation, its semantics.
#[inline(always)]
pub(super) fn step<const OP: u8, const MODE: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    i: &Insn,
    (here, how): (&Here, How<'_, O>),
) -> Flow {
    let (pc, imm) = (here.pc, i.imm as i64 as u64);
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
            if MODE == FINE {
                watch.branch(taken, GuestVa(target));
            }
            if taken { Flow::Jump(target) } else { Flow::Next }
        }};
    }
    macro_rules! load {
        ($n:literal, $value:ident => $set:expr) => {{
            let va = cpu.x(i.rs1).wrapping_add(imm);
            if MODE == COARSE {
                match watch.read::<$n, W>(cpu, world, va, (here, how)) {
                    Some($value) => {
                        $set;
                        Flow::Next
                    }
                    None => Flow::Uncommon,
                }
            } else {
                match read::<$n, MODE, W, O>(cpu, world, watch, va, here) {
                    Ok($value) => {
                        $set;
                        Flow::Next
                    }
                    Err(stop) => Flow::Stop(stop),
                }
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
            if MODE == COARSE {
                match watch.write::<$n, W>(cpu, world, (va, value), (here, how)) {
                    Some(()) => Flow::Next,
                    None => Flow::Uncommon,
                }
            } else {
                done!(write::<$n, MODE, W, O>(cpu, world, watch, (va, value), here))
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
    // Atomic accesses are told one by one.
    macro_rules! located {
        ($call:expr) => {{
            if MODE == COARSE {
                return Flow::Uncommon;
            }
            if MODE == SLOW {
                watch.locate(here);
            }
            let result = $call;
            if MODE == SLOW {
                watch.accessed(cpu, world, here, &result);
            }
            done!(result)
        }};
    }
    macro_rules! amo {
        ($n:literal, $f:path) => {
            located!(atomic::amo::<$n, W, O>(cpu, world, watch, i, $f))
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
    table! { OP;
        Lui => {
            cpu.set_decoded(i.rd, imm);
            Flow::Next
        },
        Auipc => {
            cpu.set_decoded(i.rd, pc.wrapping_add(imm));
            Flow::Next
        },
        Jal => {
            let target = pc.wrapping_add(imm);
            cpu.set_decoded(i.rd, pc.wrapping_add(u64::from(i.len)));
            if MODE == FINE {
                watch.branch(true, GuestVa(target));
            }
            Flow::Jump(target)
        },
        Jalr => {
            let target = cpu.x(i.rs1).wrapping_add(imm) & !1;
            cpu.set_decoded(i.rd, pc.wrapping_add(u64::from(i.len)));
            if MODE == FINE {
                watch.branch(true, GuestVa(target));
            }
            Flow::Jump(target)
        },
        Beq => branch!(a, b, a == b),
        Bne => branch!(a, b, a != b),
        Blt => branch!(a, b, (a as i64) < b as i64),
        Bge => branch!(a, b, a as i64 >= b as i64),
        Bltu => branch!(a, b, a < b),
        Bgeu => branch!(a, b, a >= b),
        Lb => load_x!(1, i8),
        Lh => load_x!(2, i16),
        Lw => load_x!(4, i32),
        Ld => load_x!(8, u64),
        Lbu => load_x!(1, u8),
        Lhu => load_x!(2, u16),
        Lwu => load_x!(4, u32),
        Sb => store!(1, cpu.x(i.rs2)),
        Sh => store!(2, cpu.x(i.rs2)),
        Sw => store!(4, cpu.x(i.rs2)),
        Sd => store!(8, cpu.x(i.rs2)),
        Addi => imm!(int::add),
        Slti => imm!(int::slt),
        Sltiu => imm!(int::sltu),
        Xori => imm!(int::xor),
        Ori => imm!(int::or),
        Andi => imm!(int::and),
        Slli => imm!(int::sll),
        Srli => imm!(int::srl),
        Srai => imm!(int::sra),
        Add => reg!(int::add),
        Sub => reg!(int::sub),
        Sll => reg!(int::sll),
        Slt => reg!(int::slt),
        Sltu => reg!(int::sltu),
        Xor => reg!(int::xor),
        Srl => reg!(int::srl),
        Sra => reg!(int::sra),
        Or => reg!(int::or),
        And => reg!(int::and),
        Addiw => imm!(int::addw),
        Slliw => imm!(int::sllw),
        Srliw => imm!(int::srlw),
        Sraiw => imm!(int::sraw),
        Addw => reg!(int::addw),
        Subw => reg!(int::subw),
        Sllw => reg!(int::sllw),
        Srlw => reg!(int::srlw),
        Sraw => reg!(int::sraw),
        // Harts take turns and see each other's stores at once.
        Fence => Flow::Next,

        Mul => reg!(int::mul),
        Mulh => reg!(int::mulh),
        Mulhsu => reg!(int::mulhsu),
        Mulhu => reg!(int::mulhu),
        Div => reg!(int::div),
        Divu => reg!(int::divu),
        Rem => reg!(int::rem),
        Remu => reg!(int::remu),
        Mulw => reg!(int::mulw),
        Divw => reg!(int::divw),
        Divuw => reg!(int::divuw),
        Remw => reg!(int::remw),
        Remuw => reg!(int::remuw),

        LrW => located!(atomic::lr::<4, W, O>(cpu, world, watch, i)),
        LrD => located!(atomic::lr::<8, W, O>(cpu, world, watch, i)),
        ScW => located!(atomic::sc::<4, W, O>(cpu, world, watch, i)),
        ScD => located!(atomic::sc::<8, W, O>(cpu, world, watch, i)),
        AmoswapW => amo!(4, atomic::swap),
        AmoaddW => amo!(4, int::add),
        AmoxorW => amo!(4, int::xor),
        AmoandW => amo!(4, int::and),
        AmoorW => amo!(4, int::or),
        AmominW => amo!(4, bits::min),
        AmomaxW => amo!(4, bits::max),
        AmominuW => amo!(4, bits::minu),
        AmomaxuW => amo!(4, bits::maxu),
        AmoswapD => amo!(8, atomic::swap),
        AmoaddD => amo!(8, int::add),
        AmoxorD => amo!(8, int::xor),
        AmoandD => amo!(8, int::and),
        AmoorD => amo!(8, int::or),
        AmominD => amo!(8, bits::min),
        AmomaxD => amo!(8, bits::max),
        AmominuD => amo!(8, bits::minu),
        AmomaxuD => amo!(8, bits::maxu),

        Flw => load_f!(4, BOX),
        Fsw => store_f!(4),
        FmaddS => fused!(Single, host::mul_add_s, false, false),
        FmsubS => fused!(Single, host::mul_add_s, false, true),
        FnmsubS => fused!(Single, host::mul_add_s, true, false),
        FnmaddS => fused!(Single, host::mul_add_s, true, true),
        FaddS => done!(float::binary::<Single>(cpu, i, host::add_s)),
        FsubS => done!(float::binary::<Single>(cpu, i, host::sub_s)),
        FmulS => done!(float::binary::<Single>(cpu, i, host::mul_s)),
        FdivS => done!(float::binary::<Single>(cpu, i, host::div_s)),
        FsqrtS => done!(float::unary::<Single>(cpu, i, host::sqrt_s)),
        FsgnjS => done!(float::select::<Single>(cpu, i, float::sgnj::<Single>)),
        FsgnjnS => done!(float::select::<Single>(cpu, i, float::sgnjn::<Single>)),
        FsgnjxS => done!(float::select::<Single>(cpu, i, float::sgnjx::<Single>)),
        FminS => done!(float::select::<Single>(cpu, i, soft::min::<Single>)),
        FmaxS => done!(float::select::<Single>(cpu, i, soft::max::<Single>)),
        FcvtWS => done!(float::to_integer::<Single>(cpu, i, soft::to_i32::<Single>)),
        FcvtWuS => done!(float::to_integer::<Single>(cpu, i, soft::to_u32::<Single>)),
        FcvtLS => done!(float::to_integer::<Single>(cpu, i, soft::to_i64::<Single>)),
        FcvtLuS => done!(float::to_integer::<Single>(cpu, i, soft::to_u64::<Single>)),
        FmvXW => done!(float::to_bits::<4>(cpu, i)),
        FclassS => done!(float::classify::<Single>(cpu, i)),
        FeqS => done!(float::compare::<Single>(cpu, i, soft::equal::<Single>)),
        FltS => done!(float::compare::<Single>(cpu, i, soft::less::<Single>)),
        FleS => done!(float::compare::<Single>(cpu, i, soft::less_equal::<Single>)),
        FcvtSW => done!(float::from_integer::<Single>(
            cpu,
            i,
            |x, e| soft::from_i64::<Single>(x as i32 as i64, e)
        )),
        FcvtSWu => done!(float::from_integer::<Single>(
            cpu,
            i,
            |x, e| soft::from_u64::<Single>(x as u32 as u64, e)
        )),
        FcvtSL => {
            done!(float::from_integer::<Single>(cpu, i, |x, e| soft::from_i64::<Single>(
                x as i64, e
            )))
        },
        FcvtSLu => done!(float::from_integer::<Single>(cpu, i, soft::from_u64::<Single>)),
        FmvWX => done!(float::from_bits::<4>(cpu, i)),

        Fld => load_f!(8, 0),
        Fsd => store_f!(8),
        FmaddD => fused!(Double, host::mul_add_d, false, false),
        FmsubD => fused!(Double, host::mul_add_d, false, true),
        FnmsubD => fused!(Double, host::mul_add_d, true, false),
        FnmaddD => fused!(Double, host::mul_add_d, true, true),
        FaddD => done!(float::binary::<Double>(cpu, i, host::add_d)),
        FsubD => done!(float::binary::<Double>(cpu, i, host::sub_d)),
        FmulD => done!(float::binary::<Double>(cpu, i, host::mul_d)),
        FdivD => done!(float::binary::<Double>(cpu, i, host::div_d)),
        FsqrtD => done!(float::unary::<Double>(cpu, i, host::sqrt_d)),
        FsgnjD => done!(float::select::<Double>(cpu, i, float::sgnj::<Double>)),
        FsgnjnD => done!(float::select::<Double>(cpu, i, float::sgnjn::<Double>)),
        FsgnjxD => done!(float::select::<Double>(cpu, i, float::sgnjx::<Double>)),
        FminD => done!(float::select::<Double>(cpu, i, soft::min::<Double>)),
        FmaxD => done!(float::select::<Double>(cpu, i, soft::max::<Double>)),
        FcvtSD => done!(float::reformat::<Double, Single>(cpu, i)),
        FcvtDS => done!(float::reformat::<Single, Double>(cpu, i)),
        FeqD => done!(float::compare::<Double>(cpu, i, soft::equal::<Double>)),
        FltD => done!(float::compare::<Double>(cpu, i, soft::less::<Double>)),
        FleD => done!(float::compare::<Double>(cpu, i, soft::less_equal::<Double>)),
        FclassD => done!(float::classify::<Double>(cpu, i)),
        FcvtWD => done!(float::to_integer::<Double>(cpu, i, soft::to_i32::<Double>)),
        FcvtWuD => done!(float::to_integer::<Double>(cpu, i, soft::to_u32::<Double>)),
        FcvtLD => done!(float::to_integer::<Double>(cpu, i, soft::to_i64::<Double>)),
        FcvtLuD => done!(float::to_integer::<Double>(cpu, i, soft::to_u64::<Double>)),
        FcvtDW => done!(float::from_integer::<Double>(
            cpu,
            i,
            |x, e| soft::from_i64::<Double>(x as i32 as i64, e)
        )),
        FcvtDWu => done!(float::from_integer::<Double>(
            cpu,
            i,
            |x, e| soft::from_u64::<Double>(x as u32 as u64, e)
        )),
        FcvtDL => {
            done!(float::from_integer::<Double>(cpu, i, |x, e| soft::from_i64::<Double>(
                x as i64, e
            )))
        },
        FcvtDLu => done!(float::from_integer::<Double>(cpu, i, soft::from_u64::<Double>)),
        FmvXD => done!(float::to_bits::<8>(cpu, i)),
        FmvDX => done!(float::from_bits::<8>(cpu, i)),

        AddUw => reg!(bits::add_uw),
        Sh1add => reg!(bits::sh1add),
        Sh2add => reg!(bits::sh2add),
        Sh3add => reg!(bits::sh3add),
        Sh1addUw => reg!(bits::sh1add_uw),
        Sh2addUw => reg!(bits::sh2add_uw),
        Sh3addUw => reg!(bits::sh3add_uw),
        SlliUw => imm!(bits::slli_uw),
        Andn => reg!(bits::andn),
        Orn => reg!(bits::orn),
        Xnor => reg!(bits::xnor),
        Clz => one!(bits::clz),
        Ctz => one!(bits::ctz),
        Cpop => one!(bits::cpop),
        Clzw => one!(bits::clzw),
        Ctzw => one!(bits::ctzw),
        Cpopw => one!(bits::cpopw),
        Max => reg!(bits::max),
        Maxu => reg!(bits::maxu),
        Min => reg!(bits::min),
        Minu => reg!(bits::minu),
        SextB => one!(bits::sext_b),
        SextH => one!(bits::sext_h),
        ZextH => one!(bits::zext_h),
        Rol => reg!(bits::rol),
        Ror => reg!(bits::ror),
        Rori => imm!(bits::ror),
        Rolw => reg!(bits::rolw),
        Rorw => reg!(bits::rorw),
        Roriw => imm!(bits::rorw),
        OrcB => one!(bits::orc_b),
        Rev8 => one!(bits::rev8),
        Bclr => reg!(bits::bclr),
        Bclri => imm!(bits::bclr),
        Bext => reg!(bits::bext),
        Bexti => imm!(bits::bext),
        Binv => reg!(bits::binv),
        Binvi => imm!(bits::binv),
        Bset => reg!(bits::bset),
        Bseti => imm!(bits::bset),
        CzeroEqz => reg!(bits::czero_eqz),
        CzeroNez => reg!(bits::czero_nez),

        // The machine decides whether cache-block operations are allowed here.
        CboInval
        | CboClean
        | CboFlush
        | CboZero
        | FenceI
        | Ecall
        | Ebreak
        | Csrrw
        | Csrrs
        | Csrrc
        | Csrrwi
        | Csrrsi
        | Csrrci
        | Sret
        | Mret
        | Wfi
        | SfenceVma => Flow::System,
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
