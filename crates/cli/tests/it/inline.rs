//! `ichnos cc` and the inline tracing of what it builds.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_collect_asm as asm;
use ichnos_flow::Level;
use ichnos_testkit::{guest, tool};

use crate::inline_compare::{Compared, Stepped};
use crate::support::{Folder, good, ichnos, native, shell, totals};

const BARE: &str = "-static -no-pie -nostdlib -ffreestanding -fno-builtin";

/// Builds a guest through `ichnos cc`.
fn build(folder: &Folder, source: &str, flags: &str) -> String {
    let compiler = if source.ends_with(".cc") { "g++" } else { "gcc" };
    let source = guest::folder().join(source);
    let program = folder.path().join("prog");
    let mut line = vec!["cc", "--", compiler, source.to_str().unwrap(), "-o"];
    line.push(program.to_str().unwrap());
    line.extend(flags.split_whitespace());
    good(ichnos(folder, &line));
    program.to_str().unwrap().to_owned()
}

fn compared(folder: &Folder, source: &str, flags: &str, level: Level) -> Compared {
    let stepped = Stepped::new(build(folder, source, flags).as_ref());
    let compared = stepped.compare(level);
    assert!(stepped.compare_references() * 10 > compared.insns, "{source}: {compared:?}");
    compared
}

#[test]
fn inline_equals_step_at_every_level_of_the_planner() {
    let folder = Folder::new();
    for source in ["bare_sort.c", "bare_strings.c", "bare_calls.c", "bare_atomics.c"] {
        let stepped = Stepped::new(build(&folder, source, &format!("-O2 {BARE}")).as_ref());
        for level in Level::ALL {
            let compared = stepped.compare(level);
            assert!(compared.insns > 100_000 || source != "bare_sort.c", "{compared:?}");
        }
        stepped.compare_references();
    }
}

/// Accesses of a single instruction that would fill the memory if they were records.
#[test]
fn inline_takes_instructions_of_any_length() {
    const KIB: u64 = 300 << 10;
    let folder = Folder::new();
    let program = build(&folder, "bare_fill.c", &format!("-O2 {BARE}"));
    let stepped = Stepped::new(program.as_ref());
    stepped.compare(Level::Flow);
    stepped.compare_references();
    let size = KIB.to_string();
    good(ichnos(&folder, &["record", "-q", "-o", "m.ichnos", "--", &program, &size]));
    let all = totals(&folder, "m.ichnos");
    let stores = KIB << 10 >> 3;
    assert!((stores..stores + 1000).contains(&all.stores), "{all:?}");
    let loads = (KIB << 10) + 0x20000;
    assert!((loads..loads + 1000).contains(&all.loads), "{all:?}");
}

#[test]
fn inline_equals_step_at_every_level_of_the_compiler() {
    let folder = Folder::new();
    for flags in ["-O0", "-O1", "-O3", "-Os", "-O3 -march=native", "-O2 -fcf-protection=full"] {
        for source in ["bare_strings.c", "bare_calls.c"] {
            compared(&folder, source, &format!("{flags} {BARE}"), Level::Flow);
        }
    }
}

/// Other compilers, other syntax, assembly by hand.
#[test]
fn inline_equals_step_whoever_wrote_the_assembly() {
    let folder = Folder::new();
    folder.write(
        "own.c",
        b"int added(const int *, int);\nstatic int all[50];\n\
          static int f(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * i % 7; return s; }\n\
          int main(int c, char **v) { (void)v; for (int i = 0; i < 50; i++) all[i] = f(i * c);\n\
          return added(all, 50) % 100; }\n",
    );
    folder.write(
        "added.S",
        b".globl added\n.type added,@function\nadded: xor %eax,%eax\n1: add (%rdi),%eax\n\
          add $4,%rdi\ndec %esi\njnz 1b\nret\n.size added,.-added\n\
          .section .note.GNU-stack,\"\",@progbits\n",
    );
    for line in ["clang -O2", "clang -O1 -masm=intel", "gcc -O2 -masm=intel", "gcc -O0"] {
        let compiler = line.split(' ').next().unwrap_or(line);
        if !tool::have("inline", &[compiler]) {
            continue;
        }
        let line = format!("cc -- {line} own.c added.S -static -o own");
        good(ichnos(&folder, &line.split(' ').collect::<Vec<_>>()));
        let stepped = Stepped::new(folder.path().join("own").as_ref());
        let found = stepped.compare(Level::Flow);
        assert!(found.insns > 1000, "{line}: {found:?}");
        assert!(stepped.compare_references() > 100, "{line}");
    }
}

