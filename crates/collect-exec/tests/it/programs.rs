//! Real programs behave under the engine as they do without it: what they print, write and return.
//!
//! A short list always runs. With `ICHNOS_BEHAVIOUR=all` a longer one does, of programs that are large or
//! take long; what is not installed is skipped, with a reason.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::Command;

use ichnos_collect_exec::{Paths, Record as What};
use ichnos_testkit::tool;

use super::hazards::{alone, engine_along};

/// How a program is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Under the engine alone.
    Engine,
    /// Also recorded.
    Both,
}

/// A name, the programs that must be there, a script, and how it is run. A script works in a fresh folder
/// `$T` and prints what is to be compared.
type Case = (&'static str, &'static [&'static str], How, &'static str);

const SHORT: &[Case] = &[
    (
        "bash",
        &["bash"],
        How::Both,
        r#"bash -c 'f() { ((a=$1, a>0)) && f $((a-1)); echo $a; }; f 20 | tail -1; trap "echo T" USR1;
           kill -USR1 $$; for i in {1..50}; do x=$((x+i)); done; echo $x; ls / | while read l; do echo ${#l}; done;
           (sleep 0.01 & wait; echo waited); cat <(echo substitution); echo $(seq 5)'"#,
    ),
    (
        "gcc",
        &["gcc"],
        How::Engine,
        r#"printf '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n' >$T/a.c;
           gcc -O2 -o $T/a $T/a.c && $T/a; gcc -O2 -S -o - $T/a.c | cksum"#,
    ),
    (
        "make",
        &["make", "gcc"],
        How::Engine,
        r#"for i in 1 2 3 4; do echo "int f$i(int x) { return x * $i; }" >$T/f$i.c; done; cd $T;
           echo 'int f1(int), f4(int); int main(void) { return f1(3) + f4(5); }' >m.c;
           printf 'p: f1.o f2.o f3.o f4.o m.o\n\tgcc -o p $^\n' >Makefile; make -s -j2; ./p; echo $?"#,
    ),
    (
        "git",
        &["git"],
        How::Engine,
        r#"cd $T; export HOME=$T GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z;
           git init -q r; cd r; git config user.email a@b; git config user.name n;
           for i in 1 2; do echo $i >f$i; git add .; git commit -q -m c$i; done; git gc -q; git log --oneline;
           git clone -q . ../s; git -C ../s fsck; git -C ../s diff HEAD~1 | cksum"#,
    ),
    (
        "python3",
        &["python3"],
        How::Engine,
        r#"python3 -c 'import threading, subprocess, json, re, signal, os
s = []; t = [threading.Thread(target=s.append, args=(i,)) for i in range(8)]
[x.start() for x in t]; [x.join() for x in t]; print(sorted(s))
print(subprocess.check_output(["echo", "hi"]), json.dumps({"a": [1, 2.5]}), re.sub("b+", "x", "abbbc"))
signal.signal(signal.SIGUSR1, lambda *a: print("signal")); os.kill(os.getpid(), signal.SIGUSR1)'"#,
    ),
    (
        "perl",
        &["perl"],
        How::Engine,
        r#"perl -MTime::HiRes -e 'my %h; $h{$_ % 7} .= $_ for 1..300; print map { length($h{$_}), " " } sort keys %h;
           print `echo x`; local $SIG{ALRM} = sub { die "alarm\n" }; eval { Time::HiRes::ualarm(50000); 1 while 1 }; print $@'"#,
    ),
    (
        "compressors",
        &["xz", "gzip", "bzip2"],
        How::Engine,
        "seq 1 60000 >$T/n; for z in 'xz -T2' 'gzip -n' bzip2; do $z -c <$T/n | tee $T/z | cksum; ${z%% *} -dc <$T/z | cksum; done",
    ),
    (
        "sort",
        &["sort"],
        How::Both,
        "seq 1 3000 | sort --parallel=2 -S 1M -R --random-source=/bin/sh | cksum; find /usr/bin -name 'a*' | sort | cksum",
    ),
];

const LONG: &[Case] = &[
    ("file", &["file"], How::Both, "file -b /bin/sh /etc/passwd"),
    (
        "openssl",
        &["openssl"],
        How::Both,
        "openssl enc -aes-256-cbc -pbkdf2 -k x -S 0011223344556677 -in /bin/sh | cksum; openssl genrsa 1024 2>/dev/null | head -1",
    ),
    ("curl", &["curl"], How::Both, "curl --version"),
    (
        "vim",
        &["vim"],
        How::Engine,
        "printf 'a\\nb\\n' >$T/x; vim -es -u NONE -c '%s/a/c/' -c wq $T/x; cat $T/x",
    ),
    ("jq", &["jq"], How::Both, "jq -n '[range(1000)] | map(. * 2) | add'"),
    (
        "gawk",
        &["gawk"],
        How::Both,
        "seq 1 5000 | gawk '{ s[$1 % 9] += $1 } END { for (i = 0; i < 9; i++) print s[i] }'",
    ),
    (
        "tar",
        &["tar", "zstd", "pigz"],
        How::Engine,
        "tar -C /usr/include -cf $T/t . && tar -tf $T/t | wc -l; zstd -q -T2 $T/t -o $T/z && zstd -qdc $T/z | cmp - $T/t; pigz -p2 -c $T/t | gzip -dc | cmp - $T/t",
    ),
    (
        "lua",
        &["lua5.4"],
        How::Both,
        "lua5.4 -e 'local t = {} for i = 1, 1000 do t[i] = coroutine.wrap(function() coroutine.yield(i) end)() end print(#t, string.rep(\"x\", 5):gsub(\"x\", \"y\"))'",
    ),
    (
        "node",
        &["node"],
        How::Engine,
        "node -e 'const f = n => n < 2 ? n : f(n - 1) + f(n - 2); console.log(f(24)); const { Worker } = require(\"worker_threads\"); new Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage(7)\", { eval: true }).on(\"message\", m => console.log(m)); try { null.x } catch (e) { console.log(e.message) }'",
    ),
    (
        "java",
        &["java", "javac"],
        How::Engine,
        r#"cat >$T/P.java <<'END'
import java.util.*; import java.util.stream.*;
public class P { static int depth(int n) { return depth(n + 1); }
  public static void main(String[] a) throws Exception {
    System.out.println(IntStream.range(0, 200000).parallel().mapToLong(i -> (long) i * i % 7).sum());
    Object o = null; for (int i = 0; i < 30000; i++) try { if (i % 100 == 0) o.hashCode(); } catch (NullPointerException e) { if (i == 29900) System.out.println("null"); }
    try { depth(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
    Thread[] t = new Thread[4]; int[] s = new int[1]; for (int i = 0; i < 4; i++) (t[i] = new Thread(() -> { for (int k = 0; k < 50000; k++) synchronized (s) { s[0]++; } })).start();
    for (Thread x : t) x.join(); System.out.println(s[0]); System.gc(); System.out.println(new TreeMap<>(Map.of("a", 1, "b", 2))); } }
END
cd $T; javac P.java && java P"#,
    ),
    (
        "go",
        &["go"],
        How::Engine,
        r#"cat >$T/p.go <<'END'
package main
import ("fmt"; "os/exec"; "sync")
func main() { var w sync.WaitGroup; var m sync.Mutex; s := 0
 for i := 0; i < 200; i++ { w.Add(1); go func(k int) { defer w.Done(); m.Lock(); s += k; m.Unlock() }(i) }
 w.Wait(); fmt.Println(s); func() { defer func() { fmt.Println(recover()) }(); var p *int; fmt.Println(*p) }()
 o, _ := exec.Command("echo", "child").Output(); fmt.Print(string(o)) }
END
cd $T; HOME=$T GOCACHE=$T/c GOFLAGS=-mod=mod go build -o p p.go && ./p"#,
    ),
    (
        "rust",
        &["rustc"],
        How::Engine,
        r#"cat >$T/p.rs <<'END'
use std::sync::{Arc, Mutex}; use std::thread;
fn main() { let m = Arc::new(Mutex::new(0u64)); let t: Vec<_> = (0..8).map(|i| { let m = m.clone(); thread::spawn(move || for k in 0..1000 { *m.lock().unwrap() += k * i; }) }).collect();
 for x in t { x.join().unwrap(); } println!("{}", m.lock().unwrap()); let r = std::panic::catch_unwind(|| { let v: Vec<i32> = vec![]; v[0] }); println!("{}", r.is_err()); }
END
cd $T; rustc -O p.rs 2>/dev/null && ./p 2>/dev/null"#,
    ),
    (
        "redis",
        &["redis-server", "redis-benchmark", "redis-cli"],
        How::Engine,
        "cd $T; p=$((20000 + $$ % 10000)); c=\"redis-cli -p $p\"; redis-server --port $p --bind 127.0.0.1 --save '' --daemonize no >/dev/null & until $c ping >/dev/null 2>&1; do sleep 0.1; done; redis-benchmark -p $p -n 2000 -c 10 -q -t set,get,lpush >/dev/null && $c llen mylist; $c shutdown nosave; wait",
    ),
    (
        "python tests",
        &["python3"],
        How::Engine,
        r#"python3 -c 'import test.test_json' 2>/dev/null || exit 0
cd $T; env --default-signal python3 -m test -q --junit-xml $T/x test_signal test_threading test_subprocess test_faulthandler test_os test_mmap test_ctypes \
  test_json test_re test_struct test_zlib test_select test_io test_posix test_fork1 test_gc test_generators test_unicode test_float \
  test_exceptions >$T/log 2>&1; echo $?
python3 -c 'import sys, xml.etree.ElementTree as x
for t in x.parse(sys.argv[1]).iter("testcase"): print(t.get("name"), [r.tag for r in t if r.tag != "system-out" and r.tag != "system-err"])' $T/x | sort"#,
    ),
];

/// A project that is built by several processes at once, all of them recorded, from the sources of a Debian package in `$S`.
const PARALLEL_MAKE: (&str, Case) = (
    "bzip2",
    (
        "parallel make",
        &["make", "gcc"],
        How::Both,
        "cd $S; make -s clean; make -s -j2 bzip2 bzip2recover 2>/dev/null; cksum *.o bzip2 bzip2recover; ./bzip2 -c <CHANGES | cksum",
    ),
);

/// Tests that a program's own authors wrote, likewise: a line a test.
const OWN_TESTS: &[(&str, Case)] = &[
    (
        "perl",
        (
            "perl's own tests",
            &["perl", "timeout"],
            How::Engine,
            r#"v=$(sed -n 's/^#define PERL_\(VERSION\|SUBVERSION\)[[:blank:]]*\([0-9]*\).*/\2/p' $S/patchlevel.h | paste -sd.)
[ "$(perl -e 'printf "%vd", $^V')" = "5.$v" ] || { echo "sources of another perl"; exit; }
cd $S; if [ ! -e lib.own ]; then mv lib lib.own; mkdir lib; ln -s "$(command -v perl)" perl; ln -s ../perl t/perl
  for d in $(perl -MConfig -e 'print "$Config{privlib} $Config{archlib}"'); do cp -rsf $(realpath $d)/. lib/; done; fi
cd t; for f in base/*.t cmd/*.t comp/*.t opbasic/*.t op/*.t re/*.t uni/*.t mro/*.t io/*.t; do
  timeout 3600 perl $f </dev/null >$T/o 2>/dev/null; echo "$f $? $(grep -c '^ok' $T/o) $(grep -c '^not ok' $T/o)"; done"#,
        ),
    ),
    (
        // Its tests are those of Lua 5.1. Not all of them: one makes a string of 4 GiB to see it refused, which it is not with 64
        // bits, and another runs that one.
        "golang-github-yuin-gopher-lua",
        (
            "lua's own tests",
            &["lua5.1", "timeout"],
            How::Both,
            r#"cd $S/_lua5.1-tests; for f in *.lua; do case $f in big.lua|all.lua) continue; esac; timeout 3600 lua5.1 $f </dev/null >$T/o 2>/dev/null; echo "$f $? $(tail -n 1 $T/o)"; done"#,
        ),
    ),
];

/// The sources of a package, if they can be had.
fn sources(package: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/projects/sources.sh");
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = own.join(format!("{package}-{}", std::process::id()));
    let mut command = Command::new("sh");
    command.arg(script).arg(own.join("projects")).arg(package).arg(&folder);
    let status = command.status().expect("a shell");
    if !status.success() {
        tool::skip(
            &format!("programs::{package}"),
            "its sources cannot be had; ICHNOS_FETCH=1 fetches them",
        );
        return None;
    }
    Some(folder)
}

fn run(case: &Case, paths: Paths) {
    run_in(case, Path::new("/"), paths);
}

fn run_in((name, tools, how, script): &Case, sources: &Path, paths: Paths) {
    if !tool::have(&format!("programs::{name}"), tools) {
        return;
    }
    let script = format!(
        "S={}; T=$(mktemp -d); trap 'rm -rf \"$T\"' EXIT; export LC_ALL=C\n{script}",
        sources.display()
    );
    let (sh, args) = (Path::new("/bin/bash"), ["-c", script.as_str()]);
    let want = alone(sh, &args);
    let engine = |what| engine_along(sh, &args, what, paths);
    assert_eq!(engine(What::Nothing), want, "{name} under the engine");
    if *how == How::Both {
        assert_eq!(engine(What::All), want, "{name} recorded");
    }
}

#[test]
fn real_programs_behave() {
    SHORT.iter().for_each(|case| run(case, Paths::Eager));
}

#[test]
fn more_real_programs_behave() {
    if std::env::var_os("ICHNOS_BEHAVIOUR").is_none_or(|v| v != "all") {
        tool::skip("programs::more_real_programs_behave", "ICHNOS_BEHAVIOUR is not \"all\"");
        return;
    }
    LONG.iter().for_each(|case| run(case, Paths::Hot));
}

/// Runs a case with the sources of a package, if they can be had.
fn run_with((package, case): &(&str, Case)) {
    let Some(folder) = sources(package) else { return };
    run_in(case, &folder, Paths::Hot);
    // Not after a failure: whoever looks for its reason needs them.
    std::fs::remove_dir_all(folder).expect("a folder of ours");
}

#[test]
fn a_project_is_built_in_parallel() {
    if std::env::var_os("ICHNOS_BEHAVIOUR").is_none_or(|v| v != "all") {
        tool::skip("programs::a_project", "ICHNOS_BEHAVIOUR is not \"all\"");
        return;
    }
    run_with(&PARALLEL_MAKE);
}

#[test]
fn own_tests_of_programs_have_the_same_results() {
    if std::env::var_os("ICHNOS_BEHAVIOUR").is_none_or(|v| v != "all") {
        tool::skip("programs::own_tests", "ICHNOS_BEHAVIOUR is not \"all\"");
        return;
    }
    OWN_TESTS.iter().for_each(run_with);
}
