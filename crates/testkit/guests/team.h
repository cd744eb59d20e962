// A team of threads that do the same work on parts of the same data and meet at barriers.
// The first one is the program's own thread. Arithmetic alone decides what each one does.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static pthread_barrier_t team_barrier;
static int team_size;
static void (*team_work)(int);
static void meet(void) { pthread_barrier_wait(&team_barrier); }
static void *team_member(void *number) {
    team_work((int)(long)number);
    return 0;
}
static void team_run(int size, void (*work)(int)) {
    pthread_t members[size];
    team_size = size;
    team_work = work;
    pthread_barrier_init(&team_barrier, 0, size);
    for (long i = 1; i < size; i++) pthread_create(&members[i], 0, team_member, (void *)i);
    work(0);
    for (int i = 1; i < size; i++) pthread_join(members[i], 0);
    pthread_barrier_destroy(&team_barrier);
}
// Member `me` works on [*from, *to) of `n` items.
static inline void share(int me, long n, long *from, long *to) {
    *from = n * me / team_size;
    *to = n * (me + 1) / team_size;
}
static long argument(int count, char **values, int i, long otherwise) {
    return i < count ? atol(values[i]) : otherwise;
}
static inline unsigned next_random(unsigned long *state) {
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(*state >> 33);
}
