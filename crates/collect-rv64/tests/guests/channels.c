// Sockets, pipes, events, and waiting for them; signals that interrupt, queue,
// stop and wake.
// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void expect(int holds, const char *what) {
    printf("%s: %s\n", what, holds ? "yes" : "NO");
}

static volatile int caught, value, sender_code;
static void on_signal(int number, siginfo_t *info, void *context) {
    (void)context;
    caught = number;
    value = info->si_value.sival_int;
    sender_code = info->si_code;
}

static void handle(int number, int flags) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | flags};
    sigaction(number, &action, 0);
}

static void pairs(void) {
    int s[2];
    char text[64] = "";
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0, "pair");
    expect(send(s[0], "hello", 5, 0) == 5 && recv(s[1], text, 64, MSG_PEEK) == 5, "peek");
    expect(recv(s[1], text, 64, 0) == 5 && !strcmp(text, "hello"), "recv");
    expect(recv(s[1], text, 64, MSG_DONTWAIT) == -1 && errno == EAGAIN, "nothing more");
    struct iovec parts[2] = {{"one ", 4}, {"two", 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    expect(sendmsg(s[1], &message, 0) == 7 && read(s[0], text, 64) == 7, "message");
    shutdown(s[0], SHUT_WR);
    expect(read(s[1], text, 64) == 0, "end of stream");
    close(s[0]);
    signal(SIGPIPE, SIG_IGN);
    expect(write(s[1], "x", 1) == -1 && errno == EPIPE, "broken pipe");
    close(s[1]);
}

static void *client(void *argument) {
    struct sockaddr_in to = *(struct sockaddr_in *)argument;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&to, sizeof to)) perror("connect");
    static char bytes[300000];
    memset(bytes, 'c', sizeof bytes);
    size_t sent = 0;
    while (sent < sizeof bytes) {
        ssize_t n = write(s, bytes + sent, sizeof bytes - sent);
        if (n <= 0) break;
        sent += n;
    }
    shutdown(s, SHUT_WR);
    static char answer[16];
    read(s, answer, 16);
    close(s);
    return answer;
}

static void internet(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    expect(!setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "option");
    expect(!bind(server, (void *)&at, sizeof at) && !listen(server, 5), "listen");
    socklen_t len = sizeof at;
    expect(!getsockname(server, (void *)&at, &len) && len == sizeof at && at.sin_port, "name");
    pthread_t thread;
    pthread_create(&thread, 0, client, &at);
    struct sockaddr_in from;
    len = sizeof from;
    int s = accept4(server, (void *)&from, &len, SOCK_CLOEXEC);
    expect(s >= 0 && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK), "accept");
    long total = 0;
    static char bytes[10000];
    for (ssize_t n; (n = read(s, bytes, sizeof bytes)) > 0;) total += n;
    printf("%ld bytes\n", total);
    expect(write(s, "done", 4) == 4, "write");
    void *answer;
    pthread_join(thread, &answer);
    expect(!strcmp(answer, "done"), "answer");
    close(s);
    close(server);
    int u = socket(AF_INET, SOCK_DGRAM, 0), v = socket(AF_INET, SOCK_DGRAM, 0);
    at.sin_port = 0;
    bind(u, (void *)&at, sizeof at);
    len = sizeof at;
    getsockname(u, (void *)&at, &len);
    expect(sendto(v, "datagram", 8, 0, (void *)&at, sizeof at) == 8, "sendto");
    expect(recvfrom(u, bytes, 100, 0, (void *)&from, &len) == 8, "recvfrom");
    close(u);
    close(v);
}

static void events(void) {
    int set = epoll_create1(EPOLL_CLOEXEC), counter = eventfd(3, EFD_NONBLOCK), ends[2];
    uint64_t count = 0;
    expect(read(counter, &count, 8) == 8 && count == 3, "counter");
    expect(read(counter, &count, 8) == -1 && errno == EAGAIN, "empty counter");
    if (pipe(ends)) return;
    struct epoll_event a = {EPOLLIN, {.u64 = 0x1122334455667788}}, b = {EPOLLIN | EPOLLET, {.u64 = 7}};
    epoll_ctl(set, EPOLL_CTL_ADD, counter, &a);
    epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &b);
    struct epoll_event got[4];
    expect(epoll_wait(set, got, 4, 0) == 0, "nothing yet");
    expect(epoll_wait(set, got, 4, 20) == 0, "nothing in time");
    count = 1;
    expect(write(counter, &count, 8) == 8 && write(ends[1], "x", 1) == 1, "writes");
    int n = epoll_wait(set, got, 4, -1);
    int wide = n == 2 && (got[0].data.u64 == a.data.u64 || got[1].data.u64 == a.data.u64);
    expect(wide, "both, with their data");
    expect(epoll_wait(set, got, 4, 0) == 1 && got[0].data.u64 == a.data.u64, "edges once");
    epoll_ctl(set, EPOLL_CTL_DEL, counter, 0);
    expect(epoll_wait(set, got, 4, 0) == 0, "deleted");
    struct pollfd fds[2] = {{ends[0], POLLIN, 0}, {counter, POLLOUT, 0}};
    expect(poll(fds, 2, 1000) == 2 && fds[0].revents == POLLIN && fds[1].revents == POLLOUT, "poll");
    read(ends[0], got, 1);
    expect(poll(fds, 1, 20) == 0, "poll in time");
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(ends[0], &reads);
    struct timeval soon = {0, 20000};
    expect(select(ends[0] + 1, &reads, 0, 0, &soon) == 0 && !FD_ISSET(ends[0], &reads), "select");
    close(ends[0]), close(ends[1]), close(set), close(counter);
}

