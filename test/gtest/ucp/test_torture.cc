// SPDX-License-Identifier: BSD-3-Clause
// Transfers in a program that does everything else with its memory meanwhile:
// threads that allocate, map, move and fork, and signals of its own.
//
// NPRDMA_TORTURE_SECONDS: how long each test takes (2). Stock's transports take
// part with UCX_TLS; RDMA devices with NPRDMA_TEST_DEV.
#include "ucp_face.h"

#include "torture.h"

#include "../harness/paging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

using namespace nt;

namespace {

constexpr size_t    LARGEST = 4 << 20;
constexpr size_t    WINDOW  = 8;
constexpr ucp_tag_t ALL     = ~(ucp_tag_t)0;

// Devices are emulated ones, on machines that are: all is slow there.
bool is_rdma()
{
    return is_nprdma() && !is_soft();
}

double seconds()
{
    const char *value = getenv("NPRDMA_TORTURE_SECONDS");

    return (value == nullptr) ? 2 : atof(value);
}

// Memory of a transfer: new, or used again and again; gone with the object.
class Buffer {
public:
    Buffer(Random &random, size_t length, uint8_t *reused) : m_length(length)
    {
        m_kind = random.below(3);
        if (m_kind == MAPPED) {
            m_base = map(m_length + PAGE);
            data   = m_base + random.below(PAGE);
        } else if (m_kind == HEAP) {
            m_base = static_cast<uint8_t*>(malloc(length + 1));
            data   = m_base + random.below(2);
        } else {
            data = reused + random.below(PAGE);
        }
    }
    ~Buffer()
    {
        if (std::uncaught_exceptions() > 0) {
            return; // its transfer may be under way
        }
        if (m_kind == MAPPED) {
            munmap(m_base, m_length + PAGE);
        } else if (m_kind == HEAP) {
            free(m_base);
        }
    }
    Buffer(const Buffer&) = delete;

    uint8_t *data;

private:
    enum { MAPPED, HEAP, REUSED };

    static uint8_t *map(size_t length)
    {
        void *base = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (base == MAP_FAILED) {
            throw Failed("mmap");
        }
        return static_cast<uint8_t*>(base);
    }

    size_t   m_length;
    unsigned m_kind;
    uint8_t  *m_base = nullptr;
};

// What one thread of each rank does with that of the other. Both throw the same
// dice (`common`) for what is done, and their own for how.
class Traffic {
public:
    Traffic(UcpNode &node, uint64_t number) :
        m_node(node), m_number(number), m_common(number),
        m_own(1000 + 10 * number + node.rank.id),
        m_largest(is_rdma() ? LARGEST / 16 : LARGEST),
        m_reused(2 * WINDOW * SLOT), m_window(node, 2 * LARGEST, number & 1)
    {
    }

    void meet()
    {
        m_remote = std::make_unique<UcpRemote>(
                m_node.ep, m_node.rank.oob.exchange(m_window.describe()));
    }

    void run(double deadline, bool with_streams)
    {
        while (goes_on(deadline)) {
            unsigned what = m_common.below(8);

            if (what < 5) {
                messages();
            } else if ((what == 5) && with_streams) {
                stream();
            } else {
                one_sided();
            }
            ++rounds;
        }
    }

    uint64_t rounds = 0;
    uint64_t bytes  = 0;

private:
    static constexpr size_t SLOT = LARGEST + PAGE;

    struct Message {
        size_t                  length;
        std::unique_ptr<Buffer> from, to;
        ucs_status_ptr_t        send = nullptr, receive = nullptr;
    };

    ucp_tag_t tag(unsigned i) const { return (m_number << 32) | i; }

    // As many of a few bytes as of some megabytes
    size_t length()
    {
        size_t most = size_t(1) << (1 + m_common.below(22));

        return std::min(m_largest, most / 2 + 1 + m_common.below(most));
    }

    std::unique_ptr<Buffer> buffer(size_t length, size_t slot)
    {
        return std::make_unique<Buffer>(m_own, length, &m_reused[slot * SLOT]);
    }

    uint64_t seed(int rank, size_t i) const
    {
        return (rounds * 100 + i) * 2 + rank;
    }

    int other() const { return 1 - m_node.rank.id; }

    void wait(ucs_status_ptr_t request, const char *what)
    {
        m_node.finish(request, what);
    }

