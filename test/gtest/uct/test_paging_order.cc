// SPDX-License-Identifier: BSD-3-Clause
// What waits for a transfer whose page takes its time, and what passes it.
#include "paging_face.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <tuple>
#include <vector>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t SLEEPY  = 8 * PAGE; // bytes whose pages take their time
constexpr size_t AWAKE   = 64 * PAGE;
constexpr size_t BEGIN   = 10000;    // of the slow transfers

// Brings no page in before it is opened.
class Gate {
public:
    Gate(const Area &area, size_t length) : m_area(area), m_length(length)
    {
        nprdma_swapper_t swapper = {wait, this};
        EXPECT_EQ(0, nprdma_register_swapper(area.at(), length, &swapper));
    }

    ~Gate()
    {
        open();
        EXPECT_EQ(0, nprdma_unregister_swapper(m_area.at(), m_length));
    }

    void open()
    {
        std::lock_guard<std::mutex> lock(m_lock);
        m_is_open = true;
        m_changed.notify_all();
    }

private:
    static int wait(void *arg, void*, size_t, int)
    {
        auto *self = static_cast<Gate*>(arg);
        std::unique_lock<std::mutex> lock(self->m_lock);

        self->m_changed.wait(lock, [self]() { return self->m_is_open; });
        return 0;
    }

    const Area              &m_area;
    size_t                  m_length;
    std::mutex              m_lock;
    std::condition_variable m_changed;
    bool                    m_is_open = false;
};

// Two ranks. Rank 1 owns the memory, and does not progress while its first
// pages sleep: its service threads answer.
class SleepCase {
public:
    SleepCase(Rank &rank, const Settings &md_settings) :
        node(rank, {}, md_settings), area(SLEEPY + AWAKE),
        local(SLEEPY + AWAKE), shared(node.domain, area),
        remote(node.domain, rank.oob.exchange(shared.describe())),
        peer_address(rank.oob.exchange(node.iface.address))
    {
        pattern_fill(area.at(), area.length(), 1);
        meet(node, remote);
        turn_absent(area.at(), area.length());
        node.sync();
    }

    // Rank 0 runs the body while the pages sleep, then wakes them.
    void run(const std::function<void()> &asleep,
             const std::function<void()> &awake)
    {
        if (node.rank.target()) {
            Gate gate(area, SLEEPY);
            node.sync();
            node.rank.oob.progress_with(nullptr);
            node.rank.oob.recv();
            node.rank.oob.progress_with([this]() {
                return node.domain.progress();
            });
            gate.open();
            node.sync();
        } else {
            node.sync();
            try {
                asleep();
            } catch (...) {
                node.rank.oob.send("go on");
                throw;
            }
            node.rank.oob.send("go on");
            awake();
            node.sync();
        }
        node.sync();
    }

    // Start a put of `length` bytes of a pattern.
    ssize_t put(uint64_t seed, size_t offset, size_t length, Comp *comp)
    {
        pattern_fill(local.at(offset), length, seed, offset);
        return rma_post(node, RmaKind::PutZcopy, local.at(offset),
                        UCT_MEM_HANDLE_NULL, length, remote.address + offset,
                        remote.rkey(), comp);
    }

    ssize_t get(size_t offset, size_t length, Comp *comp)
    {
        return rma_post(node, RmaKind::GetZcopy, local.at(offset),
                        UCT_MEM_HANDLE_NULL, length, remote.address + offset,
                        remote.rkey(), comp);
    }

    // Is there nothing to be had, however often it is tried?
    void expect_refused(const char *what, const std::function<ssize_t()> &post)
    {
        for (int i = 0; i < 1000; ++i) {
            ASSERT_EQ(UCS_ERR_NO_RESOURCE, post()) << what;
            node.domain.progress();
        }
    }

    Node        node;
    Area        area;
    Area        local;
    SharedArea  shared;
    UctRemote   remote;
    std::string peer_address;
};

using SleepParam = std::tuple<size_t, const char*>; // bytes, FAULT_MODE

class Sleep : public testing::TestWithParam<SleepParam> {
protected:
    size_t length() const { return std::get<0>(GetParam()); }
    const char *fault_mode() const { return std::get<1>(GetParam()); }
};

