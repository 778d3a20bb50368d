// SPDX-License-Identifier: BSD-3-Clause
// Active messages of UCP: eager and rendezvous, with headers and replies.
#include "ucp_face.h"

#include <cstring>
#include <deque>

using namespace nt;

namespace {

constexpr size_t LARGEST   = 4 << 20;
constexpr unsigned AM_ID   = 7;
constexpr unsigned REPLY   = 8;

// Receives messages [header: number, pattern][data: the number's pattern].
class Mailbox {
public:
    Mailbox(UcpNode &node, bool keep) : m_node(node), m_keep(keep)
    {
        ucp_am_handler_param_t params = {};

        params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                            UCP_AM_HANDLER_PARAM_FIELD_CB |
                            UCP_AM_HANDLER_PARAM_FIELD_ARG |
                            UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        params.id         = AM_ID;
        params.flags      = keep ? UCP_AM_FLAG_PERSISTENT_DATA : 0;
        params.cb         = handler;
        params.arg        = this;
        check(ucp_worker_set_am_recv_handler(node.worker, &params),
              "ucp_worker_set_am_recv_handler");
    }

    // Until `count` messages at least came and were looked at.
    void wait(size_t count)
    {
        m_node.until("active messages", [&]() {
            fetch();
            return (m_done >= count) || !error.empty();
        });
        EXPECT_EQ("", error);
    }

    size_t received() const { return m_done; }
    size_t rendezvous() const { return m_rendezvous; }

    std::string error;

private:
    struct Kept {
        uint64_t             number;
        void                 *desc;
        size_t               length;
        bool                 is_data;
        ucs_status_ptr_t     request;
        std::vector<uint8_t> buffer;
    };

    void look(uint64_t number, const void *data, size_t length)
    {
        std::string diff = pattern_diff(data, length, number);

        ++m_done;
        if (error.empty() && !diff.empty()) {
            error = "message " + std::to_string(number) + ": " + diff;
        }
    }

    static ucs_status_t handler(void *arg, const void *header,
                                size_t header_length, void *data,
                                size_t length, const ucp_am_recv_param_t *param)
    {
        auto *self = static_cast<Mailbox*>(arg);
        uint64_t number;

        if (header_length < sizeof(number)) {
            self->error = "a header is too short";
            return UCS_OK;
        }
        memcpy(&number, header, sizeof(number));
        std::string diff = pattern_diff((const uint8_t*)header +
                                        sizeof(number),
                                        header_length - sizeof(number),
                                        number + 1);
        if (self->error.empty() && !diff.empty()) {
            self->error = "header " + std::to_string(number) + ": " + diff;
        }

        bool rndv = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
        bool desc = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA;
        self->m_rendezvous += rndv;
        if (rndv || (desc && self->m_keep)) {
            self->m_kept.push_back({number, data, length, !rndv, nullptr,
                                    std::vector<uint8_t>()});
            return UCS_INPROGRESS;
        }
        self->look(number, data, length);
        return UCS_OK;
    }

    // Receive the data of what was kept, outside of the handler.
    void fetch()
    {
        while (!m_kept.empty()) {
            Kept kept = std::move(m_kept.front());
            m_kept.pop_front();
            if (kept.is_data) {
                look(kept.number, kept.desc, kept.length);
                ucp_am_data_release(m_node.worker, kept.desc);
                continue;
            }
            kept.buffer.resize(Guarded::space(kept.length));
            Guarded to(kept.buffer.data(), kept.length);
            m_node.finish(ucp_am_recv_data_nbx(m_node.worker, kept.desc,
                                               to.data(), kept.length,
                                               &no_params()),
                          "data of a rendezvous");
            look(kept.number, to.data(), kept.length);
            to.fill(2);
            EXPECT_EQ("", to.diff(2)); // around
        }
    }

    UcpNode          &m_node;
    bool             m_keep;
    size_t           m_done       = 0;
    size_t           m_rendezvous = 0;
    std::deque<Kept> m_kept;
};

class ActiveMessage : public testing::TestWithParam<Mode> {
protected:
    struct Sent {
        std::vector<uint8_t> header, data;
        ucs_status_ptr_t     request;
    };

    // The data stay where they are until the request is finished.
    static void send(UcpNode &node, std::deque<Sent> &sent, uint64_t number,
                     size_t header_length, size_t length, unsigned flags)
    {
        ucp_request_param_t params = {};

        sent.emplace_back();
        Sent &last = sent.back();
        last.header.resize(sizeof(number) + header_length);
        last.data.resize(length);
        memcpy(last.header.data(), &number, sizeof(number));
        pattern_fill(last.header.data() + sizeof(number), header_length,
                     number + 1);
        pattern_fill(last.data.data(), length, number);
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags        = flags;
        last.request        = ucp_am_send_nbx(node.ep, AM_ID,
                                              last.header.data(),
                                              last.header.size(),
                                              last.data.data(), length,
                                              &params);
    }

