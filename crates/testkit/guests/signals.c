/* Signals of every sort: sent, nested, blocked, ignored, by fault, by timer, on
   another stack, and in the middle of a system call. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile sig_atomic_t first, second, alarms, chars;
static sigjmp_buf back;
static char other_stack[65536];
static volatile int on_other;
static int ends[2];
static void on_first(int s) {
    first++;
    raise(SIGUSR2);
    first++;
}
static void on_second(int s) { second++; }
static void on_fault(int s, siginfo_t *info, void *context) {
    char here;
    on_other = &here >= other_stack && &here < other_stack + sizeof other_stack;
    siglongjmp(back, info->si_addr == (void *)16 ? 1 : 2);
}
static void on_alarm(int s) { alarms++; }
static void on_write(int s) {
    chars++;
    if (write(ends[1], "x", 1) != 1) _exit(50);
}
static void on_nothing(int s) {}
static void handle(int s, void (*f)(int), int flags) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = f;
    a.sa_flags = flags;
    sigaction(s, &a, 0);
}
static void faults(void) {
    stack_t st = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    sigaltstack(&st, 0);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &a, 0);
    int came = sigsetjmp(back, 1);
    if (!came) *(volatile int *)16 = 1;
    printf("fault: came back by %d, other stack %d\n", came, on_other);
    handle(SIGFPE, on_nothing, 0);
}
static void masks(void) {
    sigset_t all, old, now, pending;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    raise(SIGUSR2);
    sigpending(&pending);
    sigprocmask(SIG_SETMASK, 0, &now);
    printf("blocked: pending %d, seen %d, trap blocked %d\n", sigismember(&pending, SIGUSR2), second,
           sigismember(&now, SIGTRAP));
    sigprocmask(SIG_SETMASK, &old, 0);
    sigprocmask(SIG_SETMASK, 0, &now);
    printf("unblocked: seen %d, trap blocked %d\n", second, sigismember(&now, SIGTRAP));
}
static void calls(void) {
    char c;
    struct itimerval once = {.it_value = {0, 20000}}, off = {.it_value = {0, 0}};
    /* The first may come before the call has begun. */
    struct itimerval often = {.it_interval = {0, 20000}, .it_value = {0, 20000}};
    if (pipe(ends)) _exit(51);
    handle(SIGALRM, on_alarm, 0);
    setitimer(ITIMER_REAL, &often, 0);
    ssize_t n = read(ends[0], &c, 1);
    int why = errno;
    setitimer(ITIMER_REAL, &off, 0);
    printf("read: %zd, %s\n", n, n < 0 ? strerror(why) : "data");
    handle(SIGALRM, on_write, SA_RESTART);
    setitimer(ITIMER_REAL, &once, 0);
    n = read(ends[0], &c, 1);
    printf("restarted read: %zd %c, signals %d\n", n, c, chars);
    handle(SIGALRM, on_alarm, 0);
    alarms = 0;
    setitimer(ITIMER_REAL, &once, 0);
    while (!alarms) {}
    printf("spun until %d alarm\n", alarms);
    signal(SIGALRM, SIG_IGN);
    setitimer(ITIMER_REAL, &once, 0);
    usleep(40000);
    puts("ignored an alarm");
}
static void stops(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(4);
    }
    waitpid(child, &status, WUNTRACED);
    printf("child stopped %d by %d\n", WIFSTOPPED(status), WSTOPSIG(status) == SIGSTOP);
    kill(child, SIGCONT);
    waitpid(child, &status, 0);
    printf("child exited %d\n", WEXITSTATUS(status));
}
int main(void) {
    handle(SIGUSR1, on_first, 0);
    handle(SIGUSR2, on_second, 0);
    raise(SIGUSR1);
    printf("nested: %d %d\n", first, second);
    faults();
    masks();
    calls();
    fflush(stdout);
    stops();
    fflush(stdout);
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
    return 1;
}
