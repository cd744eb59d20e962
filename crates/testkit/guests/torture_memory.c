/* The address space at its edges: break, moves, growing stacks, mappings that exist already, failing
   calls, no descriptors left, limits, and the files that tell a program about itself. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };
static const char *name(long r) { return r < 0 ? strerrorname_np(errno) : "fine"; }

static void breaks(void) {
    char *start = sbrk(0);
    int grown = sbrk(100000) == start;
    memset(start, 1, 100000);
    int touched = start[99999];
    int shrunk = sbrk(-100000) == start + 100000, back = sbrk(0) == start;
    int far = brk((void *)0x7fffffff0000) == -1 && errno == ENOMEM;
    printf("break grown %d touched %d shrunk %d back %d too far %d\n", grown, touched, shrunk, back, far);
}

static void moves(void) {
    char *p = mmap(0, 4 * PAGE, RW, ANON, -1, 0);
    strcpy(p + PAGE, "kept");
    char *q = mremap(p, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    printf("grown %s", q + PAGE);
    char *r = mmap(0, 8 * PAGE, RW, ANON, -1, 0);
    char *s = mremap(q, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, r);
    printf(" moved %s %d", s + PAGE, s == r);
    printf(" shrunk %d", mremap(s, 8 * PAGE, PAGE, 0) == s);
    printf(" copied %d", mremap(s, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    printf(" gone %s\n", name((long)mremap(s + 4 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE)));
}

static int modest;

static void fixed(void) {
    char *p = mmap(0, 4 * PAGE, RW, ANON, -1, 0);
    munmap(p + PAGE, PAGE);
    printf("hole %d", mmap(p + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + PAGE);
    printf(" taken %s", name((long)mmap(p + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0)));
    printf(" odd %s", name((long)mmap(p + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0)));
    printf(" empty %s", name((long)mmap(0, 0, RW, ANON, -1, 0)));
    printf(" unmapped %s", name(munmap(p + 1, PAGE)));
    printf(" rights %s", name(mprotect((void *)0x10000, PAGE, PROT_READ)));
    printf(" low %d\n", mmap((void *)0x10000000, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == (void *)0x10000000);
    /* Wishes all over the space, as some allocators have them, can be mapped and unmapped. */
    int wishes = 0;
    for (unsigned long at = 1; at < 127 && !modest; at++) {
        char *got = mmap((void *)(at << 40 | 0x123456000), PAGE, RW, ANON, -1, 0);
        wishes += got != MAP_FAILED && (got[5] = 1) && !munmap(got, PAGE);
    }
    printf("wishes %d\n", wishes);
    char *big = mmap(0, 1ul << 40, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    printf("a terabyte %d\n", big != MAP_FAILED);
    if (big != MAP_FAILED) munmap(big, 1ul << 40);
}

static void bad_pointers(void) {
    char *p = mmap(0, 2 * PAGE, RW, ANON, -1, 0);
    munmap(p + PAGE, PAGE);
    struct sigaction a;
    printf("write %s", name(syscall(SYS_write, 1, 16, 4)));
    printf(" uname %s", name(syscall(SYS_uname, 16)));
    printf(" sigaction %s", name(syscall(SYS_rt_sigaction, SIGUSR1, 16, 0, 8)));
    printf(" %s", name(syscall(SYS_rt_sigaction, SIGUSR1, 0, 16, 8)));
    printf(" %s", name(syscall(SYS_rt_sigaction, SIGUSR1, 0, &a, 4)));
    printf(" %s", name(syscall(SYS_rt_sigaction, SIGKILL, &a, 0, 8)));
    printf(" mask %s", name(syscall(SYS_rt_sigprocmask, 0, 16, 0, 8)));
    printf(" %s", name(syscall(SYS_rt_sigprocmask, 9, p, 0, 8)));
    printf(" stack %s", name(syscall(SYS_sigaltstack, 16, 0)));
    printf(" none such %s", name(syscall(9999)));
    printf(" negative %s\n", name(syscall(-1)));
    struct iovec v = {p + PAGE - 4, 8};
    int fd = open("/dev/zero", O_RDONLY);
    printf("half a read %ld\n", (long)readv(fd, &v, 1));
    close(fd);
}

