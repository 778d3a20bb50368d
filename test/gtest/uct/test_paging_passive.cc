// SPDX-License-Identifier: BSD-3-Clause
// Targets that do not progress: their service threads answer.
#include "paging_face.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <ucs/config/global_opts.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

// What the target does instead of progress.
enum class Away { Computes, Sleeps };

// A word that both ranks see.
class SharedFlag {
public:
    SharedFlag()
    {
        m_word = (volatile int*)mmap(nullptr, PAGE, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    ~SharedFlag() { munmap((void*)m_word, PAGE); }
    SharedFlag(const SharedFlag&) = delete;

    void raise() { *m_word = 1; }
    bool is_up() const { return *m_word != 0; }

private:
    volatile int *m_word;
};

// Stay away from all of UCX until the flag goes up.
void stay_away(Away away, const SharedFlag &flag)
{
    const struct timespec nap = {0, 500000};
    double deadline           = now() + patience();
    volatile double sum       = 1;

    while (!flag.is_up()) {
        for (int i = 0; (away == Away::Computes) && (i < 10000); ++i) {
            sum = sum * 1.000001 + i;
        }
        if (away == Away::Sleeps) {
            nanosleep(&nap, nullptr);
        }
        if (now() > deadline) {
            throw Failed("rank 0 has not finished beside a passive target");
        }
    }
}

// What an operation has ended with, at once or by its completion.
ssize_t ended(ssize_t ret, const Comp &comp)
{
    return (ret == UCS_INPROGRESS) ? (ssize_t)comp.status : ret;
}

using PassiveParam = std::tuple<Away, const char*>; // and SERVICE

class Passive : public testing::TestWithParam<PassiveParam> {
protected:
    // Rank 0 does `active` while rank 1 is away; then rank 1 does `look`. The
    // area begins at `place`, unless that is 0.
    void run(const std::function<void(Node&, const UctRemote&)> &active,
             const std::function<void(Node&, const Area&)> &look,
             const std::function<void(const Area&)> &prepare = nullptr,
             uint64_t place                                  = 0)
    {
        Away away           = std::get<0>(GetParam());
        const char *service = std::get<1>(GetParam());
        SharedFlag flag;

        run_ranks([=, &flag](Rank &rank) {
            nprdma_only();
            Node node(rank, {}, {{"SERVICE", service}});
            const auto placed = (place == 0) ?
                                    std::make_unique<Area>(SIZE) :
                                    std::make_unique<Area>(place, SIZE);
            const Area &area  = *placed;
            SharedArea shared(node.domain, area);
            UctRemote remote(node.domain, rank.oob.exchange(
                                                  shared.describe()));
            Growth growth;

            if (rank.target()) {
                if (prepare != nullptr) {
                    prepare(area);
                }
                rank.oob.send("away");
                stay_away(away, flag);
                EXPECT_EQ(0u, growth.of(&C::served_progress));
                if (counts_faults()) {
                    EXPECT_GT(growth.of(&C::served_thread), 0u);
                }
                look(node, area);
            } else {
                try {
                    rank.oob.recv();
                    active(node, remote);
                } catch (...) {
                    flag.raise();
                    throw;
                }
                flag.raise();
            }
            node.sync();
        });
    }

    static constexpr size_t SIZE = 3 << 20;
};

TEST_P(Passive, PutThatIsFlushed)
{
    run([](Node &node, const UctRemote &remote) {
        std::vector<uint8_t> bytes(SIZE);
        uint64_t value = 77;

        pattern_fill(bytes.data(), SIZE, 1);
        rma_finish(node, RmaKind::PutShort, (uint8_t*)&value, sizeof(value),
                   remote.address + 8, remote.rkey());
        rma_finish(node, RmaKind::PutBcopy, bytes.data(), 5000,
                   remote.address + 9000, remote.rkey());
        rma_finish(node, RmaKind::PutZcopy, bytes.data(), 100000,
                   remote.address + 20001, remote.rkey());
        rma_finish(node, RmaKind::PutZcopy, bytes.data(), (2 << 20) + 3,
                   remote.address + 200001, remote.rkey());
    }, [](Node&, const Area &area) {
        EXPECT_EQ(77u, *(uint64_t*)area.at(8));
        EXPECT_EQ("", pattern_diff(area.at(9000), 5000, 1));
        EXPECT_EQ("", pattern_diff(area.at(20001), 100000, 1));
        EXPECT_EQ("", pattern_diff(area.at(200001), (2 << 20) + 3, 1));
    });
}

// Large copies that a target may help with are announced to it. If it does not
// look, these fill its requests, which nobody waits for, and nothing is
// outstanding whose end would make room.
TEST_P(Passive, PutBehindLargeOnes)
{
    run([](Node &node, const UctRemote &remote) {
        std::vector<uint8_t> bytes(SIZE);
        uint64_t value = 77;

        pattern_fill(bytes.data(), SIZE, 1);
        for (int i = 0; i < 40; ++i) {
            rma_finish(node, RmaKind::PutZcopy, bytes.data(), 512 << 10,
                       remote.address + 4096, remote.rkey());
        }
        rma_finish(node, RmaKind::PutShort, (uint8_t*)&value, sizeof(value),
                   remote.address + 8, remote.rkey());
        rma_finish(node, RmaKind::PutBcopy, bytes.data(), 5000,
                   remote.address + (1 << 20), remote.rkey());
        // What only the target's thread can answer: it may have been too late
        // for all of the above
        rma_finish(node, RmaKind::GetBcopy, bytes.data(), 8,
                   remote.address + (2 << 20), remote.rkey());
    }, [](Node&, const Area &area) {
        EXPECT_EQ(77u, *(uint64_t*)area.at(8));
        EXPECT_EQ("", pattern_diff(area.at(4096), 512 << 10, 1));
        EXPECT_EQ("", pattern_diff(area.at(1 << 20), 5000, 1));
    });
}

// Small transfers that lie in two arenas, in pages that are there and in absent
// ones.
TEST_P(Passive, AcrossTheBorderOfArenas)
{
    static constexpr uint64_t BORDER = 0x200000000000;
    static constexpr size_t HALF     = SIZE / 2;

    const auto active = [](Node &node, const UctRemote &remote) {
        std::vector<uint8_t> bytes(SIZE);

        for (size_t length : {8, 100, 5000}) {
            const size_t from  = HALF - (length / 4);
            const RmaKind kind = (length > 100) ? RmaKind::PutBcopy :
                                                  RmaKind::PutShort;

            rma_finish(node, RmaKind::GetBcopy, bytes.data(), length,
                       remote.address + from, remote.rkey());
            EXPECT_EQ("", pattern_diff(bytes.data(), length, 3, from));

            pattern_fill(bytes.data(), length, 4);
            rma_finish(node, kind, bytes.data(), length, remote.address + from,
                       remote.rkey());
            rma_finish(node, RmaKind::GetBcopy, bytes.data(), length,
                       remote.address + from, remote.rkey());
            EXPECT_EQ("", pattern_diff(bytes.data(), length, 4));

            pattern_fill(bytes.data(), length, 3, from);
            rma_finish(node, kind, bytes.data(), length, remote.address + from,
                       remote.rkey());
        }
    };
    const auto look = [](Node&, const Area &area) {
        EXPECT_EQ("", pattern_diff(area.at(), area.length(), 3));
    };

    for (bool is_absent : {false, true}) {
        const auto prepare = [is_absent](const Area &area) {
            pattern_fill(area.at(), area.length(), 3);
            if (is_absent) {
                turn_absent(area.at(), area.length());
            }
        };
        run(active, look, prepare, BORDER - HALF);
    }
}

TEST_P(Passive, Get)
{
    run([](Node &node, const UctRemote &remote) {
        std::vector<uint8_t> bytes(SIZE);

        for (RmaKind kind : {RmaKind::GetBcopy, RmaKind::GetZcopy}) {
            for (size_t length : {8, 1000, 5000, 2500000}) {
                size_t used = rma_limit(node.iface, kind, length);
                size_t from = (length * 7) % 500000;
                rma_finish(node, kind, bytes.data(), used,
                           remote.address + from, remote.rkey());
                EXPECT_EQ("", pattern_diff(bytes.data(), used, 3, from))
                        << length;
            }
        }
    }, [](Node&, const Area&) {}, [](const Area &area) {
        pattern_fill(area.at(), area.length(), 3);
        turn_absent(area.at(), area.length());
    });
}

TEST_P(Passive, Atomic)
{
    run([](Node &node, const UctRemote &remote) {
        for (uint64_t i = 0; i < 200; ++i) {
            uint64_t result = 0;
            Comp comp;
            node.complete("fetch and add", comp, [&]() {
                return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 3,
                                             &result,
                                             remote.address + 16 * PAGE,
                                             remote.rkey(), &comp);
            });
            ASSERT_EQ(3 * i, result);
        }
    }, [](Node&, const Area &area) {
        EXPECT_EQ(600u, *(uint64_t*)area.at(16 * PAGE));
    });
}

// Memory that goes under the service thread's hands: an error, no crash.
TEST_P(Passive, Unmapped)
{
    run([](Node &node, const UctRemote &remote) {
        std::vector<uint8_t> bytes(100000);

        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        for (RmaKind kind : {RmaKind::GetZcopy, RmaKind::PutZcopy}) {
            for (size_t length : {8, 1000, 100000}) {
                EXPECT_LT(rma_settle(node, kind, bytes.data(), length,
                                     remote.address, remote.rkey()), 0);
            }
        }
        uint64_t result = 0;
        Comp comp;
        ssize_t ret = node.post("room", [&]() {
            return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                         &result, remote.address,
                                         remote.rkey(), &comp);
        });
        node.until("an atomic on nothing", [&]() {
            return (ret != UCS_INPROGRESS) || (comp.calls > 0);
        });
        EXPECT_LT(ended(ret, comp), 0);
        // And the memory behind it is still to be had
        rma_finish(node, RmaKind::GetZcopy, bytes.data(), 5000,
                   remote.address + SIZE / 2, remote.rkey());
        EXPECT_EQ("", pattern_diff(bytes.data(), 5000, 3, SIZE / 2));
    }, [](Node&, const Area &area) {
        EXPECT_EQ("", pattern_diff(area.at(SIZE / 2), SIZE / 2, 3, SIZE / 2));
    }, [](const Area &area) {
        pattern_fill(area.at(), area.length(), 3);
        turn_absent(area.at(), area.length());
        area.protect(0, SIZE / 2, PROT_NONE);
    });
}

