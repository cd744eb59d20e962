/* Signals at their nastiest: out of loops without exits, restarted and interrupted calls, flags of
   sigaction, queues, alternate stacks, timers, jumps out of handlers, changed frames, stops. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static void handle(int s, void (*f)(int, siginfo_t *, void *), int flags) {
    struct sigaction a = {.sa_sigaction = f, .sa_flags = flags | SA_SIGINFO};
    sigaction(s, &a, 0);
}
/* Again and again: on a busy machine the first may come before what it is to interrupt. */
static void soon(int ms) {
    struct itimerval t = {.it_interval = {0, ms * 1000}, .it_value = {0, ms * 1000}};
    setitimer(ITIMER_REAL, &t, 0);
}

/* Loops that only a handler can end, by moving the instruction pointer. */
uint64_t way_out;
static void on_loop(int s, siginfo_t *i, void *c) {
    if (way_out) ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP] = way_out;
    way_out = 0;
}
static void loops(void) {
    handle(SIGALRM, on_loop, 0);
    long n = 0;
    soon(20);
    asm volatile("lea 2f(%%rip), %%rax\n mov %%rax, way_out(%%rip)\n 1: jmp 1b\n 2:" : : : "rax", "memory");
    printf("out of an empty loop\n");
    soon(20);
    asm volatile("lea 2f(%%rip), %%rax\n mov %%rax, %1\n 1: inc %0\n mov %0, %%rcx\n imul %%rcx, %%rcx\n jmp 1b\n 2:" : "+r"(n), "=m"(way_out) : : "rax", "rcx", "cc", "memory");
    printf("out of a small loop %d\n", n > 1000);
    soon(20);
    asm volatile("lea 2f(%%rip), %%rax\n mov %%rax, %1\n lea 1f(%%rip), %%rdx\n 1: inc %0\n jmp *%%rdx\n 2:" : "+r"(n), "=m"(way_out) : : "rax", "rdx", "cc", "memory");
    printf("out of an indirect loop\n");
    soon(20);
    asm volatile("lea 2f(%%rip), %%rax\n mov %%rax, way_out(%%rip)\n mov %%rsp, %%r12\n sub $256, %%rsp\n 1: call 3f\n jmp 1b\n 3: inc %0\n ret\n 2: mov %%r12, %%rsp\n" : "+b"(n) : : "rax", "r12", "cc", "memory");
    soon(0);
    printf("out of a calling loop\n");
}

static volatile int got[65], order_len, order[64], depth, deepest, last_code, last_value;
static void on_count(int s, siginfo_t *i, void *c) {
    got[s]++;
    last_code = i->si_code;
    last_value = i->si_value.sival_int;
    if (order_len < 64) order[order_len++] = s * 100 + last_value % 100;
}
static void on_deep(int s, siginfo_t *i, void *c) {
    if (++depth > deepest) deepest = depth;
    if (got[s]++ < 5) raise(s);
    depth--;
}
static int ends[2];
static void on_feed(int s, siginfo_t *i, void *c) {
    if (write(ends[1], "x", 1) != 1) _exit(9);
}
static void calls(void) {
    char byte;
    handle(SIGALRM, on_feed, SA_RESTART);
    soon(30);
    long r = read(ends[0], &byte, 1);
    soon(0);
    while (poll(&(struct pollfd){ends[0], POLLIN}, 1, 0) > 0 && read(ends[0], &byte, 1) > 0) ;
    printf("restarted read %ld\n", r);
    handle(SIGALRM, on_count, 0);
    soon(30);
    r = read(ends[0], &byte, 1);
    printf("interrupted read %ld %s\n", r, r < 0 ? strerrorname_np(errno) : "");
    handle(SIGALRM, on_count, SA_RESTART);
    soon(20);
    struct timespec t = {20, 0}, left = {0, 0};
    r = nanosleep(&t, &left);
    printf("sleep is never restarted %ld %d\n", r, left.tv_sec < 20 && left.tv_sec + left.tv_nsec > 0);
    soon(20);
    r = clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &left);
    printf("clock sleep %s\n", strerrorname_np(r));
    soon(20);
    struct pollfd p = {ends[0], POLLIN};
    r = poll(&p, 1, 2000);
    printf("poll %ld %s\n", r, strerrorname_np(errno));
    soon(0);
}

