// SPDX-License-Identifier: BSD-3-Clause
// Announced buffers whose transfer ends before, while or after they are brought
// in: the data is right, and what is not the transfer's is left alone.
#include "prepare_scene.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t LENGTH = 4 * MIB;

// Far from where the kernel puts mappings: nothing comes into a hole there.
constexpr uint64_t FAR = UINT64_C(0x200000000000);

// Progress calls from when a buffer is posted: none, some, and enough of them.
const int MOMENTS[] = {0, 5, 30, TURNS};

class PrepareEnds : public testing::TestWithParam<Mode> {
protected:
    static void run(const Body &body,
                    const std::vector<std::string> &settings = {})
    {
        GetParam().run([=](Rank &rank) {
            prepare_settings(settings);
            body(rank);
        });
    }
};

ucs_status_ptr_t post_send(UcpNode &node, const void *from, size_t length,
                           ucp_tag_t tag)
{
    return ucp_tag_send_nbx(node.ep, from, length, tag, &no_params());
}

ucs_status_ptr_t post_receive(UcpNode &node, void *to, size_t length,
                              ucp_tag_t tag)
{
    return ucp_tag_recv_nbx(node.worker, to, length, tag, ALL, &no_params());
}

// Until a message of that tag, and so all before it, wait for receives.
void look_for(UcpNode &node, ucp_tag_t tag)
{
    ucp_tag_recv_info_t info;

    node.until("unexpected message", [&]() {
        return ucp_tag_probe_nb(node.worker, tag, ALL, 0, &info) != nullptr;
    });
}

TEST_P(PrepareEnds, Truncated)
{
    run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});

        meet(node);
        for (bool expected : {true, false}) {
            for (int moment : MOMENTS) {
                Area from(LENGTH), to(LENGTH);
                ucs_status_ptr_t send = nullptr, receive = nullptr;
                size_t room = LENGTH / 2;

                if (expected && rank.target()) {
                    receive = post_receive(node, to.at(), room, 1);
                    turns(node, moment);
                }
                node.sync();
                if (rank.initiator()) {
                    pattern_fill(from.at(), LENGTH, 3);
                    send = post_send(node, from.at(), LENGTH, 1);
                    turns(node, moment);
                }
                if (!expected && rank.target()) {
                    receive = ucp_tag_msg_recv_nbx(node.worker, to.at(), room,
                                                   arrived(node, 1),
                                                   &no_params());
                }
                if (rank.target()) {
                    EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED,
                              node.wait(receive, "truncated receive"));
                    turns(node);
                    // neither written nor brought in
                    EXPECT_LE(resident(to, LENGTH), room / PAGE);
                    EXPECT_EQ(std::vector<uint8_t>(LENGTH - room),
                              std::vector<uint8_t>(to.at(room),
                                                   to.at(LENGTH)));
                }
                if (rank.initiator()) {
                    node.wait(send, "send of a truncated message");
                }
                node.sync();
            }
        }
    });
}

// The message goes to the next receive; the cancelled one's memory is the
// program's again, whatever it does with it.
TEST_P(PrepareEnds, Cancelled)
{
    run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        uint64_t seed = 0;

        meet(node);
        for (int moment : MOMENTS) {
            for (bool mapped_again : {false, true}) {
                Area from(LENGTH), to(LENGTH), cancelled(LENGTH);
                ucs_status_ptr_t send = nullptr, receive = nullptr;
                ucs_status_ptr_t none = nullptr;

                ++seed;
                pattern_fill(from.at(), LENGTH, seed);
                if (rank.target()) {
                    none    = post_receive(node, cancelled.at(), LENGTH, seed);
                    receive = post_receive(node, to.at(), LENGTH, seed);
                    turns(node, moment);
                    ucp_request_cancel(node.worker, none);
                    if (mapped_again) {
                        cancelled.map_again(MAP_PRIVATE | MAP_ANONYMOUS);
                    }
                    pattern_fill(cancelled.at(), LENGTH, 99);
                    EXPECT_EQ(UCS_ERR_CANCELED, node.wait(none, "cancel"));
                }
                node.sync();
                if (rank.initiator()) {
                    send = post_send(node, from.at(), LENGTH, seed);
                }
                if (rank.target()) {
                    node.finish(receive, "receive");
                    turns(node);
                    EXPECT_EQ("", pattern_diff(to.at(), LENGTH, seed));
                    EXPECT_EQ("", pattern_diff(cancelled.at(), LENGTH, 99));
                }
                if (rank.initiator()) {
                    node.finish(send, "send");
                }
                node.sync();
            }
        }
    });
}

