//! What info, check and diff print.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_analyze::check::{Checker, Config};
use ichnos_analyze::diff::{Budget, Depth, Dictionary, Keys, Pairing, Tokens, View};
use ichnos_analyze::diff::{first_difference, similarity};
use ichnos_analyze::inventory::Inventory;
use ichnos_base::*;
use ichnos_report::*;

/// Three instructions, of which the last lies at `last`.
struct Tiny {
    last: u64,
}

impl Source for Tiny {
    type Error = Infallible;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Infallible, S::Error>> {
        let command = ["./tiny"];
        let about =
            About { isa: Isa::X86_64, command: &command, branches: true, ..About::default() };
        let records = [
            Record::insn(GuestVa(0x1000), 4, InsnKind::OTHER),
            Record::load(GuestVa(0x2000), 8),
            Record::insn(GuestVa(0x1004), 2, InsnKind::BRANCH),
            Record::branch(true, GuestVa(0x1000)),
            Record::insn(GuestVa(self.last), 4, InsnKind::OTHER),
        ];
        let t = ThreadId(0);
        let mut tell = || -> Result<(), S::Error> {
            sink.begin(&about)?;
            sink.event(t, &Event::ThreadStart(ThreadStart::default()))?;
            sink.records(&Batch::new(t, 0, &records))?;
            sink.event(t, &Event::ThreadEnd(EndStatus::Exited(0)))?;
            sink.finish()
        };
        tell().map_err(DriveError::Sink)
    }
}

#[test]
fn info_has_the_promised_keys() {
    let mut inventory = Inventory::new();
    Tiny { last: 0x1000 }.drive(&mut inventory).unwrap();
    let stock = inventory.into_stock(1);
    let info = info_json(&stock, Some(6));
    assert_eq!(info["instructions"], 3);
    assert_eq!(info["loads"], 1);
    assert_eq!(info["stores"], 0);
    assert_eq!(info["branches"], 1);
    assert_eq!(info["file_bytes"], 6);
    assert_eq!(info["bits_per_instruction"], 16.0);
    assert_eq!(info["threads"][0]["instructions"], 3);
    assert_eq!(info["threads"][0]["end"], "exited 0");
    assert_eq!(info["top"][0]["pc"], "0x1000");
    assert_eq!(info["top"][0]["executions"], 2);
    assert_eq!(info["kinds"]["branch"], 1);
    let text = info_text(&stock, Some(6));
    for part in [
        "command       ./tiny",
        "instructions  3\n",
        "16.000 bits per",
        "(100.00% taken)",
        "exited 0",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn verdicts_are_told_with_their_places() {
    let mut checker = Checker::new(Config::default());
    Tiny { last: 0x1008 }.drive(&mut checker).unwrap();
    let json = verdict_json(&checker.into_verdict());
    assert_eq!(json["clean"], false);
    assert_eq!(json["by_rule"]["flow"], 1);
    assert_eq!(json["first"][0]["insn"], 2);
    assert_eq!(json["first"][0]["pc"], "0x1008");
}

#[test]
fn differences_are_shown_on_both_sides() {
    let (mut a, mut b) = (Tiny { last: 0x1000 }, Tiny { last: 0x1008 });
    let found = first_difference(&mut a, &mut b, Depth::Events, &Pairing::ById).unwrap();
    let text = comparison_text(&found);
    assert!(text.starts_with("threads 0 and 0 differ after 2 instructions:\n"), "{text}");
    assert!(text.contains("\n  B taken 0x1000\n- I 0x1000 4 other\n"), "{text}");
    assert!(text.contains("\n+ I 0x1008 4 other\n+ E ThreadEnd(Exited(0))\n"), "{text}");
    let json = comparison_json(&found);
    assert_eq!(json["differences"][0]["insn"], 2);
    assert_eq!(json["equal"], false);
    let same = first_difference(&mut a, &mut Tiny { last: 0x1000 }, Depth::Events, &Pairing::ById);
    assert_eq!(comparison_text(&same.unwrap()), "equal: 1 threads\n");
}

#[test]
fn similarity_is_a_table() {
    let mut first = Tokens::new(View::Insns, Keys::Addresses, 100, Dictionary::default());
    Tiny { last: 0x1000 }.drive(&mut first).unwrap();
    let (a, dictionary) = first.into_parts();
    let mut second = Tokens::new(View::Insns, Keys::Addresses, 100, dictionary);
    Tiny { last: 0x1008 }.drive(&mut second).unwrap();
    let (b, _) = second.into_parts();
    let (all, rows) = similarity(&a, &b, &Pairing::ById, &Budget::default());
    let json = similarity_table(&all, &rows).to_json();
    assert_eq!(json[0]["distance_low"], 1);
    assert_eq!(json[1]["distance_high"], 1);
    assert!((json[1]["similarity_low"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-9);
}