// One page sleeps: what does not need it is done, what overlaps it waits.
TEST_P(Sleep, OthersPass)
{
    run_ranks([this](Rank &rank) {
        soft_only(BEHIND_IT);
        SleepCase sleep(rank, {{"FAULT_MODE", fault_mode()}});
        Node &node = sleep.node;
        Comp slow, flushed;

        sleep.run([&]() {
            uint64_t result = 0;

            ASSERT_EQ(UCS_INPROGRESS, node.post("a slow put", [&]() {
                return sleep.put(2, BEGIN, length(), &slow);
            }));
            // Absent pages too, but awake ones
            for (size_t i = 0; i < 10; ++i) {
                Comp put_comp, get_comp;
                node.complete("a put beside it", put_comp, [&]() {
                    return sleep.put(10 + i, SLEEPY + i * PAGE, 3000,
                                     &put_comp);
                });
                node.complete("a get beside it", get_comp, [&]() {
                    return sleep.get(SLEEPY + (20 + i) * PAGE, 3000, &get_comp);
                });
                ASSERT_EQ("", pattern_diff(
                        sleep.local.at(SLEEPY + (20 + i) * PAGE), 3000, 1,
                        SLEEPY + (20 + i) * PAGE));
            }
            // An atomic comes after all that its endpoint has posted before
            UctEp second(node.iface, sleep.peer_address);
            Comp atomic;
            node.complete("an atomic beside it", atomic, [&]() {
                return uct_ep_atomic64_fetch(second.ep, UCT_ATOMIC_OP_ADD, 1,
                                             &result,
                                             sleep.remote.address + SLEEPY +
                                             40 * PAGE, sleep.remote.rkey(),
                                             &atomic);
            });

            Growth growth;
            Comp again;
            sleep.expect_refused("an overlapping put", [&]() {
                return sleep.put(3, BEGIN - length() / 2, length(), &again);
            });
            sleep.expect_refused("an overlapping get", [&]() {
                return sleep.get(BEGIN + length() - 1, 2, &again);
            });
            EXPECT_GT(growth.of(&C::order_waits), 0u);
            EXPECT_EQ(UCS_INPROGRESS,
                      uct_ep_flush(node.ep->ep, 0, &flushed));
            EXPECT_EQ(0u, slow.calls) << "ended without its page";
        }, [&]() {
            Comp again;

            node.until("the slow put", [&]() {
                return (slow.calls > 0) && (flushed.calls > 0);
            });
            EXPECT_EQ(UCS_OK, slow.status);
            EXPECT_EQ(UCS_OK, flushed.status);
            node.complete("an overlapping put", again, [&]() {
                return sleep.put(3, BEGIN - length() / 2, length(), &again);
            });
            node.flush();
        });

        if (rank.target()) {
            size_t first = BEGIN - length() / 2, second = first + length();
            EXPECT_EQ("", pattern_diff(sleep.area.at(), first, 1));
            EXPECT_EQ("", pattern_diff(sleep.area.at(first), length(), 3,
                                       first));
            EXPECT_EQ("", pattern_diff(sleep.area.at(second), length() / 2, 2,
                                       second));
            for (size_t i = 0; i < 10; ++i) {
                size_t at = SLEEPY + i * PAGE;
                EXPECT_EQ("", pattern_diff(sleep.area.at(at), 3000, 10 + i,
                                           at)) << i;
            }
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Sleep,
        testing::Combine(testing::Values(8, 700, 5000, 20000),
                         testing::Values("reverse", "retry")),
        [](const testing::TestParamInfo<SleepParam> &info) {
            return std::to_string(std::get<0>(info.param)) +
                   std::get<1>(info.param);
        });

// Buffered puts have no completion, and are passed as well.
class SleepBuffered : public testing::TestWithParam<RmaKind> {
};

TEST_P(SleepBuffered, OthersPass)
{
    RmaKind kind = GetParam();

    run_ranks([kind](Rank &rank) {
        soft_only(BEHIND_IT);
        SleepCase sleep(rank, {});
        Node &node = sleep.node;

        auto put = [&](uint64_t value, size_t at) {
            return node.post("room", [&]() {
                return rma_post(node, kind, (uint8_t*)&value,
                                UCT_MEM_HANDLE_NULL, sizeof(value),
                                sleep.remote.address + at, sleep.remote.rkey(),
                                nullptr);
            });
        };
        sleep.run([&]() {
            ASSERT_EQ(UCS_OK, put(4711, 0));
            for (size_t i = 0; i < 20; ++i) {
                ASSERT_EQ(UCS_OK, put(i, SLEEPY + i * PAGE));
            }
            for (size_t i = 0; i < 20; ++i) {
                Comp comp;
                node.complete("a get beside it", comp, [&]() {
                    return sleep.get(SLEEPY + i * PAGE, 8, &comp);
                });
                EXPECT_EQ(i, *(uint64_t*)sleep.local.at(SLEEPY + i * PAGE));
            }
            EXPECT_EQ(UCS_INPROGRESS,
                      uct_ep_flush(node.ep->ep, 0, nullptr));
        }, [&]() { node.flush(); });

        if (rank.target()) {
            EXPECT_EQ(4711u, *(uint64_t*)sleep.area.at());
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(Uct, SleepBuffered,
                         testing::Values(RmaKind::PutShort, RmaKind::PutBcopy),
                         [](const testing::TestParamInfo<RmaKind> &info) {
                             return name_of(info.param);
                         });

// With strict order everything waits; with relaxed order nothing does, unless
// there is a fence.
TEST(SleepModes, Strict)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        SleepCase sleep(rank, {{"ORDER", "strict"}});
        Node &node = sleep.node;
        Comp slow, next;

        sleep.run([&]() {
            ASSERT_EQ(UCS_INPROGRESS, node.post("a slow put", [&]() {
                return sleep.put(2, 0, 5000, &slow);
            }));
            sleep.expect_refused("a put beside it", [&]() {
                return sleep.put(3, SLEEPY, 100, &next);
            });
        }, [&]() {
            node.complete("a put after it", next, [&]() {
                return sleep.put(3, SLEEPY, 100, &next);
            });
            EXPECT_EQ(1u, slow.calls) << "it was to be done first";
        });
        if (rank.target()) {
            EXPECT_EQ("", pattern_diff(sleep.area.at(), 5000, 2));
            EXPECT_EQ("", pattern_diff(sleep.area.at(SLEEPY), 100, 3, SLEEPY));
        }
        node.sync();
    });
}

TEST(SleepModes, Relaxed)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        SleepCase sleep(rank, {{"ORDER", "relaxed"}});
        Node &node = sleep.node;
        Comp slow(2), fenced;

        sleep.run([&]() {
            // The same bytes twice, so that their order does not matter
            for (int i = 0; i < 2; ++i) {
                ASSERT_EQ(UCS_INPROGRESS, node.post("a slow put", [&]() {
                    return sleep.put(2, 0, 5000, &slow);
                }));
            }
            check(uct_ep_fence(node.ep->ep, 0), "uct_ep_fence");
            sleep.expect_refused("a put behind the fence", [&]() {
                return sleep.put(3, SLEEPY, 100, &fenced);
            });
        }, [&]() {
            node.complete("a put behind the fence", fenced, [&]() {
                return sleep.put(3, 0, 5000, &fenced);
            });
            EXPECT_EQ(1u, slow.calls) << "it was to be done first";
            node.flush();
        });
        if (rank.target()) {
            EXPECT_EQ("", pattern_diff(sleep.area.at(), 5000, 3));
        }
        node.sync();
    });
}

// The flags of nprdma_set_order, for one thread's operations.
TEST(SleepModes, Flags)
{
    run_ranks([](Rank &rank) {
        soft_only(BEHIND_IT);
        SleepCase sleep(rank, {});
        Node &node = sleep.node;
        Comp slow, before, after, free_one;

        sleep.run([&]() {
            ASSERT_EQ(UCS_INPROGRESS, node.post("a slow put", [&]() {
                return sleep.put(2, 0, 5000, &slow);
            }));
            ASSERT_EQ(0, nprdma_set_order(NPRDMA_ORDER_BEFORE));
            EXPECT_EQ(NPRDMA_ORDER_BEFORE, nprdma_get_order());
            sleep.expect_refused("a put that waits", [&]() {
                return sleep.put(3, SLEEPY, 100, &before);
            });
            ASSERT_EQ(0, nprdma_set_order(0));
            node.complete("a put that does not", free_one, [&]() {
                return sleep.put(4, SLEEPY + PAGE, 100, &free_one);
            });
            ASSERT_EQ(0, nprdma_set_order(NPRDMA_ORDER_AFTER));
            ASSERT_EQ(UCS_INPROGRESS, node.post("a put to wait for", [&]() {
                return sleep.put(5, 4 * PAGE, 5000, &after);
            }));
            ASSERT_EQ(0, nprdma_set_order(0));
            sleep.expect_refused("a put after it", [&]() {
                return sleep.put(3, SLEEPY, 100, &before);
            });
        }, [&]() {
            node.complete("a put after it", before, [&]() {
                return sleep.put(3, SLEEPY, 100, &before);
            });
            EXPECT_EQ(1u, after.calls);
            node.flush();
        });
        if (rank.target()) {
            EXPECT_EQ("", pattern_diff(sleep.area.at(), 5000, 2));
            EXPECT_EQ("", pattern_diff(sleep.area.at(4 * PAGE), 5000, 5,
                                       4 * PAGE));
            EXPECT_EQ("", pattern_diff(sleep.area.at(SLEEPY), 100, 3, SLEEPY));
        }
        node.sync();
    });
}

// A message behind a fence does not overtake a put whose page sleeps.
// An RNIC takes the message, and its target waits; soft0 does not even take it.
struct Arrival {
    static ucs_status_t handler(void *arg, void*, size_t, unsigned)
    {
        auto *self = static_cast<Arrival*>(arg);

        ++self->count;
        self->seen = *self->word;
        return UCS_OK;
    }

    const volatile uint64_t *word;
    unsigned                count = 0;
    uint64_t                seen  = 0;
};

TEST(SleepModes, FenceHoldsMessagesBack)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        SleepCase sleep(rank, {});
        Node &node       = sleep.node;
        Arrival arrival  = {(const uint64_t*)sleep.area.at()};
        uint64_t value   = 99;
        bool is_sent     = false;

        auto message = [&]() {
            return uct_ep_am_short(node.ep->ep, 5, 0, nullptr, 0);
        };
        node.iface.on_am(5, Arrival::handler, &arrival);
        sleep.run([&]() {
            ASSERT_EQ(UCS_OK, node.post("a slow put", [&]() {
                return uct_ep_put_short(node.ep->ep, &value, sizeof(value),
                                        sleep.remote.address,
                                        sleep.remote.rkey());
            }));
            check(uct_ep_fence(node.ep->ep, 0), "uct_ep_fence");
            if (is_soft()) {
                sleep.expect_refused("a message behind the fence", message);
            } else {
                is_sent = (message() == UCS_OK);
            }
        }, [&]() {
            if (!is_sent) {
                EXPECT_EQ(UCS_OK, node.post("room", message));
            }
        });
        if (rank.target()) {
            node.until("the message", [&]() { return arrival.count > 0; });
            EXPECT_EQ(1u, arrival.count);
            EXPECT_EQ(99u, arrival.seen);
            EXPECT_EQ(99u, *(uint64_t*)sleep.area.at());
        }
        node.sync();
    });
}

