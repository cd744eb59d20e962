// Signals, pipes, child processes and files.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int caught;
static sigjmp_buf back;

static void on_signal(int number) { caught = number; }

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    printf("fault %d at %p\n", number, info->si_addr);
    siglongjmp(back, 1);
}

int main(int argc, char **argv) {
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    printf("caught %d\n", caught);

    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    char *page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(back, 1)) *(volatile char *)0x10 = 1;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    strcpy(page, "written");
    puts(page);

    int ends[2];
    if (pipe(ends)) return 1;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        strcpy(page, "child's own");
        dprintf(ends[1], "hello from the child: %s\n", page);
        _exit(7);
    }
    close(ends[1]);
    char text[100] = "";
    ssize_t n = 0, got;
    while ((got = read(ends[0], text + n, sizeof text - 1 - n)) > 0) n += got;
    int status;
    waitpid(child, &status, 0);
    printf("%s%d %s\n", text, WEXITSTATUS(status), page);

    if (argc > 1) {
        int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || write(fd, "0123456789", 10) != 10) return 2;
        struct stat s;
        fstat(fd, &s);
        char *map = mmap(0, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        map[3] = 'x';
        munmap(map, 10);
        char bytes[11] = "";
        if (pread(fd, bytes, 10, 0) != 10) return 3;
        printf("%ld %o %s\n", (long)s.st_size, (unsigned)s.st_mode, bytes);
        close(fd);
        unlink(argv[1]);
        printf("%d\n", open(argv[1], O_RDONLY) < 0 && errno == ENOENT);
    }
    fflush(stdout);
    kill(getpid(), SIGTERM);
    return 9;
}
