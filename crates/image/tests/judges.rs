//! Images judged by binutils: what `nm`, `addr2line` and `readelf` say about
//! programs that gcc makes here must be what this crate says.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod build;

use std::collections::HashMap;
use std::path::Path;

use build::{C_SOURCE, CPP_SOURCE, run, scratch};
use ichnos_image::{DebugFolders, Error, Image, ImageType, ImageVa, Machine, SymbolKind, demangle};

/// `address -> names` of the code symbols that `nm` lists.
fn nm(path: &Path, args: &[&str]) -> HashMap<u64, Vec<String>> {
    let mut names: HashMap<u64, Vec<String>> = HashMap::new();
    let mut command = vec!["--defined-only"];
    command.extend(args);
    let path = path.to_str().expect("paths here are text");
    command.push(path);
    for line in run("nm", &command).lines() {
        let mut words = line.split_whitespace();
        let (Some(addr), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if "TtWwi".contains(kind) {
            let addr = u64::from_str_radix(addr, 16).expect("nm prints hex");
            let name = name.split('@').next().unwrap_or(name);
            names.entry(addr).or_default().push(name.to_owned());
        }
    }
    names
}

#[test]
fn symbols_are_those_of_nm() {
    let folder = scratch("symbols");
    for (name, compiler, source, flags) in [
        ("c", "gcc", C_SOURCE, &["-g", "-O1"][..]),
        ("static", "gcc", C_SOURCE, &["-g", "-O2", "-static"]),
        ("cpp", "g++", CPP_SOURCE, &["-g", "-O2"]),
    ] {
        let exe = folder.compile(compiler, name, source, flags);
        let image = Image::open(&exe).expect("gcc makes good images");
        let table = image.symbols().expect("and good symbol tables");
        let expected = nm(&exe, &[]);
        assert!(expected.len() > 5, "nm lists functions of {name}");
        for (addr, names) in &expected {
            // nm's W may be data as well: gcc's start files have one.
            if names.iter().all(|n| n == "data_start") {
                continue;
            }
            let found = table.find(ImageVa(*addr)).unwrap_or_else(|| panic!("{addr:x} {names:?}"));
            assert_eq!(found.offset, 0, "{addr:x} {names:?} found {found:?}");
            assert!(names.iter().any(|n| n == found.symbol.name), "{names:?} {found:?}");
        }
        let wrong = table
            .iter()
            .filter(|s| s.kind != SymbolKind::Object)
            .find(|s| !expected.contains_key(&s.addr.0));
        assert_eq!(wrong, None, "a code symbol that nm does not list");
    }
}

#[test]
fn ifuncs_and_dynamic_symbols_of_a_stripped_library() {
    let folder = scratch("library");
    let source = "static int a(void) { return 1; }\n\
        static int (*pick(void))(void) { return a; }\n\
        int choose(void) __attribute__((ifunc(\"pick\")));\n\
        __asm__(\".globl label\\nlabel: ret\\n\");\n\
        int plain(int x) { return x * 3; }\n";
    let library = folder.compile("gcc", "lib.so", source, &["-O1", "-shared", "-fPIC", "-s"]);
    let image = Image::open(&library).expect("a library opens");
    assert_eq!(image.kind(), ImageType::Dynamic);
    assert_eq!(image.interpreter(), None);
    let table = image.symbols().expect("it has dynamic symbols");
    for (name, kind) in [
        ("choose", SymbolKind::Ifunc),
        ("plain", SymbolKind::Function),
        ("label", SymbolKind::Label),
    ] {
        assert_eq!(table.by_name(name).map(|s| s.kind), Some(kind), "{name}");
    }
    let expected = nm(&library, &["-D"]);
    let plain = table.by_name("plain").expect("found above");
    assert!(expected[&plain.addr.0].contains(&"plain".to_owned()));
    let inside = table.find(ImageVa(plain.addr.0 + 1)).expect("inside plain");
    assert_eq!((inside.symbol.name, inside.offset), ("plain", 1));
}

/// What `addr2line -f -i` prints: function and `file:line` pairs per address.
fn addr2line(exe: &Path, addresses: &[u64]) -> Vec<Vec<(String, String)>> {
    let mut args = vec!["-a".into(), "-f".into(), "-i".into(), "-e".into()];
    args.push(exe.to_str().expect("paths here are text").to_owned());
    args.extend(addresses.iter().map(|a| format!("{a:#x}")));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let text = run("addr2line", &args);
    let mut found: Vec<Vec<(String, String)>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            found.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap_or_default();
        let place = place.split(" (discriminator").next().unwrap_or_default();
        found.last_mut().expect("an address first").push((line.into(), place.into()));
    }
    found
}

