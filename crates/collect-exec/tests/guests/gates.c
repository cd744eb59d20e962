// Enters `work` and leaves it for `rest` in turns, by calls, by a pointer and by a jump; with an argument in a second thread, too.
#include <pthread.h>
#include <stdio.h>

static volatile long sum;
long (*volatile by_pointer)(long);

__attribute__((noinline)) long work(long n) {
    for (long i = 0; i < n; i++) sum += i * n;
    return sum;
}

__attribute__((noinline)) long rest(long n) {
    return sum * n;
}

// The call at its end is a jump.
__attribute__((noinline)) long last(long n) {
    sum ^= n;
    return work(n + 1);
}

static void *run(void *what) {
    long found = 0;
    for (long i = 0; i < 5; i++) {
        found += work(20 + i);
        found += rest(i);
        found += by_pointer(7);
        found ^= rest(i + 1);
        found += last(i);
        found ^= rest(i + 2);
    }
    *(long *)what = found;
    return NULL;
}

int main(int argc, char **argv) {
    long a = 0, b;
    (void)argv;
    by_pointer = work;
    if (argc > 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, run, &a);
        pthread_join(thread, NULL);
    }
    run(&b);
    printf("%ld\n", a ^ b);
    return 0;
}
