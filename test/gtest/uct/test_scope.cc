// SPDX-License-Identifier: BSD-3-Clause
// UCX_NPRDMA_MR_SCOPE=exact: peers reach what is registered, while it is.
#include "paging_face.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <ucs/config/global_opts.h>
#include <uct/api/v2/uct_v2.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t PAGES = 64;
constexpr size_t FIRST = 16 * PAGE + 1000; // what is registered
constexpr size_t LAST  = 32 * PAGE + 500;  // one past it

Settings exact(const char *single_copy = "auto")
{
    return {{"MR_SCOPE", "exact"}, {"SINGLE_COPY", single_copy}};
}

// One registration of a range.
class Registered {
public:
    Registered(UctDomain &domain, void *address, size_t length) :
        m_domain(domain), m_address((uintptr_t)address)
    {
        check(uct_md_mem_reg(domain.md, address, length, UCT_MD_MEM_ACCESS_ALL,
                             &m_memh), "uct_md_mem_reg");
    }

    ~Registered() { end(); }
    Registered(const Registered&) = delete;

    void end()
    {
        if (m_memh != UCT_MEM_HANDLE_NULL) {
            check(uct_md_mem_dereg(m_domain.md, m_memh), "uct_md_mem_dereg");
            m_memh = UCT_MEM_HANDLE_NULL;
        }
    }

    // With UCT_MD_MEM_DEREG_FLAG_INVALIDATE.
    ucs_status_t invalidate(Comp &comp)
    {
        uct_md_mem_dereg_params_t params = {};
        ucs_status_t status;

        params.field_mask = UCT_MD_MEM_DEREG_FIELD_MEMH |
                            UCT_MD_MEM_DEREG_FIELD_FLAGS |
                            UCT_MD_MEM_DEREG_FIELD_COMPLETION;
        params.flags      = UCT_MD_MEM_DEREG_FLAG_INVALIDATE;
        params.memh       = m_memh;
        params.comp       = &comp;
        status            = uct_md_mem_dereg_v2(m_domain.md, &params);
        if (status == UCS_OK) {
            m_memh = UCT_MEM_HANDLE_NULL;
        }
        return status;
    }

    std::string describe() const // for UctRemote
    {
        std::string key(m_domain.attr.rkey_packed_size, 0);

        check(uct_md_mkey_pack(m_domain.md, m_memh, &key[0]),
              "uct_md_mkey_pack");
        return std::string((const char*)&m_address, sizeof(m_address)) + key;
    }

private:
    UctDomain &m_domain;
    uint64_t  m_address;
    uct_mem_h m_memh = UCT_MEM_HANDLE_NULL;
};

// Gives an initiator a key for more than was registered, which its own check
// would not stop: the range is behind magic, version, arenas and two ids.
std::string forge(std::string description, uint64_t va, uint64_t length)
{
    constexpr size_t RANGE = sizeof(uint64_t) + 32;

    memcpy(&description[0], &va, sizeof(va));
    memcpy(&description[RANGE], &va, sizeof(va));
    memcpy(&description[RANGE + 8], &length, sizeof(length));
    return description;
}

// A read of a page that is not mapped gives this, whatever is there.
bool holds_signature(const uint8_t *bytes, size_t length, uint64_t remote)
{
    static const uint8_t signature[] = {0x1f, 0x5e, 0xea, 0xd5};

    for (size_t i = 0; i < length; ++i) {
        if (bytes[i] != signature[(remote + i) % 4]) {
            return false;
        }
    }
    return true;
}

bool has_completion(RmaKind kind)
{
    return rma_is_zcopy(kind) || (kind == RmaKind::GetBcopy);
}

// With SINGLE_COPY=off everything goes through the rings.
void rings_are_soft(const char *way)
{
    nprdma_only();
    if (way == std::string("off")) {
        soft_only("rings are soft0's");
    }
}

