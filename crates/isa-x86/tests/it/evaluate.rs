//! Accesses of single executions, by example.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, Record};
use ichnos_isa_x86::{Error, Gpr, Inst, Regs, Segment, XComponent, XLayout, XState, accesses};

use crate::machine::{Dice, Machine};

/// A machine with everything that an evaluation can ask for.
struct Given {
    machine: Machine,
    xstate: Option<XState>,
    tiles: Option<[u8; 64]>,
    header: Option<[u8; 16]>,
}

impl Regs for Given {
    fn gpr(&self, reg: Gpr) -> u64 {
        self.machine.gpr(reg)
    }
    fn segment_base(&self, segment: Segment) -> GuestVa {
        GuestVa(if segment == Segment::Fs { 0x7000_0000 } else { 0x9000_0000 })
    }
    fn rflags(&self) -> u64 {
        0
    }
    fn vector(&self, number: u8) -> [u8; 64] {
        self.machine.vector(number)
    }
    fn opmask(&self, number: u8) -> u64 {
        self.machine.opmask(number)
    }
    fn mxcsr(&self) -> Option<u32> {
        Some(0x1f80)
    }
    fn xstate(&self) -> Option<XState> {
        self.xstate
    }
    fn tile_config(&self) -> Option<[u8; 64]> {
        self.tiles
    }
    fn peek(&self, _: GuestVa, out: &mut [u8]) -> bool {
        match self.header {
            Some(header) => {
                out.copy_from_slice(&header[..out.len()]);
                true
            }
            None => false,
        }
    }
}

/// rdi = 0x1000, rsi = 0x2000, rsp = 0x8000, rbp = 0x9000, rcx = 3, others 0.
fn given() -> Given {
    let mut machine = Machine::random(&mut Dice::new(9));
    machine.gpr = [0; 16];
    machine.set(Gpr::Rdi, 0x1000);
    machine.set(Gpr::Rsi, 0x2000);
    machine.set(Gpr::Rsp, 0x8000);
    machine.set(Gpr::Rbp, 0x9000);
    machine.set(Gpr::Rcx, 3);
    Given { machine, xstate: None, tiles: None, header: None }
}

fn run(given: &Given, bytes: &[u8]) -> Result<Vec<String>, Error> {
    let inst = Inst::decode(bytes, GuestVa(0x40_0000))?;
    let mut records = Vec::new();
    accesses(&inst, given, &mut records)?;
    Ok(records.iter().map(text).collect())
}

fn text(record: &Record) -> String {
    let (name, flags, size, addr) = match record {
        Record::Load { flags, size, addr } => ("load", flags, size, addr),
        Record::Store { flags, size, addr } => ("store", flags, size, addr),
        Record::Prefetch { flags, size, addr } => ("prefetch", flags, size, addr),
        Record::Flush { flags, size, addr } => ("flush", flags, size, addr),
        other => panic!("not an access: {other:?}"),
    };
    let mut out = format!("{name} {:x}+{size}", addr.0);
    for (flag, letter) in [
        (AccessFlags::ATOMIC, " atomic"),
        (AccessFlags::STACK, " stack"),
        (AccessFlags::LANE, " lane"),
        (AccessFlags::STRING, " string"),
        (AccessFlags::STATE, " state"),
        (AccessFlags::NON_TEMPORAL, " nt"),
        (AccessFlags::FOR_WRITE, " write"),
    ] {
        if flags.has(flag) {
            out += letter;
        }
    }
    out
}

#[track_caller]
fn check(given: &Given, bytes: &[u8], expected: &[&str]) {
    assert_eq!(run(given, bytes).expect("it can be evaluated"), expected);
}

#[test]
fn loads_come_before_stores() {
    let g = given();
    check(&g, &[0xff, 0x37], &["load 1000+8", "store 7ff8+8 stack"]); // push (%rdi)
    check(&g, &[0x8f, 0x07], &["load 8000+8 stack", "store 1000+8"]); // pop (%rdi)
    check(&g, &[0xff, 0x17], &["load 1000+8", "store 7ff8+8 stack"]); // call *(%rdi)
    check(&g, &[0x01, 0x07], &["load 1000+4", "store 1000+4"]); // add %eax,(%rdi)
    check(&g, &[0x87, 0x07], &["load 1000+4 atomic", "store 1000+4 atomic"]); // xchg
    check(&g, &[0xc9], &["load 9000+8 stack"]); // leave
    check(&g, &[0xc3], &["load 8000+8 stack"]); // ret
    // popq 8(%rsp): the address is formed after rsp has moved.
    check(&g, &[0x8f, 0x44, 0x24, 0x08], &["load 8000+8 stack", "store 8010+8"]);
    // enter $16,$3
    let copies = ["load 8ff8+8 stack", "load 8ff0+8 stack"];
    let pushes =
        ["store 7ff8+8 stack", "store 7ff0+8 stack", "store 7fe8+8 stack", "store 7fe0+8 stack"];
    check(&g, &[0xc8, 0x10, 0x00, 0x03], &[&copies[..], &pushes[..]].concat());
}

