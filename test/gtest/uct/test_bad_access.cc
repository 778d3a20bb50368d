// SPDX-License-Identifier: BSD-3-Clause
// Wrong keys, and addresses where nothing is: errors, and nobody crashes.
#include "rma_op.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <ucs/config/global_opts.h>

#include <cstring>
#include <tuple>

using namespace nt;

namespace {

// Stock transports trust keys and addresses.
void nprdma_only(const std::string &why)
{
    if (!is_nprdma()) {
        throw Skipped(test_tl() + " " + why);
    }
}

TEST(BadKey, IsRefused)
{
    run_in(Topology::Loopback, [](Rank&) {
        nprdma_only("does not check keys");
        // A thousand refusals need not be read
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");

        UctDomain domain;
        size_t size = domain.attr.rkey_packed_size;
        UctMem good(domain, MemKind::Heap, 4096);
        std::string key = good.describe().substr(sizeof(uint64_t));
        uct_rkey_bundle_t bundle;

        for (int fill : {0x00, 0xff, 0x5a, 0x01}) {
            std::string bad(size, fill);
            EXPECT_NE(UCS_OK, uct_rkey_unpack(domain.component, bad.data(),
                                              &bundle)) << fill;
        }
        for (uint64_t seed = 0; seed < 1000; ++seed) {
            std::string bad(size, 0);
            pattern_fill(&bad[0], size, seed);
            EXPECT_NE(UCS_OK, uct_rkey_unpack(domain.component, bad.data(),
                                              &bundle)) << seed;
        }
        ASSERT_EQ(UCS_OK, uct_rkey_unpack(domain.component, key.data(),
                                          &bundle));
        uct_rkey_release(domain.component, &bundle);
    });
}

// Single bits of a key turned over: refused, or operations end in an error
// or reach memory that is the peer's own; nobody crashes.
TEST(BadKey, TurnedBitsHarmNobody)
{
    run_ranks([](Rank &rank) {
        nprdma_only("does not check keys");
        check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");

        Node node(rank);
        UctMem local(node.domain, MemKind::Local, 4096);
        UctMem target(node.domain, MemKind::Mmap, 4096);
        std::string theirs = rank.oob.exchange(target.describe());
        std::string address = rank.oob.exchange(node.iface.address);
        size_t bits = 8 * node.domain.attr.rkey_packed_size;

        for (size_t bit = 0; (rank.id == 0) && (bit < bits); ++bit) {
            std::string bad = theirs;
            bad[sizeof(uint64_t) + bit / 8] ^= 1 << (bit % 8);
            try {
                UctRemote remote(node.domain, bad);
                node.ep.reset();
                node.ep = std::make_unique<UctEp>(node.iface, address);
                Comp comp;
                ssize_t ret = node.post("get", [&]() {
                    return rma_post(node, RmaKind::GetZcopy, local, 0, 64,
                                    remote.address, remote.rkey(), &comp);
                });
                node.until("get", [&]() {
                    return (ret != UCS_INPROGRESS) || (comp.calls > 0);
                });
            } catch (const Failed &error) {
                if (strstr(error.what(), "waited") != nullptr) {
                    throw;
                }
            }
        }
        node.sync();
    });
}

struct BadTarget {
    const char *name;
    void       (*spoil)(uint8_t *middle);    // at the target
    uint64_t   (*aim)(uint64_t middle);      // at the initiator
};

// The middle is the second of three mapped pages.
const BadTarget BAD_TARGETS[] = {
    {"UnmappedInArena",
     [](uint8_t *middle) { munmap(middle, 4096); },
     [](uint64_t middle) { return middle + 100; }},
    {"IntoUnmapped", // the first bytes are in the first page
     [](uint8_t *middle) { munmap(middle, 4096); },
     [](uint64_t middle) { return middle - 16; }},
    {"Inaccessible",
     [](uint8_t *middle) { mprotect(middle, 4096, PROT_NONE); },
     [](uint64_t middle) { return middle; }},
    {"OutsideTheKey", [](uint8_t*) {},
     [](uint64_t middle) { return middle ^ (UINT64_C(64) << 30); }},
    {"PageZero", [](uint8_t*) {}, [](uint64_t) { return (uint64_t)64; }},
    {"NotCanonical", [](uint8_t*) {},
     [](uint64_t middle) { return middle | (UINT64_C(1) << 62); }},
    {"EndOfAddresses", [](uint8_t*) {}, [](uint64_t) { return ~UINT64_C(15); }},
};

class BadAddress : public testing::TestWithParam<
                           std::tuple<RmaKind, BadTarget>> {
};

// Three mapped pages whose middle one a test may spoil.
class ThreePages {
public:
    explicit ThreePages(UctDomain &domain) : m_domain(domain)
    {
        // Far from where the kernel puts mappings, so that none lands in
        // the page that a test takes away
        void *place  = (void*)UINT64_C(0x200000000000);
        void *mapped = mmap(place, 3 * 4096, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS |
                            MAP_FIXED_NOREPLACE, -1, 0);
        if (mapped != place) {
            throw Failed("no memory at the wanted place");
        }
        m_base = static_cast<uint8_t*>(mapped);
        pattern_fill(m_base, 3 * 4096, 31);
        check(uct_md_mem_reg(domain.md, m_base, 3 * 4096,
                             UCT_MD_MEM_ACCESS_ALL, &m_memh),
              "uct_md_mem_reg");
    }
    ~ThreePages()
    {
        uct_md_mem_dereg(m_domain.md, m_memh);
        munmap(m_base, 3 * 4096);
    }

