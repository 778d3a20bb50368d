// SPDX-License-Identifier: BSD-3-Clause
// A pager of the program that is driven by faults (userfaultfd), as programs have
// it that keep their memory elsewhere: whoever touches a page that is away waits
// for it, in the program or in the kernel. It keeps a few pages in, and tells nprdma
// of what it takes and gives.
#ifndef NPRDMA_TEST_PAGER_H
#define NPRDMA_TEST_PAGER_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <nprdma/nprdma.h>

namespace nt {

// Ends the process with a report if nothing moves: what was under way, what each
// pager does, and where each thread is.
class Watchdog {
public:
    explicit Watchdog(double limit);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;

    // What comes now; once more alive.
    void begins(const std::string &what);

private:
    void run();

    double                   m_limit;
    std::atomic<bool>        m_is_over{false};
    std::atomic<unsigned>    m_beats{0};
    std::atomic<std::string*> m_what;
    std::deque<std::string>  m_names; // none ever goes
    std::thread              m_thread;
};

class Pager {
public:
    enum Kind {
        Private,  // memory of the program's own
        Shared,   // a mapping of a file in memory
        Swapper   // private, and nprdma knows who brings it in
    };

    // At most `resident` pages are in at once; none at the beginning. What is
    // there is lost, all pages hold zeros. Throws Skipped where a process has no
    // userfaultfd for faults of the kernel.
    //
    // Without a swapper, what is asked for just now must not be what goes: nprdma
    // may find a page that has been told to go, is there still, and let peers
    // reach it (nprdma.h). So for the `used` first pages, which transfers ask for,
    // those behind them make room, and the other way round.
    Pager(uint8_t *base, size_t length, size_t resident, Kind kind = Private,
          size_t used = 0);

    // All pages are in, and nobody's any more.
    ~Pager();
    Pager(const Pager&) = delete;

    // Pages that were brought in.
    unsigned faults() const { return m_faults; }

    std::string state() const;

private:
    // What it is at, for the report.
    enum Step { IDLE, TELLS_OUT, TAKES, GIVES, TELLS_IN };

    static int swap_in(void *arg, void *va, size_t length, int write);

    void need(size_t page);

    void run();
    void handle();
    void fault(size_t page);
    std::deque<size_t>::iterator victim(size_t for_page);
    void evict(std::deque<size_t>::iterator which);
    void bring_in(size_t page);

    uint8_t               *m_base;
    size_t                m_length;
    std::atomic<size_t>   m_resident;
    Kind                  m_kind;
    size_t                m_used;
    int                   m_fd;
    int                   m_stop[2];
    std::mutex            m_lock;   // of what follows; held until a page is gone
    std::vector<uint8_t>  m_store;  // of pages that are away
    std::vector<bool>     m_is_in;
    std::deque<size_t>    m_order;  // of those that are in, the oldest first
    std::atomic<unsigned> m_faults{0};
    std::atomic<int>      m_step{IDLE};
    std::atomic<size_t>   m_page{0};
    std::thread           m_thread;
};

} // namespace nt

#endif