// Somebody connects to one who does not look.
TEST_P(Passive, NewConnection)
{
    SharedFlag flag;
    Away away           = std::get<0>(GetParam());
    const char *service = std::get<1>(GetParam());

    run_ranks([=, &flag](Rank &rank) {
        nprdma_only();
        UctDomain domain(Settings{{"SERVICE", service}});
        UctIface iface(domain);
        Area area(PAGE);
        SharedArea shared(domain, area);
        std::string theirs = rank.oob.exchange(iface.address);
        UctRemote remote(domain, rank.oob.exchange(shared.describe()));

        if (rank.target()) {
            stay_away(away, flag);
            EXPECT_EQ(4711u, *(uint64_t*)area.at());
        } else {
            UctEp ep(iface, theirs);
            uint64_t value  = 4711;
            uct_iov_t iov   = {&value, sizeof(value), nullptr, 0, 1};
            ssize_t ret     = UCS_ERR_NO_RESOURCE;
            Comp comp;
            auto progress = [&]() { return domain.progress(); };

            wait_until("room", progress, [&]() {
                ret = uct_ep_put_zcopy(ep.ep, &iov, 1, remote.address,
                                       remote.rkey(), &comp);
                return ret != UCS_ERR_NO_RESOURCE;
            });
            wait_until("the put", progress, [&]() {
                return (ret != UCS_INPROGRESS) || (comp.calls > 0);
            });
            EXPECT_EQ(UCS_OK, ended(ret, comp));
            flag.raise();
        }
        rank.oob.progress_with([&]() { return domain.progress(); });
        rank.oob.barrier();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Passive,
        testing::Combine(testing::Values(Away::Computes, Away::Sleeps),
                         testing::Values("adaptive", "event", "poll")),
        [](const testing::TestParamInfo<PassiveParam> &info) {
            return std::string((std::get<0>(info.param) == Away::Computes) ?
                               "Computes_" : "Sleeps_") +
                   std::get<1>(info.param);
        });

class Service : public testing::TestWithParam<const char*> {
};

// By the exit handlers. A sanitizer's own may hang in a child: threads that it
// does not have may have held their locks.
[[noreturn]] void end_child(int code)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    _exit(code);
#else
    exit(code);
#endif
}

// A child of a process that has service threads ends as it likes, and the
// parent's go on.
TEST_P(Service, LeavesForkedChildrenAlone)
{
    const char *service = GetParam();

    run_ranks([=](Rank &rank) {
        nprdma_only();
        Node node(rank, {}, {{"SERVICE", service}});
        Area area(64 * PAGE), local(64 * PAGE);
        SharedArea shared(node.domain, area);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));

        for (uint64_t i = 1; i <= 10; ++i) {
            // Both are in the middle of transfers
            pattern_fill(local.at(), local.length(), i);
            turn_absent(area.at(), area.length());
            node.sync();
            Comp comp;
            ssize_t ret = node.post("room", [&]() {
                return rma_post(node, RmaKind::PutZcopy, local.at(),
                                UCT_MEM_HANDLE_NULL, local.length(),
                                remote.address, remote.rkey(), &comp);
            });
            fflush(nullptr);
            pid_t child = fork();
            if (child == 0) {
                end_child((i % 2) ? 0 : 7);
            }
            int status = -1;
            node.until("the child's end", [&]() {
                return waitpid(child, &status, WNOHANG) == child;
            });
            EXPECT_TRUE(WIFEXITED(status)) << status;
            EXPECT_EQ((i % 2) ? 0 : 7, WEXITSTATUS(status));
            node.until("the put", [&]() {
                return (ret != UCS_INPROGRESS) || (comp.calls > 0);
            });
            node.sync();
            EXPECT_EQ("", pattern_diff(area.at(), area.length(), i));
            node.sync();
        }
    });
}

