// Threads, exceptions, signals, jumps and callbacks, all at once, with an answer that does not depend on
// how they interleave. Arguments: threads, rounds.
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

namespace {

volatile sig_atomic_t ticks;
thread_local volatile uint64_t handled;

__attribute__((noinline)) uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    return x ^ x >> 29;
}

void tick(int) {
    ticks = ticks + 1;
    handled = mix(handled + 1);
}

int compare(const void *a, const void *b) {
    uint64_t x = mix(*static_cast<const uint64_t *>(a)), y = mix(*static_cast<const uint64_t *>(b));
    return x < y ? -1 : x > y;
}

struct Guard {
    uint64_t &sum;
    uint64_t add;
    ~Guard() { sum += mix(add); }
};

__attribute__((noinline)) void dive(uint64_t n, uint64_t &sum) {
    Guard guard{sum, n};
    if (n % 7 == 3)
        throw std::runtime_error(std::to_string(n));
    if (n % 11 == 5)
        throw n;
    if (n)
        dive(n - 1, sum);
}

__attribute__((noinline)) uint64_t catches(uint64_t n) {
    uint64_t sum = 0;
    try {
        dive(n, sum);
    } catch (const std::exception &e) {
        sum += std::strtoull(e.what(), nullptr, 10);
    } catch (uint64_t n) {
        sum ^= n << 7;
    }
    return sum;
}

thread_local jmp_buf place;

__attribute__((noinline)) void leap(uint64_t n) {
    if (n == 0)
        longjmp(place, 5);
    leap(mix(n) % 2 ? n - 1 : n / 2);
}

__attribute__((noinline)) uint64_t leaps(uint64_t n) {
    volatile uint64_t kept = mix(n);
    int how = setjmp(place);
    if (how == 0)
        leap(n);
    return kept + static_cast<uint64_t>(how);
}

__attribute__((noinline)) uint64_t chosen(uint64_t n) {
    switch (n % 9) {
    case 0: return mix(n);
    case 1: return n * 3;
    case 2: return mix(n + 1) ^ 5;
    case 3: return n << 3;
    case 4: return mix(mix(n));
    case 5: return n - 77;
    case 6: return ~n;
    case 7: return mix(n) + 1;
    default: return 4;
    }
}

__attribute__((noinline)) uint64_t sorted(uint64_t n) {
    std::vector<uint64_t> all;
    for (uint64_t i = 0; i < 24; i++)
        all.push_back(mix(n + i));
    qsort(all.data(), all.size(), sizeof all[0], compare);
    uint64_t sum = 0;
    for (uint64_t x : all)
        sum = sum * 31 + x;
    return sum;
}

struct Work {
    uint64_t number, rounds, answer;
};

void *work(void *given) {
    Work &work = *static_cast<Work *>(given);
    std::function<uint64_t(uint64_t)> some[] = {catches, leaps, chosen, sorted, mix};
    uint64_t sum = work.number;
    for (uint64_t i = 0; i < work.rounds; i++) {
        sum = mix(sum + some[(sum + i) % 5](i % 50 + work.number));
        if (i % 64 == 0)
            raise(SIGUSR1);
    }
    work.answer = sum;
    return nullptr;
}

} // namespace

int main(int count, char **args) {
    unsigned threads = count > 1 ? atoi(args[1]) : 4;
    uint64_t rounds = count > 2 ? strtoull(args[2], nullptr, 10) : 1000;
    struct sigaction action = {};
    action.sa_handler = tick;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    sigaction(SIGALRM, &action, nullptr);
    itimerval every = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &every, nullptr);
    std::vector<pthread_t> all(threads);
    std::vector<Work> works(threads);
    for (unsigned i = 0; i < threads; i++) {
        works[i] = {i, rounds, 0};
        pthread_create(&all[i], nullptr, work, &works[i]);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(all[i], nullptr);
        printf("%u: %016llx\n", i, static_cast<unsigned long long>(works[i].answer));
    }
    itimerval none = {};
    setitimer(ITIMER_REAL, &none, nullptr);
    printf("%s\n", ticks ? "signals came" : "no signals");
    return 0;
}
