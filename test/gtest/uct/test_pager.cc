// SPDX-License-Identifier: BSD-3-Clause
// Pagers that are driven by faults, under every kind of operation: nothing that a
// transfer does may wait for a pager while the pager waits for the transfer.
#include "paging_face.h"

#include "../harness/pager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

using namespace nt;

namespace {

// Seconds without an operation that ends: then it hangs.
const double HANGS = 5;

// Transfers use the first ones; the others push those out.
constexpr size_t USED     = 32;
constexpr size_t RESIDENT = 16;

// With swappers, which are asked, not even the pages of one transfer fit.
constexpr size_t FEW = 6;

// Who has a pager.
enum class Where {
    Initiator,       // the target's memory is the kernel's to reach
    InitiatorMapped, // the target's memory is mapped by the initiator
    Target,
    TargetMapped,    // both at once
    Both,
    BothSwappers     // and nprdma asks them
};

const char *name_of(Where where)
{
    static const char *names[] = {"Initiator", "InitiatorMapped", "Target",
                                  "TargetMapped", "Both", "BothSwappers"};

    return names[(int)where];
}

bool is_mapped(Where where)
{
    return (where == Where::InitiatorMapped) || (where == Where::TargetMapped);
}

// An RNIC does not ask: what it writes to must be told to be swapped.
void check_device(Where where)
{
    if (!is_nprdma()) {
        throw Skipped("other transports know no pagers");
    }
    if (!is_soft() && (where != Where::BothSwappers)) {
        throw Skipped("over RNICs memory that a pager takes has a swapper");
    }
}

// One rank's memory and its pager.
class Side {
public:
    Side(Rank &rank, UctDomain &domain, Where where, size_t used,
         size_t resident, size_t few) :
        m_used(used), m_resident((where == Where::BothSwappers) ? few :
                                 resident)
    {
        const size_t pages = used + resident;
        bool has_pager = (where >= Where::Both) ||
                         (rank.initiator() == (where < Where::Target));

        if (is_mapped(where) && rank.target()) {
            m_mem.reset(new UctMem(domain, MemKind::Allocated, pages * PAGE));
            at = m_mem->at();
        } else {
            m_area.reset(new Area(pages * PAGE));
            m_shared.reset(new SharedArea(domain, *m_area));
            at = m_area->at();
        }
        if (has_pager) {
            m_pager.reset(new Pager(at, pages * PAGE, m_resident,
                                    (m_mem != nullptr) ? Pager::Shared :
                                    (where == Where::BothSwappers) ?
                                    Pager::Swapper : Pager::Private, used));
        }
    }

    std::string describe() const
    {
        return (m_mem != nullptr) ? m_mem->describe() : m_shared->describe();
    }

    // What was used last is away.
    void push_out() const
    {
        for (size_t page = m_used; page < m_used + m_resident; ++page) {
            *(volatile uint8_t*)(at + page * PAGE);
        }
    }

    // Its pager, if it has one, had much to do.
    void expect_faults(unsigned least) const
    {
        if (m_pager != nullptr) {
            EXPECT_GE(m_pager->faults(), least);
        }
    }

