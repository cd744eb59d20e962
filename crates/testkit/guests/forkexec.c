/* Forks a child that executes a program (itself, in another role), one that
   just ends, and one that dies by a signal; reads what the first one wrote
   through a pipe. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int ends[2], status;
    char text[100];
    if (argc > 1) {
        puts("from the child");
        return 0;
    }
    if (pipe(ends)) return 1;
    pid_t first = fork();
    if (first == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "again", "child", (char *)0);
        _exit(99);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text);
    waitpid(first, &status, 0);
    printf("read %zd bytes: %.*s", n, (int)n, text);
    printf("first: exited %d\n", WEXITSTATUS(status));
    fflush(stdout);
    if (fork() == 0) _exit(7);
    wait(&status);
    printf("second: exited %d\n", WEXITSTATUS(status));
    fflush(stdout);
    if (fork() == 0) {
        raise(SIGKILL);
        _exit(98);
    }
    wait(&status);
    printf("third: signal %d\n", WTERMSIG(status));
    return 3;
}
