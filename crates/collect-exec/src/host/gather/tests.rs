//! Paths against superblocks, and both against what ran.
//!
//! A small program is run by a few lines here that know what its instructions do. What the engine would store of such a run is made
//! twice, with paths and without, by going along the plans with the registers that the program had. Where one path comes behind another it
//! is mostly a lean one, which needs what is known there. Whatever a sink takes, it must hear what ran.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use ichnos_base::BlockId;
use ichnos_isa_x86::Inst;
use ichnos_trace::Register;
use ichnos_trace::flat::{NO_REGISTERS, Registers};

mod guest;

use self::guest::*;
use super::*;
use crate::host::program::Program;
use crate::plan::{FS, decode_all, plan_path, plan_superblock, plannable};
use crate::words::{self, RoadmapHead, Stretch, u32_at};

/// What a sink hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    Insn(u64),
    Access(u64),
    Branch(bool, u64),
    Event,
}

fn truth(ran: &[Ran]) -> Vec<Heard> {
    let mut heard = Vec::new();
    for one in ran {
        if !one.cut {
            heard.push(Heard::Insn(one.pc));
            heard.extend(one.accesses.iter().map(|addr| Heard::Access(*addr)));
            heard.extend(one.branch.map(|(taken, target)| Heard::Branch(taken, target)));
        }
        if one.cut || one.left {
            heard.push(Heard::Event);
        }
    }
    heard
}

/// Code that was translated.
struct Unit {
    first: u32,
    is_path: bool,
    /// The registers that a lean path needs.
    known: u16,
    pcs: Vec<u64>,
    plan: ichnos_flow::Plan,
}

/// What an engine does, as far as its buffers tell.
struct Engine<'a> {
    code: &'a Listing,
    units: Vec<Unit>,
    roadmap: Vec<u8>,
    next: u32,
    has_paths: bool,
}

impl<'a> Engine<'a> {
    fn new(code: &'a Listing, has_paths: bool) -> Self {
        Self { code, units: Vec::new(), roadmap: Vec::new(), next: 1, has_paths }
    }

    /// The number of the unit to run from an address on, where these registers are known.
    fn unit(&mut self, pc: u64, known: u16, numbers: &mut Numbers) -> usize {
        let path = PATHS.iter().find(|path| path[0].0 == pc);
        let path = path.filter(|_| self.has_paths && numbers.below(6) != 0);
        let known = if path.is_some() && numbers.below(4) != 0 { known } else { 0 };
        let key = (pc, path.is_some(), known);
        let is = |unit: &Unit| (unit.pcs[0], unit.is_path, unit.known) == key;
        if let Some(known) = self.units.iter().position(is) {
            return known;
        }
        let lines: Vec<u64> = match path {
            Some(path) => {
                let pcs = |range: &(u64, u64)| self.code.range(range.0..range.1).map(|(pc, _)| *pc);
                path.iter().flat_map(pcs).collect()
            }
            None => self.line(pc),
        };
        self.add(&lines, path.is_some(), known);
        self.units.len() - 1
    }

    /// The superblock at an address.
    fn line(&self, mut pc: u64) -> Vec<u64> {
        let mut pcs = Vec::new();
        while let Some((bytes, does)) = self.code.get(&pc) {
            pcs.push(pc);
            pc += bytes.len() as u64;
            let ends = [Does::Jump(0), Does::Call(0), Does::Return([0; 2]), Does::Indirect([0; 2])];
            if ends.iter().any(|end| std::mem::discriminant(end) == std::mem::discriminant(does)) {
                break;
            }
        }
        let len = plannable(&self.insts(&pcs));
        pcs.truncate(len);
        pcs
    }

    fn insts(&self, pcs: &[u64]) -> Vec<Inst> {
        let all: Vec<(u64, &[u8])> = pcs.iter().map(|pc| (*pc, &*self.code[pc].0)).collect();
        decode_all(&all).unwrap()
    }