// Rank 1 owns an area; rank 0 has registered memory of its own.
class ScopeCase {
public:
    explicit ScopeCase(Rank &rank, const Settings &settings = exact()) :
        node(rank, {}, settings), area(PAGES * PAGE),
        local(node.domain, MemKind::Local, PAGES * PAGE),
        word(node.domain, MemKind::Mmap, PAGE),
        word_remote(node.domain, rank.oob.exchange(word.describe())),
        peer_address(rank.oob.exchange(node.iface.address))
    {
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        pattern_fill(area.at(), area.length(), 1);
        node.sync();
    }

    // What a transfer of local memory and `length` bytes at `offset` of the
    // area ends with.
    ucs_status_t transfer(RmaKind kind, size_t offset, size_t length,
                          const UctRemote &remote)
    {
        Comp comp;
        ssize_t ret;

        ret = node.post("room", [&]() {
            // A short get that has asked for its page tells by its endpoint
            return (node.iface.errors > 0) ? (ssize_t)UCS_ERR_CANCELED :
                   rma_post(node, kind, local, offset, length, base + offset,
                            remote.rkey(), &comp);
        });
        if (ret == UCS_INPROGRESS) {
            node.until("the end", [&]() { return comp.calls > 0; });
            ret = comp.status;
        }
        if (ret < 0) {
            return (ucs_status_t)ret;
        }
        ret = node.try_flush();
        return (node.iface.errors > 0) ? UCS_ERR_CANCELED : (ucs_status_t)ret;
    }

    void expect_refused(RmaKind kind, size_t offset, size_t length,
                        const UctRemote &remote)
    {
        pattern_fill(local.at(offset), length, 9, offset);
        EXPECT_NE(UCS_OK, transfer(kind, offset, length, remote))
                << name_of(kind) << " of " << length << " at " << offset;
        EXPECT_TRUE(pattern_diff(local.at(offset), length, 9, offset).empty() ||
                    holds_signature(local.at(offset), length, base + offset))
                << "something has been read";
        if (has_completion(kind)) {
            EXPECT_EQ(0u, node.iface.errors) << name_of(kind);
        }
        revive();
    }

    void expect_done(RmaKind kind, size_t offset, size_t length,
                     const UctRemote &remote, uint64_t seed)
    {
        pattern_fill(local.at(offset), length, rma_is_put(kind) ? seed : 0,
                     offset);
        ASSERT_EQ(UCS_OK, transfer(kind, offset, length, remote))
                << name_of(kind) << " of " << length << " at " << offset;
        EXPECT_EQ("", pattern_diff(local.at(offset), length, seed, offset));
    }

    // A request that nobody waits for ends its endpoint: another one.
    void revive()
    {
        if (node.iface.errors > 0) {
            node.iface.errors = 0;
            node.ep.reset();
            node.ep = std::make_unique<UctEp>(node.iface, peer_address);
        }
    }

    bool offers(RmaKind kind) const
    {
        return (kind != RmaKind::GetShort) ||
               (node.iface.attr.cap.flags & UCT_IFACE_FLAG_GET_SHORT);
    }

    // Until transfers need no help: both ranks.
    void meet()
    {
        node.sync();
        if (node.rank.initiator()) {
            node.until("transfers without help", [&]() {
                Growth growth;
                rma_transfer(node, RmaKind::GetZcopy, local, 0, 8,
                             word_remote.address, word_remote.rkey());
                return growth.of(&C::remote_faults) == 0;
            });
        }
        node.sync();
    }

    // Both ranks: what the owner has registered; the owner gets anything.
    std::string share(Registered *registered)
    {
        base = node.rank.oob.exchange_value((uint64_t)area.at());
        return node.rank.oob.exchange(
                (registered != nullptr) ? registered->describe() :
                                          word.describe());
    }

    std::unique_ptr<Registered> own(size_t offset, size_t length)
    {
        return !node.rank.target() ? nullptr :
               std::make_unique<Registered>(node.domain, area.at(offset),
                                            length);
    }