#[test]
fn inline_equals_step_with_threads_children_jumps_and_traps() {
    let folder = Folder::new();
    // Threads that do not look at each other, so that any interleaving gives the same.
    let source = "#include <pthread.h>\nstatic int out[3][50];\n\
        static void *work(void *p) { int *o = p; for (int i = 0; i < 50; i++) o[i] = i * i; return 0; }\n\
        int main(void) { pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(t + i, 0, work, out[i]);\n\
        for (int i = 0; i < 3; i++) pthread_join(t[i], 0); return out[2][7]; }\n";
    folder.write("own.c", source.as_bytes());
    let line = "cc -- gcc -O2 -static -pthread own.c -o own";
    good(ichnos(&folder, &line.split(' ').collect::<Vec<_>>()));
    let stepped = Stepped::new(folder.path().join("own").as_ref());
    let threads = stepped.compare(Level::Flow);
    assert_eq!(threads.threads, 4, "{threads:?}");
    assert!(stepped.compare_references() > 150);
    let fork = compared(&folder, "forkexec.c", "-O2 -static", Level::Flow);
    assert!(fork.threads > 2 && fork.gaps > 5, "{fork:?}");
    compared(&folder, "jump.c", "-O2 -fPIC", Level::Flow);
    // It steps itself, and would step through what is stored one by one.
    let steps = build(&folder, "trap.c", "-O2 -static");
    Stepped::new(steps.as_ref()).compare(Level::Flow);
}

/// Instructions that fault in the middle of a block, left by a jump or gone on with.
#[test]
fn what_was_done_before_a_fault_is_told() {
    let folder = Folder::new();
    folder.write(
        "own.c",
        b"#include <setjmp.h>\n#include <signal.h>\n#include <sys/mman.h>\n\
          static sigjmp_buf back; static volatile int all[8], *page; static volatile int jumps;\n\
          static void on_fault(int s) { (void)s; if (jumps) siglongjmp(back, 1);\n\
          mprotect((void *)page, 4096, PROT_READ | PROT_WRITE); }\n\
          __attribute__((noinline)) static void go(volatile int *x, volatile int *y, volatile int *z) {\n\
          *x = 1; *y += 2; *z = 3; *x = 4; y[1] = 5; }\n\
          int main(void) { struct sigaction a = {0}; a.sa_handler = on_fault; sigaction(SIGSEGV, &a, 0);\n\
          page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
          for (volatile int i = 0; i < 12; i++) { jumps = i % 3 != 0;\n\
          mprotect((void *)page, 4096, PROT_NONE);\n\
          if (!sigsetjmp(back, 1)) go(all, all + 1, i % 2 ? page : all + 3); }\n\
          return all[0] + all[1]; }\n",
    );
    let line = "cc -- gcc -O2 -static own.c -o own";
    good(ichnos(&folder, &line.split(' ').collect::<Vec<_>>()));
    let stepped = Stepped::new(folder.path().join("own").as_ref());
    for level in Level::ALL {
        assert!(stepped.compare(level).insns > 200);
    }
    assert!(stepped.compare_references() > 100);
}

