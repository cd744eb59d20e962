//! Shared libraries built by `ichnos cc`: loaded at the start, later, and again, and traced as programs are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use asm::Events::{Calls, CallsAndLoops};
use ichnos_base::{Batch, Event, GuestVa, Protection, Record, Sink, Source, ThreadId};
use ichnos_collect_asm as asm;
use ichnos_collect_step as step;
use ichnos_flow::Level;
use ichnos_replay::{Order, Replay};
use ichnos_testkit::tool;
use ichnos_trace::Reader;

use crate::inline_compare::{Compared, Image, Stepped};
use crate::samples::{Plan, record, samples_of_images};
use crate::support::{Folder, good, ichnos, native};

const HEADER: &[u8] = b"typedef long (*each)(long, void *);\n\
    #ifdef __cplusplus\nextern \"C\" {\n#endif\n\
    long one_sum(const long *all, long count, each f, void *with);\n\
    long one_kind(int x);\nvoid one_sort(long *all, long count);\n\
    long two_go(long n, each f);\n\
    #ifdef __cplusplus\n}\n#endif\n";

/// Constructors and destructors, variables of threads, tables of jumps, the C library calling back.
const ONE: &[u8] = b"#include \"one.h\"\n#include <stdlib.h>\n\
    static long begun, *table[4];\nstatic __thread long mine;\n\
    __attribute__((constructor)) static void begin(void) {\n\
    for (int i = 0; i < 4; i++) table[i] = &begun; begun += 40; *table[2] += 2; }\n\
    __attribute__((destructor)) static void end(void) { begun = 0; }\n\
    static int compare(const void *a, const void *b) {\n\
    long x = *(const long *)a, y = *(const long *)b; mine++; return (x > y) - (x < y); }\n\
    long one_kind(int x) { switch (x) { case 0: return 3; case 1: return mine;\n\
    case 2: return one_kind(x + 1) + 1; case 3: return 11; case 4: return 5 * x; case 5: return begun;\n\
    case 6: return -1; default: return one_kind(x % 7); } }\n\
    void one_sort(long *all, long count) { qsort(all, count, sizeof *all, compare); }\n\
    long one_sum(const long *all, long count, each f, void *with) { long sum = 0;\n\
    for (long i = 0; i < count; i++) sum += f(all[i], with) + one_kind((int)i); return sum; }\n";

/// A library that needs the other.
const TWO: &[u8] = b"#include \"one.h\"\n\
    static long twice(long x, void *p) { return 2 * x + *(long *)p; }\n\
    long two_go(long n, each f) { long all[16], add = n;\n\
    for (int i = 0; i < 16; i++) all[i] = (i * 7919 + n) % 101;\n\
    one_sort(all, 16);\n\
    return one_sum(all, 16, twice, &add) + one_sum(all, 8, f, all); }\n";

const MAIN: &[u8] = b"#include \"one.h\"\n#include <stdio.h>\n\
    static long mixed(long x, void *p) { const long *all = p; return x ^ all[x % 8]; }\n\
    int main(void) { long s = 0; for (long i = 0; i < 20; i++) s += two_go(i, mixed) * i;\n\
    printf(\"%ld\\n\", s); return 0; }\n";