#[test]
fn strings_step_by_step() {
    let mut g = given();
    check(&g, &[0xa4], &["load 2000+1", "store 1000+1"]); // movsb
    check(&g, &[0xf3, 0x48, 0xa5], &["load 2000+8 string", "store 1000+8 string"]); // rep movsq
    check(&g, &[0xf3, 0xa6], &["load 2000+1 string", "load 1000+1 string"]); // repe cmpsb
    check(&g, &[0xf2, 0xae], &["load 1000+1 string"]); // repne scasb
    check(&g, &[0x64, 0xa4], &["load 70002000+1", "store 1000+1"]); // movsb %fs:(%rsi)
    g.machine.set(Gpr::Rcx, 0);
    check(&g, &[0xf3, 0xa4], &[]);
    // With a 32-bit address size only ecx counts.
    g.machine.set(Gpr::Rcx, 1 << 32);
    check(&g, &[0x67, 0xf3, 0xaa], &[]);
    check(&g, &[0xf3, 0xaa], &["store 1000+1 string"]);
}

#[test]
fn addresses_wrap_and_are_cut() {
    let mut g = given();
    g.machine.set(Gpr::Rdi, u64::MAX);
    check(&g, &[0x8b, 0x47, 0x02], &["load 1+4"]); // mov 2(%rdi),%eax
    g.machine.set(Gpr::Rdi, 0x1_ffff_fff0);
    check(&g, &[0x67, 0x8b, 0x47, 0x20], &["load 10+4"]); // mov 0x20(%edi),%eax
    check(&g, &[0x64, 0x67, 0x8b, 0x47, 0x20], &["load 70000010+4"]); // with %fs
    g.machine.set(Gpr::Rbx, 0x500);
    g.machine.set(Gpr::Rax, 0xffff_ff12);
    check(&g, &[0xd7], &["load 512+1"]); // xlat
    g.machine.set(Gpr::Rdi, 0x1000);
    g.machine.set(Gpr::Rax, (-1i64).cast_unsigned());
    check(&g, &[0x48, 0x0f, 0xa3, 0x07], &["load ff8+8"]); // bt %rax,(%rdi)
    g.machine.set(Gpr::Rax, 0xffff_0011);
    check(&g, &[0x66, 0x0f, 0xa3, 0x07], &["load 1002+2"]); // bt %ax,(%rdi)
}

#[test]
fn runs_of_active_lanes() {
    let mut g = given();
    g.machine.k[1] = 0b1011_0110;
    // vmovdqu32 (%rdi),%ymm1{%k1}
    let masked = [0x62, 0xf1, 0x7e, 0x29, 0x6f, 0x0f];
    check(&g, &masked, &["load 1004+8 lane", "load 1010+8 lane", "load 101c+4 lane"]);
    // vpcompressd %ymm1,(%rdi){%k1}: five lanes side by side
    check(&g, &[0x62, 0xf2, 0x7d, 0x29, 0x8b, 0x0f], &["store 1000+20 lane"]);
    // vaddps (%rdi){1to8},%ymm1,%ymm2{%k1}: one element for all
    check(&g, &[0x62, 0xf1, 0x74, 0x39, 0x58, 0x17], &["load 1000+4 lane"]);
    // vbroadcastf32x4 (%rdi),%zmm1{%k1}: lanes 1 2 4 5 7 use elements 1 2 0 1 3
    check(&g, &[0x62, 0xf2, 0x7d, 0x49, 0x1a, 0x0f], &["load 1000+16 lane"]);
    g.machine.k[1] = 0b0010_0000_0010;
    check(&g, &[0x62, 0xf2, 0x7d, 0x49, 0x1a, 0x0f], &["load 1004+4 lane"]);
    g.machine.k[1] = 0;
    check(&g, &masked, &[]);
    g.machine.k[1] = u64::MAX;
    check(&g, &masked, &["load 1000+32 lane"]);
    // vmovdqu8 %zmm1,(%rdi){%k1}
    check(&g, &[0x62, 0xf1, 0x7f, 0x49, 0x7f, 0x0f], &["store 1000+64 lane"]);
}

#[test]
fn gathers_go_lane_by_lane() {
    let mut g = given();
    let indices = [5i32, -1, 0, 7];
    for (i, index) in indices.iter().enumerate() {
        g.machine.z[2][4 * i..4 * i + 4].copy_from_slice(&index.to_le_bytes());
        let sign = if i == 2 { 0 } else { 0x80 };
        g.machine.z[1][4 * i + 3] = sign;
    }
    // vpgatherdd %xmm1,(%rdi,%xmm2,4),%xmm3
    let expected = ["load 1014+4 lane", "load ffc+4 lane", "load 101c+4 lane"];
    check(&g, &[0xc4, 0xe2, 0x71, 0x90, 0x1c, 0x97], &expected);
    g.machine.k[1] = 0b1001;
    // vpscatterdd %xmm1,(%rdi,%xmm2,4){%k1}
    let expected = ["store 1014+4 lane", "store 101c+4 lane"];
    check(&g, &[0x62, 0xf2, 0x7d, 0x09, 0xa0, 0x0c, 0x97], &expected);
}