/// Handlers that give what they interrupted other registers, in whatever block, with more faults than fit into the buffers.
#[test]
fn handlers_may_change_registers() {
    let folder = Folder::new();
    let program = build(&folder, "torture_edges.c", "-O2 -static -w");
    let stepped = Stepped::with(program.as_ref(), &["100".into()]);
    for level in Level::ALL {
        assert!(stepped.compare(level).insns > 10_000);
    }
    let args = ["record", "-q", "-o", "t.ichnos", "--", &program, "20000"];
    let (alone, recorded) = (native(&folder, &program, &["20000"]), ichnos(&folder, &args));
    assert_eq!(recorded.stdout, alone.stdout);
    good(recorded);
    good(ichnos(&folder, &["check", "t.ichnos"]));
}

/// Handlers see the program's own stack pointer, also where what is stored needs the stack.
#[test]
fn handlers_see_the_stack_pointer() {
    let folder = Folder::new();
    let odd = guest::folder().join("odd.S");
    let program = build(&folder, "interrupted.c", &format!("-O2 {}", odd.display()));
    for options in [&[][..], &["--sample", "50:200"], &["--sample", "1:1000"]] {
        let command =
            [&["record", "-q"], options, &["-o", "none", "--", &*program, "500"]].concat();
        let run = ichnos(&folder, &command);
        assert_eq!((run.status, &*run.stdout), (0, "1, 0 wrong\n"), "{}", run.stderr);
    }
}

/// A fault in a handler of faults kills, unless that handler lets more of them come.
#[test]
fn faults_in_handlers_of_faults_end_programs() {
    let folder = Folder::new();
    folder.write(
        "own.c",
        b"#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
          static volatile int depth; static volatile int *nowhere;\n\
          static void on_fault(int s) { (void)s; if (++depth == 3) _exit(7); *nowhere = 1; }\n\
          static void on_alarm(int s) { (void)s; *nowhere = 1; }\n\
          int main(int n, char **v) { struct sigaction a = {0}; a.sa_handler = on_fault; if (n > 1) a.sa_flags = SA_NODEFER;\n\
          sigaction(SIGSEGV, &a, 0); a.sa_handler = on_alarm; if (n > 2) sigaddset(&a.sa_mask, SIGSEGV);\n\
          sigaction(SIGALRM, &a, 0); if (n > 2) raise(SIGALRM); else *nowhere = 1; return 0; }\n",
    );
    good(ichnos(&folder, &["cc", "--", "gcc", "-O2", "-static", "own.c", "-o", "own"]));
    let program = folder.path().join("own");
    let program = program.to_str().unwrap();
    // A signal is what a shell makes of it.
    for (args, status) in [(&[][..], 139), (&["again"], 7), (&["again", "blocked"], 139)] {
        let command = [&["record", "-q", "-o", "t.ichnos", "--", program], args].concat();
        assert_eq!(ichnos(&folder, &command).status, status, "{args:?}");
        good(ichnos(&folder, &["check", "t.ichnos"]));
    }
}

#[test]
fn gathers_masks_and_strings_are_told_lane_by_lane() {
    let folder = Folder::new();
    let vector = compared(&folder, "vector.c", "-O2 -no-pie -static", Level::Flow);
    assert!(vector.insns > 10_000, "{vector:?}");
}

#[test]
fn programs_behave_as_if_alone() {
    let folder = Folder::new();
    for (source, flags) in [
        ("throw.cc", "-O2"),
        ("throw.cc", "-O0 -static"),
        ("signals.c", "-O2 -pthread"),
        ("threads.c", "-O2 -pthread"),
        ("mutex.c", "-O2 -pthread"),
        ("spawn.c", "-O2"),
        ("execthread.c", "-O2 -pthread"),
        ("rep.c", "-O2"),
    ] {
        let program = build(&folder, source, flags);
        let alone = native(&folder, &program, &[]);
        let traced = ichnos(&folder, &["record", "-q", "-o", "t.ichnos", "--", &program]);
        assert_eq!(traced.stdout, alone.stdout, "{source}: {}", traced.stderr);
        assert_eq!(traced.status, alone.status, "{source}: {}", traced.stderr);
        let check = ichnos(&folder, &["check", "t.ichnos"]);
        assert_eq!(check.status, 0, "{source}: {}{}", check.stdout, check.stderr);
        let dropped = ichnos(&folder, &["record", "-o", "none", "--", &program]);
        assert_eq!(dropped.stdout, alone.stdout, "{source}: {}", dropped.stderr);
    }
}

