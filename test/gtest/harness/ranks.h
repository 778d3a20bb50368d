// SPDX-License-Identifier: BSD-3-Clause
// Runs a test body in one or two fresh processes and brings the results home.
#ifndef NPRDMA_TEST_RANKS_H
#define NPRDMA_TEST_RANKS_H

#include <sys/types.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace nt {

// Ends a rank's body; the text becomes the test's failure.
struct Failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Ends a rank's body; the text becomes the test's skip reason.
struct Skipped : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Seconds on a monotonic clock.
double now();

// The bound of every single wait, in seconds.
double patience();

using Progress = std::function<unsigned()>;

// Call `progress` until `condition` holds; throws Failed after patience().
void wait_until(const char *what, const Progress &progress,
                const std::function<bool()> &condition);

// The ranks' way to talk to each other beside the transport under test.
class Oob {
public:
    explicit Oob(int fd) : m_fd(fd) {}
    ~Oob();
    Oob(const Oob&) = delete;
    Oob &operator=(const Oob&) = delete;

    // What to call while waiting for the other rank.
    void progress_with(Progress progress) { m_progress = progress; }

    void send(const std::string &message);
    std::string recv();

    // Give mine, get the other rank's (with one rank: mine).
    std::string exchange(const std::string &mine);

    template<typename T> T exchange_value(const T &mine)
    {
        std::string theirs = exchange(
                std::string(reinterpret_cast<const char*>(&mine),
                            sizeof(mine)));
        T value;

        if (theirs.size() != sizeof(value)) {
            throw Failed("the other rank sent a value of another size");
        }
        memcpy(&value, theirs.data(), sizeof(value));
        return value;
    }

    void barrier() { exchange(""); }

    // Until the other rank's process has ended and was collected.
    void wait_peer_gone(pid_t peer);

private:
    int      m_fd;
    Progress m_progress;
};

// One process of a test.
struct Rank {
    int   id;
    int   count;
    pid_t peer; // process id of the other rank; my own if count is 1
    Oob   oob;

    // Rank 0 starts transfers; the last rank is their target.
    bool initiator() const { return id == 0; }
    bool target() const { return id == count - 1; }
};

using Body = std::function<void(Rank&)>;

struct RunOptions {
    int    ranks     = 2;
    bool   peer_dies = false; // rank 1 must end by SIGKILL
    double limit     = 0;     // seconds for the whole run; 0: three patiences
};

struct RunResult {
    std::vector<std::string> failures;
    std::string              skip; // the reason, if any rank was skipped
};

// Run `body` in each rank's own process, and wait for all.
RunResult run_ranks_result(const Body &body, const RunOptions &options = {});

// The same. Failures, skips, crashes and hangs of any rank become results of
// the current test.
void run_ranks(const Body &body, const RunOptions &options = {});

} // namespace nt

#endif