/// Two libraries that come and go, the first also where the other was, and elsewhere.
const LOADER: &[u8] = b"#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
    typedef long (*go)(long, long (*)(long));\n\
    static long back(long x) { return x * 3 - 1; }\n\
    static void *load(const char *path, long *s) { void *l = dlopen(path, RTLD_NOW);\n\
    if (!l) { puts(dlerror()); exit(1); }\n\
    go f = (go)dlsym(l, \"go\"); for (long i = 0; i < 5; i++) *s += f(i, back); return l; }\n\
    int main(int c, char **v) { long s = c; if (c < 3) return 2;\n\
    void *a = load(v[1], &s); dlclose(a);\n\
    void *b = load(v[2], &s); a = load(v[1], &s); dlclose(b); b = load(v[2], &s);\n\
    dlclose(a); dlclose(b); b = load(v[2], &s); dlclose(b); a = load(v[1], &s); a = load(v[1], &s);\n\
    printf(\"%ld\\n\", s); return 0; }\n";

const PLUG_A: &[u8] = b"static long state;\n\
    __attribute__((constructor)) static void begin(void) { state = 7; }\n\
    __attribute__((destructor)) static void end(void) { for (int i = 0; i < 3; i++) state -= i; }\n\
    long go(long n, long (*back)(long)) { for (long i = 0; i <= n; i++) state += back(i) ^ n; return state; }\n";

/// Of about the same size, so that it comes to lie where the other was.
const PLUG_B: &[u8] = b"static long all[9];\n\
    static long add(long i) { return i < 0 ? 0 : all[i % 9]++ + add(i - 2); }\n\
    long go(long n, long (*back)(long)) { return add(back(n)) - add(n); }\n";

/// Exceptions from the library through the program, and from the program through the library; and one that is caught where it is
/// thrown.
const THROWS: &[u8] = b"#include <stdexcept>\n#include <vector>\n#include <string>\n\
    struct Guard { long &n; explicit Guard(long &of) : n(of) { n += 10; } ~Guard() { n -= 7; } };\n\
    long guarded;\n\
    struct Early { long n = 0; Early() { try { Guard g(guarded); throw 3; } catch (int x) { n = x; } } } early;\n\
    long thrower(long n) { Guard g(guarded); std::vector<long> v(n, n);\n\
    if (n % 3 == 0) throw std::runtime_error(\"three\"); if (n % 3 == 1) throw n; return v.size() + early.n; }\n\
    long through(long n, long (*f)(long)) { Guard g(guarded);\n\
    try { return f(n); } catch (const std::string &s) { guarded += s.size(); throw; } }\n";

const CATCHES: &[u8] = b"#include <stdexcept>\n#include <string>\n#include <cstdio>\n\
    extern long guarded; long thrower(long n); long through(long n, long (*f)(long));\n\
    static long mine(long n) { if (n % 2) throw std::string(\"from the program\"); return thrower(n); }\n\
    int main(int c, char **v) { long s = 0, most = c > 1 ? std::atol(v[1]) : 4;\n\
    for (long i = 0; i < most; i++) {\n\
    try { s += thrower(i); } catch (const std::exception &e) { s += 100; } catch (long n) { s += n; }\n\
    try { s += through(i, mine); } catch (const std::string &t) { s += t.size(); } catch (...) { s -= 5; } }\n\
    std::printf(\"%ld %ld\\n\", s, guarded); }\n";

/// Libraries that a thread leaves for the C library without coming back: they can be unloaded while it waits there.
const LEAVES: &[u8] = b"extern long left; static long state;\n\
    static long mix(long n) { return n < 2 ? n : mix(n - 1) ^ mix(n - 2); }\n\
    int go(long n, int (*wait)(void *), void *b) { state += mix(n % 9);\n\
    __atomic_add_fetch(&left, 1, __ATOMIC_SEQ_CST); return wait(b); }\n";

/// Threads that wait behind a library's last instruction while it is unloaded, and go on with the other, at the same place.
const MEET: &[u8] = b"#include <dlfcn.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
    typedef int (*go)(long, int (*)(void *), void *);\nvoid until_asleep(long count); void asleep_is(long me);\n\
    long left; static pthread_barrier_t here, gone; static void *volatile f;\n\
    static void *work(void *p) { asleep_is((long)p); for (long i = 0; i < 6; i++) { pthread_barrier_wait(&here);\n\
    ((go)f)(i + (long)p, (int (*)(void *))pthread_barrier_wait, &gone); } return 0; }\n\
    int main(int c, char **v) { if (c < 3) return 2; pthread_t t[2]; long last = 0;\n\
    pthread_barrier_init(&here, 0, 3); pthread_barrier_init(&gone, 0, 3);\n\
    for (long i = 0; i < 2; i++) pthread_create(t + i, 0, work, (void *)i);\n\
    for (long i = 0; i < 6; i++) { void *l = dlopen(v[1 + i % 2], RTLD_NOW); if (!l) { puts(dlerror()); exit(1); }\n\
    f = dlsym(l, \"go\"); if (last && last != (long)f) puts(\"elsewhere\"); last = (long)f;\n\
    pthread_barrier_wait(&here); until_asleep(2 * i + 2); dlclose(l); pthread_barrier_wait(&gone); }\n\
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0); printf(\"%ld\\n\", left); return 0; }\n";

/// Without notes: how often it looks is nobody's business.
const ASLEEP: &[u8] = b"#define _GNU_SOURCE\n#include <sched.h>\n#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n\
    extern long left; static volatile int tids[2];\n\
    void asleep_is(long me) { tids[me] = gettid(); }\n\
    static int asleep(int tid) { char name[64], text[256]; snprintf(name, 64, \"/proc/self/task/%d/stat\", tid);\n\
    FILE *f = fopen(name, \"r\"); if (!f) return 0; text[fread(text, 1, 255, f)] = 0; fclose(f);\n\
    char *end = strrchr(text, ')'); return end && end[2] == 'S'; }\n\
    void until_asleep(long count) { while (__atomic_load_n(&left, __ATOMIC_SEQ_CST) != count || !asleep(tids[0]) || !asleep(tids[1]))\n\
    sched_yield(); }\n";

/// Counts instructions, and those that lie in no noted function of what is loaded when they are told.
struct Placed {
    images: Vec<Image>,
    inside: usize,
    outside: Vec<(u32, GuestVa)>,
}

impl Sink for Placed {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            match record {
                Record::Insn { pc, .. } if self.images.iter().any(|i| i.holds(*pc)) => {
                    self.inside += 1;
                }
                Record::Insn { pc, .. } => self.outside.push((batch.thread.0, *pc)),
                _ => {}
            }
        }
        Ok(true)
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.images.iter_mut().for_each(|image| image.event(event));
        Ok(true)
    }
}

fn run(folder: &Folder, line: &str) {
    good(ichnos(folder, &line.split_whitespace().collect::<Vec<_>>()));
}

/// A program and the libraries that it is linked with.
pub struct Built {
    pub program: String,
    pub libraries: Vec<PathBuf>,
}

impl Built {
    fn stepped(&self, args: &[&str]) -> Stepped {
        let libraries: Vec<&Path> = self.libraries.iter().map(PathBuf::as_path).collect();
        let args: Vec<_> = args.iter().map(Into::into).collect();
        Stepped::of_images(self.program.as_ref(), &args, &libraries)
    }

    fn images(&self) -> Vec<&str> {
        let libraries = self.libraries.iter().filter_map(|l| l.to_str());
        [self.program.as_str()].into_iter().chain(libraries).collect()
    }

    fn placed(&self) -> Placed {
        let images = self.images().into_iter().map(|path| Image::new(path.as_ref())).collect();
        Placed { images, inside: 0, outside: Vec::new() }
    }

    /// Behaves as if alone, in several modes, and gives good traces.
    #[track_caller]
    fn behaves(&self, folder: &Folder, args: &[&str]) {
        let alone = native(folder, &self.program, args);
        assert_eq!(alone.status, 0, "{}", alone.stdout);
        for how in ["-o t.ichnos", "-o t.ichnos --sample 7:3", "-o none", "--trace off"] {
            let how: Vec<&str> = how.split(' ').collect();
            let line = [&["record", "-q"][..], &how, &["--", &self.program], args].concat();
            let traced = ichnos(folder, &line);
            assert_eq!(traced.stdout, alone.stdout, "{how:?}: {}", traced.stderr);
            assert_eq!(traced.status, 0, "{how:?}: {}", traced.stderr);
            if how.contains(&"t.ichnos") {
                good(ichnos(folder, &["check", "t.ichnos"]));
            }
        }
    }
}

/// The program with two libraries that are there from the start.
fn linked(folder: &Folder, flags: &str) -> Built {
    folder.write("one.h", HEADER);
    for (name, text) in [("one.c", ONE), ("two.c", TWO), ("main.c", MAIN)] {
        folder.write(name, text);
    }
    let here = folder.path().to_str().unwrap();
    let shared = format!("cc -- gcc {flags} -shared -fPIC");
    run(folder, &format!("{shared} one.c -o libone.so"));
    run(folder, &format!("{shared} two.c -o libtwo.so -L. -lone -Wl,-rpath,{here}"));
    run(folder, &format!("cc -- gcc {flags} main.c -o main -L. -ltwo -lone -Wl,-rpath,{here}"));
    let library = |name: &str| folder.path().join(name);
    let libraries = vec![library("libone.so"), library("libtwo.so")];
    Built { program: format!("{here}/main"), libraries }
}

/// The program with two libraries that it loads itself; their paths are its arguments.
pub fn loading(folder: &Folder, flags: &str) -> Built {
    for (name, text) in [("plug_a.c", PLUG_A), ("plug_b.c", PLUG_B), ("loader.c", LOADER)] {
        folder.write(name, text);
    }
    let here = folder.path().to_str().unwrap();
    for name in ["plug_a", "plug_b"] {
        run(folder, &format!("cc -- gcc {flags} -shared -fPIC {name}.c -o {name}.so"));
    }
    run(folder, &format!("cc -- gcc {flags} loader.c -o loader -ldl"));
    let library = |name: &str| folder.path().join(name);
    let libraries = vec![library("plug_a.so"), library("plug_b.so")];
    Built { program: format!("{here}/loader"), libraries }
}

fn all_levels(stepped: &Stepped) -> Compared {
    let found = Level::ALL.map(|level| stepped.compare(level));
    let [.., last] = found;
    last
}

#[test]
fn libraries_of_the_start_equal_step() {
    let folder = Folder::new();
    for flags in ["-O2", "-O0", "-O2 -fno-plt", "-O2 -Wl,-z,now -Wl,-Bsymbolic"] {
        let built = linked(&folder, flags);
        let stepped = built.stepped(&[]);
        let found = all_levels(&stepped);
        // The program's own part is less than a tenth of that.
        assert!(found.insns > 20_000, "{flags}: {found:?}");
        assert!(stepped.compare_references() > 3000, "{flags}");
        built.behaves(&folder, &[]);
    }
}

#[test]
fn libraries_that_come_and_go_equal_step() {
    let folder = Folder::new();
    for flags in ["-O2", "-O0"] {
        let built = loading(&folder, flags);
        let args: Vec<&str> = built.images()[1..].to_vec();
        let stepped = built.stepped(&args);
        let found = all_levels(&stepped);
        assert!(found.insns > 1000, "{flags}: {found:?}");
        assert!(stepped.compare_references() > 100, "{flags}");
        built.behaves(&folder, &args);
    }
}

/// Notes which libraries come and go.
struct Gone {
    paths: Vec<String>,
    /// Where the code of each that is there lies.
    code: HashMap<String, GuestVa>,
    /// Those that went, in this order.
    gone: Vec<String>,
}

impl Gone {
    fn new(built: &Built) -> Self {
        let canonical = |path: &PathBuf| std::fs::canonicalize(path).unwrap();
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let paths = built.libraries.iter().map(canonical).map(text).collect();
        Self { paths, code: HashMap::new(), gone: Vec::new() }
    }
}

impl Sink for Gone {
    type Error = Infallible;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::Map(map)
                if map.protection.0 & Protection::EXEC.0 != 0
                    && self.paths.iter().any(|path| path == map.path) =>
            {
                self.code.insert(map.path.to_owned(), map.start);
            }
            Event::Unmap { start, len } => {
                let inside = |at: &GuestVa| (*start..start.offset(*len)).contains(at);
                let mut gone: Vec<String> =
                    self.code.extract_if(|_, at| inside(at)).map(|(path, _)| path).collect();
                gone.sort_unstable();
                self.gone.append(&mut gone);
            }
            _ => {}
        }
        Ok(true)
    }
}

#[test]
fn libraries_that_go_are_unmapped() {
    let folder = Folder::new();
    let built = loading(&folder, "-O2");
    let args: Vec<_> = built.images()[1..].iter().map(Into::into).collect();
    let (mut expected, mut found) = (Gone::new(&built), Gone::new(&built));
    let mut config = step::Config::new(&built.program);
    config.args.clone_from(&args);
    step::Collector::new(&config).run(&mut expected).expect("it can be stepped");
    let config = asm::Config::new(&built.program, args);
    asm::record(&config, &mut found).expect("it can be recorded");
    assert!(expected.gone.len() > 1, "{:?}", expected.gone);
    assert_eq!(found.gone, expected.gone);
}

#[test]
fn samples_of_libraries_are_windows_of_the_whole() {
    let folder = Folder::new();
    let mut plans =
        [(1, 1), (2, 1), (7, 3), (100, 10)].map(|p| Plan(Calls, p, Level::Flow)).to_vec();
    plans.push(Plan(Calls, (30, 10), Level::Superblock));
    plans.extend([(1, 1), (50, 20)].map(|p| Plan(CallsAndLoops, p, Level::Flow)));
    for flags in ["-O2", "-O0", "-O2 -fno-plt"] {
        let built = linked(&folder, flags);
        let found = samples_of_images(&built.images(), &[], &plans);
        assert!(found.iter().all(|found| *found > 3), "{flags}: {found:?} samples");
        let built = loading(&folder, flags);
        let args: Vec<&str> = built.images()[1..].to_vec();
        let found = samples_of_images(&built.images(), &args, &plans[..3]);
        assert!(found.iter().all(|found| *found > 3), "{flags}: {found:?} samples");
    }
}

#[test]
fn exceptions_cross_the_border() {
    if !tool::have("inline_libraries", &["g++"]) {
        return;
    }
    let folder = Folder::new();
    folder.write("throws.cc", THROWS);
    folder.write("catches.cc", CATCHES);
    let here = folder.path().to_str().unwrap();
    for flags in ["-O2", "-O0"] {
        run(&folder, &format!("cc -- g++ {flags} -shared -fPIC throws.cc -o libthrows.so"));
        let link = format!("-L. -lthrows -Wl,-rpath,{here}");
        run(&folder, &format!("cc -- g++ {flags} catches.cc -o catches {link}"));
        let libraries = vec![folder.path().join("libthrows.so")];
        let built = Built { program: format!("{here}/catches"), libraries };
        built.behaves(&folder, &["200"]);
        let found = built.stepped(&["3"]).compare(Level::Flow);
        assert!(found.insns > 100, "{flags}: {found:?}");
        let plans = [(2, 1), (7, 3)].map(|p| Plan(Calls, p, Level::Flow));
        let found = samples_of_images(&built.images(), &["20"], &plans);
        assert!(found.iter().all(|found| *found > 3), "{flags}: {found:?} samples");
    }
}

/// What threads did in a library is told before it is said to be gone, and what they do in one behind its coming: while the program
/// runs, and in the order of a stored trace.
#[test]
fn what_was_done_in_a_library_is_told_before_it_is_gone() {
    let folder = Folder::new();
    for (name, text) in [("a.c", LEAVES), ("b.c", LEAVES), ("meet.c", MEET), ("asleep.c", ASLEEP)] {
        folder.write(name, text);
    }
    for name in ["a", "b"] {
        run(&folder, &format!("cc -- gcc -O2 -shared -fPIC {name}.c -o {name}.so"));
    }
    let plain = std::process::Command::new("gcc")
        .args(["-O2", "-c", "asleep.c"])
        .current_dir(folder.path())
        .status();
    assert!(plain.unwrap().success());
    run(&folder, "cc -- gcc -O2 -pthread -rdynamic meet.c asleep.o -o meet -ldl");
    let library = |name: &str| folder.path().join(name);
    let program = library("meet").to_str().unwrap().to_owned();
    let built = Built { program, libraries: vec![library("a.so"), library("b.so")] };
    let args: Vec<&str> = built.images()[1..].to_vec();
    let stepped = built.stepped(&args);
    let found = all_levels(&stepped);
    assert_eq!(found.threads, 3, "{found:?}");
    assert!(stepped.compare_references() > 100);
    built.behaves(&folder, &args);
    let mut live = built.placed();
    let config = asm::Config::new(&built.program, args.iter().map(Into::into));
    asm::record(&config, &mut live).expect("it can be recorded");
    let line = ["record", "-q", "-o", "t.ichnos", "--", &built.program];
    good(ichnos(&folder, &[&line[..], &args].concat()));
    let reader = Reader::open(&library("t.ichnos")).unwrap();
    let mut stored = built.placed();
    Replay::new(&reader).order(Order::ByTime).drive(&mut stored).unwrap();
    for (placed, how) in [(&live, "live"), (&stored, "stored")] {
        assert!(placed.outside.is_empty(), "{how}: {:x?}", placed.outside);
        assert_eq!(placed.inside, found.insns, "{how}");
    }
}

/// Threads that load, call and unload the same library at once, children that go on with it, and a new program.
#[test]
fn threads_and_children_have_libraries_too() {
    let folder = Folder::new();
    folder.write("plug_a.c", PLUG_A);
    folder.write(
        "many.c",
        b"#include <dlfcn.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
          typedef long (*go)(long, long (*)(long));\nstatic const char *path; static long done;\n\
          static long back(long x) { return x & 1; }\n\
          static void *work(void *p) { (void)p; for (int i = 0; i < 20; i++) {\n\
          void *l = dlopen(path, RTLD_NOW); ((go)dlsym(l, \"go\"))(50, back);\n\
          __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST); dlclose(l); } return 0; }\n\
          int main(int c, char **v) { path = v[1]; if (c > 2) { work(0); printf(\"%ld\\n\", done); return 0; }\n\
          pthread_t t[4]; for (int i = 0; i < 4; i++) pthread_create(t + i, 0, work, 0);\n\
          for (int i = 0; i < 4; i++) pthread_join(t[i], 0);\n\
          void *l = dlopen(path, RTLD_NOW); long s = ((go)dlsym(l, \"go\"))(9, back); fflush(stdout);\n\
          if (fork() == 0) { s += ((go)dlsym(l, \"go\"))(9, back); dlclose(l); work(0); printf(\"%ld %ld\\n\", s, done); fflush(stdout);\n\
          execl(v[0], v[0], path, \"again\", (char *)0); }\n\
          wait(0); printf(\"%ld %ld\\n\", s, done); return 0; }\n",
    );
    run(&folder, "cc -- gcc -O2 -shared -fPIC plug_a.c -o plug_a.so");
    run(&folder, "cc -- gcc -O2 -pthread many.c -o many -ldl");
    let program = folder.path().join("many").to_str().unwrap().to_owned();
    let library = folder.path().join("plug_a.so");
    let built = Built { program, libraries: vec![library.clone()] };
    built.behaves(&folder, &[library.to_str().unwrap()]);
}

/// Libraries come and go while another thread waits for children that have its memory until they run a program of their own,
/// and until it runs another one itself.
#[test]
fn libraries_change_while_programs_begin() {
    let folder = Folder::new();
    folder.write("plug_a.c", PLUG_A);
    folder.write(
        "begin.c",
        b"#include <dlfcn.h>\n#include <pthread.h>\n#include <sched.h>\n#include <spawn.h>\n#include <stdio.h>\n\
          #include <sys/wait.h>\n#include <unistd.h>\n\
          typedef long (*go)(long, long (*)(long));\nextern char **environ;\n\
          static const char *path; static volatile int begun;\n\
          static long back(long x) { return x & 1; }\n\
          static void *work(void *p) { for (;;) { void *l = dlopen(path, RTLD_NOW); if (!l) return p;\n\
          ((go)dlsym(l, \"go\"))(50, back); dlclose(l); begun = 1; } }\n\
          int main(int c, char **v) { path = v[1]; if (c > 2) { puts(\"again\"); return 0; }\n\
          pthread_t t; pthread_create(&t, 0, work, 0); while (!begun) sched_yield();\n\
          char *args[] = { \"true\", 0 }; int good = 0;\n\
          for (int i = 0; i < 15; i++) { pid_t child; int s = 1;\n\
          if (posix_spawn(&child, \"/bin/true\", 0, 0, args, environ) == 0 && waitpid(child, &s, 0) == child) good += s == 0; }\n\
          printf(\"%d\\n\", good); fflush(stdout); execl(v[0], v[0], path, \"again\", (char *)0); return 1; }\n",
    );
    run(&folder, "cc -- gcc -O2 -shared -fPIC plug_a.c -o plug_a.so");
    run(&folder, "cc -- gcc -O2 -pthread begin.c -o begin -ldl");
    let program = folder.path().join("begin").to_str().unwrap().to_owned();
    let library = folder.path().join("plug_a.so");
    let built = Built { program, libraries: vec![library.clone()] };
    built.behaves(&folder, &[library.to_str().unwrap()]);
}

/// A window that begins in one library and ends in another; a name that nothing has.
#[test]
fn functions_of_libraries_begin_and_end_what_is_recorded() {
    let folder = Folder::new();
    let built = linked(&folder, "-O2");
    let when = |start: &str, stop: &str| {
        asm::Choice::new(asm::When::Functions {
            start: start.to_owned(),
            stop: Some(stop.to_owned()),
        })
    };
    let parts = record(&built.program, &[], Some(when("one_sort", "one_sum")));
    // Each of twenty calls switches on and off; the beginning counts as one.
    assert_eq!(parts.switches, 41);
    for missing in ["@no_such_function", "@main"] {
        let line = ["record", "-q", "-o", "t.ichnos", "--start", "@one_sum", "--stop", missing];
        let run = ichnos(&folder, &[&line[..], &["--", &built.program]].concat());
        let expected = if missing == "@main" { 0 } else { 2 };
        assert_eq!(run.status, expected, "{missing}: {}", run.stderr);
        assert_eq!(run.stderr.contains("no_such_function"), expected == 2, "{}", run.stderr);
    }
}