    // A word to the other rank and one from it.
    uint64_t exchange(uint64_t mine)
    {
        uint64_t theirs;
        ucs_status_ptr_t receive = ucp_tag_recv_nbx(
                m_node.worker, &theirs, sizeof(theirs), tag(1000), ALL,
                &no_params());

        wait(ucp_tag_send_nbx(m_node.ep, &mine, sizeof(mine), tag(1000),
                              &no_params()), "send of a word");
        wait(receive, "a word");
        return theirs;
    }

    bool goes_on(double deadline)
    {
        bool mine = (now() < deadline) && !testing::Test::HasFailure();

        return exchange(mine) && mine;
    }

    void post_receives(std::vector<Message> &messages)
    {
        for (size_t i = 0; i < messages.size(); ++i) {
            messages[i].to      = buffer(messages[i].length, i);
            messages[i].receive = ucp_tag_recv_nbx(
                    m_node.worker, messages[i].to->data, messages[i].length,
                    tag(i), ALL, &no_params());
        }
    }

    void post_sends(std::vector<Message> &messages)
    {
        for (size_t i = 0; i < messages.size(); ++i) {
            size_t length    = messages[i].length;
            messages[i].from = buffer(length, WINDOW + i);
            pattern_fill(messages[i].from->data, length,
                         seed(m_node.rank.id, i));
            messages[i].send = ucp_tag_send_nbx(m_node.ep,
                                                messages[i].from->data, length,
                                                tag(i), &no_params());
        }
    }

    // Memory goes as soon as its transfer is over, while others are under way.
    void end(Message &message, size_t i)
    {
        wait(message.receive, "receive");
        EXPECT_EQ("", pattern_diff(message.to->data, message.length,
                                   seed(other(), i)))
                << message.length << " bytes, round " << rounds;
        message.to.reset();
        wait(message.send, "send");
        EXPECT_EQ("", pattern_diff(message.from->data, message.length,
                                   seed(m_node.rank.id, i))) << "source";
        message.from.reset();
        bytes += message.length;
    }

    void messages()
    {
        std::vector<Message> messages(1 + m_common.below(WINDOW));
        bool expected = m_common.below(2) == 0;
        Buffer unused(m_own, LARGEST, &m_reused[0]);
        ucs_status_ptr_t cancelled = nullptr;

        for (Message &message : messages) {
            message.length = length();
        }
        if (m_own.below(4) == 0) {
            cancelled = ucp_tag_recv_nbx(m_node.worker, unused.data, LARGEST,
                                         tag(2000), ALL, &no_params());
        }
        if (expected) {
            post_receives(messages);
            for (unsigned i = m_own.below(100); i > 0; --i) {
                m_node.progress();
            }
            exchange(0);
            post_sends(messages);
        } else {
            post_sends(messages);
            exchange(0);
            post_receives(messages);
        }
        if (cancelled != nullptr) {
            ucp_request_cancel(m_node.worker, cancelled);
            EXPECT_EQ(UCS_ERR_CANCELED, m_node.wait(cancelled, "cancel"));
        }
        for (size_t i = 0; i < messages.size(); ++i) {
            end(messages[i], i);
        }
    }

    void flush()
    {
        wait(ucp_ep_flush_nbx(m_node.ep, &no_params()), "flush");
    }

    // A put into the first half of the window, and a get from the second.
    void one_sided()
    {
        size_t length = this->length();
        size_t at     = m_common.below(LARGEST - length + 1);
        auto from = buffer(length, 0), to = buffer(length, 1);

        pattern_fill(from->data, length, seed(m_node.rank.id, 0));
        pattern_fill(m_window.at(LARGEST + at), length,
                     seed(m_node.rank.id, 1));
        exchange(0);
        ucs_status_ptr_t put = ucp_put_nbx(m_node.ep, from->data, length,
                                           m_remote->address + at,
                                           m_remote->rkey, &no_params());
        ucs_status_ptr_t get = ucp_get_nbx(m_node.ep, to->data, length,
                                           m_remote->address + LARGEST + at,
                                           m_remote->rkey, &no_params());
        wait(get, "get");
        EXPECT_EQ("", pattern_diff(to->data, length, seed(other(), 1)))
                << "get of " << length << " bytes, round " << rounds;
        wait(put, "put");
        from.reset();
        flush();
        exchange(0);
        EXPECT_EQ("", pattern_diff(m_window.at(at), length, seed(other(), 0)))
                << "put of " << length << " bytes, round " << rounds;
        bytes += 2 * length;
    }