#[test]
fn hints_are_no_accesses() {
    let g = given();
    check(&g, &[0x0f, 0x18, 0x0f], &["prefetch 1000+0"]);
    check(&g, &[0x0f, 0x18, 0x07], &["prefetch 1000+0 nt"]);
    check(&g, &[0x0f, 0x0d, 0x0f], &["prefetch 1000+0 write"]);
    check(&g, &[0x0f, 0xae, 0x3f], &["flush 1000+0"]);
    check(&g, &[0x0f, 0x1f, 0x07], &[]); // nopl (%rdi)
    check(&g, &[0x8d, 0x07], &[]); // lea (%rdi),%eax
}

#[test]
fn tiles_go_row_by_row() {
    let mut g = given();
    let tileloadd = [0xc4, 0xe2, 0x7b, 0x4b, 0x14, 0x0f]; // (%rdi,%rcx),%tmm2
    let missing = run(&g, &tileloadd).expect_err("the configuration is missing");
    assert!(missing.to_string().contains("tile configuration"), "{missing}");
    let mut config = [0; 64];
    config[0] = 1;
    config[20] = 24; // bytes per row of tile 2
    config[50] = 3; // rows of tile 2
    g.tiles = Some(config);
    g.machine.set(Gpr::Rcx, 0x40);
    check(&g, &tileloadd, &["load 1000+24", "load 1040+24", "load 1080+24"]);
}

#[test]
fn state_by_component() {
    let mut g = given();
    let xsave = [0x0f, 0xae, 0x27];
    let missing = run(&g, &xsave).expect_err("the layout is missing");
    assert!(matches!(missing, Error::Missing { .. }));
    let mut layout = XLayout { components: [XComponent::default(); 62] };
    layout.components[0] = XComponent { size: 256, offset: 576, aligned: false };
    layout.components[3] = XComponent { size: 64, offset: 1088, aligned: false };
    layout.components[4] = XComponent { size: 512, offset: 1152, aligned: true };
    g.xstate = Some(XState { xcr0: 0x67, in_use: 0x47, layout });
    g.machine.set(Gpr::Rax, 0x67);
    let saved = ["store 1000+416 state", "store 1240+256 state", "store 1440+576 state"];
    let (bv, saved_bv) = ("load 1200+8 state", "store 1200+8 state");
    check(&g, &xsave, &[&[bv], &saved[..], &[saved_bv]].concat());
    // Compacted: component 5 keeps its place but is not in use.
    let xsavec = [0x0f, 0xc7, 0x27];
    let compact = [
        "store 1000+24 state",
        "store 1018+392 state",
        "store 1240+256 state",
        "store 1380+512 state",
        "store 1200+16 state",
    ];
    let joined = ["store 1000+416 state", compact[2], compact[3], compact[4]];
    check(&g, &xsavec, &joined);
    // Only what the header says was saved comes back.
    let xrstor = [0x0f, 0xae, 0x2f];
    assert!(matches!(run(&g, &xrstor), Err(Error::Missing { .. })));
    let mut header = [0; 16];
    header[0] = 0x04;
    g.header = Some(header);
    let loaded = ["load 1200+64 state", "load 1018+8 state", "load 1240+256 state"];
    check(&g, &xrstor, &loaded);
    header[8] = 0x24; // compacted: components 2 and 5
    header[0] = 0x20;
    header[15] = 0x80;
    g.header = Some(header);
    check(&g, &xrstor, &["load 1200+64 state", "load 1340+64 state"]);
}

#[test]
fn conditions() {
    let holds = |bytes: &[u8], flags, rcx| {
        Inst::decode(bytes, GuestVa(0)).expect("decodes").condition_holds(flags, rcx)
    };
    assert_eq!(holds(&[0x74, 0x00], 0x40, 0), Some(true)); // je
    assert_eq!(holds(&[0x75, 0x00], 0x40, 0), Some(false)); // jne
    assert_eq!(holds(&[0xe2, 0xfe], 0, 1), Some(false)); // loop
    assert_eq!(holds(&[0xe2, 0xfe], 0, 0), Some(true));
    assert_eq!(holds(&[0x67, 0xe2, 0xfd], 0, 1 << 32 | 1), Some(false)); // addr32 loop
    assert_eq!(holds(&[0xe1, 0xfe], 0x40, 2), Some(true)); // loope
    assert_eq!(holds(&[0xe0, 0xfe], 0x40, 2), Some(false)); // loopne
    assert_eq!(holds(&[0xe3, 0x00], 0, 0), Some(true)); // jrcxz
    assert_eq!(holds(&[0x67, 0xe3, 0x00], 0, 1 << 32), Some(true)); // jecxz
    assert_eq!(holds(&[0x0f, 0x44, 0xc0], 0x40, 0), Some(true)); // cmove
    assert_eq!(holds(&[0x90], 0x40, 0), None);
}
