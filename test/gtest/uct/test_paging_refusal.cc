// SPDX-License-Identifier: BSD-3-Clause
// Memory that cannot be brought in: an error for who asked for it, and nothing
// else is lost.
#include "paging_face.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <ucs/config/global_opts.h>
#include <unistd.h>

#include <cstring>
#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t PAGES  = 6;
constexpr size_t BAD    = 2;  // the page that cannot be brought in
constexpr size_t BEFORE = 16; // bytes of the page before it that are meant too
constexpr size_t LENGTH = 80;
constexpr uint64_t PLACE = UINT64_C(0x200000000000);

struct Spoil {
    const char *name;
    bool       for_writing_only;
    void       (*spoil)(Area&);
};

// A file that ends before the bad page.
void map_short_file(Area &area)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    if ((fd < 0) || (ftruncate(fd, BAD * PAGE) != 0)) {
        throw Failed("cannot make a file");
    }
    area.map_again(BAD * PAGE, PAGE, MAP_SHARED, fd);
    close(fd);
}

// A file that may only be read.
void map_read_only_file(Area &area)
{
    char name[] = "/tmp/nprdma-test.XXXXXX";
    int fd      = mkstemp(name);
    int reader  = open(name, O_RDONLY | O_CLOEXEC);

    unlink(name);
    if ((fd < 0) || (reader < 0) || (ftruncate(fd, PAGES * PAGE) != 0) ||
        (mmap(area.at(BAD * PAGE), PAGE, PROT_READ, MAP_SHARED | MAP_FIXED,
              reader, 0) == MAP_FAILED)) {
        throw Failed("cannot map a file for reading");
    }
    close(fd);
    close(reader);
}

const Spoil SPOILS[] = {
    {"NoAccess", false,
     [](Area &area) { area.protect(BAD * PAGE, PAGE, PROT_NONE); }},
    {"Unmapped", false,
     [](Area &area) { area.unmap(BAD * PAGE, PAGE); }},
    {"BehindTheFile", false, map_short_file},
    {"ReadOnly", true,
     [](Area &area) { area.protect(BAD * PAGE, PAGE, PROT_READ); }},
    {"ReadOnlyFile", true, map_read_only_file},
};

// What the tables know of the page before it is spoilt.
enum class Known { Nothing, Mapped, MappedAndTold };

std::string name_of_known(Known known)
{
    return (known == Known::Nothing) ? "Fresh" :
           (known == Known::Mapped) ? "Mapped" : "Told";
}

// A program that spoils what it has registered, which no table knows yet, may
// crash where it copies for its peer by itself (docs/design/decisions.md, "Puts
// and gets of what is registered go through the rings").
Settings not_lent_if(Known known)
{
    if (!is_soft() || (known != Known::Mapped)) {
        return {};
    }
    return {{"LEND", "n"}};
}

using RefusalParam = std::tuple<RmaKind, Spoil, Known, Topology>;

class Refusal : public testing::TestWithParam<RefusalParam> {
};

class RefusalCase {
public:
    RefusalCase(Rank &rank, RmaKind kind, Known known) :
        node(rank, {}, not_lent_if(known)), kind(kind),
        address(rank.oob.exchange(node.iface.address)),
        other(node.iface, address), area(PLACE, PAGES * PAGE),
        shared(node.domain, area),
        bad(node.domain, rank.oob.exchange(shared.describe())),
        local(node.domain, MemKind::Mmap, 64 * PAGE),
        good(node.domain, MemKind::Mmap, 64 * PAGE),
        remote(node.domain, rank.oob.exchange(good.describe()))
    {
        pattern_fill(area.at(), area.length(), 31);
        pattern_fill(local.at(), 64 * PAGE, 32);
        memset(good.at(), 0, 64 * PAGE);
        turn_absent(area.at(), area.length());
        turn_absent(good.at(), 64 * PAGE);
        node.sync();
    }