// How a receive ends of whose buffer most waits to be brought in.
enum class End { Cancelled, Short, ShortInOwnMemory };

// Begin one that ends so; the request is UCP's, or in `own`.
ucs_status_ptr_t receive_that_ends(UcpNode &node, End end, const Area &to,
                                   std::vector<uint8_t> &own)
{
    ucp_context_attr_t attr = {};

    if (end != End::ShortInOwnMemory) {
        return post_receive(node, to.at(), to.length(), 1);
    }

    attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
    check(ucp_context_query(node.context, &attr), "ucp_context_query");
    own.assign(attr.request_size, 0);
    check(ucp_tag_recv_nbr(node.worker, to.at(), to.length(),
                           ucp_dt_make_contig(1), 1, ALL,
                           own.data() + own.size()), "ucp_tag_recv_nbr");
    return own.data() + own.size();
}

// Its memory is unmapped, and a sparse file is mapped there: none of it is
// allocated.
TEST_P(PrepareEnds, SparseFileIsLeftAlone)
{
    run([](Rank &rank) {
        const size_t room = 16 * MIB, length = 5000;
        UcpNode node(rank, {UCP_FEATURE_TAG});
        std::vector<uint8_t> from(length), own;

        meet(node);
        for (End end : {End::Cancelled, End::Short, End::ShortInOwnMemory}) {
            ucs_status_ptr_t send = nullptr, receive = nullptr;
            Area to(FAR, room);
            struct stat file;
            int fd = memfd_create("nprdma-test", MFD_CLOEXEC);

            ASSERT_EQ(0, ftruncate(fd, room));
            if (rank.target()) {
                receive = receive_that_ends(node, end, to, own);
                ASSERT_TRUE(UCS_PTR_IS_PTR(receive));
                if (end == End::Cancelled) {
                    ucp_request_cancel(node.worker, receive);
                    node.wait(receive, "cancel");
                }
            }
            node.sync();
            if (rank.initiator() && (end != End::Cancelled)) {
                send = post_send(node, from.data(), length, 1);
            }
            if (rank.target()) {
                if (end == End::Short) {
                    node.finish(receive, "receive");
                } else if (end == End::ShortInOwnMemory) {
                    node.until("receive", [&]() {
                        return ucp_request_check_status(receive) !=
                               UCS_INPROGRESS;
                    });
                    std::fill(own.begin(), own.end(), 0); // is in progress?
                }
                to.map_again(MAP_SHARED, fd);
                turns(node);
                ASSERT_EQ(0, fstat(fd, &file));
                EXPECT_EQ(0, file.st_blocks) << (int)end;
            }
            node.finish(send, "send");
            close(fd);
            node.sync();
        }
    });
}

// A short message into a large buffer, of which most waits to be brought in
// when the message is there. The program takes its memory away in the callback, and
// has something else there.
struct Freed {
    Area *area;
    int  kind;
    bool is_done;

    static void callback(void*, ucs_status_t, const ucp_tag_recv_info_t*,
                         void *arg)
    {
        auto *self = static_cast<Freed*>(arg);

        self->is_done = true;
        switch (self->kind) {
        case 0:
            self->area->unmap(0, self->area->length());
            break;
        case 1:
            self->area->map_again(MAP_PRIVATE | MAP_ANONYMOUS);
            pattern_fill(self->area->at(), self->area->length(), 77);
            break;
        case 2:
            self->area->map_again(MAP_PRIVATE | MAP_ANONYMOUS);
            pattern_fill(self->area->at(), self->area->length(), 77);
            self->area->protect(0, self->area->length(), PROT_READ);
            break;
        default:
            self->area->protect(0, self->area->length(), PROT_NONE);
        }
    }
};