#[test]
fn lines_and_inlining_are_those_of_addr2line() {
    let folder = scratch("lines");
    for (name, compiler, source, flags) in [
        ("c", "gcc", C_SOURCE, &["-g", "-O2"][..]),
        ("cpp", "g++", CPP_SOURCE, &["-g", "-O2"]),
        ("cpp4", "g++", CPP_SOURCE, &["-gdwarf-4", "-O3"]),
        ("zlib", "g++", CPP_SOURCE, &["-g", "-O1", "-gz=zlib"]),
    ] {
        let exe = folder.compile(compiler, name, source, flags);
        let image = Image::open(&exe).expect("gcc makes good images");
        let table = image.symbols().expect("and good symbol tables");
        let main = table.by_name("main").expect("there is a main");
        let work = table.iter().find(|s| demangle(s.name).contains("work")).expect("and a work");
        let addresses: Vec<u64> =
            [main, work].iter().flat_map(|s| s.addr.0..s.addr.0 + s.size).collect();
        let mut inlined = 0;
        for (addr, expected) in addresses.iter().zip(addr2line(&exe, &addresses)) {
            let frames = image.frames(ImageVa(*addr)).expect("good debugging information");
            inlined += usize::from(frames.len() > 1);
            let found: Vec<_> = frames
                .iter()
                .map(|f| {
                    let line = f.line.map_or("?".into(), |l| l.to_string());
                    let file = f.file.clone().unwrap_or("??".into());
                    (f.function.clone().unwrap_or("??".into()), format!("{file}:{line}"))
                })
                .collect();
            // For the innermost frame binutils shows the symbol table's name
            // where DWARF gives no linkage name (C functions in C++ units).
            let holder = table.find(ImageVa(*addr)).expect("inside one of the two").symbol.name;
            let named = expected.iter().enumerate().map(|(depth, (function, place))| {
                let own = found.get(depth).map_or("", |f| f.0.as_str());
                let shown = if depth == 0 && function == holder { own } else { function };
                (shown.to_owned(), place.clone())
            });
            assert_eq!(found, named.collect::<Vec<_>>(), "{name} at {addr:#x}");
        }
        assert!(inlined > 0 || name == "zlib", "{name} has inlined code");
    }
}

#[test]
fn the_head_is_what_readelf_says() {
    let folder = scratch("head");
    let exe = folder.compile("gcc", "pie", C_SOURCE, &["-pie", "-fPIE", "-Wl,--build-id=sha1"]);
    let image = Image::open(&exe).expect("it opens");
    assert_eq!((image.machine(), image.kind()), (Machine::X86_64, ImageType::Dynamic));
    let text = run("readelf", &["-n", "-lW", exe.to_str().expect("text")]);
    let id: String = image.build_id().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(id.len(), 40);
    assert!(text.contains(&format!("Build ID: {id}")), "{text}");
    assert!(text.contains(&format!("Entry point {}", image.entry())), "{text}");
    let interpreter = image.interpreter().expect("it is dynamic").display().to_string();
    assert!(text.contains(&format!("interpreter: {interpreter}]")), "{text}");
    let loads: Vec<(u64, u64, u64, u64)> = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("LOAD"))
        .map(|l| {
            let mut w = l.split_whitespace().filter_map(|w| w.strip_prefix("0x"));
            let mut number =
                || u64::from_str_radix(w.next().expect("a field"), 16).expect("in hex");
            let (offset, start, _physical) = (number(), number(), number());
            (offset, start, number(), number())
        })
        .collect();
    let found: Vec<_> =
        image.segments().iter().map(|s| (s.offset.0, s.start.0, s.file_len, s.len)).collect();
    assert_eq!(found, loads);
    assert!(!loads.is_empty());
}