    Node        node;
    Area        area;
    UctMem      local;
    UctMem      word;
    UctRemote   word_remote;
    std::string peer_address;
    uint64_t    base = 0; // of the owner's area
};

constexpr RmaKind ALL_KINDS[] = {RmaKind::PutShort, RmaKind::PutBcopy,
                                 RmaKind::PutZcopy, RmaKind::GetShort,
                                 RmaKind::GetBcopy, RmaKind::GetZcopy};

TEST(Scope, Attributes)
{
    run_in(Topology::Loopback, [](Rank&) {
        nprdma_only();
        UctDomain domain(exact());

        // An RNIC may have registered a piece of a transfer by itself
        EXPECT_EQ(is_soft(), (domain.attr.cap.flags &
                              UCT_MD_FLAG_INVALIDATE) != 0);
        EXPECT_TRUE(domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH);
        EXPECT_LE(domain.attr.rkey_packed_size, 96u);
    });
    run_in(Topology::Loopback, [](Rank&) {
        nprdma_only();
        UctDomain domain;
        Area area(PAGE);
        Registered memory(domain, area.at(), PAGE);
        Comp comp;

        EXPECT_FALSE(domain.attr.cap.flags & UCT_MD_FLAG_INVALIDATE);
        EXPECT_FALSE(domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH);
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, memory.invalidate(comp));
        EXPECT_EQ(0u, comp.calls);
    });
}

TEST(Scope, OneForAProcess)
{
    run_in(Topology::Loopback, [](Rank&) {
        nprdma_only();
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
        UctDomain domain(exact());
        uct_md_config_t *config;
        uct_md_h other;

        check(uct_md_config_read(domain.component, nullptr, nullptr, &config),
              "uct_md_config_read");
        check(modify(config, "MR_SCOPE", "arena"), "MR_SCOPE");
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_md_open(domain.component, "nprdma", config, &other));
        uct_config_release(config);
    });
}

using WayParam = std::tuple<RmaKind, const char*>; // SINGLE_COPY

class Scope : public testing::TestWithParam<WayParam> {
protected:
    RmaKind kind() const { return std::get<0>(GetParam()); }
    const char *way() const { return std::get<1>(GetParam()); }
};

// Up to the very bytes; what is outside is not even asked for.
TEST_P(Scope, InitiatorChecksItsKey)
{
    RmaKind kind    = this->kind();
    const char *way = this->way();

    run_ranks([=](Rank &rank) {
        rings_are_soft(way);
        ScopeCase test(rank, exact(way));
        rma_limit(test.node.iface, kind, 1); // or there is none such
        auto owned = test.own(FIRST, LAST - FIRST);
        UctRemote remote(test.node.domain, test.share(owned.get()));

        test.meet();
        if (rank.initiator()) {
            uint64_t seed = rma_is_put(kind) ? 2 : 1;
            test.expect_done(kind, FIRST, 100, remote, seed);
            test.expect_done(kind, LAST - 100, 100, remote, seed);
            test.expect_done(kind, FIRST + PAGE, 3 * PAGE / 2, remote, seed);
            Growth growth;
            for (size_t at : {FIRST - 1, LAST - 99, FIRST - 5 * PAGE,
                              LAST + 5 * PAGE}) {
                EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                          test.transfer(kind, at, 100, remote)) << at;
            }
            EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                      test.transfer(kind, LAST - 4000, 8000, remote));
            EXPECT_EQ(0u, growth.of(&C::remote_faults));
            EXPECT_EQ(0u, test.node.iface.errors);
        }
        test.node.sync();
        if (rank.target() && rma_is_put(kind)) {
            EXPECT_EQ("", pattern_diff(test.area.at(), FIRST, 1));
            EXPECT_EQ("", pattern_diff(test.area.at(FIRST), 100, 2, FIRST));
            EXPECT_EQ("", pattern_diff(test.area.at(LAST - 100), 100, 2,
                                       LAST - 100));
            EXPECT_EQ("", pattern_diff(test.area.at(LAST), PAGE, 1, LAST));
        }
        test.node.sync();
    });
}

