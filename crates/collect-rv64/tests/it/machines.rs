//! Bare programs that put the machine to the test: paging, protection, cache
//! blocks, a disk, many harts. Each runs as generated code and interpreted, and
//! both must take the same instructions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;

use ichnos_collect_rv64::Speed;

use crate::bare::{compile, config, passes, run};
use crate::guests::Folder;

fn check(name: &str) {
    let folder = Folder::new(name);
    if let Some(program) = compile(&folder, name) {
        passes(config(&program, 1));
    }
}

#[test]
fn pages_of_all_sizes_translate_and_fault() {
    check("paging");
}

#[test]
fn protection_binds_the_modes_it_should() {
    check("pmp");
}

#[test]
fn cache_blocks_are_zeroed_where_allowed() {
    check("blocks");
}

/// The guest reads what the host wrote, and the host what the guest wrote.
#[test]
fn a_disk_is_read_and_written() {
    let folder = Folder::new("disk");
    let Some(program) = compile(&folder, "disk") else { return };
    let image = folder.0.join("disk.img");
    let sectors: Vec<u8> = (0..64).flat_map(|n| [n; 512]).collect();
    let mut config = config(&program, 1);
    config.disk = Some(image.clone());
    for speed in [Speed::Generated, Speed::Interpreted] {
        // A sector begun but not whole is no sector.
        fs::write(&image, [&sectors[..], &[1; 100]].concat()).expect("the image can be written");
        config.speed = speed;
        let outcome = run(&config);
        assert_eq!(outcome.ending, ichnos_collect_rv64::system::Ending::ToHost(0));
        let after = fs::read(&image).expect("the image can be read");
        let mut expected = sectors.clone();
        for (n, byte) in expected[10 * 512..12 * 512].iter_mut().enumerate() {
            *byte = (n * 7) as u8;
        }
        expected.extend([1; 100]);
        assert!(after == expected, "the disk holds something else");
    }
}

/// From one hart to sixteen, in turns short and long: the same verdict, and for
/// each the same run twice.
#[test]
fn harts_take_turns() {
    let folder = Folder::new("harts");
    let Some(program) = compile(&folder, "harts") else { return };
    for (harts, quantum) in [(1, 1000), (2, 10), (4, 33), (16, 10), (16, 50), (16, 1000)] {
        let mut config = config(&program, harts);
        config.quantum = quantum;
        config.limit = Some(200_000_000);
        let once = passes(config.clone());
        assert_eq!(run(&config), once, "{harts} harts in turns of {quantum} do not repeat");
    }
}