    fn add(&mut self, pcs: &[u64], is_path: bool, known: u16) {
        let insts = self.insts(pcs);
        let plan =
            if is_path { plan_path(&insts, known) } else { plan_superblock(&insts) }.unwrap();
        let (mut stretches, mut code) = (Vec::<Stretch>::new(), Vec::<u8>::new());
        for pc in pcs {
            let (pc, bytes) = (*pc, &self.code[pc].0);
            match stretches.last_mut() {
                Some(last) if last.pc + last.len == pc => last.len += bytes.len() as u64,
                _ => stretches.push(Stretch { pc, len: bytes.len() as u64 }),
            }
            code.extend(bytes);
        }
        let (first, blocks) = (self.next, plan.pieces.len() as u32);
        let (code_len, count) = (code.len() as u32, stretches.len() as u32);
        let process = 0;
        let head =
            RoadmapHead { first, blocks, process, code_len, stretches: count, is_path, known };
        self.roadmap.extend(head.to_bytes());
        self.roadmap.extend(stretches.iter().flat_map(|stretch| stretch.to_bytes()));
        self.roadmap.extend(code);
        self.roadmap.resize(self.roadmap.len().next_multiple_of(8), 0);
        self.next += if is_path { 2 * blocks - 1 } else { blocks };
        self.units.push(Unit { first, is_path, known, pcs: pcs.to_vec(), plan });
    }

    /// Where an item begins, and whether it goes on behind another one; nothing of one that is special.
    fn begins(&self, item: &[u8]) -> Option<(u64, bool)> {
        let tag = u32_at(item, 0).unwrap();
        let unit = self.units.iter().rfind(|unit| unit.first <= tag && tag < words::FIRST_EVENT)?;
        let piece = if unit.is_path { 0 } else { (tag - unit.first) as usize };
        Some((unit.plan.pieces[piece].entry.0, piece > 0))
    }

    /// Full buffers as the engine submits them, which hold so many items each.
    fn full(&self, items: &[Vec<u8>], mut many: impl FnMut() -> usize) -> Vec<Vec<u8>> {
        let (mut buffers, mut rest) = (Vec::new(), items);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(many().clamp(1, rest.len()));
            rest = later;
            let next = later.first().and_then(|item| self.begins(item));
            let behind = next.filter(|(_, goes_on)| !goes_on).map_or(0, |(entry, _)| entry);
            let is_special = |item: &Vec<u8>| {
                self.begins(item).is_none() && u32_at(item, 0) != Some(words::STACK)
            };
            let special = now.iter().rposition(is_special).map_or(0, |last| last + 1);
            let plain = 3 * words::EVENT_LEN + now[..special].concat().len();
            let head = [(words::TIME, 5), (words::PLAIN, plain as u64), (words::BEHIND, behind)];
            let head = head.map(|(tag, value)| event(tag, value)).concat();
            buffers.push([head, now.concat()].concat());
        }
        buffers
    }

    /// The items that a run stores; lean paths in one piece with those that they come behind.
    fn items(&mut self, ran: &[Ran], numbers: &mut Numbers) -> Vec<Vec<u8>> {
        let first = &ran[0].before;
        let base = (words::FS_BASE, first[usize::from(FS.0)]);
        let mut items = vec![event(words::STACK, first[RSP]), event(base.0, base.1)];
        let (mut rest, mut known) = (ran, 0);
        while let Some(one) = rest.first() {
            let unit = self.unit(one.pc, known, numbers);
            let unit = &self.units[unit];
            let mut len = 0;
            for (one, pc) in rest.iter().zip(&unit.pcs) {
                if one.pc != *pc {
                    break;
                }
                len += 1;
                if one.cut || one.left {
                    break;
                }
            }
            let (now, later) = rest.split_at(len);
            rest = later;
            let mut stored = unit.items(now, numbers);
            if unit.known != 0 {
                items.last_mut().unwrap().extend(stored.remove(0));
            }
            items.extend(stored);
            let last = now.last().unwrap();
            known = unit.known_behind(now.len() - 1, last);
            items.extend(last.stack.filter(|_| !last.cut).map(|stack| event(words::STACK, stack)));
            if last.cut {
                items.push(event(words::CUT, last.pc));
            } else if last.left {
                items.push(event(words::LEFT, last.next));
            }
            if last.cut || last.left {
                items.push(event(words::JOIN, 7));
                items.extend(last.base.map(|base| event(words::FS_BASE, base)));
            }
        }
        items
    }
}