    // Bring the bad page in while it still can be.
    void know(Known known)
    {
        if (node.rank.target() && (known != Known::Nothing)) {
            EXPECT_EQ(0, nprdma_prefetch(area.at(), area.length(),
                                         NPRDMA_PREFETCH_WRITE));
        }
    }

    // Puts to good memory, some by each endpoint.
    void start_puts(size_t first, size_t end)
    {
        for (size_t i = first; i < end; ++i) {
            uct_iov_t iov = local.iov(i * PAGE + i, 1500);
            ssize_t ret   = node.post("room", [&]() {
                return uct_ep_put_zcopy((i % 2) ? other.ep : node.ep->ep, &iov,
                                        1, remote.address + i * PAGE + i,
                                        remote.rkey(), &puts[i]);
            });
            if (ret != UCS_INPROGRESS) {
                puts[i].count  = 0;
                puts[i].status = (ucs_status_t)ret;
            }
        }
    }

    // Puts by the endpoint that has failed may have failed with it.
    void finish_puts(bool has_failed)
    {
        for (size_t i = 0; i < puts.size(); ++i) {
            node.until("puts beside it", [&]() { return puts[i].count == 0; });
            if ((i % 2) || !has_failed) {
                EXPECT_EQ(UCS_OK, puts[i].status) << i;
            }
        }
    }

    void look_at_puts(bool has_failed) const
    {
        for (size_t i = 0; i < puts.size(); ++i) {
            if ((i % 2) || !has_failed) {
                EXPECT_EQ("", pattern_diff(good.at(i * PAGE + i), 1500, 32,
                                           i * PAGE + i)) << i;
            }
        }
    }

    // All but what was aimed at is as it was.
    void look_at_area() const
    {
        size_t first = BAD * PAGE - BEFORE, behind = (BAD + 1) * PAGE;

        EXPECT_EQ("", pattern_diff(area.at(), first, 31));
        EXPECT_EQ("", pattern_diff(area.at(behind), area.length() - behind, 31,
                                   behind));
    }

    Node              node;
    RmaKind           kind;
    std::string       address;
    UctEp             other;
    Area              area;
    SharedArea        shared;
    UctRemote         bad;
    UctMem            local;
    UctMem            good;
    UctRemote         remote;
    std::vector<Comp> puts{60};
};

// Only these tell by a status of their own; others end the endpoint.
bool has_completion(RmaKind kind)
{
    return rma_is_zcopy(kind) || (kind == RmaKind::GetBcopy);
}

void ask_for_bad_page(RefusalCase &refusal)
{
    Node &node = refusal.node;
    uint64_t address = refusal.bad.address + BAD * PAGE - BEFORE;
    Growth growth;
    Comp comp;
    ssize_t ret = node.post("room", [&]() {
        // Not what is being put, which a get must not change
        return rma_post(node, refusal.kind, refusal.local.at(62 * PAGE + 100),
                        UCT_MEM_HANDLE_NULL, LENGTH, address,
                        refusal.bad.rkey(), &comp);
    });

    refusal.start_puts(30, 60);
    if (has_completion(refusal.kind)) {
        node.until("a refusal", [&]() {
            return (ret != UCS_INPROGRESS) || (comp.calls > 0);
        });
        ret = (ret == UCS_INPROGRESS) ? (ssize_t)comp.status : ret;
        EXPECT_LT(ret, 0);
        EXPECT_EQ(UCS_OK, node.try_flush());
        EXPECT_EQ(0u, node.iface.errors) << "the endpoint has failed too";
    } else if (ret >= 0) {
        node.until("the error handler", [&]() {
            return node.iface.errors > 0;
        });
        EXPECT_EQ(1u, node.iface.errors);
    }
    if (counts_faults()) {
        EXPECT_GT(growth.of(&C::naks), 0u);
    }
}

