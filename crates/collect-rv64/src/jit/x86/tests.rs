//! Emitted bytes, read back by a disassembler that we did not write.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Decoder, DecoderOptions, Formatter as _, GasFormatter};

use super::*;

/// What `emit` wrote, as text.
fn text(emit: impl FnOnce(&mut Code)) -> String {
    let mut code = Code::default();
    emit(&mut code);
    let mut decoder = Decoder::new(64, &code.bytes, DecoderOptions::NONE);
    let mut formatter = GasFormatter::new();
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let mut line = String::new();
        formatter.format(&decoder.decode(), &mut line);
        lines.push(line);
    }
    lines.join("; ")
}

#[test]
fn moves() {
    assert_eq!(text(|c| c.mov(W64, R12, Operand::Reg(RAX))), "mov %rax,%r12");
    assert_eq!(text(|c| c.mov(W32, RCX, Operand::Mem(Mem::at(RBX, 300)))), "mov 0x12C(%rbx),%ecx");
    assert_eq!(text(|c| c.mov(W64, R9, Operand::Mem(Mem::at(R13, 0)))), "mov (%r13),%r9");
    assert_eq!(text(|c| c.mov(W64, R9, Operand::Mem(Mem::at(RSP, 8)))), "mov 8(%rsp),%r9");
    assert_eq!(text(|c| c.mov_imm(R10, 0)), "xor %r10d,%r10d");
    assert_eq!(text(|c| c.mov_imm(R10, 0x1234)), "mov $0x1234,%r10d");
    assert_eq!(text(|c| c.mov_imm(RSI, u64::MAX)), "mov $0xFFFFFFFFFFFFFFFF,%rsi");
    assert_eq!(text(|c| c.mov_imm(R8, 1 << 40)), "movabs $0x10000000000,%r8");
    assert_eq!(text(|c| c.lea(RAX, Mem::at(RBP, -8))), "lea -8(%rbp),%rax");
    assert_eq!(text(|c| c.eightfold(R9, R11, 3)), "lea 3(,%r11,8),%r9");
    assert_eq!(text(|c| c.eightfold(RDI, RDI, 1)), "lea 1(,%rdi,8),%rdi");
    assert_eq!(text(|c| c.set_bit(R10, RDX)), "bts %rdx,%r10");
    assert_eq!(text(|c| c.clear_bit(RDI, R9)), "btr %r9,%rdi");
    assert_eq!(text(|c| c.test_bit(RBP, RDX)), "bt %rdx,%rbp");
    assert_eq!(text(|c| c.lowest_bit(RDX, R9)), "bsf %r9,%rdx");
    assert_eq!(text(|c| c.turn_right(RCX, R11, 1)), "rorx $1,%r11d,%ecx");
    assert_eq!(text(|c| c.turn_right(R9, RDX, 2)), "rorx $2,%edx,%r9d");
    assert_eq!(text(|c| c.lea_word(RAX, Mem::at(R13, 4))), "lea 4(%r13),%eax");
    assert_eq!(text(|c| c.mov(W64, R9, Operand::Mem(Mem::at(RDX, 0)))), "mov (%rdx),%r9");
    assert_eq!(text(|c| c.mov(W64, R9, Operand::Mem(Mem::at(R12, 0)))), "mov (%r12),%r9");
    assert_eq!(text(|c| c.store_imm(Mem::at(RBX, 16), -1)), "movq $0xFFFFFFFFFFFFFFFF,0x10(%rbx)");
    assert_eq!(text(|c| c.store_byte(Mem::at(RBX, 16), 3)), "movb $3,0x10(%rbx)");
}

#[test]
fn loads_and_stores() {
    let at = Mem::indexed(R14, RAX, 0);
    let load = |bytes, signed| text(|c| c.load(bytes, signed, RSI, Operand::Mem(at)));
    assert_eq!(load(1, true), "movsbq (%r14,%rax),%rsi");
    assert_eq!(load(1, false), "movzbl (%r14,%rax),%esi");
    assert_eq!(load(2, true), "movswq (%r14,%rax),%rsi");
    assert_eq!(load(2, false), "movzwl (%r14,%rax),%esi");
    assert_eq!(load(4, true), "movslq (%r14,%rax),%rsi");
    assert_eq!(load(4, false), "mov (%r14,%rax),%esi");
    assert_eq!(load(8, true), "mov (%r14,%rax),%rsi");
    let store = |bytes, reg| text(|c| c.store(bytes, at, reg));
    assert_eq!(store(1, RDI), "mov %dil,(%r14,%rax)");
    assert_eq!(store(2, R11), "mov %r11w,(%r14,%rax)");
    assert_eq!(store(4, RDX), "mov %edx,(%r14,%rax)");
    assert_eq!(store(8, R8), "mov %r8,(%r14,%rax)");
    let zero = |bytes| text(|c| c.store_zero(bytes, at));
    assert_eq!(zero(1), "movb $0,(%r14,%rax)");
    assert_eq!(zero(2), "movw $0,(%r14,%rax)");
    assert_eq!(zero(4), "movl $0,(%r14,%rax)");
    assert_eq!(zero(8), "movq $0,(%r14,%rax)");
    assert_eq!(text(|c| c.add_byte(at, -1)), "addb $0xFF,(%r14,%rax)");
    let tag = Operand::Mem(Mem::indexed(R15, RCX, 8));
    assert_eq!(text(|c| c.alu_into(Alu::Cmp, tag, R9)), "cmp %r9,8(%r15,%rcx)");
    assert_eq!(text(|c| c.alu(W64, Alu::Cmp, RDX, tag)), "cmp 8(%r15,%rcx),%rdx");
}

