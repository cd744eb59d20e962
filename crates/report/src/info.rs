//! What `ichnos info` shows: text for people and JSON for programs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write as _;

use ichnos_analyze::inventory::{Image, KINDS, Stock, Thread};
use ichnos_base::{EndStatus, GuestVa, InsnKind, ThreadId};
use serde_json::{Map, Value, json};

use crate::number;
use crate::syscall_names::syscall_name;
use crate::table::{Cell, Table};

/// A trace's stock as JSON. It has at least `instructions`, `loads`, `stores`,
/// `branches`, `file_bytes`, `bits_per_instruction` and `threads`, a list with
/// the same per thread. The last two sizes are null if there is no file, and
/// per thread.
#[must_use]
pub fn info_json(stock: &Stock, file_bytes: Option<u64>) -> Value {
    let about = &stock.provenance;
    let mut info = thread_json(&stock.total);
    let more = json!({
        "isa": about.isa.name(),
        "collector": about.collector,
        "command": about.command,
        "folder": about.folder,
        "host": about.host,
        "started_ns": about.started_ns,
        "values": about.values,
        "file_bytes": file_bytes,
        "bits_per_instruction": file_bytes.and_then(|n| bits_per_insn(stock, n)),
        "distinct_instructions": stock.distinct_insns,
        "code": { "lines": stock.code.lines, "pages": stock.code.pages },
        "data": { "lines": stock.data.lines, "pages": stock.data.pages },
        "events": stock.events,
        "gaps": stock.gaps,
        "syscalls": syscalls(stock).to_json(),
        "images": images(stock).to_json(),
        "images_left_out": stock.images_left_out,
        "top": top(stock).to_json(),
        "threads": stock.threads.iter().map(named_thread).collect::<Value>(),
    });
    if let Value::Object(more) = more {
        info.extend(more);
    }
    Value::Object(info)
}

/// A trace's stock as text.
#[must_use]
pub fn info_text(stock: &Stock, file_bytes: Option<u64>) -> String {
    let about = &stock.provenance;
    let total = &stock.total.totals;
    let mut out = String::new();
    let mut line = |key: &str, value: String| {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{key:<14}{value}");
        }
    };
    line("command", about.command.join(" "));
    line("folder", about.folder.clone());
    line("collector", about.collector.clone());
    line("host", about.host.clone());
    line("isa", about.isa.name().unwrap_or("of a later version").into());
    line("instructions", number::thousands(total.insns));
    line(
        "loads",
        format!("{} ({})", number::thousands(total.loads), number::bytes(stock.total.bytes_loaded)),
    );
    line(
        "stores",
        format!(
            "{} ({})",
            number::thousands(total.stores),
            number::bytes(stock.total.bytes_stored)
        ),
    );
    let taken = number::percent(total.taken as f64, total.branches as f64);
    line("branches", format!("{} ({taken} taken)", number::thousands(total.branches)));
    line("events", number::thousands(stock.events));
    if stock.gaps > 0 {
        line("gaps", number::thousands(stock.gaps));
    }
    let touched = |t: ichnos_analyze::Touched| {
        format!("{} in {} pages", number::bytes(t.lines * 64), number::thousands(t.pages))
    };
    line("code touched", touched(stock.code));
    line("data touched", touched(stock.data));
    if let Some(bytes) = file_bytes {
        let bits = bits_per_insn(stock, bytes).map_or("-".into(), |b| format!("{b:.3}"));
        line("file", format!("{} ({bits} bits per instruction)", number::bytes(bytes)));
    }
    let tables = [
        ("threads", threads(stock)),
        ("instruction kinds", kinds(stock)),
        ("images", images(stock)),
        ("system calls", syscalls(stock)),
        ("hottest instructions", top(stock)),
    ];
    for (title, table) in tables.iter().filter(|(_, table)| !table.is_empty()) {
        let _ = write!(out, "\n{title}\n{}", table.to_text());
    }
    out
}

fn bits_per_insn(stock: &Stock, bytes: u64) -> Option<f64> {
    let insns = stock.total.totals.insns;
    (insns > 0).then(|| bytes as f64 * 8.0 / insns as f64)
}

