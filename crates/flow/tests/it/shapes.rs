//! Plans of small pieces of x86-64 code, by example.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_flow::{Level, Live, Piece, Plan, Region, Set, plan};
use ichnos_isa_x86::Inst;
use ichnos_trace::{MAX_STEPS, Register, Slot, Width};

use ichnos_lift::{FRAME, TAKEABLE, lift};

const RSP: Set = Set::only(Register(4));

fn region(code: &[u8], known_outside: Set) -> Region {
    let mut insns = Vec::new();
    let mut rest = code;
    let mut pc = GuestVa(0x1000);
    while !rest.is_empty() {
        let inst = Inst::decode(rest, pc).expect("an instruction");
        insns.push(lift(&inst));
        pc = inst.next_pc();
        rest = &rest[usize::from(inst.length())..];
    }
    Region {
        insns,
        entries: vec![GuestVa(0x1000)],
        takeable: TAKEABLE,
        frame: FRAME,
        known_outside,
        strange: Vec::new(),
        live_outside: Live { registers: Set::ALL, flags: 0 },
    }
}

/// Each piece's entry, and its save points: where, and registers with widths.
fn text(plan: &Plan) -> Vec<String> {
    let names = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15", "fs", "gs",
    ];
    plan.pieces
        .iter()
        .map(|piece| {
            let mut line = format!("{:x}:", piece.entry.0);
            for save in &piece.saves {
                for store in &save.stores {
                    let width = if store.width == Width::Four { 4 } else { 8 };
                    let name = names[usize::from(store.register.0)];
                    line += &format!(" {name}.{width}@{}", save.at - piece.insns.start);
                }
            }
            line
        })
        .collect()
}

#[track_caller]
fn check(code: &[u8], known_outside: Set, level: Level, expected: &[&str]) {
    let region = region(code, known_outside);
    let planned = plan(&region, &level.into(), Slot(0)).expect("it can be planned");
    assert_eq!(text(&planned), expected, "{}", level.name());
}

/// long sum(long *p, long n): the loop's base is stored once, before it.
#[test]
fn a_loop_stores_nothing() {
    let code = [
        0x31, 0xc9, // xor %ecx,%ecx
        0x48, 0x8b, 0x04, 0xcf, // 1: mov (%rdi,%rcx,8),%rax
        0x48, 0x83, 0xc1, 0x01, // add $1,%rcx
        0x48, 0x39, 0xf1, // cmp %rsi,%rcx
        0x75, 0xf3, // jne 1b
        0xc3, // ret
    ];
    check(&code, Set::EMPTY, Level::Flow, &["1000: rdi.8@0", "1002:", "100f: rsp.8@0"]);
    check(&code, RSP, Level::Flow, &["1000: rdi.8@0", "1002:", "100f:"]);
    let again = ["1000:", "1002: rcx.8@0 rdi.8@0", "100f: rsp.8@0"];
    check(&code, Set::EMPTY, Level::Superblock, &again);
}

/// Pushes and pops follow the stack pointer; a pointer loaded is stored behind the
/// load, a 32-bit one with four bytes.
#[test]
fn loads_are_stored_behind() {
    let code = [
        0x53, // push %rbx
        0x55, // push %rbp
        0x48, 0x8b, 0x5f, 0x08, // mov 8(%rdi),%rbx
        0x8b, 0x0b, // mov (%rbx),%ecx
        0x8a, 0x04, 0x0b, // mov (%rbx,%rcx),%al
        0x8b, 0x15, 0, 0, 0, 0,    // mov 0(%rip),%edx
        0x5d, // pop %rbp
        0x5b, // pop %rbx
        0xc3, // ret
    ];
    let stored = "1000: rsp.8@0 rdi.8@0 rbx.8@3 rcx.4@4";
    check(&code, Set::EMPTY, Level::Flow, &[stored]);
    check(&code, Set::EMPTY, Level::Block, &[stored]);
    check(&code, RSP, Level::Flow, &["1000: rdi.8@0 rbx.8@3 rcx.4@4"]);
}

