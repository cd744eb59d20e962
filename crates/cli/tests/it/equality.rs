//! `record` against `step`, record by record and event by event, on real programs and on small ones of
//! our own for what is hard.
//!
//! The programs here are few and their work is tiny, because stepping takes its time. With
//! `ICHNOS_EQUALITY=all` a longer list is run, which takes a long time.
//!
//! What may differ, and is not compared: clocks, the system's numbers of processes and threads (also as what a futex is
//! compared with), what registers hold that a system call does not look at, and synchronisation, which stepping does not
//! tell. Restartable sequences are switched off on both sides, since the code cache refuses them; the vdso is hidden, whose
//! arithmetic depends on the time; and a library gives dynamic programs the same time always.
//!
//! Not in the list because they differ, probably by chance: `xz -T2` and `pigz -p2` (whether a lock is free), a shell that
//! gets `SIGCHLD` in a pipeline (when it comes).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use ichnos_testkit::tool;

use crate::support::{Folder, Run, ichnos, native};

const ENVIRONMENT: [(&str, &str); 5] = [
    ("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),
    ("LC_ALL", "C"),
    ("PATH", "/usr/bin:/bin"),
    ("PERL_HASH_SEED", "0"),
    ("PYTHONHASHSEED", "0"),
];

/// A library by which it is always the same time.
const CLOCK: &str = "clock.so";
const CLOCK_SOURCE: &str = r"
#include <sys/time.h>
#include <time.h>
time_t time(time_t *t) { if (t) *t = 1600000000; return 1600000000; }
int clock_gettime(clockid_t c, struct timespec *t) { t->tv_sec = 1600000000; t->tv_nsec = 0; return 0; }
int gettimeofday(struct timeval *t, void *z) { t->tv_sec = 1600000000; t->tv_usec = 0; return 0; }
";

/// Which threads are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Threads {
    All,
    /// Not the first, which waits for the others: whether it must sleep is a matter of luck.
    Made,
}

fn collect(folder: &Folder, verb: &str, file: &str, command: &[&str]) -> Run {
    let clock = folder.path().join(CLOCK);
    let preload = clock.exists().then_some(("LD_PRELOAD", clock));
    let output = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args([verb, "-q", "--no-vdso", "-o", file, "--"])
        .args(command)
        .current_dir(folder.path())
        .env_clear()
        .envs(ENVIRONMENT)
        .envs(preload)
        .stdin(Stdio::null())
        .output();
    output.expect("ichnos runs").into()
}

/// System calls that give the system's number of a process or thread.
const NUMBERS: [u64; 13] = [39, 56, 57, 58, 61, 110, 111, 112, 121, 124, 186, 218, 435];

/// How many arguments system calls have; of others all six are compared.
fn arguments(number: u64) -> usize {
    match number {
        15 | 24 | 39 | 57 | 58 | 102 | 104 | 107 | 108 | 110 | 111 | 112 | 186 => 0,
        3 | 12 | 22 | 32 | 60 | 63 | 80 | 81 | 87 | 95 | 99 | 121 | 124 | 201 | 218 | 231 => 1,
        // Of a futex the address and what is done.
        202 => 2,
        4 | 5 | 6 | 11 | 21 | 33 | 35 | 62 | 200 | 77 | 79 | 82 | 83 | 90 | 91 | 96..=98 => 2,
        115 | 131 | 137 | 158 | 160 | 228 | 229 | 273 | 293 | 435 => 2,
        0..=2 | 7 | 8 | 10 | 16 | 20 | 28 | 41 | 42 | 59 | 72 | 89 | 92 | 94 | 120 => 3,
        203 | 204 | 217 | 234 | 258 | 263 | 269 | 292 | 318 | 436 => 3,
        13 | 14 | 17 | 18 | 61 | 221 | 230 | 257 | 262 | 264 | 267 | 280 | 302 | 334 | 439 => 4,
        25 | 56 | 157 | 247 | 271 | 316 | 332 => 5,
        _ => 6,
    }
}

/// A line of `dump` as it is compared, if it is: thread, and the rest.
fn normal(line: &str) -> Option<(u32, String)> {
    let mut words = line.splitn(3, ' ');
    let thread = words.next()?.parse().ok()?;
    let rest = words.nth(1)?;
    let Some(event) = rest.strip_prefix("E ") else { return Some((thread, rest.to_owned())) };
    let mut fields = event.split(' ');
    let name = fields.next()?;
    let mut field = |key: &str| fields.next()?.strip_prefix(key)?.strip_prefix('=');
    // Whom a signal is sent to is given by the system's numbers.
    let whom = |number: u64| match number {
        62 | 200 => 1,
        234 => 2,
        _ => 0,
    };
    let text = match name {
        "timestamp" | "lock" | "cond" | "barrier" | "thread-join" => return None,
        "thread-start" => {
            let own = |f: &&str| !f.starts_with("os_");
            event.split(' ').filter(own).collect::<Vec<_>>().join(" ")
        }
        "syscall" => {
            let number = field("number")?.parse().ok()?;
            let args = field("args")?.split(',').take(arguments(number)).skip(whom(number));
            let args: Vec<&str> = args.collect();
            format!("syscall {number} {args:?}")
        }
        "syscall-return" => {
            let (number, result) = (field("number")?.parse().ok()?, field("result")?);
            let is_number = NUMBERS.contains(&number) && !result.starts_with(['-', '0']);
            format!("return of {number}: {}", if is_number { "a number" } else { result })
        }
        _ => event.to_owned(),
    };
    Some((thread, text))
}

