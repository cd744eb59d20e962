//! Real code, really executed: a program is stepped through by ptrace, the plan's
//! save points store from the registers seen, and replay must give the addresses
//! that each instruction used, at every level.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ichnos_base::{GuestVa, Record};
use ichnos_flow::{Control, Effect, Level, Live, Options, Plan, Region, Set, plan};
use ichnos_isa_x86::{Gpr, Inst, Regs, Segment, accesses};
use ichnos_trace::{RefKind, Register, Width};

use crate::program::{Did, Word};
use crate::real::instruction;
use crate::replayer::replay_from;
use ichnos_lift::{FRAME, TAKEABLE, lift};

const RSP: Register = Register(4);

/// The registers before one instruction.
struct Row([u64; 19]);

impl Row {
    fn pc(&self) -> GuestVa {
        GuestVa(self.0[0])
    }

    fn register(&self, register: Register) -> u64 {
        self.0[1 + usize::from(register.0)]
    }
}

impl Regs for Row {
    fn gpr(&self, reg: Gpr) -> u64 {
        self.0[1 + usize::from(reg.number())]
    }
    fn segment_base(&self, segment: Segment) -> GuestVa {
        GuestVa(self.0[if segment == Segment::Fs { 17 } else { 18 }])
    }
    fn rflags(&self) -> u64 {
        0
    }
    fn vector(&self, _: u8) -> [u8; 64] {
        [0; 64]
    }
    fn opmask(&self, _: u8) -> u64 {
        0
    }
}

fn build(source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(source);
    let name = format!("{}{}", source.file_stem().unwrap().display(), flags.concat());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace(['/', ' '], "_"));
    // Another test may be running this very program, and what runs cannot be written.
    static BUILDS: AtomicU32 = AtomicU32::new(0);
    let own = program.with_extension(format!("own{}", BUILDS.fetch_add(1, Relaxed)));
    let status = Command::new("gcc").args(flags).arg("-o").arg(&own).arg(&source).status();
    assert!(status.expect("gcc starts").success(), "{} can be built", source.display());
    std::fs::rename(&own, &program).expect("the program can be put in place");
    program
}

fn steps(program: &Path) -> Vec<Row> {
    let stepper = build("step.c", &["-O1"]);
    let out = Command::new(stepper).arg(program).arg("60000").output().expect("the stepper starts");
    assert!(out.status.success());
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let row = |bytes: &[u8]| Row(core::array::from_fn(|i| word(&bytes[8 * i..8 * i + 8])));
    out.stdout.chunks_exact(19 * 8).map(row).collect()
}

/// A program's functions, as objdump tells them, with every branch from one into
/// another an entry.
struct Program {
    insts: Vec<Inst>,
    regions: Vec<Region>,
}

impl Program {
    fn read(file: &Path, known_outside: Set) -> Self {
        let out = Command::new("objdump").args(["-d", "-w", "-j", ".text"]).arg(file).output();
        let text = String::from_utf8(out.expect("objdump starts").stdout).expect("text");
        let (mut insts, mut regions) = (Vec::new(), Vec::<Region>::new());
        for line in text.lines() {
            if line.ends_with(">:") {
                regions.push(Region {
                    takeable: TAKEABLE,
                    frame: FRAME,
                    known_outside,
                    live_outside: Live { registers: Set::ALL, flags: 0xff },
                    ..Region::default()
                });
            }
            if let (Some(region), Some(inst)) = (regions.last_mut(), instruction(line)) {
                region.insns.push(lift(&inst));
                insts.push(inst);
            }
        }
        regions.retain(|region| !region.insns.is_empty());
        let targets: Vec<GuestVa> = insts.iter().filter_map(Inst::target).collect();
        for region in &mut regions {
            let (first, last) = (region.insns[0].pc, region.insns[region.insns.len() - 1].pc);
            let inside = |pc: &GuestVa| region.insns.iter().any(|insn| insn.pc == *pc);
            let own: Vec<GuestVa> = region
                .insns
                .iter()
                .filter_map(|insn| match insn.control {
                    Control::Jump(target) | Control::Cond(target) => Some(target),
                    _ => None,
                })
                .collect();
            let foreign =
                targets.iter().filter(|t| **t >= first && **t <= last && !own.contains(t));
            region.entries = foreign.copied().filter(inside).chain([first]).collect();
        }
        Self { insts, regions }
    }

