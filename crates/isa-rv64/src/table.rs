//! The table of 32-bit instructions: one line each, from which everything else
//! in this crate derives. No two lines match the same word; `tests/table.rs`
//! proves it.
//!
//! Columns: operation, mnemonic, the bits that must be set, the bits that are
//! looked at, operand format, what it does, bytes of memory it touches,
//! extension.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::format::Format;

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The operation.
    pub op: Op,
    /// The assembler's name for it.
    pub name: &'static str,
    /// The bits of `mask` that are set in this instruction.
    pub bits: u32,
    /// The bits that tell this instruction from others.
    pub mask: u32,
    /// Which operands stand where.
    pub format: Format,
    /// What it does, as far as a tracer cares.
    pub class: Class,
    /// Bytes of memory it touches; 0 for none.
    pub size: u8,
    /// The extension it belongs to.
    pub ext: Ext,
}

/// What an instruction does, as far as a tracer cares.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Computes on registers.
    Alu,
    /// Reads memory.
    Load,
    /// Writes memory.
    Store,
    /// Reads and writes memory in one step.
    Amo,
    /// Reads memory and reserves it.
    LoadReserved,
    /// Writes memory if the reservation holds.
    StoreConditional,
    /// Branches conditionally.
    Branch,
    /// Jumps to a fixed place and links.
    Jal,
    /// Jumps to a computed place and links.
    Jalr,
    /// Calls the execution environment.
    Ecall,
    /// Stops for a debugger.
    Ebreak,
    /// Returns from a trap.
    TrapReturn,
    /// Waits for an interrupt.
    Wait,
    /// Orders memory, or drops cached translations or instructions.
    Fence,
    /// Reads or writes a control and status register.
    Csr,
    /// Writes back or drops a cache block.
    CacheBlock,
    /// Zeroes a cache block.
    CacheZero,
}

/// An extension of the instruction set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "these are the architecture's own names")]
pub enum Ext {
    I,
    M,
    A,
    F,
    D,
    Zicsr,
    Zifencei,
    Zba,
    Zbb,
    Zbs,
    Zicond,
    Zicbom,
    Zicboz,
    Priv,
}

macro_rules! instructions {
    ($($op:ident $name:literal $bits:literal $mask:literal $format:ident $class:ident $size:literal $ext:ident;)*) => {
        /// An operation: one variant per line of the table.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "these are the architecture's own names")]
        pub enum Op { $($op,)* }

        /// All 32-bit instructions, indexed by operation.
        pub const TABLE: &[Row] = &[$(Row {
            op: Op::$op, name: $name, bits: $bits, mask: $mask,
            format: Format::$format, class: Class::$class, size: $size, ext: Ext::$ext,
        },)*];
    };
}