impl Unit {
    /// The registers that are known behind an instruction with which a path was left.
    fn known_behind(&self, insn: usize, last: &Ran) -> u16 {
        if !self.is_path || last.cut || last.left {
            return 0;
        }
        let piece = self.plan.pieces.iter().find(|piece| piece.insns.contains(&insn)).unwrap();
        let way = piece.out.iter().find(|(to, _)| to.0 == last.next);
        way.map_or(0, |(_, known)| known.0 as u16 & !(1 << RSP))
    }

    /// The items of an execution of its first instructions.
    fn items(&self, ran: &[Ran], numbers: &mut Numbers) -> Vec<Vec<u8>> {
        let pieces = self.plan.pieces.iter().take_while(|piece| piece.insns.start < ran.len());
        let mut stored: Vec<Vec<u8>> = Vec::new();
        for piece in pieces {
            let mut words = Vec::new();
            for save in &piece.saves {
                for store in &save.stores {
                    // Whoever left before has not stored it.
                    let value = match ran.get(save.at) {
                        Some(one) => one.before[usize::from(store.register.0)],
                        None => numbers.word(),
                    };
                    let len = if store.width == Width::Four { 4 } else { 8 };
                    words.extend(&value.to_le_bytes()[..len]);
                }
            }
            stored.push(words);
        }
        let mut identifier = self.first;
        if self.is_path {
            let count = stored.len() as u32;
            let pieces = self.plan.pieces.len() as u32;
            identifier += if count == 1 { 0 } else { pieces + count - 2 };
            stored = vec![stored.concat()];
        }
        let tagged = |(i, words): (u32, Vec<u8>)| [&i.to_le_bytes()[..], &words].concat();
        (identifier..).zip(stored).map(tagged).collect()
    }
}

fn event(tag: u32, value: u64) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &value.to_le_bytes()].concat()
}

/// A sink that takes one of the forms, and what it has heard of each thread.
struct Ears {
    form: Form,
    heard: HashMap<u32, Vec<Heard>>,
    /// Where code was told, by process, of which each thread is one.
    told: HashSet<(u32, u64)>,
    plans: HashMap<(u32, u32), (u64, Program)>,
    chains: HashMap<(u32, u32), Vec<u32>>,
    /// What each thread ran and has not been worked off, and what is known of its registers.
    players: HashMap<u32, Player>,
}

struct Player {
    queue: Vec<Played>,
    registers: Registers,
    /// Instructions of whole executions so far, by the blocks and by what was told.
    insns: u64,
    told: u64,
}

enum Played {
    Block { process: u32, identifier: u32, words: Vec<u8> },
    Anew(Vec<(Register, u64)>),
}

impl Ears {
    fn new(form: Form) -> Self {
        Self {
            form,
            heard: HashMap::new(),
            told: HashSet::new(),
            plans: HashMap::new(),
            chains: HashMap::new(),
            players: HashMap::new(),
        }
    }

    fn hear(&mut self, thread: u32, records: &[Record]) {
        for record in records {
            let heard = match *record {
                Record::Insn { pc, .. } => {
                    let told = self.form == Form::Raw || self.told.contains(&(thread, pc.0));
                    assert!(told, "code at {pc} was not told");
                    Heard::Insn(pc.0)
                }
                Record::Branch { .. } if self.form == Form::Blocks => continue,
                Record::Branch { taken, target } => Heard::Branch(taken, target.0),
                Record::Load { addr, .. } | Record::Store { addr, .. } => Heard::Access(addr.0),
                _ => panic!("{record:?}"),
            };
            self.heard.entry(thread).or_default().push(heard);
        }
    }