TEST_P(PrepareEnds, FreedInTheCallback)
{
    run([](Rank &rank) {
        const size_t room = 16 * MIB, length = 100000;
        UcpNode node(rank, {UCP_FEATURE_TAG});
        std::vector<uint8_t> from(length);
        size_t prepared = 0, rounds = 0;

        meet(node);
        pattern_fill(from.data(), length, 4);
        for (int kind : {0, 1, 2, 3, 0, 1, 2, 3}) {
            Area to(FAR, room);
            Freed freed                = {&to, kind, false};
            ucp_request_param_t params = {};
            ucs_status_ptr_t send      = nullptr, receive = nullptr;

            params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                  UCP_OP_ATTR_FIELD_USER_DATA |
                                  UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
            params.cb.recv      = Freed::callback;
            params.user_data    = &freed;
            if (rank.initiator()) {
                send = post_send(node, from.data(), length, 1);
            }
            if (rank.target()) {
                ucp_tag_message_h message = arrived(node, 1);
                Growth growth;

                receive = ucp_tag_msg_recv_nbx(node.worker, to.at(), room,
                                               message, &params);
                node.until("callback", [&]() { return freed.is_done; });
                prepared += growth.of(&C::prepared);
                ++rounds;
                turns(node);
                node.finish(receive, "receive");
                if ((kind == 1) || (kind == 2)) {
                    EXPECT_EQ("", pattern_diff(to.at(), room, 77));
                }
            }
            if (rank.initiator()) {
                node.finish(send, "send");
            }
            node.sync();
        }
        if (rank.target()) {
            // it is what was wanted: some of it was still waiting
            EXPECT_LT(prepared, rounds * (room / QUANTUM));
        }
    });
}

// A list that is the program's own only until its callback, which comes in the
// very call.
struct List {
    Area                  area{PAGE};
    ucp_dt_iov_t          *iov = reinterpret_cast<ucp_dt_iov_t*>(area.at());
    bool                  is_done = false;
    ucp_request_param_t   params  = {};

    List()
    {
        params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                              UCP_OP_ATTR_FIELD_USER_DATA |
                              UCP_OP_ATTR_FIELD_DATATYPE |
                              UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        params.datatype     = UCP_DATATYPE_IOV;
        params.user_data    = this;
    }

    void take_away()
    {
        is_done = true;
        area.protect(0, PAGE, PROT_NONE);
    }

    static void received(void*, ucs_status_t, const ucp_tag_recv_info_t*,
                         void *arg)
    {
        static_cast<List*>(arg)->take_away();
    }

    static void sent(void*, ucs_status_t, void *arg)
    {
        static_cast<List*>(arg)->take_away();
    }
};

TEST_P(PrepareEnds, ListTakenAway)
{
    run([](Rank &rank) {
        const size_t length = 100;
        UcpNode node(rank, {UCP_FEATURE_TAG});
        std::vector<uint8_t> from(length);
        Area to(LENGTH);

        pattern_fill(from.data(), length, 5);
        for (int i = 0; i < 4; ++i) {
            List send_list, list;
            ucs_status_ptr_t send = nullptr, receive = nullptr;

            if (rank.initiator()) {
                send_list.iov[0]         = {from.data(), length};
                send_list.params.cb.send = List::sent;
                send = ucp_tag_send_nbx(node.ep, send_list.iov, 1, 2,
                                        &send_list.params);
            }
            if (rank.target()) {
                list.iov[0]         = {to.at(), MIB};
                list.iov[1]         = {to.at(MIB), MIB};
                list.params.cb.recv = List::received;
                receive = ucp_tag_msg_recv_nbx(node.worker, list.iov, 2,
                                               arrived(node, 2), &list.params);
                // an eager message that is there already
                EXPECT_TRUE(list.is_done);
                node.finish(receive, "receive");
                EXPECT_EQ("", pattern_diff(to.at(), length, 5));
            }
            if (rank.initiator()) {
                node.finish(send, "send");
            }
            node.sync();
        }
    });
}

