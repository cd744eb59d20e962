/* Waits with sigsuspend, pselect and epoll_pwait while every signal is blocked
   outside: the masks that such calls lend must come and go as natively. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile sig_atomic_t seen;
static void on_child(int s) { seen++; }
static void child(int n) {
    if (fork() == 0) _exit(n);
}
int main(void) {
    sigset_t all, old, now;
    struct sigaction a = {.sa_handler = on_child};
    sigaction(SIGCHLD, &a, 0);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    child(1);
    while (seen < 1) sigsuspend(&old);
    child(2);
    int n = 0;
    while (seen < 2) n = pselect(0, 0, 0, 0, 0, &old);
    printf("pselect %d\n", n);
    child(3);
    int e = epoll_create1(0);
    struct epoll_event event;
    while (seen < 3) n = epoll_pwait(e, &event, 1, -1, &old);
    printf("epoll_pwait %d %d\n", n, errno == EINTR);
    sigprocmask(SIG_SETMASK, 0, &now);
    printf("blocked %d %d\n", sigismember(&now, SIGCHLD), sigismember(&now, SIGTRAP));
    sigprocmask(SIG_SETMASK, &old, 0);
    int status, sum = 0;
    for (int i = 0; i < 3; i++) {
        wait(&status);
        sum += WEXITSTATUS(status);
    }
    printf("seen %d, sum %d\n", (int)seen, sum);
    return 0;
}