/* Signals that wait already when a call lets them in. */
static void waiting(void) {
    handle(SIGALRM, on_count, SA_RESTART);
    struct pollfd p = {ends[0], POLLIN};
    sigset_t none, alarm_only, old;
    sigemptyset(&none);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm_only, &old);
    raise(SIGALRM);
    got[SIGALRM] = 0;
    long r = ppoll(&p, 1, 0, &none);
    printf("ppoll lets it in %ld %d\n", r, got[SIGALRM]);
    raise(SIGALRM);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    r = pselect(ends[0] + 1, &set, 0, 0, 0, &none);
    printf("pselect lets it in %ld %d\n", r, got[SIGALRM]);
    raise(SIGALRM);
    r = sigsuspend(&none);
    printf("sigsuspend %ld %d\n", r, got[SIGALRM]);
    raise(SIGALRM);
    siginfo_t info;
    r = sigwaitinfo(&alarm_only, &info);
    printf("sigwaitinfo %ld code %d, handled %d\n", r, info.si_code, got[SIGALRM]);
    raise(SIGALRM);
    int fd = signalfd(-1, &alarm_only, 0);
    struct signalfd_siginfo f;
    r = read(fd, &f, sizeof f);
    printf("signalfd %ld signal %d\n", r, f.ssi_signo);
    struct timespec zero = {0, 1000};
    r = sigtimedwait(&alarm_only, &info, &zero);
    printf("sigtimedwait %ld %s\n", r, strerrorname_np(errno));
    sigprocmask(SIG_SETMASK, &old, 0);
}

static int steady;
static void flags(void) {
    handle(SIGUSR1, on_deep, SA_NODEFER);
    raise(SIGUSR1);
    printf("not deferred %d deep\n", deepest);
    deepest = got[SIGUSR1] = 0;
    handle(SIGUSR1, on_deep, 0);
    raise(SIGUSR1);
    printf("deferred %d deep\n", deepest);
    handle(SIGUSR2, on_count, SA_RESETHAND);
    raise(SIGUSR2);
    struct sigaction now;
    sigaction(SIGUSR2, 0, &now);
    printf("reset %d %d\n", got[SIGUSR2], now.sa_handler == SIG_DFL);
    /* Real-time signals keep number and order, ordinary ones do not count. */
    sigset_t all, old;
    sigfillset(&all);
    for (int s = SIGRTMIN; s < SIGRTMIN + 3; s++) handle(s, on_count, 0);
    handle(SIGUSR2, on_count, 0);
    got[SIGUSR2] = 0, order_len = 0;
    sigprocmask(SIG_BLOCK, &all, &old);
    for (int k = 0; k < 12; k++) sigqueue(getpid(), SIGRTMIN + (2 - k % 3), (union sigval){k});
    kill(getpid(), SIGUSR2);
    kill(getpid(), SIGUSR2);
    sigprocmask(SIG_SETMASK, &old, 0);
    printf("queued:");
    for (int k = 0; k < order_len; k++) printf(" %d", order[k]);
    printf(" code %d, ordinary %d\n", last_code, got[SIGUSR2]);
    /* The mask inside: the action's, the signal itself, what was blocked. */
    struct sigaction a = {.sa_sigaction = on_count, .sa_flags = SA_SIGINFO};
    sigaddset(&a.sa_mask, SIGHUP);
    sigaction(SIGUSR1, &a, 0);
    /* Faults sent by others are no faults. */
    handle(SIGSEGV, on_count, 0);
    handle(SIGTRAP, on_count, 0);
    kill(getpid(), SIGSEGV);
    raise(SIGTRAP);
    printf("sent faults %d %d code %d\n", got[SIGSEGV], got[SIGTRAP], last_code);
    sigset_t segv;
    sigemptyset(&segv);
    sigaddset(&segv, SIGSEGV);
    sigaddset(&segv, SIGTRAP);
    sigprocmask(SIG_BLOCK, &segv, &old);
    for (int k = 0; k < 20; k++) kill(getpid(), SIGSEGV), steady ?: kill(getpid(), SIGTRAP);
    sigset_t waiting;
    sigpending(&waiting);
    printf("blocked fault waits %d", sigismember(&waiting, SIGSEGV));
    sigprocmask(SIG_SETMASK, &old, 0);
    printf(", comes %d %d\n", got[SIGSEGV], got[SIGTRAP]);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);
}