#[test]
fn separate_debug_files_are_found_and_checked() {
    let folder = scratch("debug");
    for (name, flag) in [("linked", "-Wl,--build-id=none"), ("with_id", "-Wl,--build-id=sha1")] {
        let exe = folder.compile("gcc", name, C_SOURCE, &["-g", "-O2", flag]);
        let path = exe.to_str().expect("text");
        let debug = format!("{path}.debug");
        let main = Image::open(&exe)
            .and_then(|i| Ok(i.symbols()?.by_name("main").expect("main").addr))
            .expect("the unstripped program is whole");
        let frames = Image::open(&exe).and_then(|i| i.frames(main)).expect("lines");
        run("objcopy", &["--only-keep-debug", path, &debug]);
        run("objcopy", &["--strip-all", &format!("--add-gnu-debuglink={debug}"), path]);

        let bare = Image::open_with(&exe, &DebugFolders(vec![])).expect("stripped but whole");
        assert_eq!(bare.symbols().expect("readable").by_name("main").map(|s| s.addr), Some(main));
        assert_eq!(bare.frames(main).expect("from the debug file"), frames, "{name}");

        // By build-id, with the link's file gone.
        let id: String = bare.build_id().iter().map(|b| format!("{b:02x}")).collect();
        let away = folder.path(&format!("{name}.away"));
        std::fs::rename(&debug, &away).expect("it is ours");
        let lost = Image::open_with(&exe, &DebugFolders(vec![])).expect("stripped but whole");
        assert_eq!(lost.frames(main).expect("no lines is no error"), []);
        if !id.is_empty() {
            let root = folder.path("global");
            let place = root.join(".build-id").join(&id[..2]);
            std::fs::create_dir_all(&place).expect("writable");
            std::fs::copy(&away, place.join(format!("{}.debug", &id[2..]))).expect("writable");
            let by_id = Image::open_with(&exe, &DebugFolders(vec![root])).expect("opens");
            assert_eq!(by_id.frames(main).expect("by build-id"), frames);
        }
        // A debug file of something else under the link's name is refused.
        let other = folder.compile("gcc", "other", "int main(void) { return 7; }", &["-g", flag]);
        std::fs::rename(other, &debug).expect("it is ours");
        let fooled = Image::open_with(&exe, &DebugFolders(vec![])).expect("opens");
        assert_eq!(fooled.frames(main).expect("no lines is no error"), [], "{name}");
    }
}

#[test]
fn what_is_not_handled_is_refused_by_name() {
    let folder = scratch("refused");
    let check = |name: &str, bytes: &[u8], says: &str| {
        let path = folder.path(name);
        std::fs::write(&path, bytes).expect("writable");
        let error = Image::open(&path).expect_err(name);
        assert!(error.to_string().contains(says), "{name}: {error}");
        assert!(error.to_string().contains(path.to_str().expect("text")), "{error}");
    };
    let exe = folder.compile("gcc", "good", C_SOURCE, &[]);
    let good = std::fs::read(&exe).expect("just made");
    let patched = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    check("script", b"#!/bin/sh\n", "not an ELF file");
    check("empty", b"", "not an ELF file");
    check("short", &good[..10], "header ends after 10 bytes");
    check("bits32", &patched(4, 1), "32-bit");
    check("big_endian", &patched(5, 2), "big-endian");
    check("aarch64", &patched(18, 183), "aarch64");
    let riscv = patched(18, 243);
    let path = folder.path("riscv");
    std::fs::write(&path, riscv).expect("writable");
    assert_eq!(Image::open(&path).expect("handled").machine(), Machine::Riscv64);
    assert!(matches!(Image::open(Path::new("/no/such")), Err(Error::Io { .. })));
    assert!(matches!(Image::open(Path::new("/dev/null")), Err(Error::NotElf { .. })));
    assert!(matches!(Image::open(Path::new("/")), Err(Error::NotElf { .. })));
}

#[test]
fn damaged_files_never_panic() {
    let folder = scratch("damage");
    let exe = folder.compile("gcc", "good", C_SOURCE, &["-g", "-O1"]);
    let good = std::fs::read(&exe).expect("just made");
    let main = Image::open(&exe)
        .and_then(|i| Ok(i.symbols()?.by_name("main").expect("main").addr))
        .expect("whole");
    let mut state = 7_u64;
    let mut step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 33) as usize
    };
    for round in 0..400 {
        let mut bytes = good.clone();
        for _ in 0..1 + step() % 8 {
            // Half of the damage to the header, where it hurts most.
            let span = if step() % 2 == 0 { 1024 } else { bytes.len() };
            let at = step() % span;
            bytes[at] = step() as u8;
        }
        if round % 4 == 0 {
            bytes.truncate(step() % bytes.len());
        }
        if let Ok(image) = Image::from_bytes("damaged", bytes) {
            let _ = image.symbols().map(|t| t.find(main).is_some());
            let _ = image.frames(main);
        }
    }
}
