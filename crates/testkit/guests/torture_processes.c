/* Processes and threads in every way to make and end them, and calls by which a program watches or
   confines others and itself. `torture_processes forks N`, `threads N` and `together N` (threads that all
   live at once) make a crowd; with one other argument what runs at once, depends on time, is watched by another or must not be is
   left out. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;
static int status_of(int pid) {
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) ;
    return status;
}

static void replace(void) {
    volatile int shared = 0;
    int pid = vfork();
    if (!pid) {
        shared = 5;
        execl(self, self, "child", "1", (char *)0);
        _exit(99);
    }
    printf("vfork %d", shared);
    printf(" %x\n", status_of(pid));
    pid = vfork();
    if (!pid) {
        shared = 6;
        execl("/nonexistent", "x", (char *)0);
        shared += errno == ENOENT;
        _exit(7);
    }
    int status = status_of(pid);
    printf("vfork without exec %d %x\n", shared, status);
    char *args[] = {self, "child", "2", 0};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 5, "/dev/null", O_RDONLY, 0);
    int r = posix_spawn(&pid, self, &actions, 0, args, environ);
    printf("spawn %d %x\n", r, status_of(pid));
    r = posix_spawnp(&pid, "nonexistent-program", 0, 0, args, environ);
    printf("spawn of nothing %s\n", strerrorname_np(r));
    int fd = open(self, O_RDONLY | O_CLOEXEC);
    pid = fork();
    if (!pid) {
        fexecve(fd, args, environ);
        _exit(98);
    }
    printf("fexecve %x\n", status_of(pid));
    close(fd);
    FILE *p = popen("echo through a pipe; exit 3", "r");
    char line[100] = {0};
    if (!fgets(line, sizeof line, p)) return;
    printf("popen %x %s", pclose(p), line);
    printf("system %x\n", system("exit 4"));
}

static int clone_child(void *p) {
    *(int *)p += 10;
    return 6;
}
static void raw_clones(void) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    volatile int n = 1;
    int pid = clone(clone_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)&n);
    int status = status_of(pid);
    printf("clone sharing memory %x %d\n", status, n);
    pid = clone(clone_child, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)&n);
    status = status_of(pid);
    printf("clone side by side %x %d\n", status, n);
    pid = clone(clone_child, stack + sizeof stack, SIGCHLD, (void *)&n);
    printf("clone apart %x %d\n", status_of(pid), n);
    struct clone_args a = {.exit_signal = SIGCHLD};
    int pidfd = -1;
    a.flags = CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
    a.pidfd = (uint64_t)&pidfd;
    pid = syscall(SYS_clone3, &a, sizeof a);
    if (!pid) _exit(8);
    printf("clone3 %d %x\n", pidfd >= 0, status_of(pid));
    close(pidfd);
    a.exit_signal = 200;
    printf("clone3 %ld %s", syscall(SYS_clone3, &a, sizeof a), strerrorname_np(errno));
    printf(" %ld %s", syscall(SYS_clone3, &a, 8), strerrorname_np(errno));
    printf(" %ld %s\n", syscall(SYS_clone3, 16, sizeof a), strerrorname_np(errno));
}

static void *forker(void *p) {
    int sum = 0;
    for (int i = 0; i < 5; i++) {
        int pid = fork();
        if (!pid) _exit(i + 1);
        sum += WEXITSTATUS(status_of(pid));
    }
    return (void *)(long)sum;
}
static void *forever(void *p) {
    for (volatile long i = 0;; i++) ;
}
static void *sleeper(void *p) {
    for (;;) pause();
}
static void *executor(void *p) {
    char *args[] = {self, "child", "9", 0};
    execve(self, args, environ);
    return 0;
}
static void *quitter(void *p) { exit(12); }
static void threads(void) {
    pthread_t t[4];
    long sum = 0;
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, forker, 0);
    for (int i = 0; i < 4; i++) {
        void *r;
        pthread_join(t[i], &r);
        sum += (long)r;
    }
    printf("threads fork %ld\n", sum);
    void *(*ends[])(void *) = {executor, quitter};
    for (int k = 0; k < 2; k++) {
        int pid = fork();
        if (!pid) {
            pthread_create(&t[0], 0, forever, 0);
            pthread_create(&t[1], 0, sleeper, 0);
            usleep(5000);
            pthread_create(&t[2], 0, ends[k], 0);
            pause();
            forever(0);
        }
        printf("%s in a thread %x\n", k ? "exit" : "exec", status_of(pid));
    }
    int pid = fork();
    if (!pid) {
        pthread_create(&t[0], 0, forever, 0);
        pthread_create(&t[1], 0, sleeper, 0);
        _exit(13);
    }
    printf("exit under running threads %x\n", status_of(pid));
    pid = fork();
    if (!pid) {
        pthread_create(&t[0], 0, forever, 0);
        alarm(1);
        ualarm(30000, 0);
        pthread_exit(0);
    }
    printf("the first thread ends first %x\n", status_of(pid));
    pid = fork();
    if (!pid) {
        pthread_create(&t[0], 0, sleeper, 0);
        usleep(1000);
        pthread_cancel(t[0]);
        void *r;
        pthread_join(t[0], &r);
        _exit(r == PTHREAD_CANCELED ? 14 : 15);
    }
    printf("cancelled %x\n", status_of(pid));
}

/* A debugger in a few lines: breakpoints are not needed to see calls and registers. */
static void watch(void) {
    int pid = fork(), status;
    if (!pid) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(21);
    }
    waitpid(pid, &status, 0);
    printf("traced child stops %d", WIFSTOPPED(status));
    struct user_regs_struct regs;
    printf(" registers %ld", ptrace(PTRACE_GETREGS, pid, 0, &regs));
    ptrace(PTRACE_CONT, pid, 0, 0);
    printf(" ends %x\n", status_of(pid));
    pid = fork();
    if (!pid) {
        char *args[] = {self, "child", "3", 0};
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execve(self, args, environ);
    }
    waitpid(pid, &status, 0);
    printf("stops at exec %x", status);
    int steps = 0;
    while (WIFSTOPPED(status) && steps < 200) {
        ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
        waitpid(pid, &status, 0);
        steps++;
    }
    ptrace(PTRACE_CONT, pid, 0, 0);
    printf(", %d steps, %x\n", steps, status_of(pid));
}