    uint8_t *middle() const { return m_base + 4096; }

    std::string describe() const
    {
        uint64_t address = (uintptr_t)middle();
        std::string key(m_domain.attr.rkey_packed_size, 0);

        check(uct_md_mkey_pack(m_domain.md, m_memh, &key[0]), "pack");
        return std::string((char*)&address, sizeof(address)) + key;
    }

    void expect_others_untouched(size_t before) const
    {
        EXPECT_EQ("", pattern_diff(m_base, 4096 - before, 31));
        EXPECT_EQ("", pattern_diff(m_base + 8192, 4096, 31, 8192));
    }

private:
    UctDomain &m_domain;
    uint8_t   *m_base;
    uct_mem_h m_memh;
};

// One operation that must end in an error, of whatever kind.
void expect_failure(Node &node, RmaKind kind, const UctMem &local,
                    uint64_t address, uct_rkey_t rkey)
{
    Comp comp;
    ssize_t ret = node.post("room", [&]() {
        return rma_post(node, kind, local, 0, 64, address, rkey, &comp);
    });

    if (ret == UCS_INPROGRESS) {
        node.until("completion", [&]() { return comp.calls > 0; });
        ret = comp.status;
    }
    if (ret >= 0) {
        // A put may succeed locally; then the flush tells
        ret = node.try_flush();
    }
    EXPECT_TRUE((ret < 0) || (node.iface.errors > 0))
            << name_of(kind) << " was reported as done";
}

// What may not begin is told by its completion, and hurts nothing behind it: no
// atomic, which waits for what is before, no fence, and no flush.
TEST(BadKey, OthersGoOn)
{
    run_ranks([](Rank &rank) {
        nprdma_only("does not check addresses");

        Node node(rank);
        UctMem local(node.domain, MemKind::Local, 4096);
        UctMem good(node.domain, MemKind::Heap, 4096);
        UctRemote remote(node.domain, rank.oob.exchange(good.describe()));

        memset(good.at(), 0, 4096);
        node.sync();
        for (uint64_t i = 0; (rank.id == 0) && (i < 100); ++i) {
            const RmaKind kind = (i % 2) ? RmaKind::GetZcopy :
                                 RmaKind::GetBcopy;
            uint64_t result = 77, nowhere = 0;
            Comp refused, none, atomic;
            ssize_t ret;

            ret = node.post("room", [&]() {
                return rma_post(node, kind, local, 0, 64, UINT64_MAX - 63,
                                remote.rkey(), &refused);
            });
            ASSERT_EQ(UCS_INPROGRESS, ret);
            ret = node.post("room", [&]() {
                return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                             &nowhere, UINT64_MAX - 63,
                                             remote.rkey(), &none);
            });
            ASSERT_EQ(UCS_INPROGRESS, ret);
            if (i % 3 == 0) {
                ASSERT_EQ(UCS_OK, uct_ep_fence(node.ep->ep, 0));
            }
            node.complete("an atomic behind them", atomic, [&]() {
                return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                             &result, remote.address,
                                             remote.rkey(), &atomic);
            });
            EXPECT_EQ(i, result);
            node.flush();
            EXPECT_EQ(1, refused.calls);
            EXPECT_EQ(UCS_ERR_INVALID_ADDR, refused.status);
            EXPECT_EQ(1, none.calls);
            EXPECT_EQ(UCS_ERR_INVALID_ADDR, none.status);
            EXPECT_EQ(0, node.iface.errors);
        }
        node.sync();
    });
}

