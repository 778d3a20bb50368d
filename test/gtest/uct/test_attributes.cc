// SPDX-License-Identifier: BSD-3-Clause
// What the transport says of itself, and that registering memory is free.
#include "uct_face.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

using namespace nt;

static void alone(const Body &body)
{
    run_in(Topology::Loopback, body);
}

TEST(Attributes, CapabilitiesOfNprdma)
{
    alone([](Rank&) {
        if (!is_nprdma()) {
            throw Skipped("the list is nprdma's own");
        }

        UctDomain domain;
        UctIface iface(domain);
        uint64_t fetch = UCS_BIT(UCT_ATOMIC_OP_ADD) |
                         UCS_BIT(UCT_ATOMIC_OP_AND) |
                         UCS_BIT(UCT_ATOMIC_OP_OR) |
                         UCS_BIT(UCT_ATOMIC_OP_XOR) |
                         UCS_BIT(UCT_ATOMIC_OP_SWAP) |
                         UCS_BIT(UCT_ATOMIC_OP_CSWAP);
        uint64_t post  = fetch & ~(UCS_BIT(UCT_ATOMIC_OP_SWAP) |
                                   UCS_BIT(UCT_ATOMIC_OP_CSWAP));

        iface.require(UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY |
                      UCT_IFACE_FLAG_AM_ZCOPY, "active messages");
        iface.require(UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
                      UCT_IFACE_FLAG_PUT_ZCOPY, "all kinds of put");
        iface.require(UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY,
                      "get");
        EXPECT_EQ(is_soft() && (domain.why_no_get_short() == nullptr),
                  !!(iface.attr.cap.flags & UCT_IFACE_FLAG_GET_SHORT));
        iface.require(UCT_IFACE_FLAG_PENDING, "PENDING");
        iface.require(UCT_IFACE_FLAG_CONNECT_TO_IFACE, "CONNECT_TO_IFACE");
        iface.require(UCT_IFACE_FLAG_EP_CHECK, "EP_CHECK");
        iface.require(UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE,
                      "ERRHANDLE_PEER_FAILURE");
        iface.require(UCT_IFACE_FLAG_CB_SYNC, "CB_SYNC");
        iface.require(UCT_IFACE_FLAG_ATOMIC_CPU, "ATOMIC_CPU");
        iface.require_events(UCT_IFACE_FLAG_EVENT_FD |
                             UCT_IFACE_FLAG_EVENT_RECV |
                             UCT_IFACE_FLAG_EVENT_SEND_COMP, "events");
        EXPECT_EQ(post, iface.attr.cap.atomic32.op_flags & post);
        EXPECT_EQ(post, iface.attr.cap.atomic64.op_flags & post);
        EXPECT_EQ(fetch, iface.attr.cap.atomic32.fop_flags & fetch);
        EXPECT_EQ(fetch, iface.attr.cap.atomic64.fop_flags & fetch);
        EXPECT_TRUE(domain.attr.cap.flags & UCT_MD_FLAG_REG);
        EXPECT_TRUE(domain.attr.cap.flags & UCT_MD_FLAG_ALLOC);
        EXPECT_GT(domain.attr.reg_cost.c, 0);
    });
}

// A short get is complete when it returns: it is offered where no target's CPU has a
// part in it.
TEST(Attributes, ShortGets)
{
    for (const Settings &settings : std::vector<Settings>{
                 {{"SINGLE_COPY", "off"}}, {{"MR_SCOPE", "exact"}}}) {
        alone([&settings](Rank&) {
            if (!is_nprdma()) {
                throw Skipped("the settings are nprdma's own");
            }

            UctDomain domain(settings);
            UctIface iface(domain);

            EXPECT_FALSE(iface.attr.cap.flags & UCT_IFACE_FLAG_GET_SHORT)
                    << settings[0].first;
            EXPECT_EQ(0u, iface.attr.cap.get.max_short);
            iface.require(UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY,
                          "get");
        });
    }
}

TEST(Attributes, SizesAreSane)
{
    alone([](Rank&) {
        UctDomain domain;
        UctIface iface(domain);
        const auto &am = iface.attr.cap.am;

        // UCX 1.13 crashes with a largest active message of 64 or 1024
        for (size_t bad : {64, 1024}) {
            EXPECT_NE(bad, am.max_short);
            EXPECT_NE(bad, am.max_bcopy);
            EXPECT_NE(bad, am.max_zcopy);
        }
        EXPECT_LE(domain.attr.rkey_packed_size, 96u);

        if (iface.attr.cap.flags & UCT_IFACE_FLAG_AM_SHORT) {
            EXPECT_GE(am.max_short, 2 * sizeof(uint64_t));
        }
        if (iface.attr.cap.flags & UCT_IFACE_FLAG_AM_BCOPY) {
            EXPECT_GE(am.max_bcopy, 64u);
        }
        if (iface.attr.cap.flags & UCT_IFACE_FLAG_AM_ZCOPY) {
            EXPECT_GE(am.max_iov, 1u);
            EXPECT_LE(am.min_zcopy, am.max_zcopy);
            EXPECT_LT(am.max_hdr, am.max_zcopy);
        }
        if (iface.attr.cap.flags & UCT_IFACE_FLAG_PUT_ZCOPY) {
            EXPECT_GE(iface.attr.cap.put.max_iov, 1u);
        }
        if (iface.attr.cap.flags & UCT_IFACE_FLAG_GET_ZCOPY) {
            EXPECT_GE(iface.attr.cap.get.max_iov, 1u);
        }
        EXPECT_GT(iface.attr.bandwidth.dedicated +
                  iface.attr.bandwidth.shared, 0);
        EXPECT_GE(iface.attr.latency.c, 0);
    });
}

