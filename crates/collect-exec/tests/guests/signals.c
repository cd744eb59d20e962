/* Signals of every sort: timers that interrupt loops, faults that are repaired, alternate stacks, masks,
   longjmp out of handlers, nested handlers, interrupted and restarted calls. Prints only what is fixed. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;
static void tick(int s) { (void)s; ticks++; }

static sigjmp_buf jump;
static void fault(int s, siginfo_t *i, void *u) {
    ucontext_t *uc = u;
    printf("fault %d at %p rip-in-main-image %d\n", s, i->si_addr, uc->uc_mcontext.gregs[REG_RIP] != 0);
    siglongjmp(jump, 1);
}

static char *page;
static void repair(int s, siginfo_t *i, void *u) {
    (void)s; (void)u;
    if ((char *)i->si_addr >= page && (char *)i->si_addr < page + 4096)
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
    else
        _exit(99);
}

static volatile int depth, most;
static void nested(int s) {
    if (++depth > most) most = depth;
    if (s == SIGUSR1) raise(SIGUSR2);
    depth--;
}

static void *where;
static void onstack(int s) { (void)s; int x; where = &x; }

static void skip(int s, siginfo_t *i, void *u) {
    (void)s; (void)i;
    ucontext_t *uc = u;
    uc->uc_mcontext.gregs[REG_RIP] += 2; /* over ud2 */
    uc->uc_mcontext.gregs[REG_RBX] = 4711;
}

static long spin(long n) {
    long s = 0;
    for (long i = 0; i < n; i++) s += i ^ (s << 1);
    return s;
}

static void set(int s, void (*h)(int, siginfo_t *, void *), int flags) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = h;
    a.sa_flags = SA_SIGINFO | flags;
    sigaction(s, &a, NULL);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    /* A timer against a loop that never leaves its fragment. */
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = tick;
    sigaction(SIGALRM, &a, NULL);
    struct itimerval t = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &t, NULL);
    while (ticks < 200) ;
    long x = spin(30000000), y = spin(30000000);
    printf("ticks came %d, sums equal %d\n", ticks >= 200, x == y);
    double d = 0.5;
    for (int i = 0; i < 3000000; i++) d = d * 3.7 * (1 - d) / 0.93 - (long)(d * 3);
    double e = 0.5;
    for (int i = 0; i < 3000000; i++) e = e * 3.7 * (1 - e) / 0.93 - (long)(e * 3);
    printf("floats equal %d\n", memcmp(&d, &e, sizeof d) == 0);
    t.it_value.tv_usec = t.it_interval.tv_usec = 0;
    setitimer(ITIMER_REAL, &t, NULL);

    set(SIGSEGV, fault, 0);
    if (!sigsetjmp(jump, 1)) *(volatile int *)0x10 = 1;
    if (!sigsetjmp(jump, 1)) ((void (*)(void))0x1234000)();
    set(SIGFPE, fault, 0);
    volatile int zero = 0;
    if (!sigsetjmp(jump, 1)) printf("%d\n", 1 / zero);

    page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set(SIGSEGV, repair, 0);
    page[5] = 42;
    printf("repaired %d\n", page[5]);

    set(SIGILL, skip, 0);
    long rbx;
    __asm__ volatile("mov $1, %%rbx; ud2; mov %%rbx, %0" : "=r"(rbx) : : "rbx");
    printf("skipped %ld\n", rbx);

    signal(SIGUSR1, nested);
    signal(SIGUSR2, nested);
    raise(SIGUSR1);
    printf("nested %d\n", most);

    static char stack[65536];
    stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&ss, NULL);
    a.sa_handler = onstack;
    a.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &a, NULL);
    raise(SIGUSR1);
    printf("on the alternate stack %d\n", (char *)where >= stack && (char *)where < stack + sizeof stack);

    sigset_t s, old, pend;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR2);
    sigaddset(&s, SIGSEGV);
    sigprocmask(SIG_BLOCK, &s, &old);
    most = 0;
    raise(SIGUSR2);
    sigpending(&pend);
    printf("blocked %d pending %d\n", most == 0, sigismember(&pend, SIGUSR2));
    sigprocmask(SIG_SETMASK, NULL, &s);
    printf("segv shown blocked %d\n", sigismember(&s, SIGSEGV));
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("delivered %d\n", most);

    /* Interrupted and restarted reads. A signal that comes before the read
       interrupts nothing, so they come until the read was interrupted. */
    int p[2];
    if (pipe(p)) return 1;
    volatile int *interrupted = mmap(NULL, sizeof *interrupted, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (interrupted == MAP_FAILED) return 1;
    for (int restart = 0; restart < 2; restart++) {
        *interrupted = 0;
        a.sa_handler = tick;
        a.sa_flags = restart ? SA_RESTART : 0;
        sigaction(SIGALRM, &a, NULL);
        pid_t child = fork();
        if (!child) {
            for (int tries = 0; tries < (restart ? 1 : 500) && !*interrupted; tries++) {
                usleep(20000);
                kill(getppid(), SIGALRM);
                usleep(20000);
            }
            if (write(p[1], "x", 1) != 1) _exit(1);
            _exit(3);
        }
        char c = 0;
        errno = 0;
        ssize_t n = read(p[0], &c, 1);
        *interrupted = n < 0;
        printf("read %zd %s\n", n, n < 0 ? strerror(errno) : "data");
        int status;
        while (waitpid(child, &status, 0) < 0) ;
        printf("child %d\n", WEXITSTATUS(status));
        if (n < 0) n = read(p[0], &c, 1);
    }
    /* sigsuspend */
    sigemptyset(&s);
    sigaddset(&s, SIGALRM);
    sigprocmask(SIG_BLOCK, &s, &old);
    ticks = 0;
    alarm(0);
    t.it_value.tv_usec = 10000;
    setitimer(ITIMER_REAL, &t, NULL);
    sigsuspend(&old);
    printf("suspended until %d\n", (int)ticks);

    if (!fork()) { signal(SIGSEGV, SIG_DFL); *(volatile int *)8 = 1; }
    int status;
    wait(&status);
    printf("killed by %d\n", WTERMSIG(status));
    if (!fork()) abort();
    wait(&status);
    printf("aborted by %d\n", WTERMSIG(status));
    return 5;
}
