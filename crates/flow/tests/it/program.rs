//! Random programs over eight registers, and a machine that executes them, with or
//! without the code that a plan inserts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind};
use ichnos_flow::{Control, Effect, Insn, Live, Loss, Plan, Reference, Region, Set};
use ichnos_trace::{RefKind, Register, Sum, Value, Width};

pub const REGISTERS: u8 = 8;
const STACK: Register = Register(7);
const TEMPORARY: Register = Register(40);

/// Numbers by xorshift: the same in every run.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 1).unwrap() % n
    }

    fn register(&mut self) -> Register {
        Register(u8::try_from(self.below(usize::from(REGISTERS))).unwrap())
    }

    fn sum(&mut self) -> Sum {
        Sum {
            base: (self.below(5) > 0).then(|| self.register()),
            index: (self.below(3) == 0).then(|| (self.register(), 1 << self.below(4))),
            disp: i64::from(self.next() as i16),
        }
    }

    fn value(&mut self) -> Value {
        let shift = u8::try_from(self.below(64)).unwrap();
        match self.below(9) {
            0 => Value::Difference(self.register(), self.register()),
            1 => Value::And(self.register(), [0xff, 0xffff_fff0, u64::MAX << 4][self.below(3)]),
            2 => Value::ShiftLeft(self.register(), shift),
            3 => Value::ShiftRight(self.register(), shift),
            4 => Value::ShiftRightSigned(self.register(), shift),
            5 => Value::Low32(self.register()),
            6 => Value::Low32Signed(self.register()),
            _ => Value::Sum(self.sum()),
        }
    }
}

/// A program of `count` instructions.
pub fn program(count: usize, dice: &mut Dice) -> Region {
    let lens: Vec<u8> = (0..count).map(|_| 1 + dice.below(4) as u8).collect();
    let mut pcs = Vec::with_capacity(count);
    let mut pc = GuestVa(0x1000);
    for len in &lens {
        pcs.push(pc);
        // A gap now and then: data between code.
        let gap = if dice.below(30) == 0 { 8 } else { 0 };
        pc = pc.offset(u64::from(*len) + gap);
    }
    let mut entries = vec![pcs[0]];
    entries.extend((0..count / 12).map(|_| pcs[dice.below(count)]));
    let insns = (0..count).map(|i| insn(&pcs, i, lens[i], dice)).collect();
    Region {
        insns,
        entries,
        takeable: Set((1 << REGISTERS) - 1),
        frame: Set::only(STACK).or(Set::only(Register(6))),
        known_outside: Set::EMPTY,
        strange: Vec::new(),
        live_outside: Live { registers: Set::ALL, flags: 0xff },
    }
}

fn insn(pcs: &[GuestVa], i: usize, len: u8, dice: &mut Dice) -> Insn {
    let pc = pcs[i];
    let next = pc.offset(u64::from(len));
    let falls = pcs.get(i + 1) == Some(&next);
    let mut target = pcs[dice.below(pcs.len())];
    let mut control = match dice.below(14) {
        0 => Control::Jump(target),
        1..=4 => Control::Cond(target),
        5 => [Control::Call(None), Control::Call(Some(target))][dice.below(2)],
        6 => [Control::Indirect, Control::Return, Control::Kernel, Control::Stop][dice.below(4)],
        _ => Control::Next,
    };
    if target == next {
        target = pcs[0];
        control = Control::Jump(target);
    }
    let needs_next =
        matches!(control, Control::Next | Control::Cond(_) | Control::Call(_) | Control::Kernel);
    if needs_next && !falls {
        control = Control::Jump(pcs[0]);
    }
    let effects = effects(control, dice);
    let (uses, kills) = reads_and_writes(&effects, control);
    Insn { pc, len, kind: InsnKind::OTHER, control, uses, kills, effects }
}

fn reference(kind: RefKind, address: Sum) -> Effect {
    Effect::Ref(Reference { kind, flags: AccessFlags::NONE, size: 8, address })
}