    static void finish(UcpNode &node, std::deque<Sent> &sent)
    {
        for (const Sent &one : sent) {
            node.finish(one.request, "send");
        }
        sent.clear();
    }

    static void every_size(Rank &rank, unsigned flags, bool keep,
                           size_t largest)
    {
        UcpNode node(rank, {UCP_FEATURE_AM});
        Mailbox mailbox(node, keep);
        std::deque<Sent> sent;
        uint64_t number = 0;

        node.sync();
        for (size_t length : sizes_around(largest)) {
            if ((length == 0) && (flags & UCP_AM_SEND_FLAG_RNDV)) {
                continue; // receiving no bytes leaks in UCX 1.13
            }
            for (size_t header : {0, 24}) {
                ++number;
                if (rank.initiator()) {
                    send(node, sent, number, header, length, flags);
                }
                if (rank.target() && (number % 4 == 0)) {
                    mailbox.wait(number);
                }
            }
        }
        if (rank.target()) {
            mailbox.wait(number);
        }
        finish(node, sent);
        node.sync();
        EXPECT_EQ(rank.target() ? number : 0, mailbox.received());
        if (rank.target() && (flags & UCP_AM_SEND_FLAG_RNDV)) {
            EXPECT_EQ(number, mailbox.rendezvous());
        } else if (rank.target() && (flags & UCP_AM_SEND_FLAG_EAGER)) {
            EXPECT_EQ(0u, mailbox.rendezvous());
        }
    }
};

TEST_P(ActiveMessage, EverySize)
{
    GetParam().run([](Rank &rank) { every_size(rank, 0, false, LARGEST); });
}

TEST_P(ActiveMessage, EverySizeEager)
{
    GetParam().run([](Rank &rank) {
        every_size(rank, UCP_AM_SEND_FLAG_EAGER, false, 300000);
    });
}

TEST_P(ActiveMessage, EverySizeRendezvous)
{
    GetParam().run([](Rank &rank) {
        every_size(rank, UCP_AM_SEND_FLAG_RNDV, false, LARGEST);
    });
}

TEST_P(ActiveMessage, KeptData)
{
    GetParam().run([](Rank &rank) { every_size(rank, 0, true, 300000); });
}

// The receiver answers on the endpoint that it is told.
TEST_P(ActiveMessage, Reply)
{
    GetParam().run([](Rank &rank) {
        struct Counts {
            UcpNode  *node;
            uint64_t asked, answered;
            std::deque<ucs_status_ptr_t> replies;
        };
        const uint64_t count = 2000;
        UcpNode node(rank, {UCP_FEATURE_AM});
        Counts counts = {&node, 0, 0, {}};
        ucp_am_handler_param_t params = {};
        ucp_request_param_t reply_wanted = {};

        params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                            UCP_AM_HANDLER_PARAM_FIELD_CB |
                            UCP_AM_HANDLER_PARAM_FIELD_ARG;
        params.arg        = &counts;
        params.id         = AM_ID;
        params.cb         = [](void *arg, const void*, size_t, void*, size_t,
                               const ucp_am_recv_param_t *param) {
            auto *counts = static_cast<Counts*>(arg);
            ++counts->asked;
            EXPECT_TRUE(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP);
            counts->replies.push_back(
                    ucp_am_send_nbx(param->reply_ep, REPLY, nullptr, 0,
                                    nullptr, 0, &no_params()));
            return UCS_OK;
        };
        check(ucp_worker_set_am_recv_handler(node.worker, &params),
              "ucp_worker_set_am_recv_handler");
        params.id = REPLY;
        params.cb = [](void *arg, const void*, size_t, void*, size_t,
                       const ucp_am_recv_param_t*) {
            ++static_cast<Counts*>(arg)->answered;
            return UCS_OK;
        };
        check(ucp_worker_set_am_recv_handler(node.worker, &params),
              "ucp_worker_set_am_recv_handler");
        node.sync();

        reply_wanted.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        reply_wanted.flags        = UCP_AM_SEND_FLAG_REPLY;
        for (uint64_t i = 0; i < count; ++i) {
            node.finish(ucp_am_send_nbx(node.ep, AM_ID, nullptr, 0, nullptr,
                                        0, &reply_wanted), "question");
        }
        node.until("all answers", [&]() {
            return (counts.asked == count) && (counts.answered == count);
        });
        for (ucs_status_ptr_t request : counts.replies) {
            node.finish(request, "answer");
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(Ucp, ActiveMessage,
                         testing::ValuesIn(all_modes(true)), mode_name);

} // namespace
