/* vfork, and posix_spawn which uses it. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
    if (argc > 1) return 6;
    int status;
    volatile int shared = 1;
    pid_t child = vfork();
    if (child == 0) {
        shared = 2;
        _exit(5);
    }
    waitpid(child, &status, 0);
    printf("vfork: shared %d, exited %d\n", shared, WEXITSTATUS(status));
    fflush(stdout);
    char *args[] = {"again", "child", 0};
    if (posix_spawn(&child, "/proc/self/exe", 0, 0, args, environ)) return 1;
    waitpid(child, &status, 0);
    printf("spawn: exited %d\n", WEXITSTATUS(status));
    if (posix_spawnp(&child, "/no/such/program", 0, 0, args, environ) == 0) return 2;
    puts("spawn: refused");
    return 0;
}