    /// Works off what a thread ran; the last was left like this.
    fn play(&mut self, thread: u32, leave: Leave) {
        let Some(player) = self.players.get_mut(&thread) else { return };
        let (queue, registers) = (take(&mut player.queue), &mut player.registers);
        let mut records = Vec::new();
        for (i, played) in queue.iter().enumerate() {
            match played {
                Played::Anew(known) => {
                    // But for these and the stack pointer, nothing is.
                    let stack = registers[RSP];
                    registers[..Register::COUNT].fill(0xdead_dead_dead);
                    registers[RSP] = stack;
                    known.iter().for_each(|(r, value)| registers[usize::from(r.0)] = *value);
                }
                Played::Block { process, identifier, words } => {
                    let next = queue[i + 1..].iter().find_map(|next| match next {
                        Played::Block { process, identifier, .. } => {
                            let entry = self.plans[&(*process, *identifier)].0;
                            Some(GuestVa(entry)).filter(|_| entry != 0)
                        }
                        Played::Anew(_) => None,
                    });
                    let leave = next.map_or(leave, Leave::Next);
                    let program = &self.plans[&(*process, *identifier)].1;
                    program.run(registers, words, leave, &mut records);
                }
            }
        }
        self.hear(thread, &records);
    }
}

impl Sink for Ears {
    type Error = Infallible;

    fn takes_blocks(&self) -> bool {
        self.form == Form::Blocks
    }

    fn takes_raw(&self) -> bool {
        self.form == Form::Raw
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        assert_ne!(self.form, Form::Raw);
        self.hear(batch.thread.0, batch.records);
        Ok(true)
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        let mut words = blocks.words.iter();
        for block in blocks.blocks {
            let mut records = blocks.shapes.records(*block).to_vec();
            for record in &mut records {
                if let Record::Load { addr, .. } | Record::Store { addr, .. } = record {
                    *addr = GuestVa(*words.next().unwrap());
                }
            }
            self.hear(blocks.thread.0, &records);
        }
        assert!(words.next().is_none());
        assert!(blocks.shapes.records(BlockId(u32::MAX)).is_empty());
        Ok(true)
    }

    fn code(&mut self, _: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        let bytes = 0..code.bytes.len() as u64;
        self.told.extend(bytes.map(|i| (code.process.0, code.pc.0 + i)));
        let all = program();
        let mut at = 0;
        while at < code.bytes.len() {
            let (bytes, _) = &all[&(code.pc.0 + at as u64)];
            assert_eq!(code.bytes[at..at + bytes.len()], **bytes);
            at += bytes.len();
        }
        Ok(true)
    }

    fn plan(&mut self, plan: &Plan<'_>) -> Result<bool, Infallible> {
        let program = Program::new(plan.entry, plan.steps);
        let key = (plan.process.0, plan.identifier);
        assert!(self.plans.insert(key, (plan.entry.0, program)).is_none());
        Ok(true)
    }

    fn chain(&mut self, chain: &Chain<'_>) -> Result<bool, Infallible> {
        let process = chain.process.0;
        let is_told = |block: &u32| self.plans.contains_key(&(process, *block));
        assert!(chain.blocks.len() > 1 && chain.blocks.iter().all(is_told));
        let key = (process, chain.identifier);
        assert!(!self.plans.contains_key(&key));
        assert!(self.chains.insert(key, chain.blocks.to_vec()).is_none());
        Ok(true)
    }

