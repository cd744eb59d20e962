//! Libraries made by the system's C compiler, loaded and compared with the
//! built-in cache of the same geometry.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::Command;

use ichnos_base::{
    Batch, Event, GapReason, GuestVa, InsnKind, Mode, Record, Sink, ThreadId, ThreadStart,
};
use ichnos_model::{CacheConfig, Caches, Hierarchy, HierarchyConfig, LevelConfig, Sharing};
use ichnos_plugin::{Finding, UserModel, Value};

/// Compiles a C source into a shared library of this name.
fn compile(source: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"]);
    compiler.arg(here.join("include")).args(flags).arg("-o").arg(&library).arg(source);
    assert!(compiler.status().expect("cc is there").success());
    library
}

fn example(name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/lru.c");
    compile(&source, name, flags)
}

fn written(text: &str, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, text).expect("the folder of the tests is there");
    compile(&source, name, &[])
}

/// Records with locality, some across lines.
fn records(many: u64) -> Vec<Record> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let mut all = Vec::new();
    for _ in 0..many {
        let addr = GuestVa(0x10_0000 + (next() % 3000) * (next() % 40));
        let size = [1, 4, 8, 64][next() as usize % 4];
        all.push(Record::insn(GuestVa(0x40_0000), 4, InsnKind::OTHER));
        all.push(if next() % 3 == 0 {
            Record::store(addr, size)
        } else {
            Record::load(addr, size)
        });
    }
    all
}

fn counts(findings: &[Finding]) -> Vec<u64> {
    let counts = findings.iter().filter_map(|finding| match finding.value {
        Value::Count(count) => Some(count),
        _ => None,
    });
    counts.collect()
}

#[test]
fn a_c_model_counts_what_ours_counts() {
    let library = example("liblru.so", &[]);
    let mut theirs = UserModel::load(&format!("{}:4096,4,32", library.display())).unwrap();
    assert_eq!(theirs.name(), "lru data cache");
    let cache = Caches::Data(CacheConfig::new(4096, 4, 32));
    let level = LevelConfig { name: "l1".into(), caches: cache, sharing: Sharing::Shared };
    let config = HierarchyConfig { levels: vec![level], ..HierarchyConfig::default() };
    let mut ours = Hierarchy::new(&config).unwrap();
    let start = Event::ThreadStart(ThreadStart::default());
    for sink in [&mut theirs as &mut dyn Sink<Error = _>, &mut ours] {
        sink.event(ThreadId(0), &start).unwrap();
        for (at, part) in records(20_000).chunks(777).enumerate() {
            sink.records(&Batch::new(ThreadId(0), at as u64 * 388, part)).unwrap();
        }
    }
    let stats = ours.report().total("l1d").unwrap();
    let (all, missed) = (stats.accesses, stats.misses);
    assert!(missed.load > 1000 && missed.store > 500 && all.data() > 20_000);
    let findings = theirs.findings();
    assert_eq!(counts(&findings), [all.load, missed.load, all.store, missed.store]);
    assert_eq!(findings[0].value, Value::Text("lru".into()));
    let ratio = missed.data() as f64 / all.data() as f64;
    assert!(matches!(findings[5].value, Value::Number(r) if (r - ratio).abs() < 1e-12));
    assert!(theirs.reset_counts());
    assert_eq!(counts(&theirs.findings()), [0; 4]);
}

/// The caches of the example that have the shape of others count what those count.
#[test]
fn six_caches_count_what_single_ones_count() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/six.c");
    let six = compile(&source, "libsix.so", &[]);
    let lru = example("liblrus.so", &[]);
    let all = records(20_000);
    let shown = |text: &str| {
        let mut model = UserModel::load(text).unwrap();
        model.records(&Batch::new(ThreadId(0), 0, &all)).unwrap();
        counts(&model.findings())
    };
    let six = shown(&six.display().to_string());
    assert_eq!(six.len(), 19);
    for (which, ways) in [(1, 1), (3, 2), (5, 4)] {
        let one = shown(&format!("{}:32768,{ways},64", lru.display()));
        assert_eq!((six[0], six[which]), (one[0] + one[2], one[1] + one[3]), "{ways} ways");
    }
    assert!(six[1..].iter().all(|misses| *misses > 100 && *misses < six[0]), "{six:?}");
    // Of a thread that is seen from its beginning nothing is uncertain.
    for (misses, bounds) in six[1..7].iter().zip(six[7..].chunks(2)) {
        assert_eq!(bounds, [*misses; 2]);
    }
}