fn streams(folder: &Folder, file: &str) -> BTreeMap<u32, Vec<String>> {
    let dump = ichnos(folder, &["dump", file]);
    assert_eq!(dump.status, 0, "{}", dump.stderr);
    let mut threads: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (thread, line) in dump.stdout.lines().filter_map(normal) {
        threads.entry(thread).or_default().push(line);
    }
    threads
}

/// Records and steps a command; says where they first differ.
fn difference(folder: &Folder, command: &[&str], threads: Threads) -> Option<String> {
    let record = collect(folder, "record", "r.ichnos", command);
    let step = collect(folder, "step", "s.ichnos", command);
    if (record.status, &record.stdout) != (step.status, &step.stdout) {
        return Some(format!("they behave differently: {record:?} {step:?}"));
    }
    let check = ichnos(folder, &["check", "r.ichnos"]);
    if check.status != 0 {
        return Some(format!("the record is wrong: {}", check.stdout));
    }
    let (got, want) = (streams(folder, "r.ichnos"), streams(folder, "s.ichnos"));
    if got.keys().ne(want.keys()) {
        return Some(format!("threads {:?} and {:?}", got.keys(), want.keys()));
    }
    for ((thread, got), want) in got.iter().zip(want.values()) {
        if *thread == 0 && threads == Threads::Made || got == want {
            continue;
        }
        let same = got.iter().zip(want).take_while(|(a, b)| a == b).count();
        let around = |all: &[String]| {
            all.iter().skip(same.saturating_sub(4)).take(8).cloned().collect::<Vec<_>>()
        };
        return Some(format!(
            "thread {thread} differs after {same} lines of {} and {}: {:#?} {:#?}",
            got.len(),
            want.len(),
            around(got),
            around(want)
        ));
    }
    None
}

/// A folder with inputs for the programs below.
fn inputs() -> Folder {
    let folder = Folder::new();
    let lines: String = (0..30).map(|i| format!("{} line {i}\n", i * 7919 % 101)).collect();
    folder.write("in.txt", lines.as_bytes());
    folder.write("bc.in", b"2^10\nquit\n");
    folder.write("make.in", b"all:\n\t@echo hello\n");
    folder.write("a.s", b".text\nnop\n");
    folder.write("in.json", b"{\"a\": [1, 2, {\"b\": \"c\"}], \"d\": null}\n");
    folder.write("clock.c", CLOCK_SOURCE.as_bytes());
    let built = native(&folder, "gcc", &["-shared", "-fPIC", "-O1", "-o", CLOCK, "clock.c"]);
    assert_eq!(built.status, 0, "{}", built.stderr);
    folder.write("a.c", b"int f(int x) { return x + 1; }\n");
    folder
}

#[track_caller]
fn all_equal(commands: &[&[&str]], threads: Threads) {
    let folder = inputs();
    let mut failures = Vec::new();
    for command in commands {
        if !tool::have("equality", &command[..1]) {
            continue;
        }
        // The clock ticks meanwhile, and a program may read it halfway: what differs by chance
        // alone does not differ three times.
        let tries = (0..3).map(|_| difference(&folder, command, threads));
        if let Some(last) = tries.take_while(Option::is_some).flatten().collect::<Vec<_>>().get(2) {
            failures.push(format!("{command:?}: {last}"));
        }
    }
    assert!(failures.is_empty(), "{} differ: {}", failures.len(), failures.join("\n"));
}

#[test]
fn real_programs_are_recorded_as_they_are_stepped() {
    all_equal(
        &[
            &["sort", "-n", "in.txt"],
            &["grep", "-c", "line 1", "in.txt"],
            &["gzip", "-c", "in.txt"],
            &["env", "wc", "in.txt"],
        ],
        Threads::All,
    );
}

#[test]
fn many_programs_are_recorded_as_they_are_stepped() {
    if std::env::var("ICHNOS_EQUALITY").as_deref() != Ok("all") {
        tool::skip("equality::many_programs", "takes a long time; ICHNOS_EQUALITY=all runs it");
        return;
    }
    all_equal(LONG, Threads::All);
    all_equal(THREADED, Threads::Made);
}

/// Programs whose first thread waits for others.
const THREADED: &[&[&str]] =
    &[&["zstd", "-q", "-c", "in.txt"], &["sort", "--parallel=2", "-n", "in.txt"]];