static void *drain(void *argument) {
    long total = 0;
    static char bytes[3000];
    for (ssize_t n; (n = read(*(int *)argument, bytes, sizeof bytes)) > 0;) total += n;
    printf("drained %ld\n", total);
    return 0;
}

static void big_write(void) {
    int ends[2];
    if (pipe(ends)) return;
    pthread_t thread;
    pthread_create(&thread, 0, drain, &ends[0]);
    static char bytes[200000];
    long written = write(ends[1], bytes, sizeof bytes);
    close(ends[1]);
    pthread_join(thread, 0);
    expect(written == sizeof bytes, "a write longer than the pipe");
    close(ends[0]);
}

// A child that signals its parent until `heard` can be read, or a few times if
// there is no such end, and then writes.
static int pester(int number, int pipe_end, int heard) {
    int pid = fork();
    if (pid == 0) {
        struct pollfd answer = {heard, POLLIN, 0};
        for (int n = 0; heard < 0 ? n < 3 : poll(&answer, 1, 0) == 0; n++) {
            usleep(10000);
            kill(getppid(), number);
        }
        if (write(pipe_end, "late", 4) != 4) _exit(1);
        _exit(0);
    }
    return pid;
}

static void interruptions(void) {
    int ends[2], acks[2];
    char text[8] = "";
    if (pipe(ends) || pipe(acks)) return;
    handle(SIGUSR1, SA_RESTART);
    int pid = pester(SIGUSR1, ends[1], -1);
    expect(read(ends[0], text, 4) == 4 && caught == SIGUSR1, "a read that goes on");
    waitpid(pid, 0, 0);
    handle(SIGUSR2, 0);
    pid = pester(SIGUSR2, ends[1], acks[0]);
    expect(read(ends[0], text, 4) == -1 && errno == EINTR && caught == SIGUSR2, "a read that ends");
    expect(sender_code == SI_USER, "sent by a process");
    ssize_t got;
    while (write(acks[1], "x", 1) < 0)
        ;
    while ((got = read(ends[0], text, 4)) < 0 && errno == EINTR)
        ;
    expect(got == 4, "what was written");
    while (waitpid(pid, 0, 0) < 0 && errno == EINTR)
        ;
    sigset_t block, old, now;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigprocmask(SIG_BLOCK, &block, &old);
    caught = 0;
    raise(SIGUSR1);
    expect(caught == 0 && !sigpending(&now) && sigismember(&now, SIGUSR1), "blocked");
    expect(sigsuspend(&old) == -1 && caught == SIGUSR1, "suspended");
    sigprocmask(SIG_SETMASK, 0, &now);
    expect(sigismember(&now, SIGUSR1), "mask as before");
    raise(SIGUSR1);
    caught = 0;
    struct timespec soon = {0, 20000000};
    expect(ppoll(0, 0, &soon, &old) == -1 && errno == EINTR && caught == SIGUSR1, "ppoll");
    siginfo_t info;
    expect(sigtimedwait(&block, &info, &soon) == -1 && errno == EAGAIN, "none in time");
    union sigval given = {.sival_int = 42};
    sigqueue(getpid(), SIGUSR1, given);
    expect(sigwaitinfo(&block, &info) == SIGUSR1 && info.si_value.sival_int == 42, "waited for");
    sigprocmask(SIG_SETMASK, &old, 0);
    handle(SIGRTMIN, 0);
    sigset_t real;
    sigemptyset(&real);
    sigaddset(&real, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &real, 0);
    for (int n = 1; n <= 3; n++) sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = n});
    int sum = 0;
    for (int n = 0; n < 3; n++) sum = sum * 10 + (sigwaitinfo(&real, &info) > 0 ? info.si_value.sival_int : 0);
    expect(sum == 123, "queued in order");
    handle(SIGALRM, 0);
    struct itimerval timer = {{0, 0}, {0, 20000}};
    caught = 0;
    setitimer(ITIMER_REAL, &timer, 0);
    expect(pause() == -1 && caught == SIGALRM, "alarm");
    close(ends[0]), close(ends[1]);
}

