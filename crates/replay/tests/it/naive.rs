//! Property tests against the naive twin: a plain list of everything pushed. What
//! comes out of a file must be that list, record for record, value for
//! value, event for event, whatever was pushed and however it was cut into batches.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::twin::{Input, Twin, inputs};
use ichnos_base::{Batch, Sink, Source, ThreadId};
use ichnos_replay::{Order, Replay};
use ichnos_trace::{Condition, Options, Reader, Writer};
use proptest::prelude::*;

fn write(inputs: &[Input], options: Options) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    crate::twin::push(inputs, &mut writer).expect("written");
    writer.finish().expect("finished");
    writer.into_inner()
}

fn small_chunks() -> Options {
    let mut options = Options::default();
    options.chunk_insns = 7;
    options.open_chunks = 2;
    options
}

fn check(inputs: &[Input], options: Options) {
    let mut expected = Twin::default();
    crate::twin::push(inputs, &mut expected).expect("infallible");
    let reader = Reader::from_bytes(write(inputs, options)).expect("readable");
    assert_eq!(*reader.condition(), Condition::Complete);
    let mut got = Twin::default();
    Replay::new(&reader).drive(&mut got).expect("replayed");
    assert_eq!(got.by_thread, expected.by_thread);
    assert_eq!(reader.totals(), expected.totals);
    let mut merged = Twin::default();
    Replay::new(&reader).order(Order::ByTime).drive(&mut merged).expect("replayed");
    assert_eq!(merged.by_thread, expected.by_thread);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_pushed_comes_out(inputs in inputs()) {
        check(&inputs, Options::default());
        check(&inputs, small_chunks());
    }

    #[test]
    fn code_is_known_where_it_was_known(mut inputs in inputs()) {
        for input in &mut inputs {
            if let Input::Records(thread, ..) | Input::Event(thread, _) = input {
                *thread = 0;
            }
        }
        let mut expected = Twin { with_code: true, ..Twin::default() };
        crate::twin::push(&inputs, &mut expected).expect("infallible");
        let reader = Reader::from_bytes(write(&inputs, small_chunks())).expect("readable");
        let mut got = Twin { with_code: true, ..Twin::default() };
        Replay::new(&reader).drive(&mut got).expect("replayed");
        prop_assert_eq!(got.by_thread, expected.by_thread);
    }

    #[test]
    fn a_range_is_what_filtering_gives(inputs in inputs(), start in 0u64..40, len in 0u64..40) {
        let mut expected = Twin { window: Some(start..start + len), ..Twin::default() };
        crate::twin::push(&inputs, &mut expected).expect("infallible");
        let reader = Reader::from_bytes(write(&inputs, small_chunks())).expect("readable");
        let mut got = Twin::default();
        let mut replay = Replay::new(&reader).insns(start..start + len);
        replay.drive(&mut got).expect("replayed");
        let got: Vec<_> = got.by_thread.into_iter().filter(|t| !t.1.is_empty()).collect();
        let expected: Vec<_> = expected.by_thread.into_iter().filter(|t| !t.1.is_empty()).collect();
        prop_assert_eq!(got, expected);
    }
}

#[test]
fn long_string_instructions_cost_a_few_bytes() {
    use ichnos_base::{AccessFlags, GuestVa, InsnKind, Record};
    let flags = AccessFlags::STRING;
    let mut records = vec![Record::insn(GuestVa(0x1000), 2, InsnKind::OTHER)];
    for i in 0..1_000_000 {
        records.push(Record::Load { flags, size: 1, addr: GuestVa(0x10_0000 + i) });
        records.push(Record::Store { flags, size: 1, addr: GuestVa(0x90_0000 + i) });
    }
    records.push(Record::insn(GuestVa(0x1002), 1, InsnKind::OTHER));
    let inputs: Vec<_> =
        records.chunks(1000).map(|r| Input::Records(0, r.to_vec(), None)).collect();
    assert!(write(&inputs, Options::default()).len() < 2000);
    check(&inputs, Options::default());
}

#[test]
fn wrong_values_are_refused() {
    use ichnos_base::{GuestVa, Record};
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    let records = [Record::load(GuestVa(1), 8)];
    let batch = Batch { values: Some(&[1, 2, 3]), ..Batch::new(ThreadId(0), 0, &records) };
    assert!(writer.records(&batch).is_err());
    assert!(writer.finish().is_err(), "after an error nothing more is written");
}
