//! Real code: every function of the C library can be planned, and each level
//! stores less than the one before it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;
use std::process::Command;

use ichnos_base::GuestVa;
use ichnos_flow::{Level, Live, Region, Set, plan};
use ichnos_isa_x86::Inst;
use ichnos_trace::Slot;

use ichnos_lift::{FRAME, TAKEABLE, lift};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// The functions among the first `most` instructions that objdump finds.
fn functions(file: &str, most: usize) -> Vec<Region> {
    let out = Command::new("objdump")
        .args(["-d", "-w", "-j", ".text", file])
        .output()
        .expect("objdump starts");
    let text = String::from_utf8(out.stdout).expect("text");
    let mut regions: Vec<Region> = Vec::new();
    for line in text.lines().take(most) {
        if line.ends_with(">:") {
            regions.push(Region {
                takeable: TAKEABLE,
                frame: FRAME,
                live_outside: Live { registers: Set::ALL, flags: 0xff },
                ..Region::default()
            });
        }
        let Some(region) = regions.last_mut() else { continue };
        if let Some(inst) = instruction(line) {
            if region.insns.is_empty() {
                region.entries.push(inst.pc());
            }
            region.insns.push(lift(&inst));
        }
    }
    regions.retain(|region| !region.insns.is_empty());
    regions
}

/// The instruction on a line of objdump's.
pub fn instruction(line: &str) -> Option<Inst> {
    let (address, rest) = line.trim_start().split_once(":\t")?;
    let pc = GuestVa(u64::from_str_radix(address, 16).ok()?);
    let (hex, _) = rest.split_once('\t')?;
    let bytes: Result<Vec<u8>, _> =
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16)).collect();
    Inst::decode(&bytes.ok()?, pc).ok()
}

#[test]
fn libc_can_be_planned() {
    if !Path::new(LIBC).exists() {
        return;
    }
    let regions = functions(LIBC, 60_000);
    let insns: usize = regions.iter().map(|region| region.insns.len()).sum();
    assert!(insns > 40_000, "only {insns} instructions");
    let stored = Level::ALL.map(|level| {
        let mut bytes = 0;
        for region in &regions {
            let planned = plan(region, &level.into(), Slot(0)).expect("it can be planned");
            // Four bytes for each identifier.
            bytes += planned.pieces.iter().map(|piece| piece.bytes() + 4).sum::<usize>();
        }
        bytes
    });
    for pair in stored.windows(2) {
        assert!(pair[1] < pair[0], "{stored:?} bytes for {insns} instructions");
    }
    assert!(stored[4] * 3 < stored[0], "{stored:?} bytes for {insns} instructions");
}