// Many small puts that nobody flushes, each to a page that is absent.
enum class Poster { Progresses, Stops };

class NoFlush : public testing::TestWithParam<std::tuple<Poster, RmaKind>> {
};

TEST_P(NoFlush, PutsArriveInTheEnd)
{
    Poster poster = std::get<0>(GetParam());
    RmaKind kind  = std::get<1>(GetParam());

    run_ranks([=](Rank &rank) {
        nprdma_only();
        const size_t count = 2000;
        Node node(rank);
        Area area(count * PAGE);
        SharedArea shared(node.domain, area);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));
        Growth growth;

        node.sync();
        for (uint64_t i = 0; rank.initiator() && (i < count); ++i) {
            uint64_t value = i + 1;
            ASSERT_LE(UCS_OK, node.post("room", [&]() {
                return rma_post(node, kind, (uint8_t*)&value,
                                UCT_MEM_HANDLE_NULL, sizeof(value),
                                remote.address + i * PAGE + 8 * (i % 500),
                                remote.rkey(), nullptr);
            }));
        }
        if (rank.initiator() && (poster == Poster::Stops)) {
            rank.oob.progress_with(nullptr);
        }
        for (uint64_t i = 0; rank.target() && (i < count); ++i) {
            auto *word = (const uint64_t*)area.at(i * PAGE + 8 * (i % 500));
            node.until("a put without a flush", [&]() {
                return __atomic_load_n(word, __ATOMIC_ACQUIRE) == i + 1;
            });
        }
        rank.oob.exchange("");
        if (rank.initiator()) {
            if (counts_faults()) {
                EXPECT_GE(growth.of(&C::remote_faults), count);
            }
            rank.oob.progress_with([&]() { return node.domain.progress(); });
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, NoFlush,
        testing::Combine(testing::Values(Poster::Progresses, Poster::Stops),
                         testing::Values(RmaKind::PutShort,
                                         RmaKind::PutBcopy)),
        [](const testing::TestParamInfo<NoFlush::ParamType> &info) {
            return name_of(std::get<1>(info.param)) +
                   ((std::get<0>(info.param) == Poster::Stops) ?
                    "Stops" : "Progresses");
        });

// Transfers of all words of some pages that take their time. Only so many are taken
// at a time, and those that had to wait find the pages there.
class Crowd : public testing::TestWithParam<RmaKind> {
};

TEST_P(Crowd, IsBoundedAndFindsWhatOthersAskedFor)
{
    RmaKind kind = GetParam();

    run_ranks([=](Rank &rank) {
        nprdma_only();
        constexpr size_t WORD   = sizeof(uint64_t);
        constexpr size_t COUNT  = SLEEPY / WORD;
        constexpr size_t BOUND  = 256; // more than any device takes
        // requests for a page under way at a time; of a device that reads
        // views, and finds them absent later, all that may be in flight
        constexpr size_t ASKING = 16;
        const size_t most       = is_soft() ? ASKING : 128;
        SleepCase sleepy(rank, {});
        std::vector<Comp> comps(COUNT);
        size_t taken = 0, open = 0;
        Growth growth;

        pattern_fill(sleepy.local.at(), SLEEPY, 3);
        auto post = [&]() {
            return rma_post(sleepy.node, kind, sleepy.local.at(taken * WORD),
                            UCT_MEM_HANDLE_NULL, WORD,
                            sleepy.remote.address + taken * WORD,
                            sleepy.remote.rkey(), &comps[taken]);
        };
        auto count = [&](ssize_t ret) {
            ASSERT_LE(UCS_OK, ret);
            open += (ret == UCS_INPROGRESS);
            ++taken;
        };

        sleepy.run([&]() {
            ssize_t ret = UCS_OK;
            while ((taken < COUNT) &&
                   ((ret = post()) != UCS_ERR_NO_RESOURCE)) {
                count(ret);
            }
            EXPECT_GE(taken, ASKING);
            EXPECT_LE(taken, BOUND);
        }, [&]() {
            while (taken < COUNT) {
                count(sleepy.node.post("room", post));
            }
            sleepy.node.flush();
            for (auto &comp : comps) {
                open -= comp.calls;
                EXPECT_EQ(UCS_OK, comp.status);
            }
            EXPECT_EQ(0u, open);
            EXPECT_LE(growth.of(&C::remote_faults), SLEEPY / PAGE * most);
            if (!rma_is_put(kind)) {
                expect_none("what was got",
                            pattern_diff(sleepy.local.at(), SLEEPY, 1));
            }
        });
        if (rank.target()) {
            expect_none("the target's memory",
                        pattern_diff(sleepy.area.at(), SLEEPY,
                                     rma_is_put(kind) ? 3 : 1));
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Crowd,
        testing::Values(RmaKind::PutZcopy, RmaKind::GetBcopy,
                        RmaKind::GetZcopy),
        [](const testing::TestParamInfo<RmaKind> &info) {
            return name_of(info.param);
        });

} // namespace
