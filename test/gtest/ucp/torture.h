// SPDX-License-Identifier: BSD-3-Clause
// What a program may do with its memory while others reach it.
#ifndef NPRDMA_TEST_TORTURE_H
#define NPRDMA_TEST_TORTURE_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace nt {

// Dice that fall the same way for the same seed.
class Random {
public:
    explicit Random(uint64_t seed) : m_state(seed * 2 + 1) {}

    uint64_t next();
    uint64_t below(uint64_t limit) { return next() % limit; }

private:
    uint64_t m_state;
};

// From its construction to stop(), threads allocate and free, map, move and
// unmap, and fork; the program gets SIGALRM all the time, and pages through
// SIGSEGV. All of them check what is in their memory.
class Torture {
public:
    // `pause`: microseconds, about, between two turns of a thread; there are
    // more threads than processors.
    Torture(uint64_t seed, unsigned pause);
    ~Torture();
    Torture(const Torture&) = delete;

    // Ends it all. Empty if everything was as it should; else what was not.
    std::string stop();

private:
    using Turn = void (Torture::*)(Random &random);

    void thread(Turn turn, uint64_t seed);
    void require(bool good, const std::string &what);
    void heap_turn(Random &random);
    void map_turn(Random &random);
    void child_turn(Random &random);
    void fault_turn(Random &random);

    const unsigned           m_pause;
    std::vector<std::thread> m_threads;
    std::atomic<bool>        m_stops{false};
    std::mutex               m_lock; // guards what follows
    std::string              m_error;
};

} // namespace nt

#endif
