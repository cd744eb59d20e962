/* Asks for the time, which the vdso answers if the program knows of it. */
#include <stdio.h>
#include <time.h>
int main(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    puts(now.tv_sec >= 0 && now.tv_nsec < 1000000000 ? "time goes on" : "no time");
    return 0;
}