const SAMPLES: &str = "#include \"ichnos_model.h\"\n\
    static uint64_t samples;\n\
    static void *create(const char *a, char *e, size_t n) { (void)a, (void)e, (void)n; return &samples; }\n\
    static int records(void *m, const ichnos_batch *b) { (void)m, (void)b; return 0; }\n\
    static void thread(void *m, uint32_t t, uint32_t p, int alive) { (void)m, (void)t, (void)p; samples += alive == 2; }\n\
    static void report(void *m, const ichnos_report *r) { (void)m; r->count(r->context, \"samples\", samples); }\n\
    const ichnos_model *ichnos_model_entry(void) {\n\
    static const ichnos_model table = {.abi = ICHNOS_MODEL_ABI, .flags = ICHNOS_TELL_SAMPLES, .name = \"samples\",\n\
    .create = create, .records = records, .thread = thread, .report = report};\n return &table; }\n";

/// A sample begins where the mode is switched or, if it never is, behind what was passed over on purpose.
#[test]
fn samples_are_told_however_they_were_taken() {
    let mut model =
        UserModel::load(&written(SAMPLES, "libsamples.so").display().to_string()).expect("a model");
    let mut told = |thread: u32, event: Event<'_>| {
        let Ok(_) = model.event(ThreadId(thread), &event);
        counts(&model.findings())[0]
    };
    let gap = |reason| Event::Gap { reason, insns: None, skipped: None };
    assert_eq!(told(0, gap(GapReason::Sampling)), 1);
    assert_eq!(told(0, gap(GapReason::Window)), 2);
    assert_eq!(told(0, gap(GapReason::Untraced)), 2);
    assert_eq!(told(1, Event::ModeSwitch { mode: Mode::Exec }), 2);
    assert_eq!(told(1, gap(GapReason::Sampling)), 2);
    assert_eq!(told(1, Event::ModeSwitch { mode: Mode::Inst }), 3);
}

#[test]
fn refusals_name_the_file() {
    let refusal = |text: &str| UserModel::load(text).unwrap_err().to_string();
    let at = |library: &Path| library.display().to_string();

    let absent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nowhere.so");
    let said = refusal(&at(&absent));
    assert!(said.starts_with(&format!("{}: the library cannot be", at(&absent))), "{said}");
    assert!(said.ends_with("No such file or directory"), "not the loader's reason: {said}");

    let other = example("libother.so", &["-DABI_OF_TEST=7"]);
    let said = refusal(&at(&other));
    assert!(said.starts_with(&at(&other)) && said.contains("version 7"), "{said}");

    let library = example("libargs.so", &[]);
    let said = refusal(&format!("{}:1000,3,7", at(&library)));
    assert!(said.contains(&at(&library)) && said.contains("`1000,3,7`: 1000 bytes"), "{said}");

    let nothing = written("int nothing;\n", "libnothing.so");
    let said = refusal(&at(&nothing));
    assert!(said.starts_with(&at(&nothing)) && said.contains("`ichnos_model_entry`"), "{said}");

    let empty = "#include \"ichnos_model.h\"\n\
        const ichnos_model *ichnos_model_entry(void) {\n\
        static const ichnos_model table = {.abi = ICHNOS_MODEL_ABI};\n return &table; }\n";
    let empty = written(empty, "libempty.so");
    let said = refusal(&at(&empty));
    assert!(said.starts_with(&at(&empty)) && said.contains("lacks `create`"), "{said}");
}
