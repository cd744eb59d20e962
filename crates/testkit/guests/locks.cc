// Threads of the C++ library that wait for each other. What each does depends on nothing but itself.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>
static std::mutex lock;
static std::recursive_timed_mutex timed;
static std::shared_mutex shared;
static int sum;

struct Box {
    std::mutex inside;
    std::condition_variable filled;
    bool full = false;
    void fill() {
        std::lock_guard<std::mutex> guard(inside);
        full = true;
        filled.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> guard(inside);
        filled.wait(guard, [&] { return full; });
    }
};

static void work(int me) {
    for (int i = 0; i < 10; i++) {
        std::lock_guard<std::mutex> guard(lock);
        sum += me;
    }
    std::shared_lock<std::shared_mutex> reads(shared);
    std::lock_guard<std::recursive_timed_mutex> once(timed);
    try {
        std::lock_guard<std::recursive_timed_mutex> twice(timed);
        throw std::runtime_error("under a lock");
    } catch (const std::exception &) {
        std::unique_lock<std::mutex> guard(lock, std::try_to_lock);
        if (!guard.owns_lock()) guard.lock();
        sum++;
    }
}

int main() {
    // It waits before anybody can have filled the box.
    Box *box = new Box;
    {
        std::unique_lock<std::mutex> guard(box->inside);
        std::thread filler([box] { box->fill(); });
        box->filled.wait(guard, [&] { return box->full; });
        guard.unlock();
        filler.join();
    }
    box->wait();
    std::condition_variable nobody;
    {
        std::unique_lock<std::mutex> guard(lock);
        nobody.wait_for(guard, std::chrono::milliseconds(1));
        nobody.notify_one();
    }
    std::thread one(work, 3);
    one.join();
    std::vector<std::thread> all;
    {
        std::unique_lock<std::shared_mutex> writes(shared);
        all.emplace_back(work, 5);
    }
    for (auto &thread : all) thread.join();
    delete box;
    std::printf("%d\n", sum);
    return sum == 82 ? 0 : 1;
}