static char stack1[1 << 16];
static volatile int on_it, eperm, state;
static void on_stack(int s, siginfo_t *i, void *c) {
    char here;
    on_it = &here >= stack1 && &here < stack1 + sizeof stack1;
    stack_t now;
    sigaltstack(0, &now);
    state = now.ss_flags;
    stack_t st = {.ss_sp = stack1, .ss_size = sizeof stack1};
    eperm = sigaltstack(&st, 0) < 0 ? errno : 0;
}
static void stacks(void) {
    stack_t st = {.ss_sp = stack1, .ss_size = sizeof stack1}, now;
    sigaltstack(&st, 0);
    handle(SIGUSR1, on_stack, SA_ONSTACK);
    raise(SIGUSR1);
    printf("other stack %d flags %d change %s\n", on_it, state, strerrorname_np(eperm));
    st.ss_flags = 1u << 31;
    sigaltstack(&st, 0);
    raise(SIGUSR1);
    printf("disarming stack %d flags %d change %d\n", on_it, state, eperm);
    sigaltstack(0, &now);
    printf("set by the handler %d\n", now.ss_flags == 0);
    st.ss_size = 100, st.ss_flags = 0;
    int small = sigaltstack(&st, 0);
    printf("too small %d %s\n", small, strerrorname_np(errno));
}

static sigjmp_buf back;
static volatile int rounds;
static void on_jump(int s, siginfo_t *i, void *c) { siglongjmp(back, 1 + rounds % 3); }
static void out_of_handlers(void) {
    handle(SIGALRM, on_jump, 0);
    struct itimerval t = {{0, 2000}, {0, 2000}}, off = {{0, 0}, {0, 0}};
    volatile long work = 0;
    if (sigsetjmp(back, 1)) rounds++;
    else setitimer(ITIMER_REAL, &t, 0);
    while (rounds < 30) work++;
    setitimer(ITIMER_REAL, &off, 0);
    printf("jumped out of handlers %d\n", rounds >= 30);
}

static void on_edit(int s, siginfo_t *i, void *c) {
    ucontext_t *u = c;
    u->uc_mcontext.gregs[REG_RBX] += 5;
    u->uc_mcontext.gregs[REG_EFL] ^= 1;
    u->uc_mcontext.fpregs->_xmm[7].element[0] = 77;
    u->uc_mcontext.fpregs->mxcsr |= 0x6000;
    sigaddset(&u->uc_sigmask, SIGWINCH);
    asm volatile("pxor %%xmm7, %%xmm7\n fninit\n" ::: "xmm7");
    uint64_t f;
    asm volatile("pushfq\n pop %0" : "=r"(f));
    state = f >> 10 & 1;
}
static void edits(void) {
    handle(SIGUSR1, on_edit, 0);
    uint64_t rbx = 10, xmm;
    unsigned mxcsr;
    double x87;
    int pid = getpid(), carry = 0;
    asm volatile("fldpi\n mov $62, %%eax\n mov %[pid], %%edi\n mov $10, %%esi\n clc\n std\n syscall\n setc %b[carry]\n cld\n movq %%xmm7, %[xmm]\n stmxcsr %[mx]\n fstpl %[fp]\n"
                 : "+b"(rbx), [xmm] "=r"(xmm), [mx] "=m"(mxcsr), [fp] "=m"(x87), [carry] "+r"(carry)
                 : [pid] "r"(pid)
                 : "rax", "rcx", "rdi", "rsi", "r11", "memory", "cc", "xmm7");
    sigset_t m;
    sigprocmask(SIG_BLOCK, 0, &m);
    printf("edited %ld carry %d xmm %ld mxcsr %x x87 %.6f direction %d mask %d\n", (long)rbx, carry, (long)xmm, mxcsr, x87, state, sigismember(&m, SIGWINCH));
    mxcsr = 0x1f80;
    asm volatile("ldmxcsr %0" : : "m"(mxcsr));
}

