/* System calls written as assembly: answers, an error, one that makes a process, one that a signal interrupts, and the last one.
   `asks signal` adds the interrupted one. */
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static long ask(long number, long a, long b, long c) {
    register long fourth __asm__("r10") = 0, fifth __asm__("r8") = 0, sixth __asm__("r9") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}

static volatile long sum;

static void handler(int signal) { sum += signal; }

static void interrupted(void) {
    struct sigaction action = {.sa_handler = handler};
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &soon, 0);
    sum += ask(34, 0, 0, 0) == -4 ? -SIGALRM : 1000;
}

int main(int argc, char **argv) {
    static char text[] = "asked\n";
    (void)argv;
    for (int i = 0; i < 3; i++) sum += ask(1, 1, (long)text, sizeof text - 1);
    sum += ask(3, -1, 0, 0) + (ask(39, 0, 0, 0) > 0);
    if (argc > 1) interrupted();
    long child = ask(57, 0, 0, 0);
    if (child == 0) {
        ask(1, 1, (long)text, 2);
        ask(60, 7, 0, 0);
    }
    int status = 0;
    while (ask(61, -1, (long)&status, 0) != child) sum++;
    sum += status >> 8;
    ask(231, sum == 3 * 6 - 9 + 1 + 7 ? 5 : 6, 0, 0);
    return 1;
}