static void itself(char **argv, char **envp) {
    char path[4096], want[4096];
    long n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    if (!realpath(argv[0], want)) want[0] = 0;
    printf("exe %d", !strcmp(path, want));
    printf(" execfn %d", !strcmp((char *)getauxval(AT_EXECFN), argv[0]));
    const ElfW(Phdr) *ph = (void *)getauxval(AT_PHDR);
    printf(" headers %d", getauxval(AT_PHNUM) > 3 && ph != 0);
    printf(" entry %d", getauxval(AT_ENTRY) != 0);
    printf(" random %d", getauxval(AT_RANDOM) != 0);
    printf(" vdso %d", !memcmp((void *)getauxval(AT_SYSINFO_EHDR), "\177ELF", 4));
    printf(" page %ld secure %ld", getauxval(AT_PAGESZ), getauxval(AT_SECURE));
    char *p = getenv("TORTURE");
    printf(" environment %s %d\n", p ? p : "none", envp == environ);
    FILE *f = fopen("/proc/self/cmdline", "r");
    char line[4096] = {0};
    size_t got = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    printf("command line %d", got == strlen(argv[0]) + 1 && !strcmp(line, argv[0]));
    f = fopen("/proc/self/comm", "r");
    if (fgets(line, sizeof line, f)) printf(" comm %d", !strncmp(line, "torture", 7) || strlen(line) > 1);
    fclose(f);
    /* The mappings name the stack, the heap and the program. */
    f = fopen("/proc/self/maps", "r");
    int stack = 0, heap = 0, exe = 0, here = 0;
    unsigned long a, b;
    char *block = malloc(1000);
    while (fgets(line, sizeof line, f)) {
        stack += strstr(line, "[stack]") != 0;
        heap += strstr(line, "[heap]") != 0;
        exe += strstr(line, path) != 0;
        if (sscanf(line, "%lx-%lx", &a, &b) == 2) here += a <= (unsigned long)&a && (unsigned long)&a < b;
    }
    fclose(f);
    free(block);
    printf(" stack %d heap %d program %d here %d\n", stack, heap > 0, exe > 2, here);
}

typedef int (*function)(void);
static const unsigned char answer[] = {0xb8, 42, 0, 0, 0, 0xc3};
/* No descriptor is left, and still new code must run. */
static void no_descriptors(void) {
    struct rlimit old, now;
    getrlimit(RLIMIT_NOFILE, &old);
    now = old;
    now.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &now);
    int fds[64], n = 0;
    while (n < 64 && (fds[n] = open("/dev/null", O_RDONLY)) >= 0) n++;
    int why = errno;
    unsigned char *p = mmap(0, PAGE, RW, ANON, -1, 0);
    memcpy(p, answer, sizeof answer);
    mprotect(p, PAGE, PROT_READ | PROT_EXEC);
    printf("no descriptors %s, new code %d", strerrorname_np(why), ((function)p)());
    fflush(stdout);
    int pid = fork(), status = -1;
    if (!pid) _exit(((function)p)());
    if (pid > 0) waitpid(pid, &status, 0);
    while (n) close(fds[--n]);
    setrlimit(RLIMIT_NOFILE, &old);
    printf(", fork %d\n", pid > 0 ? WEXITSTATUS(status) : -errno);
}

static void limits(void) {
    fflush(stdout);
    int pid = fork(), status;
    if (!pid) {
        struct rlimit l = {64 << 20, 64 << 20}, seen;
        int set = setrlimit(RLIMIT_AS, &l);
        getrlimit(RLIMIT_AS, &seen);
        void *small = mmap(0, 1 << 20, RW, ANON, -1, 0);
        unsigned char *p = mmap(0, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, ANON, -1, 0);
        memcpy(p, answer, sizeof answer);
        printf("limit %d %ld small %d code %d\n", set, (long)seen.rlim_cur >> 20, small != MAP_FAILED, ((function)p)());
        fflush(stdout);
        _exit(3);
    }
    waitpid(pid, &status, 0);
    printf("under a limit %d\n", WEXITSTATUS(status));
    fflush(stdout);
    pid = fork();
    if (!pid) {
        struct rlimit l = {1024, 1024};
        setrlimit(RLIMIT_FSIZE, &l);
        signal(SIGXFSZ, SIG_DFL);
        int inner = fork();
        if (!inner) _exit(5);
        waitpid(inner, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    waitpid(pid, &status, 0);
    printf("under a file limit %x\n", status);
}

static void grows_down(void) {
    char *p = mmap(0, 64 * PAGE, RW, ANON | MAP_GROWSDOWN | MAP_STACK, -1, 0);
    munmap(p, 60 * PAGE);
    char *top = p + 64 * PAGE;
    for (int i = 1; i < 40; i++) top[-i * 1024] = 1;
    printf("grew down %d\n", top[-39 * 1024]);
}

int main(int argc, char **argv, char **envp) {
    setvbuf(stdout, 0, _IOLBF, 0);
    breaks();
    moves();
    modest = argc > 1;
    fixed();
    bad_pointers();
    itself(argv, envp);
    no_descriptors();
    limits();
    grows_down();
    return 0;
}
