/* Everything by which threads of the C library wait for each other, also calls that fail, that are the last thing
   a function does, and that never return. What each thread does depends on nothing but itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <threads.h>
#include <time.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other, owned;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, never;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER, fresh;
static pthread_spinlock_t spin;
static pthread_barrier_t met;
static sem_t ready, turn;
static int flag, counter;
static const struct timespec past = {1, 0};
__attribute__((noinline)) static int take(pthread_mutex_t *which) { return pthread_mutex_lock(which); }
__attribute__((noinline)) static int give(pthread_mutex_t *which) { return pthread_mutex_unlock(which); }
__attribute__((noinline)) static int meet(void) { return pthread_barrier_wait(&met); }
__attribute__((noinline)) static int is(int result, int wanted) {
    __atomic_fetch_add(&counter, result == wanted ? 1 : 1000, __ATOMIC_RELAXED);
    return result == wanted;
}
static sigjmp_buf away;
static void on_fault(int signal) {
    (void)signal;
    siglongjmp(away, 1);
}
static void unlock(void *which) { pthread_mutex_unlock(which); }

static void *waits(void *arg) {
    take(&lock);
    sem_post(&ready);
    while (!flag) pthread_cond_wait(&changed, &lock);
    is(pthread_cond_timedwait(&never, &lock, &past), ETIMEDOUT);
    give(&lock);
    meet();
    meet();
    /* The first thread holds everything now. */
    is(pthread_mutex_trylock(&lock), EBUSY);
    is(pthread_mutex_timedlock(&lock, &past), ETIMEDOUT);
    is(pthread_spin_trylock(&spin), EBUSY);
    is(pthread_rwlock_trywrlock(&shared), EBUSY);
    is(pthread_rwlock_timedwrlock(&shared, &past), ETIMEDOUT);
    is(pthread_rwlock_tryrdlock(&shared), 0);
    is(pthread_rwlock_rdlock(&shared), 0);
    pthread_rwlock_unlock(&shared);
    pthread_rwlock_unlock(&shared);
    is(sem_trywait(&turn), -1);
    is(sem_timedwait(&turn, &past), -1);
    meet();
    is(sem_wait(&turn), 0);
    return arg;
}

static void *is_cancelled(void *arg) {
    (void)arg;
    pthread_mutex_lock(&other);
    pthread_cleanup_push(unlock, &other);
    sem_post(&ready);
    for (;;) pthread_cond_wait(&never, &other);
    pthread_cleanup_pop(1);
    return 0;
}

static void *owns(void *arg) {
    is(pthread_mutex_lock(&owned), 0);
    return arg;
}

static int thrd(void *arg) {
    mtx_t *mutex = arg;
    is(mtx_lock(mutex), thrd_success);
    mtx_unlock(mutex);
    return 7;
}

/* C's own threads. */
static void standard(void) {
    mtx_t mutex;
    cnd_t cond;
    thrd_t thread;
    int result;
    mtx_init(&mutex, mtx_timed);
    cnd_init(&cond);
    thrd_create(&thread, thrd, &mutex);
    thrd_join(thread, &result);
    is(result, 7);
    is(mtx_trylock(&mutex), thrd_success);
    is(mtx_timedlock(&mutex, &past), thrd_timedout);
    is(cnd_timedwait(&cond, &mutex, &past), thrd_timedout);
    cnd_signal(&cond);
    cnd_broadcast(&cond);
    mtx_unlock(&mutex);
    cnd_destroy(&cond);
    mtx_destroy(&mutex);
}

int main(int count, char **values) {
    pthread_t t;
    void *result;
    pthread_mutexattr_t attr;
    /* While it is alone nothing is told. */
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    if (count > 1 && values[1][0] == 's') {
        standard();
        printf("%d\n", counter);
        return counter == 5 ? 0 : 1;
    }
    sem_init(&ready, 0, 0);
    sem_init(&turn, 0, 0);
    pthread_cond_init(&never, 0);
    pthread_mutex_init(&other, 0);
    pthread_spin_init(&spin, 0);
    pthread_barrier_init(&met, 0, 2);
    pthread_create(&t, 0, waits, &flag);
    sem_wait(&ready);
    take(&lock);
    flag = 1;
    pthread_cond_signal(&changed);
    pthread_cond_broadcast(&never);
    give(&lock);
    meet();
    take(&lock);
    pthread_spin_lock(&spin);
    pthread_rwlock_rdlock(&shared);
    is(pthread_tryjoin_np(t, &result), EBUSY);
    meet();
    meet();
    pthread_rwlock_unlock(&shared);
    pthread_spin_unlock(&spin);
    give(&lock);
    is(pthread_timedjoin_np(t, &result, &past), ETIMEDOUT);
    sem_post(&turn);
    pthread_join(t, &result);
    is(result == &flag, 1);
    pthread_rwlock_init(&fresh, 0);
    is(pthread_rwlock_wrlock(&fresh), 0);
    is(pthread_rwlock_unlock(&fresh), 0);
    is(pthread_rwlock_trywrlock(&fresh), 0);
    pthread_rwlock_unlock(&fresh);
    pthread_rwlock_destroy(&fresh);
    pthread_create(&t, 0, is_cancelled, 0);
    sem_wait(&ready);
    take(&other);
    give(&other);
    pthread_cancel(t);
    pthread_join(t, &result);
    is(result == PTHREAD_CANCELED, 1);
    /* One that does not return. */
    struct sigaction action = {0};
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, 0);
    if (!sigsetjmp(away, 1)) pthread_mutex_lock((pthread_mutex_t *)8);
    if (!sigsetjmp(away, 1)) take((pthread_mutex_t *)16);
    take(&other);
    is(sem_trywait(&turn), -1);
    give(&other);
    /* The owner ends with it. */
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&owned, &attr);
    pthread_create(&t, 0, owns, 0);
    pthread_join(t, 0);
    is(take(&owned), EOWNERDEAD);
    pthread_mutex_consistent(&owned);
    is(pthread_mutex_trylock(&owned), 0);
    give(&owned);
    give(&owned);
    pthread_mutex_destroy(&owned);
    pthread_spin_destroy(&spin);
    pthread_barrier_destroy(&met);
    sem_destroy(&turn);
    pthread_cond_destroy(&never);
    printf("%d\n", counter);
    return counter == 22 ? 0 : 1;
}