TEST_P(BadAddress, IsAnErrorAndNoCrash)
{
    run_ranks([](Rank &rank) {
        nprdma_only("does not check addresses");

        RmaKind kind     = std::get<0>(GetParam());
        BadTarget target = std::get<1>(GetParam());
        Node node(rank);
        UctMem local(node.domain, MemKind::Local, 4096);
        UctMem good(node.domain, MemKind::Heap, 4096);
        ThreePages pages(node.domain);
        UctRemote bad(node.domain, rank.oob.exchange(pages.describe()));
        UctRemote remote(node.domain, rank.oob.exchange(good.describe()));
        std::string theirs = rank.oob.exchange(node.iface.address);

        if (rank.id == 1) {
            target.spoil(pages.middle());
        }
        pattern_fill(good.at(), 4096, rank.id);
        pattern_fill(local.at(), 4096, 55);
        node.sync();
        if (rank.id == 0) {
            expect_failure(node, kind, local, target.aim(bad.address),
                           bad.rkey());
        }
        node.sync();
        if (rank.id == 1) {
            pages.expect_others_untouched(4096);
            pages.expect_others_untouched(
                    (target.name == std::string("IntoUnmapped")) ? 16 : 0);
        }

        // The peer lives on, and a new endpoint works
        node.ep.reset();
        node.ep = std::make_unique<UctEp>(node.iface, theirs);
        if (rank.id == 0) {
            rma_transfer(node, RmaKind::GetZcopy, local, 0, 4096,
                         remote.address, remote.rkey());
            EXPECT_EQ("", pattern_diff(local.at(), 4096, 1));
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, BadAddress,
        testing::Combine(testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                                         RmaKind::PutZcopy, RmaKind::GetShort,
                                         RmaKind::GetBcopy, RmaKind::GetZcopy),
                         testing::ValuesIn(BAD_TARGETS)),
        [](const testing::TestParamInfo<BadAddress::ParamType> &info) {
            return name_of(std::get<0>(info.param)) +
                   std::get<1>(info.param).name;
        });

TEST(BadAtomic, OnNothing)
{
    run_ranks([](Rank &rank) {
        nprdma_only("does not check addresses");

        Node node(rank);
        ThreePages pages(node.domain);
        UctRemote bad(node.domain, rank.oob.exchange(pages.describe()));
        uint64_t result = 0;
        Comp comp;

        if (rank.id == 1) {
            munmap(pages.middle(), 4096);
        }
        node.sync();
        if (rank.id == 0) {
            ssize_t ret = node.post("room", [&]() {
                return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD,
                                             1, &result, bad.address,
                                             bad.rkey(), &comp);
            });
            if (ret == UCS_INPROGRESS) {
                node.until("completion", [&]() { return comp.calls > 0; });
                ret = comp.status;
            }
            EXPECT_TRUE((ret < 0) || (node.iface.errors > 0));
        }
        node.sync();
    });
}

} // namespace