/// if (c) x; both ways lead to the same place, so x is a piece of its own: replay
/// could not tell otherwise whether it was executed.
#[test]
fn ways_out_stay_distinct() {
    let code = [
        0x85, 0xc0, // test %eax,%eax
        0x74, 0x03, // je 1f
        0x48, 0x89, 0x07, // mov %rax,(%rdi)
        0x90, // 1: nop
        0xc3, // ret
    ];
    let expected = ["1000:", "1004: rdi.8@0", "1007: rsp.8@0"];
    check(&code, Set::EMPTY, Level::Flow, &expected);
}

/// A superblock stores for all its blocks at its entry, and ends where something
/// loaded behind an exit would have to be stored.
#[test]
fn superblocks_store_early() {
    let code = [
        0x48, 0x8b, 0x07, // mov (%rdi),%rax
        0x85, 0xc9, // test %ecx,%ecx
        0x74, 0x10, // je out
        0x48, 0x8b, 0x16, // mov (%rsi),%rdx
        0x85, 0xd2, // test %edx,%edx
        0x74, 0x0a, // je out + 1
        0x48, 0x8b, 0x1a, // mov (%rdx),%rbx
        0x48, 0x8b, 0x1b, // mov (%rbx),%rbx
        0x0f, 0x0b, // ud2
        0x90, // (padding)
        0xcc, // out: int3
        0xcc,
    ];
    let region = region(&code, Set::EMPTY);
    let planned = plan(&region, &Level::Flow.into(), Slot(0)).expect("it can be planned");
    let lines = text(&planned);
    assert_eq!(lines[..2], ["1000: rsi.8@0 rdi.8@0", "100e: rdx.8@0 rbx.8@1"]);
}

#[test]
fn what_cannot_be_planned_is_told() {
    let to_next = region(&[0x75, 0x00, 0xc3], Set::EMPTY);
    let error = plan(&to_next, &Level::Flow.into(), Slot(0)).expect_err("a branch to the next");
    assert_eq!(
        error.to_string(),
        "the conditional branch at 0x1000 targets the instruction after it"
    );
    let mut twice = region(&[0x90, 0xc3], Set::EMPTY);
    twice.insns.swap(0, 1);
    let error = plan(&twice, &Level::None.into(), Slot(0)).expect_err("out of order");
    assert!(error.to_string().contains("starts before"), "{error}");
    let mut alien = region(&[0x8b, 0x07, 0xc3], Set::EMPTY);
    alien.takeable = RSP;
    let error = plan(&alien, &Level::Flow.into(), Slot(0)).expect_err("rdi cannot be stored");
    assert!(error.to_string().contains("register 7, which cannot be stored"), "{error}");
}

#[test]
fn nothing_is_planned_as_nothing() {
    for level in Level::ALL {
        let planned = plan(&Region::default(), &level.into(), Slot(7)).expect("it can be planned");
        assert_eq!((planned.pieces.len(), planned.next_slot), (0, Slot(7)));
    }
}

/// Unrolled code is cut where the format wants it, and stays known across the cut.
#[test]
fn long_code_is_cut() {
    let code = [0x48, 0x01, 0x47, 0x08].repeat(3000); // add %rax,8(%rdi)
    let region = region(&code, Set::EMPTY);
    for level in Level::ALL {
        let planned = plan(&region, &level.into(), Slot(0)).expect("it can be planned");
        assert!(planned.pieces.iter().all(|piece| piece.steps.len() <= MAX_STEPS));
        let words: usize = planned.pieces.iter().map(Piece::words).sum();
        match level {
            Level::None => assert_eq!(words, 3000),
            Level::Flow => assert_eq!(words, 1),
            // One register, once in each piece.
            _ => assert!(words <= planned.pieces.len(), "{}: {words}", level.name()),
        }
    }
}

#[test]
fn levels_have_names() {
    for level in Level::ALL {
        assert_eq!(Level::from_name(level.name()), Some(level));
    }
    assert_eq!(Level::from_name("all"), None);
}