// A peer that does not check is refused; its neighbours are not.
TEST_P(Scope, TargetRefusesWhatIsOutside)
{
    RmaKind kind    = this->kind();
    const char *way = this->way();

    run_ranks([=](Rank &rank) {
        rings_are_soft(way);
        ScopeCase test(rank, exact(way));
        rma_limit(test.node.iface, kind, 1); // or there is none such
        auto owned         = test.own(FIRST, LAST - FIRST);
        std::string honest = test.share(owned.get());
        UctRemote remote(test.node.domain, honest);
        UctRemote bad(test.node.domain,
                      forge(honest, test.base, PAGES * PAGE));

        test.meet();
        if (rank.initiator()) {
            Growth growth;
            // Bytes of the first and the last page that are not registered
            // are refused while nobody has these pages mapped
            for (size_t at : {FIRST - 100, LAST - 10, FIRST - 5 * PAGE,
                              LAST + 5 * PAGE}) {
                test.expect_refused(kind, at, 100, bad);
            }
            if (counts_faults()) {
                EXPECT_GT(growth.of(&C::naks) + (strcmp(way, "off") == 0), 0u);
            }
            test.expect_done(RmaKind::GetZcopy, FIRST, LAST - FIRST, remote,
                             1);
            test.expect_refused(kind, FIRST - 5 * PAGE, 100, bad);
            test.expect_refused(kind, LAST + 5 * PAGE, 100, bad);
            test.expect_done(RmaKind::GetZcopy, FIRST, LAST - FIRST, remote,
                             1);
        }
        test.node.sync();
        if (rank.target()) {
            EXPECT_EQ("", pattern_diff(test.area.at(), PAGES * PAGE, 1));
        }
        test.node.sync();
    });
}

// An old key is worth nothing: mapped pages are mapped no more.
TEST_P(Scope, WhatHasEndedIsRefused)
{
    RmaKind kind    = this->kind();
    const char *way = this->way();

    run_ranks([=](Rank &rank) {
        rings_are_soft(way);
        ScopeCase test(rank, exact(way));
        rma_limit(test.node.iface, kind, 1); // or there is none such
        auto owned   = test.own(FIRST, LAST - FIRST);
        auto beside  = test.own(40 * PAGE, 8 * PAGE);
        UctRemote remote(test.node.domain, test.share(owned.get()));
        UctRemote other(test.node.domain, test.share(beside.get()));

        test.meet();
        if (rank.initiator()) {
            test.expect_done(RmaKind::PutZcopy, FIRST, LAST - FIRST, remote,
                             1);
            test.expect_done(kind, FIRST + 100, 2000, remote, 1);
        }
        test.node.sync();
        if (rank.target()) {
            owned->end();
        }
        test.node.sync();
        if (rank.initiator()) {
            test.expect_refused(kind, FIRST + 100, 2000, remote);
            test.expect_refused(kind, LAST - 8, 8, remote);
            test.expect_done(kind, 41 * PAGE, 2000, other, 1);
        }
        test.node.sync();
        if (rank.target()) {
            EXPECT_EQ("", pattern_diff(test.area.at(), PAGES * PAGE, 1));
            owned = test.own(FIRST, LAST - FIRST);
        }
        test.node.sync();
        if (rank.initiator()) { // a key names addresses
            test.expect_done(kind, FIRST + 100, 2000, remote, 1);
        }
        test.node.sync();
    });
}

