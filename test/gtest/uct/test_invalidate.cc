// SPDX-License-Identifier: BSD-3-Clause
// UCT_MD_MEM_DEREG_FLAG_INVALIDATE: when its completion has run the buffer is
// the program's alone, whatever peers were doing with it.
#include "paging_face.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <ucs/config/global_opts.h>
#include <uct/api/v2/uct_v2.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>

using namespace nt;

namespace {

using C = nprdma_counters_t;

// Nobody waits yet for what such a device has registered by itself.
const char NOT_OFFERED[] = "INVALIDATE is not offered where there are RNICs";

// Register a range, describe it, and invalidate it.
class Buffer {
public:
    Buffer(UctDomain &domain, uint8_t *address, size_t length) :
        m_domain(domain), m_address(address), m_length(length)
    {
    }

    ~Buffer()
    {
        if (m_memh != UCT_MEM_HANDLE_NULL) {
            uct_md_mem_dereg(m_domain.md, m_memh);
        }
    }

    std::string share() // for UctRemote
    {
        std::string key(m_domain.attr.rkey_packed_size, 0);
        uint64_t address = (uintptr_t)m_address;

        check(uct_md_mem_reg(m_domain.md, m_address, m_length,
                             UCT_MD_MEM_ACCESS_ALL, &m_memh),
              "uct_md_mem_reg");
        check(uct_md_mkey_pack(m_domain.md, m_memh, &key[0]),
              "uct_md_mkey_pack");
        return std::string((const char*)&address, sizeof(address)) + key;
    }