TEST_P(Refusal, OfThePeersPage)
{
    RmaKind kind = std::get<0>(GetParam());
    Spoil spoil  = std::get<1>(GetParam());
    Known known  = std::get<2>(GetParam());

    run_in(std::get<3>(GetParam()), [=](Rank &rank) {
        nprdma_only();
        // What is asked for is an error, and is said to be one
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        RefusalCase refusal(rank, kind, known);
        bool has_failed = !has_completion(kind);

        refusal.know(known);
        if (rank.target()) {
            spoil.spoil(refusal.area);
            if (known == Known::MappedAndTold) {
                turn_absent(refusal.area.at(BAD * PAGE), PAGE);
            }
        }
        refusal.node.sync();
        if (rank.initiator()) {
            refusal.start_puts(0, 30);
            ask_for_bad_page(refusal);
            refusal.finish_puts(has_failed);
        }
        refusal.node.sync();
        if (rank.target()) {
            refusal.look_at_area();
            refusal.look_at_puts(has_failed);
        }

        // Another endpoint goes on
        if (has_failed) {
            refusal.node.ep.reset();
            refusal.node.ep = std::make_unique<UctEp>(refusal.node.iface,
                                                      refusal.address);
        }
        refusal.node.sync();
        if (rank.initiator()) {
            rma_finish(refusal.node, RmaKind::GetZcopy, refusal.local.at(),
                       PAGE, refusal.bad.address, refusal.bad.rkey());
            EXPECT_EQ("", pattern_diff(refusal.local.at(), PAGE, 31));
        }
        refusal.node.sync();
    });
}

