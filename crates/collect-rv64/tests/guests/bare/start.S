# What bare programs have in common: the first instructions, and a way into
# other modes and back.
# SPDX-License-Identifier: MIT OR Apache-2.0

# A stack for each hart, floating point on, then `run(hart)`. What it returns is
# the verdict, which hart 0 alone tells; 0 is a pass.
        .section .text.start, "ax"
        .globl _start
_start:
        li      t0, 0x2000
        csrs    mstatus, t0
        la      t0, unexpected
        csrw    mtvec, t0
        csrr    a0, mhartid
        la      sp, stacks
        addi    t1, a0, 1
        slli    t1, t1, 14
        add     sp, sp, t1
        mv      s0, a0
        call    run
        bnez    s0, park
verdict:
        slli    a0, a0, 1
        ori     a0, a0, 1
        la      t0, tohost
        sd      a0, 0(t0)
park:   wfi
        j       park

# A trap that nobody asked for: the verdict is 1000 and its cause.
        .align  2
unexpected:
        csrr    a0, mcause
        slli    a0, a0, 8
        srli    a0, a0, 8
        addi    a0, a0, 1000
        j       verdict

# long in_mode(long mode, void *code, long a, long b): runs code(a, b) in a mode
# until it traps or returns, which is an `ecall`. The result is the cause; the
# rest is in `trap_value`, `trap_pc` and `trap_a0`. Lower modes see this program
# `mode_offset` bytes further up.
        .globl in_mode
in_mode:
        addi    sp, sp, -112
        sd      ra, 0(sp)
        sd      s0, 8(sp)
        sd      s1, 16(sp)
        sd      s2, 24(sp)
        sd      s3, 32(sp)
        sd      s4, 40(sp)
        sd      s5, 48(sp)
        sd      s6, 56(sp)
        sd      s7, 64(sp)
        sd      s8, 72(sp)
        sd      s9, 80(sp)
        sd      s10, 88(sp)
        sd      s11, 96(sp)
        la      t0, kept_sp
        sd      sp, 0(t0)
        la      t0, back
        csrw    mtvec, t0
        li      t0, 0x1800
        csrc    mstatus, t0
        slli    a0, a0, 11
        csrs    mstatus, a0
        la      t0, mode_offset
        ld      t0, 0(t0)
        add     a1, a1, t0
        csrw    mepc, a1
        la      ra, leave
        add     ra, ra, t0
        la      sp, mode_stack
        add     sp, sp, t0
        mv      a0, a2
        mv      a1, a3
        mret
leave:  ecall

        .align  2
back:   la      t0, trap_a0
        sd      a0, 0(t0)
        csrr    t1, mtval
        la      t0, trap_value
        sd      t1, 0(t0)
        csrr    t1, mepc
        la      t0, trap_pc
        sd      t1, 0(t0)
        csrr    a0, mcause
        la      t0, unexpected
        csrw    mtvec, t0
        la      t0, kept_sp
        ld      sp, 0(t0)
        ld      ra, 0(sp)
        ld      s0, 8(sp)
        ld      s1, 16(sp)
        ld      s2, 24(sp)
        ld      s3, 32(sp)
        ld      s4, 40(sp)
        ld      s5, 48(sp)
        ld      s6, 56(sp)
        ld      s7, 64(sp)
        ld      s8, 72(sp)
        ld      s9, 80(sp)
        ld      s10, 88(sp)
        ld      s11, 96(sp)
        addi    sp, sp, 112
        ret

# Accesses to try in other modes.
        .globl  do_load, do_store, do_jump
do_load:
        ld      a0, 0(a0)
        ret
do_store:
        sd      a1, 0(a0)
        ret
do_jump:
        jr      a0

        .section .data
        .align  6
        .globl tohost, trap_a0, trap_value, trap_pc, mode_offset
tohost: .dword  0
kept_sp:
        .dword  0
trap_a0:
        .dword  0
trap_value:
        .dword  0
trap_pc:
        .dword  0
mode_offset:
        .dword  0

        .section .bss
        .align  12
stacks: .space  16 << 14
        .space  4096
mode_stack:
