// System calls that today's programs make now and then: their results, and what
// they do. Where kernels may differ, only what they have in common is printed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, long result) {
    if (result < 0) printf("%s: %ld (%s)\n", what, result, strerrorname_np(errno));
    else printf("%s: %ld\n", what, result);
}

// Signals read from a file: blocked, queued with a value, of a child, while polling.
static void signals(void) {
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1), sigaddset(&set, SIGRTMIN + 1), sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, &old);
    int file = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct signalfd_siginfo info[4];
    say("nothing to read", read(file, info, sizeof info));
    say("too short", read(file, info, 100));
    kill(getpid(), SIGUSR1);
    sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 77});
    sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 78});
    struct pollfd one = {file, POLLIN, 0};
    say("pending", poll(&one, 1, 0));
    long got = read(file, info, sizeof info);
    say("read", got);
    for (long n = 0; n < got / (long)sizeof *info; n++)
        printf("  %u code %d own %d value %d\n", info[n].ssi_signo, info[n].ssi_code,
               info[n].ssi_pid == (unsigned)getpid(), info[n].ssi_int);
    say("no more", poll(&one, 1, 0));
    int events = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 5};
    epoll_ctl(events, EPOLL_CTL_ADD, file, &event);
    pid_t pid = fork();
    if (pid == 0) _exit(9);
    event.data.u32 = 0;
    say("a child's end", epoll_wait(events, &event, 1, -1));
    got = read(file, info, sizeof info);
    printf("  %ld of %u code %d status %d %d %u\n", got, info->ssi_signo, info->ssi_code,
           info->ssi_status, info->ssi_pid == (unsigned)pid, event.data.u32);
    say("waited for", waitpid(pid, 0, 0) == pid);
    fcntl(file, F_SETFL, 0);
    struct itimerval soon = {.it_value.tv_usec = 2000};
    setitimer(ITIMER_REAL, &soon, 0);
    got = read(file, info, sizeof info);
    printf("  %ld of %u\n", got, info->ssi_signo);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    say("another set", signalfd(file, &set, 0) == file);
    kill(getpid(), SIGUSR1);
    say("is not of the set", poll(&one, 1, 0));
    say("no file of signals", signalfd(1, &set, 0));
    close(file), close(events);
    struct timespec none = {0};
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    say("still there", sigtimedwait(&set, 0, &none));
    sigprocmask(SIG_SETMASK, &old, 0);
}

static int with(const char *text) {
    int file = memfd_create("calls", MFD_CLOEXEC);
    if (write(file, text, strlen(text)) < 0) perror("write");
    lseek(file, 0, SEEK_SET);
    return file;
}

static void copying(void) {
    int from = with("0123456789abcdef"), to = with(""), ends[2];
    off_t at = 4;
    say("sendfile", sendfile(to, from, &at, 6));
    off_t in = 2, out = 0;
    say("copy_file_range", copy_file_range(from, &in, to, &out, 5, 0));
    if (pipe(ends)) return;
    loff_t place = 1;
    say("splice in", splice(from, &place, ends[1], 0, 7, 0));
    say("splice out", splice(ends[0], 0, to, 0, 7, 0));
    char text[64] = {0}, more[8] = {0};
    say("pread", pread(to, text, 63, 0));
    puts(text);
    struct iovec parts[2] = {{text, 3}, {more, 4}};
    say("preadv2", preadv2(from, parts, 2, 5, 0));
    printf("%.3s %s\n", text, more);
    say("pwritev2", pwritev2(to, parts, 2, 20, 0));
    say("lseek", lseek(to, 0, SEEK_END));
    say("tee to a file", tee(ends[0], to, 1, 0));
    say("fallocate", fallocate(to, 0, 0, 100));
    close(from), close(to), close(ends[0]), close(ends[1]);
}

static void memory(void) {
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(page, "moved");
    char *moved = mremap(page, 8192, 65536, MREMAP_MAYMOVE);
    puts(moved);
    say("madvise", madvise(moved, 65536, MADV_DONTNEED));
    say("zero again", moved[0]);
    unsigned char resident[16];
    say("mincore", mincore(moved, 4096, resident));
    say("mlock", mlock(moved, 4096));
    say("munmap", munmap(moved, 65536));
    say("unmapped", mincore(moved, 4096, resident));
    say("membarrier", syscall(SYS_membarrier, 0, 0, 0) >= 0);
}