    fn plan(&self, options: &Options) -> Plan {
        let mut all = Plan::default();
        let mut base = 0;
        for region in &self.regions {
            let mut planned = plan(region, options, all.next_slot).expect("it can be planned");
            for piece in &mut planned.pieces {
                piece.insns = piece.insns.start + base..piece.insns.end + base;
                piece.saves.iter_mut().for_each(|save| save.at += base);
            }
            base += region.insns.len();
            all.next_slot = planned.next_slot;
            all.pieces.append(&mut planned.pieces);
        }
        all
    }

    fn insn(&self, i: usize) -> &ichnos_flow::Insn {
        let mut i = i;
        for region in &self.regions {
            if let Some(insn) = region.insns.get(i) {
                return insn;
            }
            i -= region.insns.len();
        }
        panic!("an instruction of the program")
    }
}

/// What was done, and the words that the plan's code would have stored.
fn run(program: &Program, plan: &Plan, rows: &[Row]) -> (Vec<Did>, Vec<Word>, usize) {
    let (mut dids, mut words, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut inside = None;
    for (n, row) in rows.iter().enumerate() {
        let i =
            program.insts.binary_search_by(|inst| inst.pc().cmp(&row.pc())).expect("known code");
        let inst = &program.insts[i];
        let piece = match plan.pieces.binary_search_by(|piece| piece.insns.start.cmp(&i)) {
            Ok(piece) => {
                words.push(Word::Piece(piece));
                bytes += 4;
                piece
            }
            Err(_) => inside.expect("control comes in at a piece's entry"),
        };
        for store in plan.pieces[piece].saves.iter().filter(|s| s.at == i).flat_map(|s| &s.stores) {
            let value = row.register(store.register);
            let four = store.width == Width::Four;
            bytes += if four { 4 } else { 8 };
            words.push(Word::Value(if four { value & 0xffff_ffff } else { value }));
        }
        let next = rows.get(n + 1).map(Row::pc);
        dids.push(did(inst, program.insn(i), row, next));
        inside = (next == Some(inst.next_pc())).then_some(piece);
    }
    (dids, words, bytes)
}

fn did(inst: &Inst, insn: &ichnos_flow::Insn, row: &Row, next: Option<GuestVa>) -> Did {
    let mut records = Vec::new();
    if !insn.effects.contains(&Effect::Flex) {
        accesses(inst, row, &mut records).expect("all is given");
    }
    let refs = records.iter().filter_map(|record| match record {
        Record::Load { addr, .. } => Some((RefKind::Load, addr.0)),
        Record::Store { addr, .. } => Some((RefKind::Store, addr.0)),
        _ => None,
    });
    let taken = match insn.control {
        Control::Cond(target) => Some(next == Some(target)),
        _ => None,
    };
    Did { pc: inst.pc(), refs: refs.collect(), taken }
}

/// Checks every level on a build of the guest; the bytes stored at each.
fn check(flags: &[&str], known_outside: Set) -> (usize, [usize; 5]) {
    let common = ["-nostdlib", "-static", "-fno-jump-tables", "-fno-stack-protector"];
    let file = build("guest.c", &[&common[..], flags].concat());
    let rows = steps(&file);
    assert!(rows.len() > 20_000, "only {} instructions", rows.len());
    let program = Program::read(&file, known_outside);
    let bytes = Level::ALL.map(|level| {
        let planned = program.plan(&level.into());
        let (done, words, bytes) = run(&program, &planned, &rows);
        let replayed = replay_from(&planned, &words, &[(RSP, rows[0].register(RSP))]);
        // The program may have been stopped in the middle of a piece.
        let complete = done.len() - 1;
        assert!(replayed.len() >= complete, "{}", level.name());
        for (n, (got, expected)) in replayed.iter().zip(&done[..complete]).enumerate() {
            assert_eq!(got, expected, "{} at step {n}", level.name());
        }
        bytes
    });
    (rows.len(), bytes)
}

#[test]
fn replay_gives_the_addresses_of_real_code() {
    for flags in [&["-O2"][..], &["-O3", "-march=x86-64-v3"], &["-O0"], &["-Os"]] {
        let (insns, bytes) = check(flags, Set::EMPTY);
        // Superblocks have fewer save points but store early, also for ways not gone.
        let [none, block, superblock, procedural, flow] = bytes;
        let less = flow <= procedural && procedural <= superblock && 3 * block < 2 * none;
        let told = format!("{flags:?}: {bytes:?} bytes for {insns} instructions");
        assert!(less && 20 * superblock < 21 * block && 4 * flow < 3 * block, "{told}");
    }
}

/// Where all code is traced, nobody stores the stack pointer.
#[test]
fn the_stack_pointer_needs_no_storing() {
    let (insns, bytes) = check(&["-O2"], Set::only(RSP));
    assert!(bytes[4] < 2 * insns, "{bytes:?} bytes for {insns} instructions");
}