// More transfers than the queue of what is to be prepared takes, all from one
// buffer, in ranges that overlap.
TEST_P(PrepareEnds, OneBufferManyTransfers)
{
    run([](Rank &rank) {
        const size_t count = 100, length = 256 << 10;
        UcpNode node(rank, {UCP_FEATURE_TAG});
        Area from(2 * length), to(count * length);
        auto begin = [&](size_t i) { return (i * 4099) % length; };

        meet(node);
        for (int round = 0; round < 2; ++round) {
            std::vector<ucs_status_ptr_t> sends, receives;

            pattern_fill(from.at(), 2 * length, round);
            if ((round == 0) && rank.target()) {
                for (size_t i = 0; i < count; ++i) {
                    receives.push_back(post_receive(node, to.at(i * length),
                                                    length, i));
                }
            }
            for (size_t i = 0; rank.initiator() && (i < count); ++i) {
                sends.push_back(post_send(node, from.at(begin(i)), length, i));
            }
            if ((round == 1) && rank.target()) {
                to.map_again(MAP_PRIVATE | MAP_ANONYMOUS);
                look_for(node, count - 1);
                for (size_t i = 0; i < count; ++i) {
                    receives.push_back(post_receive(node, to.at(i * length),
                                                    length, i));
                }
            }
            for (ucs_status_ptr_t receive : receives) {
                node.finish(receive, "receive");
            }
            for (ucs_status_ptr_t send : sends) {
                node.finish(send, "send");
            }
            for (size_t i = 0; rank.target() && (i < count); ++i) {
                ASSERT_EQ("", pattern_diff(to.at(i * length), length, round,
                                           begin(i))) << i;
            }
            node.sync();
        }
    });
}

// Every second row of a matrix, as MPI's vectors are.
struct Rows {
    static constexpr size_t ROW = 3000;

    uint8_t *base;
    size_t  count;

    static void *start_pack(void*, const void *buffer, size_t count)
    {
        auto *base = static_cast<uint8_t*>(const_cast<void*>(buffer));

        return new Rows{base, count};
    }

    static void *start_unpack(void *context, void *buffer, size_t count)
    {
        return start_pack(context, buffer, count);
    }

    static size_t packed_size(void *state)
    {
        return static_cast<Rows*>(state)->count * ROW;
    }

    // Calls `move` with each part of a row in [offset, offset + length)
    template<typename Move>
    void walk(size_t offset, size_t length, const Move &move) const
    {
        for (size_t done = 0, part; done < length; done += part) {
            size_t at = offset + done;

            part = std::min(length - done, ROW - at % ROW);
            move(base + (at / ROW) * 2 * ROW + at % ROW, done, part);
        }
    }

    static size_t pack(void *state, size_t offset, void *dest, size_t most)
    {
        auto *rows    = static_cast<Rows*>(state);
        size_t length = std::min(most, rows->count * ROW - offset);

        rows->walk(offset, length, [&](uint8_t *row, size_t at, size_t part) {
            memcpy(static_cast<uint8_t*>(dest) + at, row, part);
        });
        return length;
    }

    static ucs_status_t unpack(void *state, size_t offset, const void *from,
                               size_t length)
    {
        auto *rows = static_cast<Rows*>(state);

        rows->walk(offset, length, [&](uint8_t *row, size_t at, size_t part) {
            memcpy(row, static_cast<const uint8_t*>(from) + at, part);
        });
        return UCS_OK;
    }

    static void finish(void *state)
    {
        delete static_cast<Rows*>(state);
    }
};

