//! A replay of its own: from identifiers and words back to what was done, knowing
//! nothing but the plan's steps.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_flow::Plan;
use ichnos_trace::{Address, ExitKind, Register, Step, Sum, Value, Width};

use crate::program::{Did, Word};

struct Shadow([Option<u64>; 42]);

impl Shadow {
    fn get(&self, register: Register) -> u64 {
        self.0[usize::from(register.0)].expect("a known register")
    }

    fn sum(&self, sum: Sum) -> u64 {
        let base = sum.base.map_or(0, |register| self.get(register));
        let index = sum.index.map_or(0, |(r, scale)| self.get(r).wrapping_mul(scale.into()));
        base.wrapping_add(index).wrapping_add(sum.disp.cast_unsigned())
    }

    fn value(&self, value: Value) -> u64 {
        match value {
            Value::Sum(sum) => self.sum(sum),
            Value::Difference(a, b) => self.get(a).wrapping_sub(self.get(b)),
            Value::And(r, mask) => self.get(r) & mask,
            Value::ShiftLeft(r, n) => self.get(r) << n,
            Value::ShiftRight(r, n) => self.get(r) >> n,
            Value::ShiftRightSigned(r, n) => (self.get(r).cast_signed() >> n).cast_unsigned(),
            Value::Low32(r) => self.get(r) & 0xffff_ffff,
            Value::Low32Signed(r) => i64::from(self.get(r) as i32).cast_unsigned(),
        }
    }

    fn take(&mut self, register: Register, width: Width, word: u64) {
        let old = &mut self.0[usize::from(register.0)];
        *old = Some(match width {
            Width::Eight => word,
            Width::Four => old.unwrap_or(0) & !0xffff_ffff | word,
        });
    }
}

/// What was done. The last piece may have been cut short: of it, only as much is
/// right as was executed.
pub fn replay(plan: &Plan, words: &[Word]) -> Vec<Did> {
    replay_from(plan, words, &[])
}

/// The same, with some registers known from the start.
pub fn replay_from(plan: &Plan, words: &[Word], known: &[(Register, u64)]) -> Vec<Did> {
    let mut shadow = Shadow([None; 42]);
    for (register, value) in known {
        shadow.0[usize::from(register.0)] = Some(*value);
    }
    let mut dids: Vec<Did> = Vec::new();
    let mut rest = words;
    while let Some((Word::Piece(number), later)) = rest.split_first() {
        let values = later.iter().take_while(|word| matches!(word, Word::Value(_))).count();
        let (mine, later) = later.split_at(values);
        rest = later;
        let next = rest.first().map(|word| match word {
            Word::Piece(next) => plan.pieces[*next].entry,
            Word::Value(_) => unreachable!("values were taken"),
        });
        piece(plan, *number, mine, next, &mut shadow, &mut dids);
    }
    assert!(rest.is_empty(), "words are left");
    dids
}

fn piece(
    plan: &Plan,
    number: usize,
    words: &[Word],
    next: Option<GuestVa>,
    shadow: &mut Shadow,
    dids: &mut Vec<Did>,
) {
    let piece = &plan.pieces[number];
    let mut pc = piece.entry;
    let mut words = words.iter();
    for step in &piece.steps {
        match *step {
            Step::Insn { len, .. } => {
                dids.push(Did { pc, refs: Vec::new(), taken: None });
                pc = pc.offset(u64::from(len));
            }
            Step::Take { register, width, .. } => match words.next() {
                Some(Word::Value(word)) => shadow.take(register, width, *word),
                // The run ended inside this piece.
                _ if next.is_none() => return,
                _ => panic!("a word is missing"),
            },
            Step::Derive { register, value } => {
                shadow.0[usize::from(register.0)] = Some(shadow.value(value));
            }
            Step::Forget { register } => shadow.0[usize::from(register.0)] = None,
            Step::Ref(r) => {
                let Address::Known(sum) = r.address else { panic!("the planner uses registers") };
                let address = shadow.sum(sum);
                dids.last_mut().expect("an instruction").refs.push((r.kind, address));
            }
            Step::Exit { kind: ExitKind::Conditional, target } => {
                let taken = next == Some(target);
                dids.last_mut().expect("an instruction").taken = Some(taken);
                if taken {
                    return;
                }
            }
            Step::Exit { .. } | Step::Flex { .. } => {}
        }
    }
    assert!(words.next().is_none() || next.is_none(), "a word is left over");
}
