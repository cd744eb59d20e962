/* fork, vfork, posix_spawn, exec, wait, pipes, and a tree of processes. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int tree(int depth) {
    if (!depth) return 1;
    int total = 1;
    for (int i = 0; i < 2; i++) {
        int p[2];
        if (pipe(p)) exit(1);
        pid_t c = fork();
        if (!c) {
            int n = tree(depth - 1);
            if (write(p[1], &n, sizeof n) != sizeof n) exit(1);
            _exit(0);
        }
        int n;
        close(p[1]);
        if (read(p[0], &n, sizeof n) != sizeof n) exit(1);
        close(p[0]);
        waitpid(c, NULL, 0);
        total += n;
    }
    return total;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        printf("exec'd with %s, exe name ends right %d\n", argv[1], strstr(argv[0], "processes") != NULL);
        return 9;
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("tree %d\n", tree(4));
    int status;
    pid_t c = vfork();
    if (!c) { execl("/proc/self/exe", argv[0], "vfork", NULL); _exit(1); }
    waitpid(c, &status, 0);
    printf("vfork child %d\n", WEXITSTATUS(status));
    char *args[] = {argv[0], "spawn", NULL};
    if (posix_spawn(&c, "/proc/self/exe", NULL, NULL, args, environ)) return 1;
    waitpid(c, &status, 0);
    printf("spawned %d\n", WEXITSTATUS(status));
    if (posix_spawn(&c, "/nonexistent", NULL, NULL, args, environ) == 0) return 1;
    printf("failed exec %d\n", execl("/nonexistent", "x", NULL));
    printf("system %d\n", WEXITSTATUS(system("exit 3")));
    FILE *f = popen("echo piped | tr a-z A-Z", "r");
    char line[64];
    if (fgets(line, sizeof line, f)) printf("%s", line);
    pclose(f);
    execl("/proc/self/exe", argv[0], "last", NULL);
    return 1;
}