fn thread_json(thread: &Thread) -> Map<String, Value> {
    let t = &thread.totals;
    let kinds = (0..KINDS).map(|kind| (kind_name(kind).to_owned(), thread.kinds[kind].into()));
    let value = json!({
        "instructions": t.insns,
        "loads": t.loads,
        "stores": t.stores,
        "branches": t.branches,
        "taken": t.taken,
        "prefetches": t.prefetches,
        "flushes": t.flushes,
        "bytes_loaded": thread.bytes_loaded,
        "bytes_stored": thread.bytes_stored,
        "kinds": Value::Object(kinds.collect()),
        "first_ns": thread.clock.map(|c| c.0),
        "last_ns": thread.clock.map(|c| c.1),
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn named_thread((id, thread): (&ThreadId, &Thread)) -> Value {
    let mut map = thread_json(thread);
    let start = thread.start.unwrap_or_default();
    map.insert("thread".into(), id.0.into());
    map.insert("process".into(), start.process.0.into());
    map.insert("creator".into(), start.creator.map(|c| c.0).into());
    map.insert("os_pid".into(), start.os_pid.into());
    map.insert("os_tid".into(), start.os_tid.into());
    map.insert("end".into(), thread.end.map(end_words).into());
    Value::Object(map)
}

fn end_words(end: EndStatus) -> String {
    match end {
        EndStatus::Exited(status) => format!("exited {status}"),
        EndStatus::Killed(signal) => format!("killed by signal {signal}"),
        _ => "unknown".into(),
    }
}

const fn kind_name(kind: usize) -> &'static str {
    match InsnKind(kind as u8).name() {
        Some(name) if kind + 1 < KINDS => name,
        _ => "unknown",
    }
}

fn threads(stock: &Stock) -> Table {
    let mut table = Table::new(&[
        ("thread", "thread"),
        ("process", "process"),
        ("os_tid", "tid"),
        ("instructions", "instructions"),
        ("loads", "loads"),
        ("stores", "stores"),
        ("branches", "branches"),
        ("end", "end"),
    ]);
    for (id, thread) in &stock.threads {
        let (t, start) = (&thread.totals, thread.start);
        table.row([
            u64::from(id.0).into(),
            start.map(|s| u64::from(s.process.0)).into(),
            // The system's numbers are names, not amounts.
            start.map(|s| s.os_tid.to_string()).into(),
            t.insns.into(),
            t.loads.into(),
            t.stores.into(),
            t.branches.into(),
            thread.end.map(end_words).into(),
        ]);
    }
    table
}

fn kinds(stock: &Stock) -> Table {
    let mut table =
        Table::new(&[("kind", "kind"), ("instructions", "instructions"), ("share", "share")]);
    let whole = stock.total.totals.insns.max(1) as f64;
    for (kind, &count) in stock.total.kinds.iter().enumerate().filter(|(_, count)| **count > 0) {
        table.row([kind_name(kind).into(), count.into(), Cell::Share(count as f64 / whole)]);
    }
    table
}

fn images(stock: &Stock) -> Table {
    let mut table = Table::new(&[
        ("process", "process"),
        ("start", "start"),
        ("len", "size"),
        ("build_id", "build-id"),
        ("path", "path"),
    ]);
    for (start, end, image) in whole_images(stock) {
        let id: String = image.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        table.row([
            u64::from(image.process.0).into(),
            Cell::Address(start),
            Cell::Bytes(end.since(start)),
            (!id.is_empty()).then_some(id).into(),
            image.path.as_str().into(),
        ]);
    }
    table
}

/// Images as wholes, first come first: the parts of a file that were mapped, and
/// mapped anew with other rights, from the lowest address to the highest.
fn whole_images(stock: &Stock) -> Vec<(GuestVa, GuestVa, &Image)> {
    let mut whole: Vec<(GuestVa, GuestVa, &Image)> = Vec::new();
    for part in &stock.images {
        let end = part.start.offset(part.len);
        let same = |image: &Image| {
            (image.process, &image.path, &image.build_id)
                == (part.process, &part.path, &part.build_id)
        };
        match whole.iter_mut().find(|(_, _, image)| same(image)) {
            Some((first, last, _)) => {
                *first = (*first).min(part.start);
                *last = (*last).max(end);
            }
            None => whole.push((part.start, end, part)),
        }
    }
    whole
}

fn syscalls(stock: &Stock) -> Table {
    let mut table = Table::new(&[("number", "number"), ("name", "name"), ("calls", "calls")]);
    let mut calls: Vec<_> = stock.syscalls.iter().collect();
    calls.sort_by_key(|(number, calls)| (std::cmp::Reverse(**calls), **number));
    for (number, calls) in calls {
        let name = syscall_name(stock.provenance.isa, *number);
        table.row([Cell::Number(*number as f64, 0), name.into(), (*calls).into()]);
    }
    table
}

fn top(stock: &Stock) -> Table {
    let mut table = Table::new(&[
        ("process", "process"),
        ("pc", "address"),
        ("executions", "executions"),
        ("share", "share"),
    ]);
    let whole = stock.total.totals.insns.max(1) as f64;
    for hot in &stock.top {
        table.row([
            u64::from(hot.process.0).into(),
            Cell::Address(hot.pc),
            hot.executions.into(),
            Cell::Share(hot.executions as f64 / whole),
        ]);
    }
    table
}