const LONG: &[&[&str]] = &[
    &["busybox", "md5sum", "in.txt"],
    &["busybox", "awk", "{s+=$1}END{print s}", "in.txt"],
    &["busybox", "gzip", "-c", "in.txt"],
    &["busybox", "sort", "-n", "in.txt"],
    &["busybox", "tar", "cf", "/dev/null", "in.txt"],
    &["gawk", "{s+=$1}END{print s}", "in.txt"],
    &["openssl", "dgst", "-sha256", "in.txt"],
    &["jq", ".a[2].b", "in.json"],
    &["ls", "-l", "/usr"],
    &["cat", "in.txt"],
    &["wc", "in.txt"],
    &["head", "-2", "in.txt"],
    &["tr", "a", "b"],
    &["cut", "-c1-3", "in.txt"],
    &["uniq", "in.txt"],
    &["od", "-c", "in.txt"],
    &["md5sum", "in.txt"],
    &["sha256sum", "in.txt"],
    &["base64", "in.txt"],
    &["seq", "10"],
    &["factor", "12345"],
    &["expr", "1", "+", "2"],
    &["printf", "%d", "3"],
    &["env"],
    &["stat", "-c", "%s", "in.txt"],
    &["du", "in.txt"],
    &["dd", "if=in.txt", "of=/dev/null", "status=none"],
    &["cmp", "in.txt", "in.txt"],
    &["diff", "in.txt", "bc.in"],
    &["date", "-d", "@0"],
    &["xargs", "echo"],
    &["bash", "-c", "for i in 1 2; do echo $i; done; x=$(echo hi); echo $x"],
    &["xz", "-kc", "in.txt"],
    &["bzip2", "-c", "in.txt"],
    &["awk", "{s+=$1}END{print s}", "in.txt"],
    &["sed", "s/line/row/", "in.txt"],
    &["bc", "-q", "bc.in"],
    &["sqlite3", ":memory:", "select 1+1;"],
    &["tar", "cf", "/dev/null", "in.txt"],
    &["find", "."],
    &["make", "-f", "make.in"],
    &["git", "--version"],
    &["openssl", "version"],
    &["as", "-o", "/dev/null", "a.s"],
    &["ld", "--version"],
    &["/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "-quiet", "-O1", "a.c", "-o", "a.out.s"],
    &["lua5.4", "-e", "local t={} for i=1,50 do t[i]=i*i end print(#t)"],
    &["perl", "-e", "my %h=(a=>1,b=>2);print join(\",\",sort keys %h),\"\\n\""],
    &["python3", "-S", "-c", "print(1)"],
    &["curl", "--version"],
    &["vim", "-es", "-c", "q"],
];

/// Builds a program of our own.
fn build(folder: &Folder, source: &str, flags: &[&str]) {
    folder.write("guest.c", source.as_bytes());
    let args = [&["-O1", "-o", "guest", "guest.c"], flags].concat();
    let built = native(folder, "gcc", &args);
    assert_eq!(built.status, 0, "{}", built.stderr);
}

const SIGNALS: &str = r#"
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
static sigjmp_buf back;
static volatile int count;
static char stack[1 << 16];
static void on_usr(int n, siginfo_t *i, void *u) { count += n + i->si_code; if (count < 40) raise(SIGUSR2); }
static void on_fault(int n) { siglongjmp(back, n); }
int main(void) {
    stack_t alt = { .ss_sp = stack, .ss_size = sizeof stack };
    sigaltstack(&alt, 0);
    struct sigaction a = { .sa_sigaction = on_usr, .sa_flags = SA_SIGINFO };
    sigaction(SIGUSR1, &a, 0);
    a.sa_flags |= SA_ONSTACK;
    sigaction(SIGUSR2, &a, 0);
    raise(SIGUSR1);
    struct sigaction f = { .sa_handler = on_fault, .sa_flags = SA_ONSTACK };
    sigaction(SIGSEGV, &f, 0);
    if (!sigsetjmp(back, 1)) *(volatile int *)8 = 1;
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    sigsuspend(&old);
    if (count) kill(getpid(), SIGKILL);
    return 0;
}
"#;

#[test]
fn signals_are_recorded_as_they_are_stepped() {
    let folder = Folder::new();
    build(&folder, SIGNALS, &["-static"]);
    assert_eq!(difference(&folder, &["./guest"], Threads::All), None);
}

const PROCESSES: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *p) {
    volatile long sum = 0;
    for (long i = 0; i < 300; i++) sum += i ^ (long)p;
    return p;
}
int main(int argc, char **argv) {
    int status;
    if (argc > 1) return 5;
    char *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    code[0] = 0xc3;
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    ((void (*)(void))code)();
    munmap(code, 4096);
    for (long i = 1; i < 3; i++) {
        pthread_t t;
        pthread_create(&t, 0, work, (void *)i);
        pthread_join(t, 0);
    }
    if (fork() == 0) _exit(7);
    wait(&status);
    if (vfork() == 0) { execl(argv[0], argv[0], "again", (char *)0); _exit(1); }
    wait(&status);
    if (fork() == 0) kill(getpid(), 9);
    wait(&status);
    return WTERMSIG(status);
}
"#;

#[test]
fn threads_and_processes_are_recorded_as_they_are_stepped() {
    let folder = Folder::new();
    build(&folder, &format!("#include <signal.h>\n{PROCESSES}"), &["-static", "-pthread"]);
    assert_eq!(difference(&folder, &["./guest"], Threads::Made), None);
}