    fn raw(&mut self, raw: &Raw<'_>) -> Result<bool, Infallible> {
        let (thread, process) = (raw.thread.0, raw.process.0);
        let new = || Player { queue: Vec::new(), registers: NO_REGISTERS, insns: 0, told: 0 };
        let player = self.players.entry(thread).or_insert_with(new);
        if let Some(known) = raw.registers {
            player.queue.push(Played::Anew(known.to_vec()));
        }
        let bytes = raw.bytes.concat();
        let (mut rest, mut insns) = (&*bytes, 0);
        while let Some(tag) = u32_at(rest, 0) {
            rest = &rest[4..];
            let alone = vec![tag];
            for &identifier in self.chains.get(&(process, tag)).unwrap_or(&alone) {
                let program = &self.plans[&(process, identifier)].1;
                insns += program.records(usize::MAX).iter().filter(|r| is_insn(r)).count() as u64;
                let (words, behind) = rest.split_at(program.len());
                let words = words.to_vec();
                player.queue.push(Played::Block { process, identifier, words });
                rest = behind;
            }
        }
        assert!(rest.is_empty());
        player.insns += insns;
        player.told = raw.insns_before + raw.insns;
        if raw.leave != Leave::Silent {
            self.play(thread, raw.leave);
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.play(thread.0, Leave::Silent);
        if matches!(event, Event::ThreadJoin { .. }) {
            self.heard.entry(thread.0).or_default().push(Heard::Event);
        }
        Ok(true)
    }
}

fn is_insn(record: &Record) -> bool {
    matches!(record, Record::Insn { .. })
}

fn taken(kind: BufferKind, thread: u32, len: usize) -> Taken {
    Taken { index: 0, kind, thread, process: thread, len: len as u64, noted: false }
}

/// What a sink hears of buffers, each of which is of a thread that is a process of its own.
fn heard(form: Form, roadmap: &[u8], buffers: &[(u32, Vec<u8>)]) -> Ears {
    let ears = heard_about(form, roadmap, buffers);
    assert!(ears.players.values().all(|player| player.told == player.insns));
    ears
}

/// The same, where instructions need not be counted.
fn heard_about(form: Form, roadmap: &[u8], buffers: &[(u32, Vec<u8>)]) -> Ears {
    let mut ears = Ears::new(form);
    let mut gather = Gather::new(&mut ears, None);
    gather.buffer(&taken(BufferKind::ROADMAP, 0, roadmap.len()), roadmap).unwrap();
    for (thread, bytes) in buffers {
        gather.buffer(&taken(BufferKind::STREAM, *thread, bytes.len()), bytes).unwrap();
    }
    gather.finish(EndStatus::Exited(0)).unwrap();
    ears
}

/// Without what a form does not tell.
fn expected(form: Form, truth: &[Heard]) -> Vec<Heard> {
    let is_told = |h: &&Heard| form != Form::Blocks || !matches!(h, Heard::Branch(..));
    truth.iter().filter(is_told).copied().collect()
}

const FORMS: [Form; 3] = [Form::Records, Form::Blocks, Form::Raw];

/// Long runs, in buffers that end anywhere between two items.
#[test]
fn paths_are_heard_as_superblocks_are() {
    let code = program();
    let (mut chains, mut lean) = (HashSet::new(), HashSet::new());
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let ran = run(&code, 1500, &mut numbers);
        let truth = truth(&ran);
        for has_paths in [false, true] {
            let mut engine = Engine::new(&code, has_paths);
            let items = engine.items(&ran, &mut numbers);
            let mut buffers = vec![(0, Vec::new())];
            let most = 1 + numbers.below(40);
            for item in &items {
                buffers.last_mut().unwrap().1.extend(item);
                if numbers.below(most) == 0 {
                    // Some are full to the last byte, others are not.
                    let room = [0, 4, 64][numbers.below(3) as usize];
                    let full = &mut buffers.last_mut().unwrap().1;
                    full.resize(full.len() + room, 0);
                    buffers.push((0, Vec::new()));
                }
            }
            for form in FORMS {
                let ears = heard(form, &engine.roadmap, &buffers);
                assert!(ears.heard[&0] == expected(form, &truth), "{seed} {has_paths} {form:?}");
                assert!(has_paths || ears.chains.is_empty());
                lean.extend(engine.units.iter().map(|unit| (unit.pcs[0], unit.known)));
                chains.extend(ears.chains.into_values().map(|blocks| blocks.len()));
            }
        }
    }
    // All blocks of the first path, and any number of its first ones.
    assert_eq!(chains, (2..=7).collect::<HashSet<_>>());
    // The first path comes behind itself by two exits.
    assert!(lean.iter().filter(|(pc, known)| (*pc, *known != 0) == (A, true)).count() >= 2);
}

