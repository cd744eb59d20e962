//! The accesses of flexible steps in raw executions: how many runs, and each run in words of fixed length.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record, RefKind};

use crate::error::Error;
use crate::flex::{Lane, Run, find_runs};
use crate::raw_pack::{cut, take_checked};

/// Appends accesses as a flexible step of a raw execution tells them; other records do not count.
pub fn put_raw_accesses(records: &[Record], out: &mut Vec<u8>) {
    put_raw_runs(&find_runs(records), out);
}

/// The same of accesses that are runs.
pub fn put_raw_runs(runs: &[Run], out: &mut Vec<u8>) {
    out.extend((runs.len() as u32).to_le_bytes());
    for run in runs {
        let lanes = || [Some(run.first), run.second].into_iter().flatten();
        out.extend(run.count.to_le_bytes());
        out.extend((lanes().count() as u32).to_le_bytes());
        for Lane { kind, flags, size, base, stride } in lanes() {
            for word in [kind.describe(flags, size), base.0, stride] {
                out.extend(word.to_le_bytes());
            }
        }
    }
}

/// Takes the runs of a flexible step.
pub(crate) fn take_runs(bytes: &mut &[u8], runs: &mut Vec<Run>) -> Result<(), Error> {
    let none = Error::Misuse("a raw buffer describes no access");
    let count = take_checked(bytes).map(u32::from_le_bytes).ok_or(cut())?;
    for _ in 0..count {
        let turns = take_checked(bytes).map(u32::from_le_bytes).ok_or(cut())?;
        let lanes = take_checked(bytes).map(u32::from_le_bytes).ok_or(cut())?;
        let first = take_lane(bytes)?;
        let second = if lanes > 1 { Some(take_lane(bytes)?) } else { None };
        if turns == 0 || !(1..=2).contains(&lanes) {
            return Err(none);
        }
        runs.push(Run { count: turns, first, second });
    }
    Ok(())
}

fn take_lane(bytes: &mut &[u8]) -> Result<Lane, Error> {
    let mut word = || take_checked(bytes).map(u64::from_le_bytes).ok_or(cut());
    let (what, base, stride) = (word()?, GuestVa(word()?), word()?);
    let none = Error::Misuse("a raw buffer describes no access");
    let (kind, flags, size) = RefKind::described(what).ok_or(none)?;
    Ok(Lane { kind, flags, size, base, stride })
}

#[cfg(test)]
mod tests {
    use ichnos_base::{AccessFlags, InsnKind};

    use super::*;

    #[test]
    fn runs_tell_all_accesses_in_their_order() {
        let load = |addr| RefKind::Load.record(AccessFlags::NONE, 8, GuestVa(addr));
        let store = |addr| RefKind::Store.record(AccessFlags::NONE, 4, GuestVa(addr));
        let insn = Record::insn(GuestVa(0x1000), 3, InsnKind::OTHER);
        let copied = (0..100).flat_map(|i| [load(0x5000 + 8 * i), store(0x9000 - 8 * i)]);
        let cases: [(Vec<Record>, usize); 6] = [
            (vec![], 0),
            (vec![load(8)], 1),
            (copied.collect(), 1),
            ((0..100).map(|i| store(4096 - 8 * i)).collect(), 1),
            // Four that have nothing to do with each other are two turns of two lanes.
            (vec![load(0), load(900), load(4), load(7), store(1)], 2),
            (vec![load(u64::MAX), load(7), store(0), load(15), store(1)], 4),
        ];
        for (expected, count) in cases {
            let mut bytes = Vec::new();
            put_raw_accesses(&[&[insn][..], &expected].concat(), &mut bytes);
            let (mut rest, mut runs) = (&bytes[..], Vec::new());
            take_runs(&mut rest, &mut runs).unwrap();
            assert_eq!((rest.len(), runs.len()), (0, count), "{runs:?}");
            let told = runs.iter().flat_map(|run| run.records(0, run.count));
            assert_eq!(told.collect::<Vec<_>>(), expected);
            for len in 0..bytes.len() {
                assert!(take_runs(&mut &bytes[..len], &mut Vec::new()).is_err(), "{len}");
            }
        }
    }
}