std::vector<RefusalParam> all_refusals()
{
    std::vector<RefusalParam> all;

    for (RmaKind kind : {RmaKind::PutShort, RmaKind::PutBcopy,
                         RmaKind::PutZcopy, RmaKind::GetBcopy,
                         RmaKind::GetZcopy}) {
        for (const Spoil &spoil : SPOILS) {
            for (Known known : {Known::Nothing, Known::Mapped,
                                Known::MappedAndTold}) {
                for (Topology topology : {Topology::TwoProcesses,
                                          Topology::Loopback}) {
                    if (rma_is_put(kind) || !spoil.for_writing_only) {
                        all.emplace_back(kind, spoil, known, topology);
                    }
                }
            }
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Refusal, testing::ValuesIn(all_refusals()),
        [](const testing::TestParamInfo<RefusalParam> &info) {
            return name_of(std::get<0>(info.param)) +
                   std::get<1>(info.param).name +
                   name_of_known(std::get<2>(info.param)) +
                   name_of(std::get<3>(info.param));
        });

class FencedRefusal : public testing::TestWithParam<
                              std::tuple<RmaKind, Topology>> {
};

// What waits behind a fence does not go when what is before it has failed.
TEST_P(FencedRefusal, NothingFollows)
{
    RmaKind kind = std::get<0>(GetParam());

    run_in(std::get<1>(GetParam()), [=](Rank &rank) {
        nprdma_only();
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        RefusalCase refusal(rank, kind, Known::Nothing);
        Node &node    = refusal.node;
        unsigned came = 0;
        Comp comp;

        node.iface.on_am(1, [](void *arg, void*, size_t, unsigned) {
            ++*static_cast<unsigned*>(arg);
            return UCS_OK;
        }, &came);
        if (rank.target()) {
            refusal.area.unmap(BAD * PAGE, PAGE);
        }
        node.sync();
        if (rank.initiator()) {
            ssize_t ret = node.post("room", [&]() {
                return rma_post(node, kind, refusal.local.at(100),
                                UCT_MEM_HANDLE_NULL, LENGTH,
                                refusal.bad.address + BAD * PAGE,
                                refusal.bad.rkey(), &comp);
            });
            ASSERT_EQ(UCS_INPROGRESS, ret);
            ASSERT_EQ(UCS_OK, uct_ep_fence(node.ep->ep, 0));
            ret = node.post("what follows", [&]() {
                return (ssize_t)uct_ep_am_short(node.ep->ep, 1, 0, nullptr, 0);
            });
            EXPECT_LT(ret, 0);
            EXPECT_EQ(1u, comp.calls);
            EXPECT_LT(comp.status, 0);
            EXPECT_EQ(1u, node.iface.errors);
        }
        node.sync();
        for (int i = 0; i < 1000; ++i) {
            node.domain.progress();
        }
        EXPECT_EQ(0u, came);
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, FencedRefusal,
        testing::Combine(testing::Values(RmaKind::PutZcopy, RmaKind::GetZcopy),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        [](const testing::TestParamInfo<FencedRefusal::ParamType> &info) {
            return name_of(std::get<0>(info.param)) +
                   name_of(std::get<1>(info.param));
        });

using OwnParam = std::tuple<RmaKind, Spoil, Known>;

class OwnRefusal : public testing::TestWithParam<OwnParam> {
};

// The initiator's own memory is not there: an error, the peer's stays as it is,
// and the endpoint goes on.
TEST_P(OwnRefusal, OfOnesOwnPage)
{
    RmaKind kind = std::get<0>(GetParam());
    Spoil spoil  = std::get<1>(GetParam());
    Known known  = std::get<2>(GetParam());

    run_ranks([=](Rank &rank) {
        nprdma_only();
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        Node node(rank);
        Area area(PLACE, PAGES * PAGE);
        UctMem target(node.domain, MemKind::Mmap, PAGES * PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        pattern_fill(area.at(), area.length(), 31);
        pattern_fill(target.at(), PAGES * PAGE, 33);
        if (known != Known::Nothing) {
            ASSERT_EQ(0, nprdma_prefetch(area.at(), area.length(),
                                         NPRDMA_PREFETCH_WRITE));
        }
        spoil.spoil(area);
        if (known == Known::MappedAndTold) {
            turn_absent(area.at(), area.length());
        }
        node.sync();
        if (rank.initiator()) {
            EXPECT_LT(rma_settle(node, kind, area.at(BAD * PAGE - BEFORE),
                                 LENGTH, remote.address + 100, remote.rkey()),
                      0);
            EXPECT_EQ(0u, node.iface.errors);
            EXPECT_EQ("", pattern_diff(area.at(), BAD * PAGE - BEFORE, 31));
            rma_finish(node, RmaKind::GetZcopy, area.at(), 1000,
                       remote.address + 1000, remote.rkey());
            EXPECT_EQ("", pattern_diff(area.at(), 1000, 33, 1000));
        }
        node.sync();
        if (rank.target()) {
            // Of a put, what comes before the bad page may have arrived
            size_t sure = rma_is_put(kind) ? BEFORE : 0;
            EXPECT_EQ("", pattern_diff(target.at(), 100, 33));
            EXPECT_EQ("", pattern_diff(target.at(100 + sure),
                                       PAGES * PAGE - 100 - sure, 33,
                                       100 + sure));
        }
        node.sync();
    });
}

std::vector<OwnParam> all_own_refusals()
{
    std::vector<OwnParam> all;

    for (RmaKind kind : {RmaKind::PutZcopy, RmaKind::GetZcopy}) {
        for (const Spoil &spoil : SPOILS) {
            for (Known known : {Known::Nothing, Known::Mapped,
                                Known::MappedAndTold}) {
                if (!rma_is_put(kind) || !spoil.for_writing_only) {
                    all.emplace_back(kind, spoil, known);
                }
            }
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(
        Uct, OwnRefusal, testing::ValuesIn(all_own_refusals()),
        [](const testing::TestParamInfo<OwnParam> &info) {
            return name_of(std::get<0>(info.param)) +
                   std::get<1>(info.param).name +
                   name_of_known(std::get<2>(info.param));
        });

} // namespace
