//! Dumps of small traces, word by word, and of random ones, read back.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::*;
use ichnos_report::{DumpJson, DumpLackey, DumpText, Symbolize};
use proptest::prelude::*;
use serde_json::{Value, json};

const T: ThreadId = ThreadId(3);

/// Tells a small trace with one of everything.
fn tell<S: Sink>(sink: &mut S)
where
    S::Error: std::fmt::Debug,
{
    let command = ["./a b", "x\"y"];
    let about = About { isa: Isa::X86_64, command: &command, branches: true, ..About::default() };
    sink.begin(&about).unwrap();
    let start = ThreadStart { process: ProcessId(1), creator: None, os_pid: 77, os_tid: 78 };
    sink.event(T, &Event::ThreadStart(start)).unwrap();
    let map = Map {
        start: GuestVa(0x40_1000),
        len: 4096,
        protection: Protection(5),
        kind: MapKind::IMAGE,
        offset: FileOff(0x1000),
        bias: 0,
        path: "/tmp/my prog",
        build_id: &[0xab, 1],
    };
    sink.event(T, &Event::Map(map)).unwrap();
    let code = Code { process: ProcessId(1), pc: GuestVa(0x40_1000), bytes: &[0x90, 0xc3] };
    sink.code(T, &code).unwrap();
    let records = [
        Record::insn(GuestVa(0x40_1000), 1, InsnKind::OTHER),
        Record::load(GuestVa(0x7ffe_0010), 2),
        Record::store(GuestVa(0x7ffe_0010), 2),
        Record::insn(GuestVa(0x40_1001), 1, InsnKind::RETURN),
        Record::Load {
            flags: AccessFlags::STACK.with(AccessFlags::ATOMIC),
            size: 1,
            addr: GuestVa(0x7ffe_0000),
        },
        Record::Prefetch { flags: AccessFlags::NONE, size: 0, addr: GuestVa(0) },
        Record::branch(true, GuestVa(0x40_2000)),
    ];
    let values = Some(&[1u8, 2, 3, 4, 5][..]);
    sink.records(&Batch { values, ..Batch::new(T, 10, &records) }).unwrap();
    let call = Event::Syscall { number: 60, args: [1, 0xff, 0, 0, 0, 0] };
    sink.event(T, &call).unwrap();
    sink.event(T, &Event::ThreadEnd(EndStatus::Killed(9))).unwrap();
    sink.finish().unwrap();
}

struct OneName;

impl Symbolize for OneName {
    fn name(&mut self, process: ProcessId, pc: GuestVa) -> Option<String> {
        (pc == GuestVa(0x40_1001)).then(|| format!("main+0x1 ({process})"))
    }
}

#[test]
fn text_is_as_documented() {
    let mut dump = DumpText::with_symbols(Vec::new(), OneName);
    tell(&mut dump);
    let expected = "\
3 0 E thread-start process=1 os_pid=77 os_tid=78
3 0 E map start=0x401000 len=4096 protection=r-x kind=image offset=0x1000 bias=0x0 path=\"/tmp/my prog\" build_id=ab01
3 10 I 0x401000 1 other
3 10 L 0x7ffe0010 2 =0102
3 10 S 0x7ffe0010 2 =0304
3 11 I 0x401001 1 return main+0x1 (1)
3 11 L 0x7ffe0000 1 atomic,stack =05
3 11 P 0x0 0
3 11 B taken 0x402000
3 12 E syscall number=60 args=0x1,0xff,0x0,0x0,0x0,0x0
3 12 E thread-end killed=9
";
    assert_eq!(String::from_utf8(dump.into_inner()).unwrap(), expected);
}