    uint8_t *at;

private:
    size_t                      m_used;
    size_t                      m_resident;
    std::unique_ptr<Area>       m_area;
    std::unique_ptr<SharedArea> m_shared;
    std::unique_ptr<UctMem>     m_mem;
    std::unique_ptr<Pager>      m_pager; // the first to go
};

// Who answers: the target's own progress, all of it through the data ring or not, or
// its service thread, while the target does nothing.
enum class Answers { Progress, Rings, Service };

const char *name_of(Answers answers)
{
    static const char *names[] = {"Progress", "Rings", "Service"};

    return names[(int)answers];
}

Settings settings_of(Answers answers)
{
    switch (answers) {
    case Answers::Progress:
        return {{"SERVICE", "off"}};
    case Answers::Rings:
        return {{"SERVICE", "off"}, {"SINGLE_COPY", "off"}};
    default:
        return {{"SERVICE", "event"}};
    }
}

// A data ring has messages too, which only the target's progress may deliver.
void check_answers(const UctDomain &domain, Answers answers)
{
    if (domain.uses_rings() && (answers == Answers::Service)) {
        throw Skipped("no service thread serves a data ring");
    }
}

// The target until the initiator has done something.
void stand_by(Node &node, Answers answers)
{
    if (node.rank.target() && (answers == Answers::Service)) {
        node.rank.oob.progress_with(nullptr);
    }
    node.sync();
    node.rank.oob.progress_with([&node]() { return node.domain.progress(); });
}

using RmaParam = std::tuple<RmaKind, Where, Answers>;

class PagerRma : public testing::TestWithParam<RmaParam> {
};

void rma_rounds(Node &node, RmaKind kind, Side &mine, const UctRemote &remote,
                Answers answers, const std::vector<size_t> &lengths,
                size_t pages)
{
    Watchdog watchdog(HANGS);
    const bool put = rma_is_put(kind);
    uint64_t seed  = 0;

    for (int round = 0; round < 3; ++round) {
        for (size_t wanted : lengths) {
            size_t length = rma_limit(node.iface, kind, wanted);
            size_t here   = ((3 + round) * PAGE - 5);
            size_t there  = ((7 + 2 * round) * PAGE - 77);
            // Others each time, so that some are in and some are not
            here  = std::min(here + 5 * PAGE * (seed % 4),
                             pages * PAGE - length);
            there = std::min(there + 3 * PAGE * (seed % 5),
                             pages * PAGE - length);
            watchdog.begins(name_of(kind) + " of " + std::to_string(length) +
                            " bytes, round " + std::to_string(round));
            ++seed;
            if (node.rank.initiator()) {
                pattern_fill(mine.at + here, length, put ? seed : 1000);
            }
            if (node.rank.target()) {
                pattern_fill(mine.at + there, length, put ? 1000 : seed);
            }
            mine.push_out();
            node.sync();
            if (node.rank.initiator()) {
                rma_finish(node, kind, mine.at + here, length,
                           remote.address + there, remote.rkey());
            }
            stand_by(node, answers);
            if (node.rank.initiator()) {
                expect_none("the initiator's memory",
                            pattern_diff(mine.at + here, length, seed));
            }
            if (node.rank.target()) {
                expect_none("the target's memory",
                            pattern_diff(mine.at + there, length, seed));
            }
        }
    }
}

TEST_P(PagerRma, Moves)
{
    RmaKind kind    = std::get<0>(GetParam());
    Where where     = std::get<1>(GetParam());
    Answers answers = std::get<2>(GetParam());

    run_ranks([=](Rank &rank) {
        check_device(where);
        Node node(rank, {}, settings_of(answers));
        check_answers(node.domain, answers);
        Side mine(rank, node.domain, where, USED, RESIDENT, FEW);
        UctRemote remote(node.domain, rank.oob.exchange(mine.describe()));

        rma_rounds(node, kind, mine, remote, answers,
                   {8, 100, 1000, 4096, 8000, 40000}, USED);
        mine.expect_faults(RESIDENT);
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagerRma,
        testing::Combine(testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                                         RmaKind::PutZcopy, RmaKind::GetShort,
                                         RmaKind::GetBcopy,
                                         RmaKind::GetZcopy),
                         testing::Values(Where::Initiator,
                                         Where::InitiatorMapped, Where::Target,
                                         Where::TargetMapped, Where::Both,
                                         Where::BothSwappers),
                         testing::Values(Answers::Progress, Answers::Rings,
                                         Answers::Service)),
        [](const testing::TestParamInfo<RmaParam> &info) {
            return name_of(std::get<0>(info.param)) +
                   name_of(std::get<1>(info.param)) +
                   name_of(std::get<2>(info.param));
        });

// Large ones, which both sides may do a share of, and their pages do not fit.
class PagerLarge : public testing::TestWithParam<RmaParam> {
};

TEST_P(PagerLarge, Moves)
{
    RmaKind kind    = std::get<0>(GetParam());
    Where where     = std::get<1>(GetParam());
    Answers answers = std::get<2>(GetParam());

    run_ranks([=](Rank &rank) {
        const size_t used = 280;
        check_device(where);
        Node node(rank, {}, settings_of(answers));
        Side mine(rank, node.domain, where, used, used, 160);
        UctRemote remote(node.domain, rank.oob.exchange(mine.describe()));

        rma_rounds(node, kind, mine, remote, answers, {80000, 300000, 1 << 20},
                   used);
        mine.expect_faults(used);
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagerLarge,
        testing::Combine(testing::Values(RmaKind::PutZcopy, RmaKind::GetZcopy),
                         testing::Values(Where::Initiator, Where::Target,
                                         Where::Both, Where::BothSwappers),
                         testing::Values(Answers::Progress, Answers::Rings)),
        [](const testing::TestParamInfo<RmaParam> &info) {
            return name_of(std::get<0>(info.param)) +
                   name_of(std::get<1>(info.param)) +
                   name_of(std::get<2>(info.param));
        });

using WhereParam = std::tuple<Where, Answers>;

std::string where_name(const testing::TestParamInfo<WhereParam> &info)
{
    return std::string(name_of(std::get<0>(info.param))) +
           name_of(std::get<1>(info.param));
}

class PagerAtomic : public testing::TestWithParam<WhereParam> {
};

// A counter in each page, and what was there before arrives in paged memory.
TEST_P(PagerAtomic, Counts)
{
    Where where     = std::get<0>(GetParam());
    Answers answers = std::get<1>(GetParam());

    run_ranks([=](Rank &rank) {
        check_device(where);
        const uint64_t rounds = 8;
        Node node(rank, {}, settings_of(answers));
        Side mine(rank, node.domain, where, USED, RESIDENT, FEW);
        UctRemote remote(node.domain, rank.oob.exchange(mine.describe()));
        Watchdog watchdog(HANGS);

        for (size_t page = 0; page < USED; ++page) {
            *(uint64_t*)(mine.at + page * PAGE) = 0;
        }
        mine.push_out();
        node.sync();
        for (uint64_t i = 0; rank.initiator() && (i < rounds * USED); ++i) {
            size_t page    = (i * 7) % USED;
            auto *result   = (uint64_t*)(mine.at + page * PAGE + 64);
            uint64_t count = i / USED;
            Comp comp;

            watchdog.begins("atomic " + std::to_string(i));
            node.complete("an atomic", comp, [&]() {
                return (i % 2) ?
                       uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                             result,
                                             remote.address + page * PAGE,
                                             remote.rkey(), &comp) :
                       uct_ep_atomic_cswap64(node.ep->ep, count, count + 1,
                                             remote.address + page * PAGE,
                                             remote.rkey(), result, &comp);
            });
            ASSERT_EQ(count, *result);
        }
        stand_by(node, answers);
        for (size_t page = 0; rank.target() && (page < USED); ++page) {
            ASSERT_EQ(rounds, *(uint64_t*)(mine.at + page * PAGE));
        }
        mine.expect_faults(USED);
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagerAtomic,
        testing::Combine(testing::Values(Where::Initiator,
                                         Where::InitiatorMapped, Where::Target,
                                         Where::TargetMapped, Where::Both,
                                         Where::BothSwappers),
                         testing::Values(Answers::Progress, Answers::Rings,
                                         Answers::Service)), where_name);

// Messages out of paged memory and into it, beside one-sided traffic of the same
// pages, for which they go all the time.
class PagerAm : public testing::TestWithParam<Where> {
};

struct Inbox {
    uint8_t  *at;
    unsigned count;
};

ucs_status_t take(void *arg, void *data, size_t length, unsigned)
{
    auto *inbox = static_cast<Inbox*>(arg);

    // [number][payload]: each to another page
    memcpy(inbox->at + (inbox->count % 8) * 2 * PAGE + 17,
           (uint8_t*)data + 8, length - 8);
    ++inbox->count;
    return UCS_OK;
}

struct Outgoing {
    uint64_t number;
    uint8_t  *at;
    size_t   length;
};

size_t pack(void *dest, void *arg)
{
    auto *out = static_cast<Outgoing*>(arg);

    memcpy(dest, &out->number, 8);
    memcpy((uint8_t*)dest + 8, out->at, out->length);
    return 8 + out->length;
}

ssize_t send(Node &node, unsigned kind, Outgoing &out, Comp &comp)
{
    uct_iov_t iov = {out.at, out.length, UCT_MEM_HANDLE_NULL, 0, 1};
    ssize_t ret;

    switch (kind) {
    case 0:
        return uct_ep_am_short(node.ep->ep, 1, out.number, out.at, out.length);
    case 1:
        ret = uct_ep_am_bcopy(node.ep->ep, 1, pack, &out, 0);
        return std::min(ret, (ssize_t)UCS_OK);
    default:
        return uct_ep_am_zcopy(node.ep->ep, 1, &out.number, 8, &iov, 1, 0,
                               &comp);
    }
}

TEST_P(PagerAm, Carries)
{
    Where where = GetParam();

    run_ranks([=](Rank &rank) {
        check_device(where);
        Node node(rank);
        Side mine(rank, node.domain, where, USED, RESIDENT, FEW);
        UctRemote remote(node.domain, rank.oob.exchange(mine.describe()));
        Watchdog watchdog(HANGS);
        Inbox inbox = {mine.at, 0};

        node.iface.on_am(1, take, &inbox);
        node.sync();
        for (unsigned i = 0; i < 90; ++i) {
            const size_t lengths[] = {20, 800, 3000};
            size_t length = lengths[i % 3];
            size_t place  = (i % 8) * 2 * PAGE + 17;

            watchdog.begins("message " + std::to_string(i));
            if (rank.initiator()) {
                pattern_fill(mine.at + place, length, i);
            }
            mine.push_out();
            node.sync(); // what goes is not asked for yet, see Pager
            if (rank.initiator()) {
                Outgoing out = {i, mine.at + place, length};
                Comp comp;
                node.complete("a message", comp, [&]() {
                    return send(node, (i / 3) % 3, out, comp);
                });
                // Something one-sided, for which pages of both sides go
                rma_finish(node, (i % 2) ? RmaKind::PutZcopy :
                                           RmaKind::GetZcopy,
                           mine.at + (16 + i % 13) * PAGE, 2 * PAGE,
                           remote.address + (16 + i % 11) * PAGE,
                           remote.rkey());
            } else {
                node.until("a message", [&]() { return inbox.count > i; });
            }
            node.sync();
            if (rank.target()) {
                expect_none("a message",
                            pattern_diff(mine.at + place, length, i));
            }
        }
        mine.expect_faults(USED);
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagerAm,
        testing::Values(Where::Initiator, Where::Target, Where::Both,
                        Where::BothSwappers),
        [](const testing::TestParamInfo<Where> &info) {
            return std::string(name_of(info.param));
        });

} // namespace