#[test]
fn arithmetic() {
    assert_eq!(text(|c| c.alu(W64, Alu::Add, R12, Operand::Reg(RDI))), "add %rdi,%r12");
    assert_eq!(text(|c| c.alu(W32, Alu::Sub, RAX, Operand::Reg(R9))), "sub %r9d,%eax");
    assert_eq!(
        text(|c| c.alu_imm(W64, Alu::And, Operand::Reg(RAX), -2)),
        "and $0xFFFFFFFFFFFFFFFE,%rax"
    );
    assert_eq!(text(|c| c.alu_imm(W64, Alu::Cmp, Operand::Reg(R13), 1000)), "cmp $0x3E8,%r13");
    assert_eq!(text(|c| c.shift_imm(W32, Shift::Arithmetic, RAX, 7)), "sar $7,%eax");
    assert_eq!(text(|c| c.shift_imm(W32, Shift::Right, RCX, 1)), "shr $1,%ecx");
    assert_eq!(text(|c| c.shift(W64, Shift::Left, R10)), "shl %cl,%r10");
    assert_eq!(text(|c| c.shift(W32, Shift::RotateRight, RAX)), "ror %cl,%eax");
    assert_eq!(text(|c| c.imul(W64, RAX, Operand::Reg(R8))), "imul %r8,%rax");
    assert_eq!(text(|c| c.wide(W64, 7, Operand::Reg(RCX))), "idiv %rcx");
    assert_eq!(text(|c| c.wide(W32, 4, Operand::Mem(Mem::at(RBX, 8)))), "mull 8(%rbx)");
    assert_eq!(text(|c| c.extend_dividend(W64)), "cqto");
    assert_eq!(text(|c| c.extend_dividend(W32)), "cltd");
    assert_eq!(text(|c| c.byte_swap(R9)), "bswap %r9");
    assert_eq!(text(|c| c.neg(W32, RAX)), "neg %eax");
    assert_eq!(text(|c| c.not(R11)), "not %r11");
    assert_eq!(text(|c| c.test(RBP)), "test %rbp,%rbp");
    assert_eq!(text(|c| c.set(Cond::Below, RAX)), "setb %al; movzbl %al,%eax");
    assert_eq!(text(|c| c.cmov(Cond::Less, RAX, RCX)), "cmovl %rcx,%rax");
}

#[test]
fn control_flow() {
    let jump = |emit: &dyn Fn(&mut Code) -> Hole| {
        text(|c| {
            let hole = emit(c);
            c.ret();
            c.fill_here(hole);
        })
    };
    assert_eq!(jump(&|c| c.jump()), "jmp 6; ret");
    assert_eq!(jump(&|c| c.jump_if(Cond::Parity)), "jp 7; ret");
    assert_eq!(jump(&|c| c.jump_if(Cond::Greater)), "jg 7; ret");
    assert_eq!(text(|c| c.jump_mem(Mem::at(RDX, 8))), "jmpq *8(%rdx)");
    assert_eq!(text(|c| c.jump_reg(RAX)), "jmp *%rax");
    assert_eq!(text(|c| c.push(R15)), "push %r15");
    assert_eq!(text(|c| c.pop(RBX)), "pop %rbx");
}

#[test]
fn floating_point() {
    let at = Mem::at(RBX, 512);
    assert_eq!(text(|c| c.scalar(0xf2, 0x58, Xmm(1), at)), "addsd 0x200(%rbx),%xmm1");
    assert_eq!(text(|c| c.scalar(0xf3, 0x11, Xmm(0), at)), "movss %xmm0,0x200(%rbx)");
    assert_eq!(text(|c| c.scalar(0x66, 0x2e, Xmm(0), at)), "ucomisd 0x200(%rbx),%xmm0");
    assert_eq!(text(|c| c.scalar_rr(None, 0x57, Xmm(0), Xmm(0))), "xorps %xmm0,%xmm0");
    let from = (0, Operand::Reg(RAX));
    assert_eq!(text(|c| c.convert(0xf2, 0x2a, W64, from)), "cvtsi2sd %rax,%xmm0");
    let to = (0, Operand::Mem(at));
    assert_eq!(text(|c| c.convert(0xf2, 0x2c, W32, to)), "cvttsd2si 0x200(%rbx),%eax");
    let fused = |double| text(|c| c.fused(0xb9, double, (Xmm(0), Xmm(1)), at));
    assert_eq!(fused(true), "vfmadd231sd 0x200(%rbx),%xmm1,%xmm0");
    assert_eq!(fused(false), "vfmadd231ss 0x200(%rbx),%xmm1,%xmm0");
    let registers = |double| text(|c| c.fused_rr(0xb9, double, (Xmm(0), Xmm(5)), Xmm(4)));
    assert_eq!(registers(true), "vfmadd231sd %xmm4,%xmm5,%xmm0");
    assert_eq!(registers(false), "vfmadd231ss %xmm4,%xmm5,%xmm0");
    assert_eq!(text(|c| c.scalar_rr(None, 0x28, Xmm(7), Xmm(2))), "movaps %xmm2,%xmm7");
    assert_eq!(text(|c| c.control(3, at)), "stmxcsr 0x200(%rbx)");
}