static void *victim(void *p) {
    volatile long n = 0;
    while (!got[SIGUSR1] || n < 1000) n++;
    return (void *)1;
}
static void threads(void) {
    got[SIGUSR1] = 0;
    handle(SIGUSR1, on_count, 0);
    pthread_t t;
    pthread_create(&t, 0, victim, 0);
    usleep(5000);
    pthread_kill(t, SIGUSR1);
    void *r;
    pthread_join(t, &r);
    printf("thread hit %d\n", got[SIGUSR1]);
    pthread_create(&t, 0, victim, 0);
    got[SIGUSR1] = -1000000;
    timer_t id;
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2, .sigev_value.sival_int = 42};
    got[SIGUSR2] = 0;
    timer_create(CLOCK_MONOTONIC, &e, &id);
    struct itimerspec it = {{0, 1000000}, {0, 1000000}};
    timer_settime(id, 0, &it, 0);
    while (got[SIGUSR2] < 20) ;
    timer_delete(id);
    printf("timer value %d code %d\n", last_value, last_code);
    got[SIGUSR1] = 1;
    pthread_join(t, &r);
}

static void stops(void) {
    int pid = fork();
    if (!pid) {
        for (volatile long i = 0;; i++) ;
    }
    int status;
    usleep(10000);
    kill(pid, SIGSTOP);
    waitpid(pid, &status, WUNTRACED);
    printf("stopped %d by %d", WIFSTOPPED(status), WSTOPSIG(status));
    kill(pid, SIGCONT);
    waitpid(pid, &status, WCONTINUED);
    printf(", continued %d", WIFCONTINUED(status));
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    printf(", ended by %d\n", WTERMSIG(status));
}

/* Ends that the program makes itself. */
static void ways_to_end(void) {
    int pid, status;
    void (*ways[])(void) = {abort, 0};
    pid = fork();
    if (!pid) ways[0]();
    waitpid(pid, &status, 0);
    printf("abort %d\n", WTERMSIG(status));
    pid = fork();
    if (!pid) *(volatile int *)8 = 1;
    waitpid(pid, &status, 0);
    printf("fault %d\n", WTERMSIG(status));
    pid = fork();
    if (!pid) {
        signal(SIGSEGV, SIG_IGN);
        *(volatile int *)8 = 1;
    }
    waitpid(pid, &status, 0);
    printf("ignored fault %d\n", WTERMSIG(status));
    pid = fork();
    if (!pid) {
        sigset_t s;
        sigfillset(&s);
        sigprocmask(SIG_BLOCK, &s, 0);
        handle(SIGSEGV, on_count, 0);
        *(volatile int *)8 = 1;
    }
    waitpid(pid, &status, 0);
    printf("blocked fault %d\n", WTERMSIG(status));
    pid = fork();
    if (!pid) {
        /* A handler whose stack is gone. */
        handle(SIGSEGV, on_count, 0);
        asm volatile("mov $16, %rsp\n push %rax\n");
    }
    waitpid(pid, &status, 0);
    printf("no stack %d\n", WTERMSIG(status));
}

/* With an argument without what depends on the time, and without traps that wait, which whoever steps the program would use up. */
int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    signal(SIGWINCH, SIG_IGN);
    steady = argc > 1;
    if (pipe(ends)) return 1;
    if (!steady) loops();
    if (!steady) calls();
    waiting();
    flags();
    stacks();
    if (!steady) out_of_handlers();
    edits();
    if (!steady) threads();
    fflush(stdout);
    if (!steady) stops();
    ways_to_end();
    return 0;
}