    void invalidate()
    {
        uct_md_mem_dereg_params_t params = {};
        Comp comp;

        params.field_mask = UCT_MD_MEM_DEREG_FIELD_MEMH |
                            UCT_MD_MEM_DEREG_FIELD_FLAGS |
                            UCT_MD_MEM_DEREG_FIELD_COMPLETION;
        params.flags      = UCT_MD_MEM_DEREG_FLAG_INVALIDATE;
        params.memh       = m_memh;
        params.comp       = &comp;
        check(uct_md_mem_dereg_v2(m_domain.md, &params),
              "uct_md_mem_dereg_v2");
        m_memh = UCT_MEM_HANDLE_NULL;
        wait_until("invalidation", [this]() { return m_domain.progress(); },
                   [&]() { return comp.calls > 0; });
        EXPECT_EQ(1u, comp.calls);
        EXPECT_EQ(UCS_OK, comp.status);
    }

private:
    UctDomain &m_domain;
    uint8_t   *m_address;
    size_t    m_length;
    uct_mem_h m_memh = UCT_MEM_HANDLE_NULL;
};

struct Traffic {
    const char *name;
    const char *single_copy;
    const char *share_min;   // both ranks copy from this size on
    RmaKind    kind;
    size_t     length;
    bool       is_absent;    // its pages turn absent all the time
};

class Invalidate : public testing::TestWithParam<Traffic> {
};

Settings settings_of(const Traffic &traffic)
{
    return {{"MR_SCOPE", "exact"},
            {"SINGLE_COPY", traffic.single_copy},
            {"SHARE_MIN", traffic.share_min}};
}

// Rank 0 puts as fast as it can until it is refused, through a new endpoint
// each time: what has no completion ends it.
void disturb(Node &node, const std::string &address, const Traffic &traffic,
             const std::string &key, uint8_t *source)
{
    UctRemote remote(node.domain, key);
    unsigned done = 0;
    std::atomic<bool> is_refused(false);

    node.ep           = std::make_unique<UctEp>(node.iface, address);
    node.iface.errors = 0;
    while (!is_refused) {
        Comp comp;
        ssize_t ret = node.post("room", [&]() {
            return (node.iface.errors > 0) ? (ssize_t)UCS_ERR_CANCELED :
                   rma_post(node, traffic.kind, source, UCT_MEM_HANDLE_NULL,
                            traffic.length, remote.address + 100,
                            remote.rkey(), &comp);
        });
        if (ret == UCS_INPROGRESS) {
            node.until("the end", [&]() { return comp.calls > 0; });
            ret = comp.status;
        }
        if (++done == 2) {
            node.rank.oob.send("under way");
        }
        is_refused = (ret < 0) || (node.iface.errors > 0);
        node.domain.progress();
    }
    if (done < 2) {
        node.rank.oob.send("refused at once");
    }
}

// Rank 1 takes its buffer away in the middle of that, and then it is its own.
void own_again(Node &node, const Traffic &traffic, Buffer &buffer,
               uint8_t *data, size_t length, unsigned round)
{
    node.rank.oob.recv();
    for (unsigned i = 0; i < (round * 37) % 500; ++i) {
        if (traffic.is_absent) {
            turn_absent(data, length);
        }
        node.domain.progress();
    }

    buffer.invalidate();
    pattern_fill(data, length, 1000 + round);
    for (int i = 0; i < 200; ++i) {
        node.domain.progress();
    }
}

TEST_P(Invalidate, AmidTraffic)
{
    Traffic traffic = GetParam();

    run_ranks([=](Rank &rank) {
        soft_only(NOT_OFFERED);
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        constexpr unsigned ROUNDS = 60;
        Node node(rank, {}, settings_of(traffic));
        std::string address = rank.oob.exchange(node.iface.address);
        size_t length       = traffic.length + PAGE;
        Area area(length + PAGE);
        UctMem source(node.domain, MemKind::Local, traffic.length);
        Buffer buffer(node.domain, area.at(), length);

        pattern_fill(source.at(), traffic.length, 7);
        for (unsigned round = 0; round < ROUNDS; ++round) {
            if (rank.target()) {
                pattern_fill(area.at(), length, round);
                rank.oob.send(buffer.share());
                own_again(node, traffic, buffer, area.at(), length, round);
                node.sync();
                EXPECT_EQ("", pattern_diff(area.at(), length, 1000 + round))
                        << "round " << round;
            } else {
                disturb(node, address, traffic, rank.oob.recv(), source.at());
                node.sync();
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Invalidate,
        testing::Values(
                Traffic{"Word", "auto", "inf", RmaKind::PutShort, 8, false},
                Traffic{"WordAbsent", "auto", "inf", RmaKind::PutShort, 8,
                        true},
                Traffic{"Bcopy", "auto", "inf", RmaKind::PutBcopy, 5000, true},
                Traffic{"Zcopy", "auto", "inf", RmaKind::PutZcopy, 100000,
                        false},
                Traffic{"ZcopyAbsent", "auto", "inf", RmaKind::PutZcopy,
                        100000, true},
                Traffic{"Large", "auto", "inf", RmaKind::PutZcopy, 3000000,
                        false},
                Traffic{"Shared", "auto", "64k", RmaKind::PutZcopy, 3000000,
                        false},
                Traffic{"SharedAbsent", "auto", "64k", RmaKind::PutZcopy,
                        3000000, true},
                Traffic{"RingsWord", "off", "inf", RmaKind::PutShort, 8,
                        false},
                Traffic{"Rings", "off", "inf", RmaKind::PutZcopy, 100000,
                        false},
                Traffic{"RingsAbsent", "off", "inf", RmaKind::PutZcopy, 100000,
                        true}),
        [](const testing::TestParamInfo<Traffic> &info) {
            return std::string(info.param.name);
        });

// Reads: what a peer gets is from before, whole, or an error.
TEST(InvalidateReads, AreFromBefore)
{
    run_ranks([](Rank &rank) {
        soft_only(NOT_OFFERED);
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        constexpr size_t LENGTH = 200000;
        Node node(rank, {}, {{"MR_SCOPE", "exact"}});
        Area area(LENGTH + PAGE);
        UctMem sink(node.domain, MemKind::Local, LENGTH);
        Buffer buffer(node.domain, area.at(), LENGTH);

        for (unsigned round = 0; round < 60; ++round) {
            if (rank.target()) {
                pattern_fill(area.at(), LENGTH, round);
                rank.oob.send(buffer.share());
                rank.oob.recv();
                for (unsigned i = 0; i < (round * 37) % 300; ++i) {
                    node.domain.progress();
                }
                buffer.invalidate();
                pattern_fill(area.at(), LENGTH, 1000 + round);
            } else {
                UctRemote remote(node.domain, rank.oob.recv());
                ucs_status_t status;
                unsigned done = 0;

                do {
                    status = rma_settle(node, RmaKind::GetZcopy, sink.at(),
                                        LENGTH, remote.address, remote.rkey());
                    if (status == UCS_OK) {
                        ASSERT_EQ("", pattern_diff(sink.at(), LENGTH, round));
                    }
                    if (++done == 1) {
                        rank.oob.send("under way");
                    }
                } while (status == UCS_OK);
                EXPECT_EQ(UCS_ERR_INVALID_ADDR, status);
                EXPECT_EQ(0u, node.iface.errors);
            }
            node.sync();
        }
    });
}

// A request whose page sleeps in a swapper.
struct Sleeper {
    const char *name;
    const char *single_copy;
    const char *fault_mode;
    size_t     length;       // of a put; 0: an atomic
    bool       has_neighbour; // another registration in its first page
};

class InvalidateSleeping : public testing::TestWithParam<Sleeper> {
};

// Put, or add to a word; what it ends with.
ucs_status_t sleep_in(Node &node, const Sleeper &sleeper, UctMem &source,
                      const UctRemote &remote)
{
    uint64_t result;
    Comp comp;
    ssize_t ret;

    if (sleeper.length > 0) {
        return rma_settle(node, RmaKind::PutZcopy, source.at(),
                          sleeper.length, remote.address, remote.rkey());
    }

    ret = node.post("room", [&]() {
        return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                     &result, remote.address, remote.rkey(),
                                     &comp);
    });
    if (ret == UCS_INPROGRESS) {
        node.until("the end", [&]() { return comp.calls > 0; });
        ret = comp.status;
    }
    return (ucs_status_t)ret;
}

// It does not hold the program up, and is refused when it wakes.
TEST_P(InvalidateSleeping, RequestIsRefused)
{
    const Sleeper sleeper = GetParam();

    run_ranks([=](Rank &rank) {
        soft_only(NOT_OFFERED);
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        constexpr size_t LENGTH = 4 * PAGE;
        Node node(rank, {}, {{"MR_SCOPE", "exact"},
                             {"SINGLE_COPY", sleeper.single_copy},
                             {"FAULT_MODE", sleeper.fault_mode}});
        Area area(LENGTH);
        UctMem source(node.domain, MemKind::Local, LENGTH);
        Buffer buffer(node.domain, area.at(),
                      (sleeper.length > 0) ? sleeper.length : 8);
        Buffer neighbour(node.domain, area.at(PAGE - 8), 8);

        struct Gate {
            std::mutex              lock;
            std::condition_variable changed;
            bool                    is_open = false;
            std::atomic<bool>       has_come{false};

            static int wait(void *arg, void*, size_t, int)
            {
                auto *self = static_cast<Gate*>(arg);
                std::unique_lock<std::mutex> lock(self->lock);

                self->has_come = true;
                self->changed.wait(lock, [self]() { return self->is_open; });
                return 0;
            }
        } gate;

        pattern_fill(source.at(), LENGTH, 7);
        if (rank.target()) {
            nprdma_swapper_t swapper = {Gate::wait, &gate};
            pattern_fill(area.at(), LENGTH, 1);
            ASSERT_EQ(0, nprdma_register_swapper(area.at(), LENGTH,
                                                 &swapper));
            rank.oob.send(buffer.share());
            if (sleeper.has_neighbour) {
                neighbour.share();
            }
            // Only service threads may sleep in it
            rank.oob.progress_with(nullptr);
            wait_until("a request", []() { return 0u; },
                       [&]() { return (bool)gate.has_come; });
            buffer.invalidate();
            pattern_fill(area.at(), LENGTH, 2);
            {
                std::lock_guard<std::mutex> lock(gate.lock);
                gate.is_open = true;
                gate.changed.notify_all();
            }
            rank.oob.progress_with([&]() { return node.domain.progress(); });
        } else {
            UctRemote remote(node.domain, rank.oob.recv());
            EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                      sleep_in(node, sleeper, source, remote));
            EXPECT_EQ(0u, node.iface.errors);
        }
        node.sync();
        if (rank.target()) {
            EXPECT_EQ("", pattern_diff(area.at(), LENGTH, 2));
            EXPECT_EQ(0, nprdma_unregister_swapper(area.at(), LENGTH));
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, InvalidateSleeping,
        testing::Values(
                Sleeper{"All", "auto", "reverse", 4 * PAGE, false},
                Sleeper{"Inline", "auto", "reverse", 1000, true},
                Sleeper{"Reverse", "auto", "reverse", 3000, true},
                Sleeper{"Retry", "auto", "retry", 3000, true},
                Sleeper{"Atomic", "auto", "reverse", 0, true},
                Sleeper{"AtomicRings", "off", "reverse", 0, true}),
        [](const testing::TestParamInfo<Sleeper> &info) {
            return std::string(info.param.name);
        });

// One range, registered many times, ended both ways in turn: while any of them
// is there its key is good, so all completions run at the end of the last.
TEST(InvalidateMany, OneRange)
{
    run_in(Topology::Loopback, [](Rank&) {
        soft_only(NOT_OFFERED);
        UctDomain domain(Settings{{"MR_SCOPE", "exact"}});
        UctIface iface(domain);
        std::vector<uint8_t> memory(1 << 20);
        uct_md_mem_dereg_params_t params = {};

        params.field_mask = UCT_MD_MEM_DEREG_FIELD_MEMH |
                            UCT_MD_MEM_DEREG_FIELD_FLAGS |
                            UCT_MD_MEM_DEREG_FIELD_COMPLETION;
        for (size_t count = 1; count < 200; ++count) {
            std::vector<uct_mem_h> memhs(count);
            Comp comp;

            comp.count  = (count + 1) / 2; // every other one
            params.comp = &comp;
            for (uct_mem_h &memh : memhs) {
                std::string key(domain.attr.rkey_packed_size + 1, 'x');
                check(uct_md_mem_reg(domain.md, memory.data(), memory.size(),
                                     UCT_MD_MEM_ACCESS_ALL, &memh),
                      "uct_md_mem_reg");
                check(uct_md_mkey_pack(domain.md, memh, &key[0]),
                      "uct_md_mkey_pack");
                EXPECT_EQ('x', key.back());
            }
            for (size_t i = 0; i < count; ++i) {
                EXPECT_EQ(0u, comp.calls);
                params.memh  = memhs[i];
                params.flags = ((i & 1) == 0) ?
                               UCT_MD_MEM_DEREG_FLAG_INVALIDATE : 0;
                check(uct_md_mem_dereg_v2(domain.md, &params),
                      "uct_md_mem_dereg_v2");
            }
            EXPECT_EQ(1u, comp.calls);
        }
    });
}

// Where the domain's flags do not offer it, who asks all the same gets the
// status that UCT has for that, and no error line.
TEST(InvalidateNotOffered, IsRefusedInSilence)
{
    run_in(Topology::Loopback, [](Rank&) {
        UctDomain domain;
        std::vector<uint8_t> memory(4096);
        uct_md_mem_dereg_params_t params = {};
        Comp comp;

        if (!is_nprdma() || (domain.attr.cap.flags & UCT_MD_FLAG_INVALIDATE)) {
            throw Skipped("it is offered, or is others'");
        }

        check(uct_md_mem_reg(domain.md, memory.data(), memory.size(),
                             UCT_MD_MEM_ACCESS_ALL, &params.memh),
              "uct_md_mem_reg");
        params.field_mask = UCT_MD_MEM_DEREG_FIELD_MEMH |
                            UCT_MD_MEM_DEREG_FIELD_FLAGS |
                            UCT_MD_MEM_DEREG_FIELD_COMPLETION;
        params.flags      = UCT_MD_MEM_DEREG_FLAG_INVALIDATE;
        params.comp       = &comp;
        testing::internal::CaptureStdout();
        EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                  uct_md_mem_dereg_v2(domain.md, &params));
        fflush(stdout);
        EXPECT_EQ("", testing::internal::GetCapturedStdout());
        EXPECT_EQ(0u, comp.calls);

        params.field_mask = UCT_MD_MEM_DEREG_FIELD_MEMH;
        check(uct_md_mem_dereg_v2(domain.md, &params), "uct_md_mem_dereg_v2");
    });
}

// A peer that is killed in the middle of a transfer is not waited for.
TEST(InvalidateDead, PeerIsNotWaitedFor)
{
    RunOptions options;

    options.peer_dies = true;
    run_ranks([](Rank &rank) {
        soft_only(NOT_OFFERED);
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        constexpr size_t LENGTH = 8 << 20;
        Node node(rank, {}, {{"MR_SCOPE", "exact"}, {"SHARE_MIN", "inf"}});
        Area area(LENGTH);
        UctMem source(node.domain, MemKind::Local, LENGTH);
        Buffer buffer(node.domain, area.at(), LENGTH);

        pattern_fill(source.at(), LENGTH, 7);
        if (rank.id == 0) { // the owner here
            memset(area.at(), 0, LENGTH);
            rank.oob.send(buffer.share());
            auto *last = (volatile uint8_t*)area.at(LENGTH - 1);
            node.until("the first put", [&]() { return *last != 0; });
            rank.oob.progress_with(nullptr);
            kill(rank.peer, SIGKILL);
            buffer.invalidate();
            pattern_fill(area.at(), LENGTH, 2);
            rank.oob.wait_peer_gone(rank.peer);
            EXPECT_EQ("", pattern_diff(area.at(), LENGTH, 2));
        } else {
            UctRemote remote(node.domain, rank.oob.recv());
            for (;;) {
                rma_settle(node, RmaKind::PutZcopy, source.at(), LENGTH,
                           remote.address, remote.rkey());
            }
        }
    }, options);
}

} // namespace
