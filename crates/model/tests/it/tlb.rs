//! TLBs against a twin of plain lists, and walks by hand.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, InsnKind, Record};
use ichnos_model::{
    ByKind, PageRegion, Pages, TlbConfig, TlbHierarchyConfig, TlbLevelConfig, TlbModel, Tlbs,
    WalkConfig,
};
use proptest::prelude::*;

use super::drive::feed;

fn level(name: &str, tlbs: Tlbs) -> TlbLevelConfig {
    TlbLevelConfig { name: name.to_owned(), tlbs }
}

fn two_levels(code: TlbConfig, data: TlbConfig, second: TlbConfig) -> TlbHierarchyConfig {
    TlbHierarchyConfig {
        levels: vec![
            level("tlb1", Tlbs::Split { code, data }),
            level("tlb2", Tlbs::Unified(second)),
        ],
        ..TlbHierarchyConfig::default()
    }
}

/// A list of pages, most recent first; whether the page was there.
fn look_up(list: &mut Vec<u64>, sets: u64, ways: usize, page: u64) -> bool {
    let found = list.iter().position(|&other| other == page);
    if let Some(at) = found {
        list.remove(at);
    }
    list.insert(0, page);
    let rivals = list.iter().filter(|&&other| other % sets == page % sets).count();
    if rivals > ways {
        let at = list.iter().rposition(|&other| other % sets == page % sets).expect("rivals");
        list.remove(at);
    }
    found.is_some()
}

proptest! {
    #[test]
    fn two_levels_equal_their_twin(
        accesses in prop::collection::vec((0u64..30, 0u64..40, any::<bool>(), 0u64..4096), 1..300),
        (sets, ways) in (1u64..4, 1u64..4),
    ) {
        let config = two_levels(
            TlbConfig::new(4, 4),
            TlbConfig::new((sets * ways) as u32, ways as u32),
            TlbConfig::new(16, 8),
        );
        let mut model = TlbModel::new(&config).unwrap();
        let mut records = Vec::new();
        let (mut code, mut data, mut second) = (Vec::new(), Vec::new(), Vec::new());
        let (mut first_misses, mut walks) = ([0u64; 2], ByKind::default());
        for (code_page, data_page, store, offset) in accesses {
            records.push(Record::insn(GuestVa(code_page << 12), 4, InsnKind::OTHER));
            if !look_up(&mut code, 1, 4, code_page) {
                first_misses[0] += 1;
                walks.fetch += u64::from(!look_up(&mut second, 2, 8, code_page));
            }
            // Accesses of four bytes may reach into the next page.
            let addr = GuestVa((data_page << 12) + offset);
            records.push(if store { Record::store(addr, 4) } else { Record::load(addr, 4) });
            let last = (addr.0 + 3) >> 12;
            for page in data_page..=last {
                if !look_up(&mut data, sets, ways as usize, page) {
                    first_misses[1] += 1;
                    let missed = u64::from(!look_up(&mut second, 2, 8, page));
                    if store { walks.store += missed } else { walks.load += missed }
                }
            }
        }
        feed(&mut model, &records);
        let report = model.report();
        prop_assert_eq!(report.tlbs[0].misses.total(), first_misses[0]);
        prop_assert_eq!(report.tlbs[1].misses.total(), first_misses[1]);
        prop_assert_eq!(report.walks.walks, walks);
        prop_assert_eq!(report.tlbs[2].accesses.total(), first_misses[0] + first_misses[1]);
        prop_assert_eq!(report.walks.accesses, 4 * walks.total());
        prop_assert_eq!(report.walks.cycles, 80 * walks.total());
    }
}

#[test]
fn larger_pages_need_fewer_entries_and_shorter_walks() {
    let loads: Vec<Record> =
        (0..512).map(|page| Record::load(GuestVa(0x4000_0000 + page * 4096), 8)).collect();
    let run = |pages: Pages| {
        let mut config =
            two_levels(TlbConfig::new(16, 4), TlbConfig::new(16, 4), TlbConfig::new(64, 4));
        config.pages = pages;
        let mut model = TlbModel::new(&config).expect("a right configuration");
        feed(&mut model, &loads);
        model.report().walks
    };
    let small = run(Pages::default());
    assert_eq!((small.walks.load, small.accesses), (512, 2048));
    let region = PageRegion { start: GuestVa(0x4000_0000), len: 1 << 21, page: 1 << 21 };
    let large = run(Pages { base: 4096, regions: vec![region] });
    assert_eq!((large.walks.load, large.accesses), (1, 3));
}

/// Three pages under one table: the first walk takes four accesses, the others
/// one each, for the page-walk cache leads to the last table. A page under the
/// next table takes two.
#[test]
fn the_page_walk_cache_shortens_walks() {
    let mut config = two_levels(TlbConfig::new(4, 4), TlbConfig::new(4, 4), TlbConfig::new(8, 8));
    config.walk = WalkConfig { cache_entries: 16, ..WalkConfig::default() };
    let mut model = TlbModel::new(&config).expect("a right configuration");
    let load = |addr: u64| Record::load(GuestVa(addr), 8);
    feed(&mut model, &[load(0), load(0x1000), load(0x2000), load(0x20_0000)]);
    assert_eq!(model.report().walks.accesses, 4 + 1 + 1 + 2);
}

#[test]
fn errors_name_the_field() {
    let mut config = two_levels(TlbConfig::new(4, 4), TlbConfig::new(6, 4), TlbConfig::new(8, 8));
    let message = |config: &TlbHierarchyConfig| config.check().expect_err("wrong").to_string();
    assert_eq!(message(&config), "tlb1d.entries must be a multiple of 4 (ways), but is 6");
    config = two_levels(TlbConfig::new(4, 4), TlbConfig::new(4, 4), TlbConfig::new(8, 8));
    config.pages.base = 5000;
    assert_eq!(message(&config), "pages.base must be a power of two, but is 5000");
}