/// Notes are all that `ichnos cc` adds.
#[test]
fn the_program_is_the_ordinary_build() {
    let folder = Folder::new();
    let source = guest::folder().join("throw.cc");
    let source = source.to_str().unwrap();
    good(native(&folder, "g++", &["-O2", "-g", source, "-o", "plain"]));
    good(ichnos(&folder, &["cc", "--", "g++", "-O2", "-g", source, "-o", "noted"]));
    for name in ["plain", "noted"] {
        let line = format!(
            "objcopy -O binary -R .note.gnu.build-id --set-section-flags .bss=alloc {name} {name}.bin"
        );
        good(shell(&folder, &line));
    }
    assert_eq!(folder.bytes("plain.bin"), folder.bytes("noted.bin"));
    assert!(!asm::has_notes(&folder.path().join("plain")));
    assert!(asm::has_notes(&folder.path().join("noted")));
}

/// Objects, archives and unused code go through the linker as ever.
#[test]
fn notes_survive_archives_and_garbage_collection() {
    let folder = Folder::new();
    folder
        .write("one.c", b"int unused(int x) { return x * 3; }\nint one(int x) { return x + 1; }\n");
    folder.write(
        "main.cc",
        b"#include <vector>\nextern \"C\" int one(int);\n\
          int main(int c, char **) { std::vector<int> v(10, c); int s = 0;\n\
          for (int x : v) s += one(x); return s; }\n",
    );
    let flags = "-O1 -ffunction-sections -fdata-sections";
    for line in [
        format!("cc -- gcc {flags} -pipe -c one.c -o one.o"),
        format!("cc -- g++ {flags} -c main.cc -o main.o"),
    ] {
        good(ichnos(&folder, &line.split_whitespace().collect::<Vec<_>>()));
    }
    good(native(&folder, "ar", &["rc", "libone.a", "one.o"]));
    good(native(&folder, "g++", &["-Wl,--gc-sections", "main.o", "libone.a", "-o", "prog"]));
    let program = folder.path().join("prog");
    let noted = asm::noted(&program).unwrap();
    assert!(noted.len() >= 2, "{noted:?}");
    let run = ichnos(&folder, &["record", "-q", "-o", "t.ichnos", "--", program.to_str().unwrap()]);
    assert_eq!(run.status, 20, "{}", run.stderr);
    let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
    assert!(info["instructions"].as_u64().unwrap() > 50, "{info}");
}

#[test]
fn cc_passes_on_what_it_should_and_refuses_the_rest() {
    let folder = Folder::new();
    folder.write("bad.c", b"int main(void) { return }\n");
    folder.write("good.c", b"int main(void) { return 3; }\n");
    let run = ichnos(&folder, &["cc", "--", "gcc", "bad.c"]);
    assert_eq!(run.status, 1, "{}", run.stderr);
    assert!(run.stderr.contains("bad.c:1"), "{}", run.stderr);
    let run = ichnos(&folder, &["cc", "--", "gcc", "-flto", "good.c"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("-flto"), "{}", run.stderr);
    let run = ichnos(&folder, &["cc", "--", "no-such-compiler", "good.c"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    let run = ichnos(&folder, &["record", "--opt", "everything", "--", "true"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(run.stderr.contains("procedural"), "{}", run.stderr);
}
