//! What is told of mappings is what the kernel says of them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;

use ichnos_base::{Batch, Event, Map, MapKind, Protection, Sink, ThreadId};
use ichnos_collect_exec::Record as What;

/// Rights, place in a file, and name of a page.
type Page = (u8, u64, String);

/// Page by page what the events say.
#[derive(Default)]
struct Told {
    pages: BTreeMap<u64, Page>,
    events: u64,
}

const PAGE: u64 = 4096;

fn page(map: &Map<'_>, at: u64) -> Page {
    let file = matches!(map.kind, MapKind::FILE | MapKind::IMAGE);
    let offset = if file { map.offset.0 + (at - map.start.0) } else { 0 };
    (map.protection.0, offset, map.path.to_owned())
}

impl Sink for Told {
    type Error = Infallible;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::Map(map) if map.start.0 < 1 << 47 => {
                for at in (map.start.0..map.start.0 + map.len).step_by(PAGE as usize) {
                    self.pages.insert(at, page(map, at));
                }
                self.events += 1;
            }
            Event::Unmap { start, len } => {
                for at in (start.0..start.0 + len).step_by(PAGE as usize) {
                    self.pages.remove(&at);
                }
                self.events += 1;
            }
            Event::Exec { .. } => self.pages.clear(),
            _ => {}
        }
        Ok(true)
    }
}

/// Page by page what the text says.
fn said(text: &str) -> BTreeMap<u64, Page> {
    let mut pages = BTreeMap::new();
    let hex = |digits| u64::from_str_radix(digits, 16).expect("a number");
    for line in text.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-').expect("a range");
        let (start, end) = (hex(start), hex(end));
        if start >= 1 << 47 {
            continue;
        }
        let right = |at: usize, right: Protection| {
            if fields[1].as_bytes()[at] == b'-' { 0 } else { right.0 }
        };
        let rights =
            right(0, Protection::READ) | right(1, Protection::WRITE) | right(2, Protection::EXEC);
        let file = fields[4] != "0";
        let name = fields[5..].join(" ");
        for at in (start..end).step_by(PAGE as usize) {
            let offset = if file { hex(fields[2]) + (at - start) } else { 0 };
            pages.insert(at, (rights, offset, name.clone()));
        }
    }
    pages
}

/// After a random series of calls, also with pages that the engine has closed.
#[test]
fn what_is_told_of_mappings_is_what_the_kernel_says() {
    let program = super::guest("mappings", super::Link::Dynamic);
    for seed in 0..12 {
        let mut launch = super::piped(&program, &[&seed.to_string()]);
        launch.record(What::All);
        let path = super::hazards::fresh_file();
        let file = std::fs::File::create(&path).expect("a file");
        launch.command().stdout(file);
        let mut told = Told::default();
        let tracee = launch.spawn().expect("it starts");
        let status = tracee.collect(&mut told).expect("it is collected").status;
        assert!(status.success(), "{seed}: {status}");
        let text = super::hazards::read(&path);
        let stack = |page: &Page| page.2 == "[stack]";
        let mut want = said(&text);
        assert!(want.len() > 500 && told.events > 300, "{seed}: {} events", told.events);
        // The text has pages that the engine has closed to writing as the kernel has them.
        let lost: Vec<_> = want
            .iter()
            .filter(|(at, page)| {
                let mut told = told.pages.get(at).cloned().unwrap_or_default();
                if page.0 & Protection::EXEC.0 != 0 {
                    told.0 = told.0 & !Protection::WRITE.0 | page.0 & Protection::WRITE.0;
                }
                told != **page
            })
            .collect();
        assert!(lost.is_empty(), "{seed}: {lost:x?}");
        // It is told as large as it may become.
        told.pages.retain(|_, page| !stack(page));
        want.retain(|_, page| !stack(page));
        let more: Vec<_> = told.pages.iter().filter(|(at, _)| !want.contains_key(at)).collect();
        assert!(more.is_empty(), "{seed}: {more:x?}");
    }
}