fn effects(control: Control, dice: &mut Dice) -> Vec<Effect> {
    let at = |register, disp| Sum { base: Some(register), index: None, disp };
    let moved = |disp| Effect::Set(STACK, Value::Sum(at(STACK, disp)));
    match control {
        Control::Call(_) => return vec![moved(-8), reference(RefKind::Store, at(STACK, 0))],
        Control::Return => return vec![reference(RefKind::Load, at(STACK, 0)), moved(8)],
        Control::Kernel => return vec![Effect::Lose(Register(0), Loss::All)],
        _ => {}
    }
    let register = dice.register();
    let loss = [Loss::All, Loss::ZeroUpper, Loss::KeepUpper][dice.below(3)];
    match dice.below(9) {
        0 | 1 => vec![reference(RefKind::Load, dice.sum()), Effect::Lose(register, loss)],
        2 => vec![reference(RefKind::Store, dice.sum())],
        3 => vec![moved(-8), reference(RefKind::Store, at(STACK, 0))],
        4 => vec![reference(RefKind::Load, at(STACK, 0)), moved(8), Effect::Lose(register, loss)],
        5 => vec![
            Effect::Set(TEMPORARY, Value::Sum(dice.sum())),
            Effect::Set(TEMPORARY, Value::Low32(TEMPORARY)),
            reference(RefKind::Load, Sum { base: Some(TEMPORARY), ..dice.sum() }),
        ],
        6 => vec![
            Effect::Set(TEMPORARY, Value::Sum(dice.sum())),
            Effect::Set(register, Value::Low32(TEMPORARY)),
        ],
        _ => vec![Effect::Set(register, dice.value())],
    }
}

fn sum_set(sum: Sum) -> Set {
    sum.base.into_iter().chain(sum.index.map(|(register, _)| register)).collect()
}

/// What the effects read and surely replace; one flag stands for all: arithmetic
/// replaces it, branches read it.
fn reads_and_writes(effects: &[Effect], control: Control) -> (Live, Live) {
    let (mut uses, mut kills) = (Live::default(), Live::default());
    for effect in effects {
        let (reads, writes) = match *effect {
            Effect::Ref(r) => (sum_set(r.address), None),
            Effect::Flex => (Set::EMPTY, None),
            Effect::Set(register, value) => {
                kills.flags = 1;
                (value_set(value), Some(register))
            }
            Effect::Lose(register, Loss::KeepUpper) => (Set::only(register), Some(register)),
            Effect::Lose(register, _) => (Set::EMPTY, Some(register)),
        };
        uses.registers = uses.registers.or(reads.without(kills.registers));
        kills.registers = kills.registers.or(writes.into_iter().collect());
    }
    match control {
        Control::Cond(_) => {
            uses.flags = 1;
            kills.flags = 0;
        }
        // The callee may read anything.
        Control::Call(_) => uses = Live { registers: Set::ALL, flags: 1 },
        _ => {}
    }
    (uses, kills)
}

fn value_set(value: Value) -> Set {
    match value {
        Value::Sum(sum) => sum_set(sum),
        Value::Difference(a, b) => Set::only(a).or(Set::only(b)),
        Value::And(r, _)
        | Value::ShiftLeft(r, _)
        | Value::ShiftRight(r, _)
        | Value::ShiftRightSigned(r, _)
        | Value::Low32(r)
        | Value::Low32Signed(r) => Set::only(r),
    }
}

/// What one instruction did: its address, its references, and where control went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Did {
    pub pc: GuestVa,
    pub refs: Vec<(RefKind, u64)>,
    /// For a conditional branch, whether it was taken.
    pub taken: Option<bool>,
}

/// What inserted code left in the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    Piece(usize),
    Value(u64),
}

/// The machine's registers, and the decisions that programs cannot foresee.
pub struct Machine {
    registers: [u64; 64],
    flag: bool,
    /// Values loaded, branch outcomes and the like, by turn.
    fate: Dice,
    /// What destroys dead registers.
    noise: Dice,
    calls: Vec<GuestVa>,
}