static void children(void) {
    signal(SIGCHLD, SIG_DFL);
    int pid = fork(), status;
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(9);
    }
    expect(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "stopped");
    expect(waitpid(pid, &status, WNOHANG | WUNTRACED) == 0, "told once");
    kill(pid, SIGCONT);
    siginfo_t info;
    expect(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 9, "waitid");
    expect(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9, "still there");
    int ready[2];
    char letters[2];
    if (pipe(ready)) return;
    int group = fork();
    if (group == 0) {
        setpgid(0, 0);
        fork();
        if (write(ready[1], "r", 1) != 1) _exit(1);
        for (;;) pause();
    }
    expect(read(ready[0], letters, 1) == 1 && read(ready[0], letters, 1) == 1, "ready");
    expect(kill(-group, SIGTERM) == 0, "group");
    expect(waitpid(-group, &status, 0) == group && WTERMSIG(status) == SIGTERM, "its leader");
    handle(SIGCHLD, 0);
    caught = 0;
    pid = fork();
    if (pid == 0) _exit(5);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    expect(caught == SIGCHLD && sender_code == CLD_EXITED, "child's signal");
    signal(SIGCHLD, SIG_IGN);
    pid = fork();
    if (pid == 0) _exit(0);
    expect(waitpid(pid, 0, 0) == -1 && errno == ECHILD, "children nobody wants");
}

static void timers(void) {
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), set = epoll_create1(0);
    uint64_t count = 0;
    struct itimerspec left, spec = {{0, 20000000}, {0, 30000000}};
    expect(read(timer, &count, 8) == -1 && errno == EAGAIN, "an idle timer");
    expect(timerfd_settime(timer, 0, &spec, 0) == 0, "armed");
    expect(timerfd_gettime(timer, &left) == 0 && left.it_interval.tv_nsec == 20000000 &&
               left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 30000000, "time left");
    struct epoll_event wanted = {EPOLLIN, {.u64 = 5}}, got;
    epoll_ctl(set, EPOLL_CTL_ADD, timer, &wanted);
    expect(epoll_wait(set, &got, 1, 1) == 0, "not yet");
    expect(epoll_wait(set, &got, 1, -1) == 1 && got.data.u64 == 5, "expired");
    expect(read(timer, &count, 8) == 8 && count >= 1, "counted");
    usleep(70000);
    expect(read(timer, &count, 8) == 8 && count >= 2, "counted again");
    spec = (struct itimerspec){{0, 0}, {0, 0}};
    expect(timerfd_settime(timer, 0, &spec, &left) == 0 && left.it_interval.tv_nsec == 20000000, "disarmed");
    usleep(50000);
    expect(read(timer, &count, 8) == -1 && errno == EAGAIN, "silent");
    int real = timerfd_create(CLOCK_REALTIME, 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    spec.it_value = (struct timespec){now.tv_sec + 1, now.tv_nsec};
    expect(timerfd_settime(real, TFD_TIMER_ABSTIME, &spec, 0) == 0, "a point in time");
    expect(read(real, &count, 8) == 8 && count == 1, "waited for");
    spec.it_value.tv_sec = 1;
    expect(timerfd_settime(real, TFD_TIMER_ABSTIME, &spec, 0) == 0, "a point long past");
    struct pollfd one = {real, POLLIN, 0};
    expect(poll(&one, 1, -1) == 1 && one.revents == POLLIN, "polled");
    expect(timerfd_create(77, 0) == -1 && errno == EINVAL, "no such clock");
    expect(timerfd_settime(0, 0, &spec, 0) == -1 && errno == EINVAL, "no timer");
    close(timer), close(real), close(set);
}

/// Sends a byte and descriptors; how many arrive of those there is room for.
static int hand_over(int socket, const int *files, int count) {
    char control[256] = {0}, byte = 'f';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(head), files, sizeof(int) * count);
    return sendmsg(socket, &message, 0);
}

static int take_over(int socket, int *files, int room, int *flags) {
    char control[256] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = CMSG_LEN(sizeof(int) * room)};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || byte != 'f') return -1;
    *flags = message.msg_flags & MSG_CTRUNC;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_type != SCM_RIGHTS) return 0;
    int count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(files, CMSG_DATA(head), sizeof(int) * count);
    return count;
}

static void rights(void) {
    int s[2], ends[2], got[4], flags = 0, status;
    socketpair(AF_UNIX, SOCK_STREAM, 0, s);
    pipe(ends);
    pid_t pid = fork();
    if (pid == 0) {
        int count = take_over(s[1], got, 2, &flags);
        if (count != 2) _exit(1);
        _exit(write(got[1], "through", 7) == 7 && fcntl(got[0], F_GETFD) == FD_CLOEXEC ? 0 : 2);
    }
    expect(hand_over(s[0], ends, 2) == 1, "handed over");
    expect(waitpid(pid, &status, 0) == pid && status == 0, "by another process");
    char text[8] = {0};
    expect(read(ends[0], text, 7) == 7 && strcmp(text, "through") == 0, "the same pipe");
    hand_over(s[0], ends, 1);
    expect(take_over(s[1], got, 4, &flags) == 1 && flags == 0, "room for more");
    int wrong = 999;
    expect(hand_over(s[0], &wrong, 1) == -1 && errno == EBADF, "no such file");
    close(got[0]), close(ends[0]), close(ends[1]), close(s[0]), close(s[1]);
}

int main(int argc, char **argv) {
    (void)argv;
    setvbuf(stdout, 0, _IOLBF, 0);
    if (argc > 1) {
        internet();
        return 0;
    }
    pairs();
    events();
    timers();
    rights();
    big_write();
    interruptions();
    children();
    return 0;
}