/// A short run, cut into two buffers at every place, and into a buffer for each item.
#[test]
fn buffers_may_end_behind_any_item() {
    let code = program();
    for seed in 0..10 {
        let mut numbers = Numbers(1000 + seed);
        let ran = run(&code, 200, &mut numbers);
        let truth = truth(&ran);
        let mut engine = Engine::new(&code, true);
        let items = engine.items(&ran, &mut numbers);
        for form in FORMS {
            for at in 0..=items.len() {
                let (first, second) = items.split_at(at);
                let buffers = [(0, first.concat()), (0, second.concat())];
                let ears = heard(form, &engine.roadmap, &buffers);
                assert!(ears.heard[&0] == expected(form, &truth), "{seed} {form:?} {at}");
            }
            let buffers: Vec<_> = items.iter().map(|item| (0, item.clone())).collect();
            let ears = heard(form, &engine.roadmap, &buffers);
            assert!(ears.heard[&0] == expected(form, &truth), "{seed} {form:?}");
        }
    }
}

/// A child runs code that its parent described: what the sink must know is told for each.
#[test]
fn processes_are_told_chains_of_their_own() {
    let code = program();
    let mut numbers = Numbers(7);
    let runs = [run(&code, 600, &mut numbers), run(&code, 600, &mut numbers)];
    let mut engine = Engine::new(&code, true);
    let items = [engine.items(&runs[0], &mut numbers), engine.items(&runs[1], &mut numbers)];
    let parts = items.each_ref().map(|items| items.chunks(20).map(<[_]>::concat).enumerate());
    let mut buffers: Vec<(usize, u32, Vec<u8>)> = Vec::new();
    for (thread, parts) in (0..).zip(parts) {
        buffers.extend(parts.map(|(i, bytes)| (i, thread, bytes)));
    }
    buffers.sort_by_key(|(i, thread, _)| (*i, *thread));
    let buffers: Vec<_> = buffers.into_iter().map(|(_, thread, bytes)| (thread, bytes)).collect();
    for form in FORMS {
        let ears = heard(form, &engine.roadmap, &buffers);
        for (thread, ran) in (0..).zip(&runs) {
            assert!(ears.heard[&thread] == expected(form, &truth(ran)), "{form:?} {thread}");
            let told = ears.chains.keys().filter(|(process, _)| *process == thread).count();
            assert!((told > 3) == (form == Form::Raw), "{told}");
        }
    }
}

/// A chain that is cut is an error; one that was left by a dying thread is not told.
#[test]
fn cut_chains_are_not_told() {
    let code = program();
    let mut numbers = Numbers(3);
    let mut engine = Engine::new(&code, true);
    engine.unit(Z, 0, &mut numbers);
    let unit = engine.units.iter().find(|unit| unit.is_path).unwrap();
    let mut ran = Vec::new();
    let mut registers = [0x100_0000; 18];
    for pc in &unit.pcs {
        ran.push(step(&code, *pc, &mut registers, &mut numbers));
    }
    let item = unit.items(&ran, &mut numbers).concat();
    let chain = u32_at(&item, 0).unwrap();
    assert_eq!(chain, unit.first + unit.plan.pieces.len() as u32);
    for form in FORMS {
        for len in 4..=item.len() {
            let mut ears = Ears::new(form);
            let mut gather = Gather::new(&mut ears, None);
            let roadmap = &engine.roadmap;
            gather.buffer(&taken(BufferKind::ROADMAP, 0, roadmap.len()), roadmap).unwrap();
            let cut = gather.buffer(&taken(BufferKind::STREAM, 0, len), &item[..len]);
            assert_eq!(cut.is_ok(), len == item.len());
            let left = gather.buffer(&taken(BufferKind::LEFT, 1, len), &item[..len]);
            left.unwrap();
            gather.finish(EndStatus::Exited(0)).unwrap();
            assert!(!ears.heard.contains_key(&1));
            assert_eq!(ears.heard.contains_key(&0), len == item.len());
        }
    }
}