// Two registrations in one page: the one that lives keeps nothing of the other
// alive, whichever of them was there first.
TEST_P(Scope, NeighbourInThePage)
{
    constexpr size_t PAGE_AT = 16 * PAGE;
    RmaKind kind    = this->kind();
    const char *way = this->way();

    run_ranks([=](Rank &rank) {
        rings_are_soft(way);
        soft_only("INVALIDATE is not offered where there are RNICs");
        ScopeCase test(rank, exact(way));
        rma_limit(test.node.iface, kind, 1); // or there is none such

        for (size_t ends : {PAGE_AT, PAGE_AT + 2048}) {
            size_t lives = 2 * PAGE_AT + 2048 - ends;
            auto first   = test.own(ends, 64);
            auto second  = test.own(lives, 64);
            UctRemote old(test.node.domain, test.share(first.get()));
            UctRemote other(test.node.domain, test.share(second.get()));

            test.meet();
            if (rank.initiator()) {
                test.expect_done(kind, ends, 64, old, 1);
                test.expect_done(kind, lives, 64, other, 1);
            }
            test.node.sync();
            if (rank.target()) {
                Comp comp;
                EXPECT_EQ(UCS_OK, first->invalidate(comp));
                EXPECT_EQ(1u, comp.calls);
            }
            test.node.sync();
            if (rank.initiator()) {
                test.expect_done(kind, lives, 64, other, 1);
                test.expect_refused(kind, ends, 64, old);
                test.expect_refused(kind, ends + 56, 8, old);
                test.expect_done(kind, lives, 64, other, 1);
            }
            test.node.sync();
            if (rank.target()) {
                EXPECT_EQ("", pattern_diff(test.area.at(), PAGES * PAGE, 1));
            }
            test.node.sync();
        }
    });
}

// What is between is moved one-sided, whatever its edges are.
TEST(Scope, OnlyEdgesAreAskedFor)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        ScopeCase test(rank);
        auto owned = test.own(FIRST, LAST - FIRST);
        UctRemote remote(test.node.domain, test.share(owned.get()));

        test.meet();
        if (rank.initiator()) {
            for (RmaKind kind : {RmaKind::GetZcopy, RmaKind::PutZcopy}) {
                test.expect_done(kind, FIRST, LAST - FIRST, remote, 1);
                Growth growth;
                test.expect_done(kind, FIRST, LAST - FIRST, remote, 1);
                if (counts_faults()) {
                    EXPECT_EQ(2u, growth.of(&C::remote_faults))
                            << name_of(kind);
                }
                growth.reset();
                test.expect_done(kind, 17 * PAGE, 15 * PAGE, remote, 1);
                EXPECT_EQ(0u, growth.of(&C::remote_faults)) << name_of(kind);
            }
        }
        test.node.sync();
    });
}

// Of a page that is not the peer's as a whole no entry tells, and a short get, which
// waits for nobody, says that it cannot. Its own side offers it with arenas.
TEST(Scope, ShortGetOfAnEdge)
{
    run_ranks([](Rank &rank) {
        soft_only("no short get is offered");
        ScopeCase test(rank, rank.initiator() ? Settings{} : exact());
        auto owned = test.own(FIRST, LAST - FIRST);
        UctRemote remote(test.node.domain, test.share(owned.get()));

        test.meet();
        if (rank.initiator() &&
            (test.node.domain.why_no_get_short() == nullptr)) {
            test.expect_done(RmaKind::GetShort, FIRST + PAGE, 2000, remote, 1);
            pattern_fill(test.local.at(FIRST), 100, 9);
            EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                      test.transfer(RmaKind::GetShort, FIRST, 100, remote));
            EXPECT_EQ("", pattern_diff(test.local.at(FIRST), 100, 9));
            EXPECT_EQ(0u, test.node.iface.errors);
            test.expect_done(RmaKind::GetBcopy, FIRST, 100, remote, 1);
            test.expect_done(RmaKind::GetShort, FIRST + PAGE, 2000, remote, 1);
        }
        test.node.sync();
    });
}