static void processes(void) {
    struct rlimit limit;
    say("prlimit", prlimit(0, RLIMIT_NOFILE, 0, &limit));
    cpu_set_t cpus;
    say("affinity", sched_getaffinity(0, sizeof cpus, &cpus) >= 0 && CPU_COUNT(&cpus) > 0);
    say("scheduler", sched_getscheduler(0));
    say("priorities", sched_get_priority_max(SCHED_FIFO) - sched_get_priority_min(SCHED_FIFO));
    say("yield", sched_yield());
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(1);
    }
    int file = syscall(SYS_pidfd_open, pid, 0);
    say("pidfd", file >= 0);
    say("signal by it", syscall(SYS_pidfd_send_signal, file, SIGTERM, 0, 0));
    siginfo_t info = {0};
    say("waitid", waitid(P_PIDFD, file, &info, WEXITED | WNOWAIT));
    printf("  %d %d %d\n", info.si_code, info.si_status, info.si_pid == pid);
    say("wait4", wait4(pid, 0, 0, 0) == pid);
    say("no child", waitid(P_ALL, 0, &info, WEXITED));
    close(file);
    say("group", getpgid(0) == getpgrp());
    say("session", getsid(0) == getsid(getpid())); // 0 where its leader is outside
    unsigned char bytes[16];
    say("getrandom", getrandom(bytes, sizeof bytes, GRND_NONBLOCK));
}

static void times(void) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    event.sigev_value.sival_int = 5;
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, 0);
    say("timer_create", timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec when = {.it_value.tv_nsec = 3000000}, left;
    say("timer_settime", timer_settime(timer, 0, &when, 0));
    say("timer_gettime", timer_gettime(timer, &left));
    say("left", left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 3000000);
    siginfo_t info;
    say("it rings", sigwaitinfo(&set, &info));
    printf("  %d %d\n", info.si_code, info.si_value.sival_int);
    say("overrun", timer_getoverrun(timer));
    say("timer_delete", timer_delete(timer));
    say("twice", timer_delete(timer));
    struct timespec resolution;
    say("clock_getres", clock_getres(CLOCK_MONOTONIC, &resolution));
}

static void files(void) {
    struct statx found;
    say("statx", statx(AT_FDCWD, ".", 0, STATX_BASIC_STATS, &found));
    say("a folder", S_ISDIR(found.stx_mode));
    char value[8];
    say("no attribute", getxattr(".", "user.none", value, sizeof value));
    say("attributes", listxattr("/proc/self/status", 0, 0) >= 0);
    say("flags", fcntl(0, F_GETFD) >= 0);
    say("close_range", close_range(100, 200, 0));
    say("no file", faccessat(AT_FDCWD, "/no/such", F_OK, 0));
}

// Descriptors over a socket for which there is no room: QEMU does not say so.
static void cut(void) {
    for (int room = 0; room <= 3; room++) {
        int s[2], files[3] = {0, 1, 2};
        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        char control[64] = {0}, taken[64] = {0}, byte = 'f';
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                                 .msg_controllen = CMSG_SPACE(sizeof files)};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof files);
        memcpy(CMSG_DATA(head), files, sizeof files);
        say("sent", sendmsg(s[0], &message, 0));
        message.msg_control = taken, message.msg_flags = 0;
        message.msg_controllen = CMSG_LEN(sizeof(int) * room);
        if (room == 0) message.msg_controllen = 0;
        say("taken", recvmsg(s[1], &message, 0));
        head = CMSG_FIRSTHDR(&message);
        say("flags", message.msg_flags);
        say("files", head ? (long)(head->cmsg_len - CMSG_LEN(0)) / (long)sizeof(int) : 0);
        close(s[0]), close(s[1]);
    }
}

int main(int argc, char **argv) {
    (void)argv;
    setvbuf(stdout, 0, _IOLBF, 0);
    if (argc > 1) {
        cut();
        return 0;
    }
    signals();
    copying();
    memory();
    processes();
    times();
    files();
    return 0;
}