static volatile int trapped;
static void on_sys(int s, siginfo_t *i, void *c) { trapped = i->si_syscall == SYS_getppid && i->si_code == 1; }
static void confine(void) {
    fflush(stdout);
    int pid = fork();
    if (!pid) {
        struct sigaction a = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
        sigaction(SIGSYS, &a, 0);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        /* Little is allowed; most is an error, one call a signal, one death. */
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 5, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 4, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 3, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getuid, 3, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 55),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        struct sock_fprog prog = {sizeof code / sizeof *code, code};
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)) _exit(40);
        char line[200];
        long r = syscall(SYS_getpid), e = errno;
        syscall(SYS_getppid);
        void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int n = snprintf(line, sizeof line, "confined: getpid %ld errno %ld, trapped %d, mmap %d\n", r, e, trapped, m != MAP_FAILED);
        if (write(1, line, n) != n) _exit(41);
        /* Code that never ran before, with much computing, under the filter. */
        double x = strtod("1.25e3", 0);
        qsort(line, n, 1, (int (*)(const void *, const void *))strcmp);
        if (x != 1250) _exit(42);
        syscall(SYS_getuid);
        _exit(43);
    }
    printf("confined child %x\n", status_of(pid));
    pid = fork();
    if (!pid) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) _exit(44);
        if (write(1, "strictly confined\n", 18) != 18) _exit(45);
        syscall(SYS_getpid);
        _exit(46);
    }
    printf("strictly confined child %x\n", status_of(pid));
    pid = fork();
    if (!pid) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) _exit(44);
        double x = strtod("1.5e3", 0);
        syscall(SYS_exit, x == 1500 ? 47 : 48);
    }
    printf("strict exit %x\n", status_of(pid));
}

static void itself(void) {
    char name[17] = {0};
    prctl(PR_SET_NAME, "renamed");
    prctl(PR_GET_NAME, name);
    printf("name %s dumpable %d", name, prctl(PR_GET_DUMPABLE));
    prctl(PR_SET_DUMPABLE, 0);
    int pid = fork();
    if (!pid) {
        execl(self, self, "child", "4", (char *)0);
        _exit(97);
    }
    printf(" not dumpable %x\n", status_of(pid));
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid = fork();
    if (!pid) {
        if (!fork()) {
            usleep(2000);
            _exit(33);
        }
        _exit(0);
    }
    status_of(pid);
    int status = 0;
    wait(&status);
    printf("orphan %x\n", status);
}

static void *idle(void *p) {
    long *sum = p;
    __atomic_add_fetch(sum, 1, __ATOMIC_SEQ_CST);
    usleep(1000);
    return p;
}
static pthread_barrier_t meeting;

static void *meets(void *p) {
    pthread_barrier_wait(&meeting);
    volatile long turns = 0;
    while (turns < 300) turns++;
    pthread_barrier_wait(&meeting);
    __sync_fetch_and_add((long *)p, turns);
    return 0;
}

static int crowd(char *what, int n) {
    long sum = 0;
    if (!strcmp(what, "forks")) {
        for (int i = 0; i < n; i++) {
            int pid = fork();
            if (!pid) _exit(i & 1);
            sum += WEXITSTATUS(status_of(pid));
        }
    } else {
        pthread_t *t = calloc(n, sizeof *t);
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, 1 << 16);
        pthread_barrier_init(&meeting, 0, n);
        void *(*work)(void *) = strcmp(what, "together") ? idle : meets;
        for (int i = 0; i < n; i++)
            if (pthread_create(&t[i], &a, work, &sum)) return 3;
        for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    }
    printf("%s %d: %ld\n", what, n, sum);
    return 0;
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    self = argv[0];
    if (argc == 3 && !strcmp(argv[1], "child")) return 30 + atoi(argv[2]);
    if (argc == 3) return crowd(argv[1], atoi(argv[2]));
    int steady = argc > 1;
    replace();
    raw_clones();
    if (!steady) threads();
    if (!steady) watch();
    if (!steady) itself();
    confine();
    return 0;
}