// A whole page first, and an edge behind it, which no short get finds mapped.
TEST_P(Scope, EdgeBehindAPage)
{
    RmaKind kind    = this->kind();
    const char *way = this->way();

    run_ranks([=](Rank &rank) {
        rings_are_soft(way);
        ScopeCase test(rank, exact(way));
        rma_limit(test.node.iface, kind, 1); // or there is none such
        auto owned = test.own(16 * PAGE, PAGE + 1904);
        UctRemote remote(test.node.domain, test.share(owned.get()));

        test.meet();
        if (rank.initiator()) {
            for (size_t length : {(size_t)PAGE + 1904, (size_t)PAGE + 8}) {
                test.expect_done(kind, 16 * PAGE, length, remote, 1);
            }
        }
        test.node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Scope,
        testing::Combine(testing::ValuesIn(ALL_KINDS),
                         testing::Values("auto", "off")),
        [](const testing::TestParamInfo<WayParam> &info) {
            return name_of(std::get<0>(info.param)) +
                   ((std::get<1>(info.param)[0] == 'o') ? "Rings" : "");
        });

TEST(Scope, Atomics)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        ScopeCase test(rank);
        Node &node   = test.node;
        auto owned   = test.own(16 * PAGE, 64);
        UctRemote remote(node.domain, test.share(owned.get()));
        uint64_t result = 0;

        auto add = [&](size_t offset) {
            Comp comp;
            ssize_t ret = node.post("room", [&]() {
                return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                             &result, test.base + offset,
                                             remote.rkey(), &comp);
            });
            if (ret == UCS_INPROGRESS) {
                node.until("the end", [&]() { return comp.calls > 0; });
                ret = comp.status;
            }
            return (ucs_status_t)ret;
        };

        if (rank.target()) {
            memset(test.area.at(16 * PAGE), 0, 128);
        }
        test.meet();
        if (rank.initiator()) {
            for (uint64_t i = 0; i < 10; ++i) {
                EXPECT_EQ(UCS_OK, add(16 * PAGE + 56));
                EXPECT_EQ(i, result);
            }
            EXPECT_EQ(UCS_ERR_INVALID_ADDR, add(16 * PAGE + 64));
        }
        auto beside = test.own(16 * PAGE + 64, 64); // keeps the page
        node.sync();
        if (rank.target()) {
            owned->end();
        }
        node.sync();
        if (rank.initiator()) {
            EXPECT_NE(UCS_OK, add(16 * PAGE + 56));
            EXPECT_EQ(0u, node.iface.errors);
        }
        node.sync();
        if (rank.target()) {
            EXPECT_EQ(10u, *(uint64_t*)test.area.at(16 * PAGE + 56));
            EXPECT_EQ(0u, *(uint64_t*)test.area.at(16 * PAGE + 64));
        }
        node.sync();
    });
}

// Registrations of the same range, and ranges that overlap, are counted.
TEST(Scope, Overlaps)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        ScopeCase test(rank);
        auto one   = test.own(10 * PAGE, 10 * PAGE);
        auto same  = test.own(10 * PAGE, 10 * PAGE);
        auto right = test.own(15 * PAGE + 100, 10 * PAGE);
        UctRemote remote(test.node.domain, test.share(one.get()));
        UctRemote remote_right(test.node.domain, test.share(right.get()));
        auto end = [&](std::unique_ptr<Registered> &which) {
            test.node.sync();
            if (rank.target()) {
                which->end();
            }
            test.node.sync();
        };

        test.meet();
        if (rank.initiator()) {
            test.expect_done(RmaKind::GetZcopy, 10 * PAGE, 10 * PAGE, remote,
                             1);
            test.expect_done(RmaKind::GetZcopy, 15 * PAGE + 100, 10 * PAGE,
                             remote_right, 1);
        }
        end(one);
        if (rank.initiator()) {
            Growth growth;
            test.expect_done(RmaKind::GetZcopy, 10 * PAGE, 10 * PAGE, remote,
                             1);
            EXPECT_EQ(0u, growth.of(&C::remote_faults))
                    << "it is still registered";
        }
        end(same);
        if (rank.initiator()) {
            test.expect_refused(RmaKind::GetZcopy, 10 * PAGE, PAGE, remote);
            test.expect_refused(RmaKind::GetZcopy, 15 * PAGE - 8, 8, remote);
            Growth growth;
            test.expect_done(RmaKind::GetZcopy, 15 * PAGE + 100, 10 * PAGE,
                             remote_right, 1);
            if (counts_faults()) {
                EXPECT_EQ(2u, growth.of(&C::remote_faults))
                        << "its edges are asked for; other pages have gone";
            }
        }
        end(right);
        if (rank.initiator()) {
            test.expect_refused(RmaKind::GetZcopy, 24 * PAGE, PAGE,
                                remote_right);
        }
        test.node.sync();
    });
}