// Threads that wait for nothing take no time of a CPU.
TEST_P(Service, IsIdle)
{
    const char *service = GetParam();

    run_ranks([=](Rank &rank) {
        nprdma_only();
        Node node(rank, {}, {{"SERVICE", service}});
        Area area(PAGE), local(PAGE);
        SharedArea shared(node.domain, area);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));
        const struct timespec second = {1, 0};
        struct rusage before, after;

        rma_finish(node, RmaKind::PutZcopy, local.at(), PAGE, remote.address,
                   remote.rkey());
        node.sync();
        getrusage(RUSAGE_SELF, &before);
        nanosleep(&second, nullptr);
        getrusage(RUSAGE_SELF, &after);
        long used = (after.ru_utime.tv_sec + after.ru_stime.tv_sec -
                     before.ru_utime.tv_sec - before.ru_stime.tv_sec) *
                    1000000 +
                    after.ru_utime.tv_usec + after.ru_stime.tv_usec -
                    before.ru_utime.tv_usec - before.ru_stime.tv_usec;
        // Time of a CPU, whatever else runs here
        EXPECT_LT(used, 200000) << "microseconds in one second";
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(Uct, Service,
                         testing::Values("adaptive", "event", "off"),
                         [](const auto &info) {
                             return std::string(info.param);
                         });

} // namespace