impl Machine {
    pub fn new(seed: u64, noise: u64) -> Self {
        let mut fate = Dice::new(seed);
        let mut registers = [0; 64];
        registers[..usize::from(REGISTERS)].fill_with(|| fate.next());
        Self { registers, flag: false, fate, noise: Dice::new(noise), calls: Vec::new() }
    }

    fn get(&self, register: Register) -> u64 {
        self.registers[usize::from(register.0)]
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

    fn lose(&mut self, register: Register, loss: Loss) {
        let new = self.fate.next();
        let old = &mut self.registers[usize::from(register.0)];
        *old = match loss {
            Loss::All => new,
            Loss::ZeroUpper => new & 0xffff_ffff,
            // The part that stays matters: it is read.
            Loss::KeepUpper => *old & !0xff | new & 0xff,
        };
    }

    /// Executes one instruction; says what it did and where control goes.
    fn step(&mut self, region: &Region, insn: &Insn) -> (Did, Option<GuestVa>) {
        let mut refs = Vec::new();
        for effect in &insn.effects {
            match *effect {
                Effect::Ref(r) => refs.push((r.kind, self.sum(r.address))),
                Effect::Flex => {}
                Effect::Set(register, value) => {
                    self.registers[usize::from(register.0)] = self.value(value);
                }
                Effect::Lose(register, loss) => self.lose(register, loss),
            }
        }
        let turn = self.fate.next();
        if insn.kills.flags != 0 {
            self.flag = turn & 2 != 0;
        }
        let mut taken = None;
        let next = match insn.control {
            Control::Next | Control::Kernel => Some(insn.end()),
            Control::Jump(target) => Some(target),
            Control::Cond(target) => {
                let takes = (turn & 1 != 0) != self.flag;
                taken = Some(takes);
                Some(if takes { target } else { insn.end() })
            }
            Control::Call(target) => {
                self.calls.push(insn.end());
                let any = region.entries[turn as usize % region.entries.len()];
                Some(target.unwrap_or(any))
            }
            Control::Indirect => Some(region.entries[turn as usize % region.entries.len()]),
            Control::Return => self.calls.pop(),
            Control::Stop => None,
        };
        (Did { pc: insn.pc, refs, taken }, next)
    }

    /// Executes up to `turns` instructions with the plan's inserted code. What a
    /// save point says is dead, it destroys.
    pub fn run(&mut self, region: &Region, plan: &Plan, turns: usize) -> (Vec<Did>, Vec<Word>) {
        let mut dids = Vec::new();
        let mut words = Vec::new();
        let mut pc = Some(region.insns[0].pc);
        let mut inside = None;
        while let Some(at) = pc
            && dids.len() < turns
        {
            let i = region.insns.binary_search_by(|insn| insn.pc.cmp(&at)).expect("an instruction");
            let insn = &region.insns[i];
            let piece = match plan.pieces.iter().position(|piece| piece.insns.start == i) {
                Some(piece) => {
                    words.push(Word::Piece(piece));
                    piece
                }
                None => inside.expect("control comes in at a piece's entry"),
            };
            self.save(&plan.pieces[piece], i, &mut words);
            let (did, next) = self.step(region, insn);
            dids.push(did);
            // Only falling through stays inside a piece.
            inside = (next == Some(insn.end())).then_some(piece);
            pc = next;
        }
        (dids, words)
    }

    fn save(&mut self, piece: &ichnos_flow::Piece, i: usize, words: &mut Vec<Word>) {
        for save in piece.saves.iter().filter(|save| save.at == i) {
            for store in &save.stores {
                let value = self.get(store.register);
                words.push(Word::Value(match store.width {
                    Width::Four => value & 0xffff_ffff,
                    Width::Eight => value,
                }));
            }
            for register in (0..REGISTERS).map(Register) {
                if !save.live.registers.has(register) {
                    self.registers[usize::from(register.0)] = self.noise.next();
                }
            }
            if save.live.flags & 1 == 0 {
                self.flag = self.noise.next() & 1 != 0;
            }
        }
    }
}