// The set itself, against a plain list: many regions, in any order.
TEST(Scope, ManyRegions)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        ScopeCase test(rank);
        constexpr size_t COUNT = 300;
        std::vector<std::pair<size_t, size_t>> ranges;
        std::vector<bool> lives(COUNT, true);
        std::vector<std::unique_ptr<Registered>> owned(COUNT);
        uint64_t state = 12345;
        auto random = [&](size_t below) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            return (size_t)(state >> 33) % below;
        };

        for (size_t i = 0; i < COUNT; ++i) {
            size_t first = random(PAGES * PAGE - 1);
            size_t left  = PAGES * PAGE - first;
            ranges.emplace_back(first, 1 + random(std::min(left, 3 * PAGE)));
        }
        for (size_t i = 0; i < COUNT; ++i) {
            owned[i] = test.own(ranges[i].first, ranges[i].second);
        }
        std::string honest = test.share(owned[0].get());
        UctRemote all(test.node.domain,
                      forge(honest, test.base, PAGES * PAGE));
        test.meet();

        for (size_t round = 0; round < COUNT; round += 50) {
            if (rank.initiator()) {
                for (int i = 0; i < 60; ++i) {
                    size_t at  = random(PAGES * PAGE - PAGE);
                    size_t len = 1 + random(600);
                    bool covered = false, touched = true;
                    for (size_t j = 0; j < COUNT; ++j) {
                        covered = covered ||
                                  (lives[j] && (ranges[j].first <= at) &&
                                   (ranges[j].first + ranges[j].second >=
                                    at + len));
                    }
                    for (size_t p = at / PAGE; p <= (at + len - 1) / PAGE;
                         ++p) {
                        bool any = false;
                        for (size_t j = 0; j < COUNT; ++j) {
                            any = any ||
                                  (lives[j] &&
                                   (ranges[j].first < (p + 1) * PAGE) &&
                                   (ranges[j].first + ranges[j].second >
                                    p * PAGE));
                        }
                        touched = touched && any;
                    }
                    ucs_status_t status = test.transfer(RmaKind::GetZcopy, at,
                                                        len, all);
                    if (covered) {
                        EXPECT_EQ(UCS_OK, status) << at << " " << len;
                    } else if (!touched) {
                        EXPECT_NE(UCS_OK, status) << at << " " << len;
                    } // else: as far as its pages are mapped
                }
            }
            test.node.sync();
            for (int i = 0; i < 50; ++i) {
                size_t victim = (i * 7 + round) % COUNT;
                lives[victim] = false;
                if (rank.target()) {
                    owned[victim]->end();
                }
            }
            test.node.sync();
        }
    });
}

// One's own side of a transfer too, but for what is copied.
class ScopeWay : public testing::TestWithParam<const char*> {
};