/// The beginning of a process that runs a program of its own.
fn begins(process: u32) -> Vec<u8> {
    let words = [words::START, 16, process, words::NOBODY, 8, 8];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What is passed on unread is heard as what is looked at.
#[test]
fn full_buffers_are_heard_as_others_are() {
    let code = program();
    let mut unread = 0;
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let ran = run(&code, 1500, &mut numbers);
        let truth = truth(&ran);
        for has_paths in [false, true] {
            let mut engine = Engine::new(&code, has_paths);
            let mut items = engine.items(&ran, &mut numbers);
            items.insert(0, begins(0));
            let most = 2 + numbers.below(80);
            let buffers = engine.full(&items, || numbers.below(most) as usize);
            let buffers: Vec<_> = buffers.into_iter().map(|bytes| (0, bytes)).collect();
            for form in FORMS {
                let ears = heard_about(form, &engine.roadmap, &buffers);
                assert!(ears.heard[&0] == expected(form, &truth), "{seed} {has_paths} {form:?}");
                // Of what is not counted there is about as much as was told.
                if let Some(player) = ears.players.get(&0) {
                    let most = player.insns.max(player.told);
                    assert!(most - player.insns.min(player.told) < most / 3, "{seed}");
                    unread += u32::from(player.told != player.insns);
                }
            }
        }
    }
    assert!(unread > 20, "{unread}");
}

/// Only of a process whose code was all described as its own is anything passed on unread, and nothing that a thread left behind when it died.
#[test]
fn buffers_of_children_and_of_the_dead_are_looked_at() {
    let code = program();
    let mut numbers = Numbers(11);
    let ran = run(&code, 3000, &mut numbers);
    let mut engine = Engine::new(&code, true);
    let items = engine.items(&ran, &mut numbers);
    let full = engine.full(&items, || 20);
    let roadmap = &engine.roadmap;
    let is_counted = |start: Vec<u8>, kind: BufferKind| {
        let mut ears = Ears::new(Form::Raw);
        let mut gather = Gather::new(&mut ears, None);
        gather.buffer(&taken(BufferKind::ROADMAP, 0, roadmap.len()), roadmap).unwrap();
        for bytes in [&start].into_iter().chain(&full) {
            gather.buffer(&taken(kind, 0, bytes.len()), bytes).unwrap();
        }
        gather.finish(EndStatus::Exited(0)).unwrap();
        let player = &ears.players[&0];
        player.told == player.insns
    };
    let mut child = begins(0);
    child[12..16].copy_from_slice(&7_u32.to_le_bytes());
    assert!(!is_counted(begins(0), BufferKind::STREAM));
    assert!(is_counted(child, BufferKind::STREAM));
    assert!(is_counted(begins(0), BufferKind::LEFT));
}

/// What was overwritten is found, or passed on for others to find; nothing else happens.
#[test]
fn broken_full_buffers_are_errors_at_most() {
    let code = program();
    let mut numbers = Numbers(5);
    let ran = run(&code, 300, &mut numbers);
    let mut engine = Engine::new(&code, true);
    let mut items = engine.items(&ran, &mut numbers);
    items.insert(0, begins(0));
    let buffers = engine.full(&items, || 60);
    let mut broken = 0;
    for _ in 0..300 {
        let mut visited = Visited::default();
        let mut book = Book::new(Uses::Tells);
        book.read(&engine.roadmap, |_, _| {});
        let mut stream = Stream::new();
        (stream.form, stream.all_told) = (Form::Raw, true);
        for bytes in &buffers {
            let mut bytes = bytes.clone();
            let at = numbers.below(bytes.len() as u64) as usize;
            bytes[at] = numbers.below(256) as u8;
            let mut tell = |gathered: &mut Gathered, _: Item<'_>| gathered.raw.clear();
            let read = stream.read(&bytes, (&book, &mut visited), &mut tell);
            broken += u32::from(read.is_err());
            assert!(stream.take_stretch(&bytes).len() <= bytes.len());
            stream.gathered.raw.clear();
        }
    }
    assert!(broken > 100, "{broken}");
}
