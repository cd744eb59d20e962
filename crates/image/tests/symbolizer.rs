//! Run-time addresses of mapped images, as a trace's events tell them.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod build;

use build::{C_SOURCE, scratch};
use ichnos_base::{
    Event, FileOff, GuestVa, Map, MapKind, ProcessId, Protection, Sink, ThreadId, ThreadStart,
};
use ichnos_image::{DebugFolders, Image, Problem, Symbolizer};

const BIAS: u64 = 0x5555_5555_4000;

/// The events that a collector would tell about `image` at `BIAS`.
fn maps<'a>(image: &'a Image, build_id: &'a [u8]) -> Vec<Event<'a>> {
    let page = |a: u64| a & !0xfff;
    let lowest = image.segments().iter().map(|s| page(s.start.0) + BIAS).min();
    assert_eq!(lowest.and_then(|at| image.base_bias(GuestVa(at))), Some(BIAS));
    image
        .segments()
        .iter()
        .map(|s| {
            let start = GuestVa(page(s.start.0) + BIAS);
            let offset = FileOff(page(s.offset.0));
            let told = image.bias(start, offset);
            assert!(told == Some(BIAS) || (told.is_none() && offset.0 > 0), "{s:?} {told:?}");
            Event::Map(Map {
                start,
                len: page(s.start.0 + s.len + 0xfff) - page(s.start.0),
                protection: s.protection,
                kind: MapKind::IMAGE,
                offset,
                bias: BIAS,
                path: image.path().to_str().expect("text"),
                build_id,
            })
        })
        .collect()
}

fn start(process: u32, creator: Option<u32>) -> Event<'static> {
    let creator = creator.map(ThreadId);
    Event::ThreadStart(ThreadStart { process: ProcessId(process), creator, os_pid: 1, os_tid: 1 })
}

/// Segments that share a page of the file, as some linkers lay them out: the mapping of each has its bias.
#[test]
fn segments_share_pages_of_the_file() {
    let folder = scratch("share");
    // Its code and constants take more than a page, and its data begins in the page in which they end.
    let source = format!("{C_SOURCE}\nconst char long_text[5000] = \"text\";\n");
    let flags = ["-O2", "-fPIE", "-pie", "-Wl,-z,noseparate-code"];
    let exe = folder.compile("gcc", "shared", &source, &flags);
    let image = Image::open(&exe).expect("it opens");
    let page = |a: u64| a & !0xfff;
    let shares = image.segments().windows(2).any(|two| {
        let [before, next] = two else { return false };
        page(before.offset.0 + before.file_len - 1) == page(next.offset.0)
            && page(next.offset.0) > page(before.offset.0)
    });
    assert!(shares, "{:?}", image.segments());
    for segment in image.segments() {
        let start = GuestVa(page(segment.start.0) + BIAS);
        let told = image.bias(start, FileOff(page(segment.offset.0)));
        assert_eq!(told, Some(BIAS), "{segment:?}");
    }
}

#[test]
fn addresses_follow_maps_forks_and_execs() {
    let folder = scratch("follow");
    let exe = folder.compile("gcc", "pie", C_SOURCE, &["-g", "-O2", "-Wl,--build-id=sha1"]);
    let image = Image::open(&exe).expect("it opens");
    let main = image.symbols().expect("readable").by_name("main").expect("main").addr;
    let at = GuestVa(main.0 + BIAS + 1);
    let mut names = Symbolizer::new(DebugFolders(vec![]));
    let Ok(_) = names.event(ThreadId(0), &start(0, None));
    for event in maps(&image, image.build_id()) {
        names.note(ThreadId(0), &event);
    }
    // Twice: the second answer comes from the cache.
    for _ in 0..2 {
        let place = names.place(ProcessId(0), at).expect("mapped");
        assert_eq!(place.image, exe.to_str().expect("text"));
        assert_eq!(place.addr.0, main.0 + 1);
        let symbol = place.symbol.expect("main has a symbol");
        assert_eq!((symbol.symbol.name, symbol.offset), ("main", 1));
    }
    let frames = names.frames(ProcessId(0), at).to_vec();
    assert_eq!(frames.last().and_then(|f| f.function.as_deref()), Some("main"));
    assert_eq!(frames, image.frames(ichnos_image::ImageVa(main.0 + 1)).expect("lines"));

    // A forked child sees the same until it replaces its program.
    names.note(ThreadId(1), &start(1, Some(0)));
    assert!(names.place(ProcessId(1), at).expect("inherited").symbol.is_some());
    names.note(ThreadId(1), &Event::Exec { path: "/bin/true" });
    assert!(names.place(ProcessId(1), at).is_none());
    assert!(names.place(ProcessId(0), at).is_some());
    names.note(ThreadId(0), &Event::Unmap { start: at, len: 1 });
    assert!(names.place(ProcessId(0), at).is_none());
    assert!(names.place(ProcessId(0), at.offset(1)).expect("still mapped").symbol.is_some());
    assert!(names.problems().is_empty());
}

#[test]
fn another_build_gives_no_names_and_says_so() {
    let folder = scratch("mismatch");
    let exe = folder.compile("gcc", "pie", C_SOURCE, &["-g", "-O2", "-Wl,--build-id=sha1"]);
    let image = Image::open(&exe).expect("it opens");
    let main = image.symbols().expect("readable").by_name("main").expect("main").addr;
    let at = GuestVa(main.0 + BIAS);
    let mut names = Symbolizer::new(DebugFolders(vec![]));
    for event in maps(&image, &[1, 2, 3]) {
        names.note(ThreadId(0), &event);
    }
    let place = names.place(ProcessId(0), at).expect("mapped");
    assert_eq!((place.image, place.symbol), (exe.to_str().expect("text"), None));
    assert_eq!(names.frames(ProcessId(0), at), []);
    let [problem @ Problem::OtherBuild { .. }] = names.problems() else {
        panic!("{:?}", names.problems())
    };
    let text = problem.to_string();
    assert!(text.contains("not the file that was traced") && text.contains("010203"), "{text}");
}

#[test]
fn memory_without_a_file_has_a_name_only() {
    let mut names = Symbolizer::default();
    for (start, path, kind) in [
        (0x1000, "[vdso]", MapKind::VDSO),
        (0x2000, "[stack]", MapKind::STACK),
        (0x3000, "", MapKind::OTHER),
        (0x4000, "/no/such/library.so", MapKind::IMAGE),
    ] {
        let map = Map {
            start: GuestVa(start),
            len: 0x1000,
            protection: Protection::EXEC,
            kind,
            offset: FileOff(0),
            bias: start,
            path,
            build_id: &[],
        };
        names.note(ThreadId(0), &Event::Map(map));
        let place = names.place(ProcessId(0), GuestVa(start + 5)).expect("mapped");
        assert_eq!((place.image, place.symbol), (path, None));
        assert_eq!(place.id.is_some(), !path.is_empty());
    }
    let problems = names.problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("cannot read /no/such/library.so: No such file"));
    assert!(names.place(ProcessId(0), GuestVa(0x9000)).is_none());
    assert!(names.place(ProcessId(7), GuestVa(0x1000)).is_none());
}