TEST(Attributes, AddressesStayTheSameAndDiffer)
{
    alone([](Rank&) {
        UctDomain domain;
        UctIface first(domain), second(domain);
        std::string again(first.address.size(), 0);

        if (is_nprdma()) {
            EXPECT_NE(first.address, second.address);
        }
        check(uct_iface_get_device_address(first.iface,
                                           (uct_device_addr_t*)&again[0]),
              "uct_iface_get_device_address");
        EXPECT_EQ(0, again.compare(0, first.attr.device_addr_len,
                                   first.address, 0,
                                   first.attr.device_addr_len));
    });
}

TEST(Attributes, OpenAndCloseManyTimes)
{
    alone([](Rank&) {
        for (int i = 0; i < 20; ++i) {
            UctDomain domain;
            UctIface iface(domain);
            UctEp ep(iface, iface.address);
            domain.progress();
        }
    });
}

// Resident bytes, counted from the page tables; allocates nothing.
static long resident_kib()
{
    static char text[4096];
    int fd      = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t ret = (fd < 0) ? -1 : read(fd, text, sizeof(text) - 1);
    long kib;

    if (fd >= 0) {
        close(fd);
    }
    if (ret <= 0) {
        return -1;
    }

    text[ret]        = 0;
    const char *line = strstr(text, "\nRss:");
    return ((line != nullptr) && (sscanf(line, "\nRss: %ld", &kib) == 1)) ?
           kib : -1;
}

TEST(Registration, ReservedMemoryStaysUntouched)
{
    alone([](Rank&) {
        const size_t reserved = 64ul << 30;
        UctDomain domain;
        UctIface iface(domain);

        if (!is_nprdma()) {
            throw Skipped(test_tl() + " need not register untouched memory");
        }

        void *memory = mmap(nullptr, reserved, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                            0);
        ASSERT_NE(MAP_FAILED, memory);

        // The second round finds all code and tables in place
        for (int round = 0; round < 2; ++round) {
            std::string key(domain.attr.rkey_packed_size, 0);
            uct_mem_h memh;
            long before = resident_kib();

            check(uct_md_mem_reg(domain.md, memory, reserved,
                                 UCT_MD_MEM_ACCESS_ALL, &memh),
                  "registration of 64 GiB");
            check(uct_md_mkey_pack(domain.md, memh, &key[0]),
                  "uct_md_mkey_pack");
            check(uct_md_mem_dereg(domain.md, memh), "uct_md_mem_dereg");
            long after = resident_kib();

            ASSERT_GT(before, 0);
            if (round > 0) {
                // Other threads may touch pages of their own meanwhile
                EXPECT_LE(after - before, 64);
            }
        }
        munmap(memory, reserved);
    });
}

TEST(Registration, ManyTimesGrowsNothing)
{
    alone([](Rank&) {
        UctDomain domain;
        std::vector<char> buffer(1 << 20);
        long before = resident_kib(); // and what measuring needs is in

        if (!(domain.attr.cap.flags & UCT_MD_FLAG_REG)) {
            lacking("memory registration");
        }
        for (int i = 0; i < 40000; ++i) {
            uct_mem_h memh;

            if (i == 20000) {
                before = resident_kib();
            }
            check(uct_md_mem_reg(domain.md, &buffer[i], 1 + i,
                                 UCT_MD_MEM_ACCESS_ALL, &memh),
                  "uct_md_mem_reg");
            check(uct_md_mem_dereg(domain.md, memh), "uct_md_mem_dereg");
        }
#ifdef __SANITIZE_ADDRESS__
        const long own = 4096; // the sanitizer's own, made when it likes
#else
        const long own = 0;
#endif
        EXPECT_LE(resident_kib() - before, own);
    });
}

TEST(Registration, AllocatedMemoryGoesAway)
{
    alone([](Rank&) {
        UctDomain domain;

        for (int i = 0; i < 200; ++i) {
            UctMem memory(domain, MemKind::Allocated, 1 << 20);
            pattern_fill(memory.at(), 1 << 20, i);
            EXPECT_EQ("", pattern_diff(memory.at(), 1 << 20, i));
        }
        EXPECT_LT(resident_kib(), 100 * 1024);
    });
}
