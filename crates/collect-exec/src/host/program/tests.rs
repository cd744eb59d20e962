//! Blocks laid out flat against their programs, which are written apart from them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind, Record};
use ichnos_trace::flat::{Brief, Flat, Registers, Sort, ZERO};
use ichnos_trace::{
    Address, ExitKind, Leave, Ref, RefKind, Register, Slot, Step, Sum, Value, Width,
};

use super::Program;

const OTHERWISE: GuestVa = GuestVa(0x7777);

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }

    fn register(&mut self) -> Register {
        Register(self.below(20) as u8)
    }

    fn sum(&mut self) -> Sum {
        Sum {
            base: Some(self.register()).filter(|_| self.below(4) > 0),
            index: Some((self.register(), 1 << self.below(4))).filter(|_| self.below(2) > 0),
            disp: self.below(1 << 20) as i64 - (1 << 19),
        }
    }

    fn value(&mut self) -> Value {
        match self.below(7) {
            0 => Value::Difference(self.register(), self.register()),
            1 => Value::And(self.register(), 0xff0),
            2 => Value::ShiftLeft(self.register(), 3),
            3 => Value::ShiftRightSigned(self.register(), 5),
            4 => Value::Low32(self.register()),
            _ => Value::Sum(self.sum()),
        }
    }

    fn steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for i in 0..1 + self.below(12) {
            steps.push(Step::Insn { len: 4, kind: InsnKind::OTHER });
            let slot = Slot(i as u32);
            for _ in 0..self.below(4) {
                let register = self.register();
                let address = if self.below(3) == 0 {
                    Address::Word(slot)
                } else {
                    Address::Known(self.sum())
                };
                let (kind, flags) = (RefKind::Load, AccessFlags::default());
                let width = if self.below(2) == 0 { Width::Four } else { Width::Eight };
                steps.push(match self.below(5) {
                    0 => Step::Take { register, width, slot },
                    1 => Step::Forget { register },
                    2 => Step::Derive { register, value: self.value() },
                    _ => Step::Ref(Ref { kind, flags, size: 8, address }),
                });
            }
            if self.below(3) == 0 {
                let (kind, target) = (ExitKind::Conditional, GuestVa(0x10_0000 + i));
                steps.push(Step::Exit { kind, target });
            }
        }
        let kind = match self.below(4) {
            0 => ExitKind::Direct,
            1 => ExitKind::Indirect,
            _ => return steps,
        };
        steps.push(Step::Exit { kind, target: GuestVa(0x20_0000) });
        steps
    }
}

fn addresses(records: &[Record]) -> Vec<u64> {
    let address = |record: &Record| match record {
        Record::Load { addr, .. } => Some(addr.0),
        _ => None,
    };
    records.iter().filter_map(address).collect()
}

/// Blocks laid out flat do what their programs do, wherever they are left.
#[test]
fn flat_blocks_run_as_their_programs_do() {
    let mut numbers = Numbers(1);
    let (mut flat, mut ran) = (Flat::<[u8]>::default(), 0);
    for identifier in 1..500 {
        let (steps, entry) = (numbers.steps(), GuestVa(0x1000));
        let program = Program::new(entry, &steps);
        let len = program.len() as u32;
        flat.add(identifier, &steps, Brief::new(entry, 10 * identifier, len, Sort::Plain));
        let brief = *flat.get(identifier).unwrap();
        let words: Vec<u8> = (0..len + 8).map(|_| numbers.below(256) as u8).collect();
        let targets = steps.iter().filter_map(|step| match step {
            Step::Exit { target, .. } => Some(Leave::Next(*target)),
            _ => None,
        });
        let others = [Leave::Silent, Leave::Unknown, Leave::Next(OTHERWISE), Leave::Cut(entry)];
        for leave in targets.chain(others) {
            let mut first: Registers = std::array::from_fn(|_| numbers.below(1 << 30) << 3);
            first[usize::from(ZERO)] = 0;
            let (mut second, mut records, mut out) = (first, Vec::new(), vec![7]);
            let done = flat.run(&brief, leave, (&mut first, &words), &mut out);
            program.run(&mut second, &words, leave, &mut records);
            let Some(done) = done else {
                assert_eq!(out, [7]);
                continue;
            };
            ran += 1;
            // The others cannot be named.
            let named = ..Register::COUNT;
            assert_eq!(first[named], second[named], "{steps:?} {leave:?}");
            assert_eq!(out[1..], addresses(&records), "{steps:?} {leave:?}");
            let insns = records.iter().filter(|r| matches!(r, Record::Insn { .. })).count();
            assert_eq!(done.insns, insns as u64);
            let way = (done.way - brief.first_way) as usize;
            assert_eq!(addresses(program.records(way)).len(), out.len() - 1);
            match records.last() {
                Some(Record::Branch { taken: true, target }) => assert_eq!(done.next, *target),
                _ if leave == Leave::Next(OTHERWISE) => assert_eq!(done.next, OTHERWISE),
                _ => {}
            }
        }
    }
    assert!(ran > 1000, "{ran}");
    assert!(flat.get(0).is_none() && flat.get(500).is_none());
}