instructions! {
    Lui      "lui"       0x0000_0037 0x0000_007f U       Alu  0 I;
    Auipc    "auipc"     0x0000_0017 0x0000_007f U       Alu  0 I;
    Jal      "jal"       0x0000_006f 0x0000_007f J       Jal  0 I;
    Jalr     "jalr"      0x0000_0067 0x0000_707f Jalr    Jalr 0 I;
    Beq      "beq"       0x0000_0063 0x0000_707f B       Branch 0 I;
    Bne      "bne"       0x0000_1063 0x0000_707f B       Branch 0 I;
    Blt      "blt"       0x0000_4063 0x0000_707f B       Branch 0 I;
    Bge      "bge"       0x0000_5063 0x0000_707f B       Branch 0 I;
    Bltu     "bltu"      0x0000_6063 0x0000_707f B       Branch 0 I;
    Bgeu     "bgeu"      0x0000_7063 0x0000_707f B       Branch 0 I;
    Lb       "lb"        0x0000_0003 0x0000_707f L       Load 1 I;
    Lh       "lh"        0x0000_1003 0x0000_707f L       Load 2 I;
    Lw       "lw"        0x0000_2003 0x0000_707f L       Load 4 I;
    Ld       "ld"        0x0000_3003 0x0000_707f L       Load 8 I;
    Lbu      "lbu"       0x0000_4003 0x0000_707f L       Load 1 I;
    Lhu      "lhu"       0x0000_5003 0x0000_707f L       Load 2 I;
    Lwu      "lwu"       0x0000_6003 0x0000_707f L       Load 4 I;
    Sb       "sb"        0x0000_0023 0x0000_707f S       Store 1 I;
    Sh       "sh"        0x0000_1023 0x0000_707f S       Store 2 I;
    Sw       "sw"        0x0000_2023 0x0000_707f S       Store 4 I;
    Sd       "sd"        0x0000_3023 0x0000_707f S       Store 8 I;
    Addi     "addi"      0x0000_0013 0x0000_707f I       Alu  0 I;
    Slti     "slti"      0x0000_2013 0x0000_707f I       Alu  0 I;
    Sltiu    "sltiu"     0x0000_3013 0x0000_707f I       Alu  0 I;
    Xori     "xori"      0x0000_4013 0x0000_707f I       Alu  0 I;
    Ori      "ori"       0x0000_6013 0x0000_707f I       Alu  0 I;
    Andi     "andi"      0x0000_7013 0x0000_707f I       Alu  0 I;
    Slli     "slli"      0x0000_1013 0xfc00_707f Sh6     Alu  0 I;
    Srli     "srli"      0x0000_5013 0xfc00_707f Sh6     Alu  0 I;
    Srai     "srai"      0x4000_5013 0xfc00_707f Sh6     Alu  0 I;
    Add      "add"       0x0000_0033 0xfe00_707f R       Alu  0 I;
    Sub      "sub"       0x4000_0033 0xfe00_707f R       Alu  0 I;
    Sll      "sll"       0x0000_1033 0xfe00_707f R       Alu  0 I;
    Slt      "slt"       0x0000_2033 0xfe00_707f R       Alu  0 I;
    Sltu     "sltu"      0x0000_3033 0xfe00_707f R       Alu  0 I;
    Xor      "xor"       0x0000_4033 0xfe00_707f R       Alu  0 I;
    Srl      "srl"       0x0000_5033 0xfe00_707f R       Alu  0 I;
    Sra      "sra"       0x4000_5033 0xfe00_707f R       Alu  0 I;
    Or       "or"        0x0000_6033 0xfe00_707f R       Alu  0 I;
    And      "and"       0x0000_7033 0xfe00_707f R       Alu  0 I;
    Addiw    "addiw"     0x0000_001b 0x0000_707f I       Alu  0 I;
    Slliw    "slliw"     0x0000_101b 0xfe00_707f Sh5     Alu  0 I;
    Srliw    "srliw"     0x0000_501b 0xfe00_707f Sh5     Alu  0 I;
    Sraiw    "sraiw"     0x4000_501b 0xfe00_707f Sh5     Alu  0 I;
    Addw     "addw"      0x0000_003b 0xfe00_707f R       Alu  0 I;
    Subw     "subw"      0x4000_003b 0xfe00_707f R       Alu  0 I;
    Sllw     "sllw"      0x0000_103b 0xfe00_707f R       Alu  0 I;
    Srlw     "srlw"      0x0000_503b 0xfe00_707f R       Alu  0 I;
    Sraw     "sraw"      0x4000_503b 0xfe00_707f R       Alu  0 I;
    Fence    "fence"     0x0000_000f 0x0000_707f Fence   Fence 0 I;
    Ecall    "ecall"     0x0000_0073 0xffff_ffff None    Ecall 0 I;
    Ebreak   "ebreak"    0x0010_0073 0xffff_ffff None    Ebreak 0 I;
    FenceI   "fence.i"   0x0000_100f 0x0000_707f Ignored Fence 0 Zifencei;

    Csrrw    "csrrw"     0x0000_1073 0x0000_707f Csr     Csr  0 Zicsr;
    Csrrs    "csrrs"     0x0000_2073 0x0000_707f Csr     Csr  0 Zicsr;
    Csrrc    "csrrc"     0x0000_3073 0x0000_707f Csr     Csr  0 Zicsr;
    Csrrwi   "csrrwi"    0x0000_5073 0x0000_707f CsrI    Csr  0 Zicsr;
    Csrrsi   "csrrsi"    0x0000_6073 0x0000_707f CsrI    Csr  0 Zicsr;
    Csrrci   "csrrci"    0x0000_7073 0x0000_707f CsrI    Csr  0 Zicsr;

    Mul      "mul"       0x0200_0033 0xfe00_707f R       Alu  0 M;
    Mulh     "mulh"      0x0200_1033 0xfe00_707f R       Alu  0 M;
    Mulhsu   "mulhsu"    0x0200_2033 0xfe00_707f R       Alu  0 M;
    Mulhu    "mulhu"     0x0200_3033 0xfe00_707f R       Alu  0 M;
    Div      "div"       0x0200_4033 0xfe00_707f R       Alu  0 M;
    Divu     "divu"      0x0200_5033 0xfe00_707f R       Alu  0 M;
    Rem      "rem"       0x0200_6033 0xfe00_707f R       Alu  0 M;
    Remu     "remu"      0x0200_7033 0xfe00_707f R       Alu  0 M;
    Mulw     "mulw"      0x0200_003b 0xfe00_707f R       Alu  0 M;
    Divw     "divw"      0x0200_403b 0xfe00_707f R       Alu  0 M;
    Divuw    "divuw"     0x0200_503b 0xfe00_707f R       Alu  0 M;
    Remw     "remw"      0x0200_603b 0xfe00_707f R       Alu  0 M;
    Remuw    "remuw"     0x0200_703b 0xfe00_707f R       Alu  0 M;

    LrW      "lr.w"      0x1000_202f 0xf9f0_707f Lr      LoadReserved 4 A;
    ScW      "sc.w"      0x1800_202f 0xf800_707f Amo     StoreConditional 4 A;
    AmoswapW "amoswap.w" 0x0800_202f 0xf800_707f Amo     Amo  4 A;
    AmoaddW  "amoadd.w"  0x0000_202f 0xf800_707f Amo     Amo  4 A;
    AmoxorW  "amoxor.w"  0x2000_202f 0xf800_707f Amo     Amo  4 A;
    AmoandW  "amoand.w"  0x6000_202f 0xf800_707f Amo     Amo  4 A;
    AmoorW   "amoor.w"   0x4000_202f 0xf800_707f Amo     Amo  4 A;
    AmominW  "amomin.w"  0x8000_202f 0xf800_707f Amo     Amo  4 A;
    AmomaxW  "amomax.w"  0xa000_202f 0xf800_707f Amo     Amo  4 A;
    AmominuW "amominu.w" 0xc000_202f 0xf800_707f Amo     Amo  4 A;
    AmomaxuW "amomaxu.w" 0xe000_202f 0xf800_707f Amo     Amo  4 A;
    LrD      "lr.d"      0x1000_302f 0xf9f0_707f Lr      LoadReserved 8 A;
    ScD      "sc.d"      0x1800_302f 0xf800_707f Amo     StoreConditional 8 A;
    AmoswapD "amoswap.d" 0x0800_302f 0xf800_707f Amo     Amo  8 A;
    AmoaddD  "amoadd.d"  0x0000_302f 0xf800_707f Amo     Amo  8 A;
    AmoxorD  "amoxor.d"  0x2000_302f 0xf800_707f Amo     Amo  8 A;
    AmoandD  "amoand.d"  0x6000_302f 0xf800_707f Amo     Amo  8 A;
    AmoorD   "amoor.d"   0x4000_302f 0xf800_707f Amo     Amo  8 A;
    AmominD  "amomin.d"  0x8000_302f 0xf800_707f Amo     Amo  8 A;
    AmomaxD  "amomax.d"  0xa000_302f 0xf800_707f Amo     Amo  8 A;
    AmominuD "amominu.d" 0xc000_302f 0xf800_707f Amo     Amo  8 A;
    AmomaxuD "amomaxu.d" 0xe000_302f 0xf800_707f Amo     Amo  8 A;

    Flw      "flw"       0x0000_2007 0x0000_707f FL      Load 4 F;
    Fsw      "fsw"       0x0000_2027 0x0000_707f FS      Store 4 F;
    FmaddS   "fmadd.s"   0x0000_0043 0x0600_007f FR4     Alu  0 F;
    FmsubS   "fmsub.s"   0x0000_0047 0x0600_007f FR4     Alu  0 F;
    FnmsubS  "fnmsub.s"  0x0000_004b 0x0600_007f FR4     Alu  0 F;
    FnmaddS  "fnmadd.s"  0x0000_004f 0x0600_007f FR4     Alu  0 F;
    FaddS    "fadd.s"    0x0000_0053 0xfe00_007f FRRm    Alu  0 F;
    FsubS    "fsub.s"    0x0800_0053 0xfe00_007f FRRm    Alu  0 F;
    FmulS    "fmul.s"    0x1000_0053 0xfe00_007f FRRm    Alu  0 F;
    FdivS    "fdiv.s"    0x1800_0053 0xfe00_007f FRRm    Alu  0 F;
    FsqrtS   "fsqrt.s"   0x5800_0053 0xfff0_007f FR1Rm   Alu  0 F;
    FsgnjS   "fsgnj.s"   0x2000_0053 0xfe00_707f FR      Alu  0 F;
    FsgnjnS  "fsgnjn.s"  0x2000_1053 0xfe00_707f FR      Alu  0 F;
    FsgnjxS  "fsgnjx.s"  0x2000_2053 0xfe00_707f FR      Alu  0 F;
    FminS    "fmin.s"    0x2800_0053 0xfe00_707f FR      Alu  0 F;
    FmaxS    "fmax.s"    0x2800_1053 0xfe00_707f FR      Alu  0 F;
    FcvtWS   "fcvt.w.s"  0xc000_0053 0xfff0_007f FtoXRm  Alu  0 F;
    FcvtWuS  "fcvt.wu.s" 0xc010_0053 0xfff0_007f FtoXRm  Alu  0 F;
    FcvtLS   "fcvt.l.s"  0xc020_0053 0xfff0_007f FtoXRm  Alu  0 F;
    FcvtLuS  "fcvt.lu.s" 0xc030_0053 0xfff0_007f FtoXRm  Alu  0 F;
    FmvXW    "fmv.x.w"   0xe000_0053 0xfff0_707f FtoX    Alu  0 F;
    FclassS  "fclass.s"  0xe000_1053 0xfff0_707f FtoX    Alu  0 F;
    FeqS     "feq.s"     0xa000_2053 0xfe00_707f FCmp    Alu  0 F;
    FltS     "flt.s"     0xa000_1053 0xfe00_707f FCmp    Alu  0 F;
    FleS     "fle.s"     0xa000_0053 0xfe00_707f FCmp    Alu  0 F;
    FcvtSW   "fcvt.s.w"  0xd000_0053 0xfff0_007f XtoFRm  Alu  0 F;
    FcvtSWu  "fcvt.s.wu" 0xd010_0053 0xfff0_007f XtoFRm  Alu  0 F;
    FcvtSL   "fcvt.s.l"  0xd020_0053 0xfff0_007f XtoFRm  Alu  0 F;
    FcvtSLu  "fcvt.s.lu" 0xd030_0053 0xfff0_007f XtoFRm  Alu  0 F;
    FmvWX    "fmv.w.x"   0xf000_0053 0xfff0_707f XtoF    Alu  0 F;

    Fld      "fld"       0x0000_3007 0x0000_707f FL      Load 8 D;
    Fsd      "fsd"       0x0000_3027 0x0000_707f FS      Store 8 D;
    FmaddD   "fmadd.d"   0x0200_0043 0x0600_007f FR4     Alu  0 D;
    FmsubD   "fmsub.d"   0x0200_0047 0x0600_007f FR4     Alu  0 D;
    FnmsubD  "fnmsub.d"  0x0200_004b 0x0600_007f FR4     Alu  0 D;
    FnmaddD  "fnmadd.d"  0x0200_004f 0x0600_007f FR4     Alu  0 D;
    FaddD    "fadd.d"    0x0200_0053 0xfe00_007f FRRm    Alu  0 D;
    FsubD    "fsub.d"    0x0a00_0053 0xfe00_007f FRRm    Alu  0 D;
    FmulD    "fmul.d"    0x1200_0053 0xfe00_007f FRRm    Alu  0 D;
    FdivD    "fdiv.d"    0x1a00_0053 0xfe00_007f FRRm    Alu  0 D;
    FsqrtD   "fsqrt.d"   0x5a00_0053 0xfff0_007f FR1Rm   Alu  0 D;
    FsgnjD   "fsgnj.d"   0x2200_0053 0xfe00_707f FR      Alu  0 D;
    FsgnjnD  "fsgnjn.d"  0x2200_1053 0xfe00_707f FR      Alu  0 D;
    FsgnjxD  "fsgnjx.d"  0x2200_2053 0xfe00_707f FR      Alu  0 D;
    FminD    "fmin.d"    0x2a00_0053 0xfe00_707f FR      Alu  0 D;
    FmaxD    "fmax.d"    0x2a00_1053 0xfe00_707f FR      Alu  0 D;
    FcvtSD   "fcvt.s.d"  0x4010_0053 0xfff0_007f FR1Rm   Alu  0 D;
    FcvtDS   "fcvt.d.s"  0x4200_0053 0xfff0_007f FR1Exact Alu 0 D;
    FeqD     "feq.d"     0xa200_2053 0xfe00_707f FCmp    Alu  0 D;
    FltD     "flt.d"     0xa200_1053 0xfe00_707f FCmp    Alu  0 D;
    FleD     "fle.d"     0xa200_0053 0xfe00_707f FCmp    Alu  0 D;
    FclassD  "fclass.d"  0xe200_1053 0xfff0_707f FtoX    Alu  0 D;
    FcvtWD   "fcvt.w.d"  0xc200_0053 0xfff0_007f FtoXRm  Alu  0 D;
    FcvtWuD  "fcvt.wu.d" 0xc210_0053 0xfff0_007f FtoXRm  Alu  0 D;
    FcvtLD   "fcvt.l.d"  0xc220_0053 0xfff0_007f FtoXRm  Alu  0 D;
    FcvtLuD  "fcvt.lu.d" 0xc230_0053 0xfff0_007f FtoXRm  Alu  0 D;
    FcvtDW   "fcvt.d.w"  0xd200_0053 0xfff0_007f XtoFExact Alu 0 D;
    FcvtDWu  "fcvt.d.wu" 0xd210_0053 0xfff0_007f XtoFExact Alu 0 D;
    FcvtDL   "fcvt.d.l"  0xd220_0053 0xfff0_007f XtoFRm  Alu  0 D;
    FcvtDLu  "fcvt.d.lu" 0xd230_0053 0xfff0_007f XtoFRm  Alu  0 D;
    FmvXD    "fmv.x.d"   0xe200_0053 0xfff0_707f FtoX    Alu  0 D;
    FmvDX    "fmv.d.x"   0xf200_0053 0xfff0_707f XtoF    Alu  0 D;

    AddUw    "add.uw"    0x0800_003b 0xfe00_707f R       Alu  0 Zba;
    Sh1add   "sh1add"    0x2000_2033 0xfe00_707f R       Alu  0 Zba;
    Sh2add   "sh2add"    0x2000_4033 0xfe00_707f R       Alu  0 Zba;
    Sh3add   "sh3add"    0x2000_6033 0xfe00_707f R       Alu  0 Zba;
    Sh1addUw "sh1add.uw" 0x2000_203b 0xfe00_707f R       Alu  0 Zba;
    Sh2addUw "sh2add.uw" 0x2000_403b 0xfe00_707f R       Alu  0 Zba;
    Sh3addUw "sh3add.uw" 0x2000_603b 0xfe00_707f R       Alu  0 Zba;
    SlliUw   "slli.uw"   0x0800_101b 0xfc00_707f Sh6     Alu  0 Zba;

    Andn     "andn"      0x4000_7033 0xfe00_707f R       Alu  0 Zbb;
    Orn      "orn"       0x4000_6033 0xfe00_707f R       Alu  0 Zbb;
    Xnor     "xnor"      0x4000_4033 0xfe00_707f R       Alu  0 Zbb;
    Clz      "clz"       0x6000_1013 0xfff0_707f R1      Alu  0 Zbb;
    Ctz      "ctz"       0x6010_1013 0xfff0_707f R1      Alu  0 Zbb;
    Cpop     "cpop"      0x6020_1013 0xfff0_707f R1      Alu  0 Zbb;
    Clzw     "clzw"      0x6000_101b 0xfff0_707f R1      Alu  0 Zbb;
    Ctzw     "ctzw"      0x6010_101b 0xfff0_707f R1      Alu  0 Zbb;
    Cpopw    "cpopw"     0x6020_101b 0xfff0_707f R1      Alu  0 Zbb;
    Max      "max"       0x0a00_6033 0xfe00_707f R       Alu  0 Zbb;
    Maxu     "maxu"      0x0a00_7033 0xfe00_707f R       Alu  0 Zbb;
    Min      "min"       0x0a00_4033 0xfe00_707f R       Alu  0 Zbb;
    Minu     "minu"      0x0a00_5033 0xfe00_707f R       Alu  0 Zbb;
    SextB    "sext.b"    0x6040_1013 0xfff0_707f R1      Alu  0 Zbb;
    SextH    "sext.h"    0x6050_1013 0xfff0_707f R1      Alu  0 Zbb;
    ZextH    "zext.h"    0x0800_403b 0xfff0_707f R1      Alu  0 Zbb;
    Rol      "rol"       0x6000_1033 0xfe00_707f R       Alu  0 Zbb;
    Ror      "ror"       0x6000_5033 0xfe00_707f R       Alu  0 Zbb;
    Rori     "rori"      0x6000_5013 0xfc00_707f Sh6     Alu  0 Zbb;
    Rolw     "rolw"      0x6000_103b 0xfe00_707f R       Alu  0 Zbb;
    Rorw     "rorw"      0x6000_503b 0xfe00_707f R       Alu  0 Zbb;
    Roriw    "roriw"     0x6000_501b 0xfe00_707f Sh5     Alu  0 Zbb;
    OrcB     "orc.b"     0x2870_5013 0xfff0_707f R1      Alu  0 Zbb;
    Rev8     "rev8"      0x6b80_5013 0xfff0_707f R1      Alu  0 Zbb;

    Bclr     "bclr"      0x4800_1033 0xfe00_707f R       Alu  0 Zbs;
    Bclri    "bclri"     0x4800_1013 0xfc00_707f Sh6     Alu  0 Zbs;
    Bext     "bext"      0x4800_5033 0xfe00_707f R       Alu  0 Zbs;
    Bexti    "bexti"     0x4800_5013 0xfc00_707f Sh6     Alu  0 Zbs;
    Binv     "binv"      0x6800_1033 0xfe00_707f R       Alu  0 Zbs;
    Binvi    "binvi"     0x6800_1013 0xfc00_707f Sh6     Alu  0 Zbs;
    Bset     "bset"      0x2800_1033 0xfe00_707f R       Alu  0 Zbs;
    Bseti    "bseti"     0x2800_1013 0xfc00_707f Sh6     Alu  0 Zbs;

    CzeroEqz "czero.eqz" 0x0e00_5033 0xfe00_707f R       Alu  0 Zicond;
    CzeroNez "czero.nez" 0x0e00_7033 0xfe00_707f R       Alu  0 Zicond;

    CboInval "cbo.inval" 0x0000_200f 0xfff0_7fff Cbo     CacheBlock 64 Zicbom;
    CboClean "cbo.clean" 0x0010_200f 0xfff0_7fff Cbo     CacheBlock 64 Zicbom;
    CboFlush "cbo.flush" 0x0020_200f 0xfff0_7fff Cbo     CacheBlock 64 Zicbom;
    CboZero  "cbo.zero"  0x0040_200f 0xfff0_7fff Cbo     CacheZero 64 Zicboz;

    Sret     "sret"      0x1020_0073 0xffff_ffff None    TrapReturn 0 Priv;
    Mret     "mret"      0x3020_0073 0xffff_ffff None    TrapReturn 0 Priv;
    Wfi      "wfi"       0x1050_0073 0xffff_ffff None    Wait 0 Priv;
    SfenceVma "sfence.vma" 0x1200_0073 0xfe00_7fff Sfence Fence 0 Priv;
}

impl Op {
    /// How many operations there are.
    pub const COUNT: usize = TABLE.len();

    /// This operation's line of the table.
    #[inline]
    #[must_use]
    pub const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}