fn objects(bytes: Vec<u8>) -> Vec<Value> {
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn json_lines_are_as_documented() {
    let mut dump = DumpJson::with_symbols(Vec::new(), OneName);
    tell(&mut dump);
    let lines = objects(dump.into_inner());
    assert_eq!(lines[0]["command"], json!(["./a b", "x\"y"]));
    assert_eq!(lines[0]["isa"], "x86-64");
    assert_eq!(lines[2]["path"], "/tmp/my prog");
    let code =
        json!({"type": "code", "thread": 3, "process": 1, "pc": "0x401000", "bytes": "90c3"});
    assert_eq!(lines[3], code);
    let load = json!({"type": "load", "thread": 3, "insn": 10, "addr": "0x7ffe0010", "size": 2, "value": "0102"});
    assert_eq!(lines[5], load);
    let insn = json!({"type": "insn", "thread": 3, "insn": 11, "pc": "0x401001", "len": 1, "kind": "return", "symbol": "main+0x1 (1)"});
    assert_eq!(lines[7], insn);
    assert_eq!(lines[8]["flags"], json!(["atomic", "stack"]));
    let branch =
        json!({"type": "branch", "thread": 3, "insn": 11, "taken": true, "target": "0x402000"});
    assert_eq!(lines[10], branch);
    assert_eq!(lines[11]["args"][1], "0xff");
    assert_eq!(
        lines[12],
        json!({"type": "event", "thread": 3, "insn": 12, "event": "thread-end", "killed": 9})
    );
    assert_eq!(lines.len(), 13);
}

#[test]
fn lackey_knows_modifications() {
    let mut dump = DumpLackey::new(Vec::new());
    tell(&mut dump);
    let expected = "I  00401000,1\n M 7ffe0010,2\nI  00401001,1\n L 7ffe0000,1\n";
    assert_eq!(String::from_utf8(dump.into_inner()).unwrap(), expected);
}

#[test]
fn a_load_at_the_end_of_a_batch_may_still_become_a_modification() {
    let records = [
        Record::insn(GuestVa(0x10), 1, InsnKind::OTHER),
        Record::load(GuestVa(0x20), 4),
        Record::store(GuestVa(0x20), 4),
        Record::insn(GuestVa(0x11), 1, InsnKind::OTHER),
        Record::load(GuestVa(0x30), 4),
    ];
    let mut dump = DumpLackey::new(Vec::new());
    dump.records(&Batch::new(T, 0, &records[..2])).unwrap();
    dump.records(&Batch::new(T, 1, &records[2..])).unwrap();
    dump.finish().unwrap();
    let expected = "I  00000010,1\n M 00000020,4\nI  00000011,1\n L 00000030,4\n";
    assert_eq!(String::from_utf8(dump.into_inner()).unwrap(), expected);
}

fn record() -> impl Strategy<Value = Record> {
    let access = (any::<u8>(), any::<u32>(), any::<u64>());
    prop_oneof![
        (any::<u8>(), any::<u8>(), any::<u64>()).prop_map(|(len, kind, pc)| Record::insn(
            GuestVa(pc),
            len,
            InsnKind(kind)
        )),
        access.prop_map(|(f, size, a)| Record::Load {
            flags: AccessFlags(f),
            size,
            addr: GuestVa(a)
        }),
        access.prop_map(|(f, size, a)| Record::Store {
            flags: AccessFlags(f),
            size,
            addr: GuestVa(a)
        }),
        access.prop_map(|(f, size, a)| Record::Flush {
            flags: AccessFlags(f),
            size,
            addr: GuestVa(a)
        }),
        (any::<bool>(), any::<u64>()).prop_map(|(t, a)| Record::branch(t, GuestVa(a))),
    ]
}

/// Reads a record's line back, but for flags.
fn read_back(line: &Value) -> Record {
    let address = |key: &str| {
        let text = line[key].as_str().unwrap();
        GuestVa(u64::from_str_radix(&text[2..], 16).unwrap())
    };
    let number = |key: &str| line[key].as_u64().unwrap();
    match line["type"].as_str().unwrap() {
        "insn" => {
            let named = |name: &str| (0..=255).map(InsnKind).find(|k| k.name() == Some(name));
            let kind = line["kind"].as_str().map_or_else(
                || InsnKind(u8::try_from(number("kind")).unwrap()),
                |name| named(name).unwrap(),
            );
            Record::insn(address("pc"), u8::try_from(number("len")).unwrap(), kind)
        }
        "load" => Record::load(address("addr"), number("size") as u32),
        "store" => Record::store(address("addr"), number("size") as u32),
        "branch" => Record::branch(line["taken"].as_bool().unwrap(), address("target")),
        _ => Record::Flush {
            flags: AccessFlags::NONE,
            size: number("size") as u32,
            addr: address("addr"),
        },
    }
}

fn without_flags(record: &Record) -> Record {
    let mut record = *record;
    if let Record::Load { flags, .. } | Record::Store { flags, .. } | Record::Flush { flags, .. } =
        &mut record
    {
        *flags = AccessFlags::NONE;
    }
    record
}

proptest! {
    #[test]
    fn json_says_what_the_records_say(records in prop::collection::vec(record(), 0..50), before: u64) {
        let mut dump = DumpJson::new(Vec::new());
        dump.records(&Batch::new(T, before, &records)).unwrap();
        dump.finish().unwrap();
        let read: Vec<_> = objects(dump.into_inner()).iter().map(read_back).collect();
        let told: Vec<_> = records.iter().map(without_flags).collect();
        prop_assert_eq!(read, told);
    }
}