// One side, or both, has rows; the gaps between them stay as they are.
TEST_P(PrepareEnds, DerivedDatatypes)
{
    run([](Rank &rank) {
        const ucp_generic_dt_ops_t ops = {Rows::start_pack, Rows::start_unpack,
                                          Rows::packed_size, Rows::pack,
                                          Rows::unpack, Rows::finish};
        const size_t count = 500, length = count * Rows::ROW;
        UcpNode node(rank, {UCP_FEATURE_TAG});
        ucp_request_param_t rows = {};
        ucp_datatype_t datatype;

        check(ucp_dt_create_generic(&ops, nullptr, &datatype), "datatype");
        rows.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        rows.datatype     = datatype;
        meet(node);
        for (int kind = 1; kind < 4; ++kind) {
            bool from_rows = kind & 1, to_rows = kind & 2;
            Area from(2 * length), to(2 * length);
            ucs_status_ptr_t send = nullptr, receive = nullptr;
            Rows source{from.at(), count}, sink{to.at(), count};

            if (rank.target()) {
                receive = ucp_tag_recv_nbx(node.worker, to.at(),
                                           to_rows ? count : length, kind, ALL,
                                           to_rows ? &rows : &no_params());
                turns(node, 20);
            }
            if (rank.initiator()) {
                if (from_rows) {
                    source.walk(0, length, [&](uint8_t *row, size_t at,
                                               size_t part) {
                        pattern_fill(row, part, kind, at);
                    });
                } else {
                    pattern_fill(from.at(), length, kind);
                }
                send = ucp_tag_send_nbx(node.ep, from.at(),
                                        from_rows ? count : length, kind,
                                        from_rows ? &rows : &no_params());
            }
            if (rank.target()) {
                node.finish(receive, "receive");
                if (!to_rows) {
                    EXPECT_EQ("", pattern_diff(to.at(), length, kind));
                }
                sink.walk(0, to_rows ? length : 0,
                          [&](uint8_t *row, size_t at, size_t part) {
                    ASSERT_EQ("", pattern_diff(row, part, kind, at));
                    ASSERT_EQ(std::vector<uint8_t>(Rows::ROW),
                              std::vector<uint8_t>(row + Rows::ROW,
                                                   row + 2 * Rows::ROW));
                });
            }
            if (rank.initiator()) {
                node.finish(send, "send");
            }
            node.sync();
        }
        ucp_dt_destroy(datatype);
    });
}

// A message of UCP's active messages that waits for its receive.
struct Letter {
    void   *desc = nullptr;
    size_t length = 0;

    static ucs_status_t handler(void *arg, const void*, size_t, void *data,
                                size_t length, const ucp_am_recv_param_t *param)
    {
        auto *self = static_cast<Letter*>(arg);

        if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
            return UCS_OK;
        }
        self->desc   = data;
        self->length = length;
        return UCS_INPROGRESS;
    }
};

// The calls of which Prepare.EveryCall has none.
TEST_P(PrepareEnds, OneSidedAndActiveMessages)
{
    run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_AM | UCP_FEATURE_RMA});
        ucp_am_handler_param_t params = {};
        Letter letter;
        int other = (rank.count == 1) ? rank.id : 1 - rank.id;

        params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                            UCP_AM_HANDLER_PARAM_FIELD_CB |
                            UCP_AM_HANDLER_PARAM_FIELD_ARG;
        params.id         = 1;
        params.cb         = Letter::handler;
        params.arg        = &letter;
        check(ucp_worker_set_am_recv_handler(node.worker, &params),
              "ucp_worker_set_am_recv_handler");
        node.sync();
        for (int round = 0; round < 4; ++round) {
            Area from(LENGTH), to(LENGTH);
            UcpMem target(node, LENGTH, round % 2);
            UcpRemote remote(node.ep, rank.oob.exchange(target.describe()));
            ucs_status_ptr_t request;

            pattern_fill(from.at(), LENGTH, 10 * round + rank.id);
            if (round < 2) {
                request = ucp_put_nbx(node.ep, from.at(), LENGTH,
                                      remote.address, remote.rkey,
                                      &no_params());
                turns(node, 20 * round);
                node.finish(request, "put");
                node.flush_ep();
                node.sync();
                EXPECT_EQ("", pattern_diff(target.at(), LENGTH,
                                           10 * round + other));
                node.finish(ucp_get_nbx(node.ep, to.at(), LENGTH,
                                        remote.address, remote.rkey,
                                        &no_params()), "get");
                EXPECT_EQ("", pattern_diff(to.at(), LENGTH,
                                           10 * round + rank.id));
            } else {
                request = ucp_am_send_nbx(node.ep, 1, nullptr, 0, from.at(),
                                          LENGTH, &no_params());
                node.until("a letter",
                           [&]() { return letter.desc != nullptr; });
                ASSERT_EQ(LENGTH, letter.length);
                node.finish(ucp_am_recv_data_nbx(node.worker, letter.desc,
                                                 to.at(), LENGTH,
                                                 &no_params()), "data");
                letter.desc = nullptr;
                EXPECT_EQ("", pattern_diff(to.at(), LENGTH,
                                           10 * round + other));
                node.finish(request, "send");
            }
            node.sync();
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Ucp, PrepareEnds, testing::ValuesIn(all_modes(true)),
                         mode_name);

} // namespace
