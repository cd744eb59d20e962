//! How fast branch predictors and TLBs are. Redo with `cargo bench -p
//! ichnos-model --bench front`. The branches of these streams are random to one
//! part in eight, so the predictors' accuracy here means nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod stream;

use ichnos_base::Record;
use ichnos_model::{BranchConfig, BranchModel, DirectionConfig, Machine, TlbModel};

fn main() {
    for (name, records) in stream::chosen() {
        let branches = records.iter().filter(|r| matches!(r, Record::Branch { .. })).count() as f64;
        let references = records.len() as f64 - branches;
        println!("{name}: {references} references, {branches} branches");
        if branches > 0.0 {
            for (predictor, direction) in DirectionConfig::ALL {
                let config = BranchConfig { direction, ..BranchConfig::default() };
                let seconds =
                    stream::measure(&records, || BranchModel::new(&config).expect("right"));
                println!("  {predictor:12} {:8.1} M branches/s", branches / seconds / 1e6);
            }
        }
        for machine in Machine::all() {
            let seconds =
                stream::measure(&records, || TlbModel::new(&machine.tlbs).expect("right"));
            println!("  tlb {:16} {:8.1} M references/s", machine.name, references / seconds / 1e6);
        }
    }
}