    void stream()
    {
        size_t length = this->length(), got = 0;
        auto from = buffer(length, 0), to = buffer(length, 1);
        ucp_request_param_t all = {};

        all.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        all.flags        = UCP_STREAM_RECV_FLAG_WAITALL;
        pattern_fill(from->data, length, seed(m_node.rank.id, 0));
        ucs_status_ptr_t receive = ucp_stream_recv_nbx(
                m_node.ep, to->data, length, &got, &all);
        wait(ucp_stream_send_nbx(m_node.ep, from->data, length, &no_params()),
             "send of a stream");
        from.reset();
        wait(receive, "stream");
        EXPECT_EQ("", pattern_diff(to->data, length, seed(other(), 0)))
                << "stream of " << length << " bytes, round " << rounds;
        bytes += length;
    }

    UcpNode                    &m_node;
    const uint64_t             m_number;
    Random                     m_common, m_own;
    const size_t               m_largest;
    std::vector<uint8_t>       m_reused;
    UcpMem                     m_window;
    std::unique_ptr<UcpRemote> m_remote;
};

struct TortureParam {
    const char *name;
    const char *protocols;
    const char *prepare;
    unsigned   threads; // that have traffic
};

class MemoryTorture : public testing::TestWithParam<TortureParam> {
protected:
    static void traffic_of_threads(UcpNode &node, unsigned count)
    {
        std::vector<std::unique_ptr<Traffic>> traffic;
        std::vector<std::thread> threads;

        for (unsigned i = 0; i < count; ++i) {
            traffic.push_back(std::make_unique<Traffic>(node, i));
            traffic[i]->meet();
        }
        double deadline = now() + seconds();
        for (unsigned i = 1; i < count; ++i) {
            threads.emplace_back([&, i]() {
                try {
                    traffic[i]->run(deadline, false);
                } catch (const std::exception &error) {
                    ADD_FAILURE() << error.what();
                }
            });
        }
        try {
            traffic[0]->run(deadline, true);
        } catch (const std::exception &error) {
            ADD_FAILURE() << error.what();
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        for (auto &one : traffic) {
            printf("# rank %d: %zu rounds, %zu MiB\n", node.rank.id,
                   size_t(one->rounds), size_t(one->bytes >> 20));
            EXPECT_GT(one->rounds, 0u);
        }
        node.sync();
    }
};

TEST_P(MemoryTorture, Memory)
{
    TortureParam param = GetParam();
    RunOptions options;

    options.limit = seconds() + 3 * patience();
    run_ranks([=](Rank &rank) {
        UcpOptions features = {UCP_FEATURE_TAG | UCP_FEATURE_RMA |
                               UCP_FEATURE_STREAM};

        use_protocols(param.protocols);
        setenv("UCX_NPRDMA_PREPARE", param.prepare, 1);
        setenv("UCX_NPRDMA_PREPARE_MIN", "4k", 1);
        features.threads = (param.threads > 1) ? UCS_THREAD_MODE_MULTI :
                                                 UCS_THREAD_MODE_SINGLE;
        UcpNode node(rank, features);
        std::unique_ptr<Growth> growth;
        if (is_soft()) {
            growth = std::make_unique<Growth>();
        }
        Torture torture(rank.id, is_rdma() ? 10000 : 200);
        traffic_of_threads(node, param.threads);
        EXPECT_EQ("", torture.stop());
        if (growth != nullptr) {
            EXPECT_EQ(std::string("both") == param.prepare,
                      growth->of(&nprdma_counters_t::prepared) > 0);
        }
    }, options);
}

INSTANTIATE_TEST_SUITE_P(
        Ucp, MemoryTorture,
        testing::Values(TortureParam{"OldOff", "n", "off", 1},
                        TortureParam{"OldBoth", "n", "both", 1},
                        TortureParam{"NewOff", "y", "off", 1},
                        TortureParam{"NewBoth", "y", "both", 1},
                        TortureParam{"TwoThreads", "n", "both", 2}),
        [](const testing::TestParamInfo<TortureParam> &info) {
            return std::string(info.param.name);
        });

} // namespace