TEST_P(ScopeWay, LocalMemory)
{
    const char *way = GetParam();

    run_ranks([=](Rank &rank) {
        rings_are_soft(way);
        ScopeCase test(rank, exact(way));
        auto owned = test.own(0, PAGES * PAGE);
        UctRemote remote(test.node.domain, test.share(owned.get()));
        Node &node = test.node;

        test.meet();
        if (rank.initiator()) {
            for (RmaKind kind : ALL_KINDS) {
                std::vector<uint8_t> buffer(3000);
                Comp comp;
                ssize_t ret;

                if (!test.offers(kind)) {
                    continue;
                }

                pattern_fill(buffer.data(), buffer.size(), 1);
                ret = node.post("room", [&]() {
                    return rma_post(node, kind, buffer.data(),
                                    UCT_MEM_HANDLE_NULL, buffer.size(),
                                    remote.address, remote.rkey(), &comp);
                });
                if (ret == UCS_INPROGRESS) {
                    node.until("the end", [&]() { return comp.calls > 0; });
                    ret = comp.status;
                }
                EXPECT_EQ(rma_is_zcopy(kind) ? UCS_ERR_INVALID_ADDR : UCS_OK,
                          ret) << name_of(kind);
                EXPECT_EQ("", pattern_diff(buffer.data(), buffer.size(), 1));
                node.flush();
            }
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(Uct, ScopeWay, testing::Values("auto", "off"),
                         [](const testing::TestParamInfo<const char*> &info) {
                             return std::string(info.param);
                         });

// What UCX allocates is registered while it is there.
TEST(Scope, AllocatedMemory)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        ScopeCase test(rank);
        auto memory = std::make_unique<UctMem>(test.node.domain,
                                               MemKind::Allocated, 8 * PAGE);
        UctRemote remote(test.node.domain,
                         rank.oob.exchange(memory->describe()));

        pattern_fill(memory->at(), 8 * PAGE, 1);
        test.meet();
        if (rank.initiator()) {
            test.base = remote.address;
            for (int i = 0; i < 3; ++i) { // the last ones find it mapped
                for (RmaKind kind : ALL_KINDS) {
                    if (test.offers(kind)) {
                        test.expect_done(kind, 100, 5000, remote, 1);
                    }
                }
            }
            EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                      test.transfer(RmaKind::GetZcopy, 8 * PAGE, 8, remote));
        }
        test.node.sync();
        if (rank.target()) {
            memory.reset();
        }
        test.node.sync();
        if (rank.initiator()) {
            EXPECT_NE(UCS_OK, test.transfer(RmaKind::GetZcopy, 100, 5000,
                                            remote));
        }
        test.node.sync();
    });
}

// A child gives back what it has inherited, and peers of its own reach nothing
// that only its parent has registered.
TEST(Scope, Fork)
{
    run_in(Topology::Loopback, [](Rank&) {
        nprdma_only();
        UctDomain domain(exact());
        UctIface iface(domain);
        Area area(4 * PAGE), other(4 * PAGE);
        Registered memory(domain, area.at(), area.length());
        int status = -1;

        pid_t child = fork();
        if (child == 0) {
            int step = 9;
            try {
                UctDomain fresh(exact());
                Registered mine(fresh, other.at(), other.length());
                Registered again(fresh, area.at(), area.length());
                memory.end();
                again.end();
                mine.end();
                step = 0;
            } catch (const std::exception &) {
            }
            _exit(step);
        }
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status);
    });
}

// Swap-in of what is not registered is no error, and maps nothing.
TEST(Scope, Notifications)
{
    run_in(Topology::Loopback, [](Rank &rank) {
        nprdma_only();
        ScopeCase test(rank);
        Registered memory(test.node.domain, test.area.at(4 * PAGE), PAGE);

        EXPECT_EQ(0, nprdma_notify_swap_in(test.area.at(), 16 * PAGE));
        EXPECT_EQ(0, nprdma_notify_swap_in(test.area.at(4 * PAGE), PAGE));
        EXPECT_EQ(0, nprdma_prefetch(test.area.at(4 * PAGE), PAGE, 0));
        EXPECT_EQ(-EFAULT, nprdma_prefetch(test.area.at(5 * PAGE), PAGE, 0));
        EXPECT_EQ(0, nprdma_notify_swap_out(test.area.at(), 16 * PAGE));
    });
}

} // namespace
