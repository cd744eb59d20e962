//! `record` against `step`, record by record and event by event, on real programs and on small ones of
//! our own for what is hard.
//!
//! The programs here are few and their work is tiny, because stepping takes its time. With `ICHNOS_EQUALITY=all` the whole
//! list of `equality/programs.rs` is compared, with `ICHNOS_EQUALITY=xz,lua` those of these names; best with `--release`.
//!
//! What may differ, and is not compared: clocks, the system's numbers of processes and threads (also as what a futex is
//! compared with), what registers hold that a system call does not look at, and synchronisation, which stepping does not
//! tell. Restartable sequences are switched off on both sides, since the code cache refuses them; the vdso is hidden, whose
//! arithmetic depends on the time; and a library gives dynamic programs the same time and the same number always, since
//! formatting either goes other ways for other digits.
//!
//! libc keeps no freed memory by thread, since it marks that with a random number: `strcmp` goes on behind the ends of strings,
//! leaving out what stands against a zero, and one run in thirty has a zero in that number.
//!
//! Which parts of the processor's state `xsavec` finds in use depends on whether the system has put them away meanwhile, which it
//! does at every step: programs of our own are bound when they are loaded, not by a loader that uses it.
//!
//! Of torture programs is left out what depends on the time, or on who runs when, and what asks for numbers of processes in ways
//! that are not known here; and transactions, whose fallback's first instruction is lost when they are stepped.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod compare;
mod programs;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::tool;

use crate::support::{good, ichnos, native};
use compare::{How, Place, compare};
use programs::Case;

/// Compares all cases, on every processor one at a time, and names those that differ.
#[track_caller]
#[allow(clippy::print_stderr, reason = "a long run says how far it has come")]
fn all_equal(cases: Vec<&Case>) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from).min(cases.len());
    let (count, cases) = (cases.len(), Mutex::new(VecDeque::from(cases)));
    let (equal, failures) = (Mutex::new(0), Mutex::new(Vec::new()));
    let work = |processor: usize| {
        let mut place = programs::inputs();
        place.processor = (processors > 1).then_some(processor);
        loop {
            let Some(case) = cases.lock().unwrap().pop_front() else { break };
            if !programs::is_there(&place, case) {
                continue;
            }
            let begun = Instant::now();
            match compare(&place, case.command, case.how) {
                Ok(found) => {
                    *equal.lock().unwrap() += 1;
                    eprintln!("{}: {found:?}, {:.0?}", case.name, begun.elapsed());
                }
                Err(difference) => {
                    let text = format!("{}: {difference}", case.name);
                    eprintln!("{text}");
                    failures.lock().unwrap().push(text);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for processor in 0..processors {
            scope.spawn(move || work(processor));
        }
    });
    let (equal, failures) = (equal.into_inner().unwrap(), failures.into_inner().unwrap());
    eprintln!("{equal} of {count} are equal");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn real_programs_are_recorded_as_they_are_stepped() {
    let usual = ["sort", "grep", "gzip", "env"];
    all_equal(programs::LIST.iter().filter(|case| usual.contains(&case.name)).collect());
}

#[test]
fn many_programs_are_recorded_as_they_are_stepped() {
    let Ok(wanted) = std::env::var("ICHNOS_EQUALITY") else {
        tool::skip("equality::many_programs", "takes a long time; ICHNOS_EQUALITY=all runs it");
        return;
    };
    let is_wanted = |case: &&Case| wanted == "all" || wanted.split(',').any(|w| w == case.name);
    let cases: Vec<_> = programs::LIST.iter().filter(is_wanted).collect();
    assert!(!cases.is_empty(), "ICHNOS_EQUALITY names no program");
    all_equal(cases);
}

/// A torture program of `testkit`.
#[track_caller]
fn tortured(name: &str, args: &[&str]) {
    tortured_in(&Place::new(), name, args);
}

#[track_caller]
fn tortured_in(place: &Place, name: &str, args: &[&str]) {
    let program = guest::build(&format!("torture_{name}.c"), Link::Dynamic, &["-w", "-Wl,-z,now"]);
    let command = [&[program.to_str().expect("a path of text")], args].concat();
    if let Err(difference) = compare(place, &command, How::Whole) {
        panic!("{name}: {difference}");
    }
}

#[test]
fn processor_state_is_recorded_as_it_is_stepped() {
    tortured("state", &[]);
}

/// Far jumps and returns, and transactions, lead where they lead.
#[test]
fn what_few_programs_do_is_recorded_without_a_break() {
    let place = Place::new();
    let program = guest::build("torture_gaps.c", Link::Dynamic, &["-w", "-Wl,-z,now"]);
    let program = program.to_str().expect("a path of text");
    good(ichnos(&place.folder, &["record", "-q", "-o", "t.ichnos", "--", program]));
    good(ichnos(&place.folder, &["check", "t.ichnos"]));
}

#[test]
fn what_few_programs_do_is_recorded_as_it_is_stepped() {
    tortured("gaps", &["steady"]);
}

#[test]
fn faults_are_recorded_as_they_are_stepped() {
    tortured("faults", &[]);
}

#[test]
fn faults_at_a_buffers_end_are_recorded_as_they_are_stepped() {
    tortured("edges", &["800"]);
}

#[test]
fn changing_code_is_recorded_as_it_is_stepped() {
    tortured("code", &["alone"]);
}

#[test]
fn nasty_signals_are_recorded_as_they_are_stepped() {
    tortured("signals", &["steady"]);
}

/// A shell is among them, which formats its number.
#[test]
fn ways_to_make_processes_are_recorded_as_they_are_stepped() {
    let place = Place::new();
    place.pin();
    tortured_in(&place, "processes", &["steady"]);
}

/// Without wishes for addresses that the engine itself takes.
#[test]
fn memory_is_recorded_as_it_is_stepped() {
    tortured("memory", &["modest"]);
}

#[test]
fn odd_control_flow_is_recorded_as_it_is_stepped() {
    tortured("flow", &[]);
}

/// Builds a program of our own.
fn build(place: &Place, source: &str, flags: &[&str]) {
    place.folder.write("guest.c", source.as_bytes());
    let args = [&["-O1", "-o", "guest", "guest.c"], flags].concat();
    good(native(&place.folder, "gcc", &args));
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
    let place = Place::new();
    build(&place, SIGNALS, &["-static"]);
    compare(&place, &["./guest"], How::Whole).expect("equal");
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
    let place = Place::new();
    build(&place, &format!("#include <signal.h>\n{PROCESSES}"), &["-static", "-pthread"]);
    compare(&place, &["./guest"], How::Made).expect("equal");
}
