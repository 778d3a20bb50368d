// SPDX-License-Identifier: BSD-3-Clause
// What a program says of memory that it has registered (ucp_mem_advise), and
// whether two keys are of the same memory (ucp_rkey_compare).
#include "ucp_face.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include <nprdma/nprdma.h>
#include <ucp/api/ucp_version.h>

using namespace nt;

namespace {

constexpr size_t LENGTH = 1 << 20;

// Anonymous memory of which no page is there, registered
class Absent {
public:
    explicit Absent(UcpNode &node) : m_node(node)
    {
        ucp_mem_map_params_t params = {};

        address = (uint8_t*)mmap(nullptr, LENGTH, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (address == MAP_FAILED) {
            throw Failed("no memory");
        }
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                            UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address    = address;
        params.length     = LENGTH;
        check(ucp_mem_map(node.context, &params, &m_memh), "ucp_mem_map");
    }

    ~Absent()
    {
        ucp_mem_unmap(m_node.context, m_memh);
        munmap(address, LENGTH);
    }

    Absent(const Absent&) = delete;

    ucs_status_t advise(size_t offset, size_t length, ucp_mem_advice_t advice)
    {
        ucp_mem_advise_params_t params;

        params.field_mask = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS |
                            UCP_MEM_ADVISE_PARAM_FIELD_LENGTH |
                            UCP_MEM_ADVISE_PARAM_FIELD_ADVICE;
        params.address    = address + offset;
        params.length     = length;
        params.advice     = advice;
        return ucp_mem_advise(m_node.context, m_memh, &params);
    }

    // Pages that are there, of the whole
    size_t present() const
    {
        const size_t page = getpagesize();
        std::vector<unsigned char> map(LENGTH / page);
        size_t count = 0;

        if (mincore(address, LENGTH, map.data()) != 0) {
            throw Failed("mincore");
        }
        for (unsigned char is_here : map) {
            count += is_here & 1;
        }
        return count;
    }

    uint8_t *address;

private:
    UcpNode   &m_node;
    ucp_mem_h m_memh = nullptr;
};

// In each scope, over one rank that is connected with itself
void run(const std::function<void(UcpNode&)> &body)
{
    RunOptions options;

    options.ranks = 1;
    if (!is_nprdma()) {
        GTEST_SKIP() << "what it does is the transport's own";
    }
    for (const char *scope : {"arena", "exact"}) {
        const Body rank_body = [=](Rank &rank) {
            setenv("UCX_NPRDMA_MR_SCOPE", scope, 1);
            use_protocols(usual_protocols());
            UcpNode node(rank, {UCP_FEATURE_RMA});
            body(node);
        };

        run_ranks(rank_body, options);
    }
}

} // namespace

TEST(Advice, BringsPagesIn)
{
    run([](UcpNode &node) {
        const size_t page = getpagesize();
        Absent memory(node);

        ASSERT_EQ(0u, memory.present());
        ASSERT_EQ(UCS_OK, memory.advise(page, 8 * page, UCP_MADV_WILLNEED));
        EXPECT_EQ(8u, memory.present());
        ASSERT_EQ(UCS_OK, memory.advise(0, LENGTH, UCP_MADV_WILLNEED));
        EXPECT_EQ(LENGTH / page, memory.present());
        for (size_t i = 0; i < LENGTH; i += page / 2) {
            ASSERT_EQ(0, memory.address[i]) << i;
        }
    });
}

TEST(Advice, OfMemoryThatIsOnlyRead)
{
    run([](UcpNode &node) {
        Absent memory(node);

        ASSERT_EQ(0, mprotect(memory.address, LENGTH, PROT_READ));
        ASSERT_EQ(UCS_OK, memory.advise(0, LENGTH, UCP_MADV_WILLNEED));
        EXPECT_EQ(LENGTH / getpagesize(), memory.present());
    });
}

TEST(Advice, OfMemoryThatHasGone)
{
    run([](UcpNode &node) {
        const size_t page = getpagesize();
        Absent memory(node);

        ASSERT_EQ(0, mprotect(memory.address, page, PROT_NONE));
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  memory.advise(0, LENGTH, UCP_MADV_WILLNEED));
    });
}

// What a swapper brings in it may be told to need
struct Swapping {
    Absent       *memory;
    int          calls  = 0;
    ucs_status_t status = UCS_INPROGRESS;
};

static int swap_in(void *arg, void *va, size_t length, int)
{
    auto *swapping = (Swapping*)arg;

    ++swapping->calls;
    swapping->status = swapping->memory->advise(0, LENGTH, UCP_MADV_WILLNEED);
    memset(va, 7, length);
    return 0;
}

TEST(Advice, WithinASwapperDoesNothing)
{
    run([](UcpNode &node) {
        Absent memory(node);
        Swapping swapping;
        nprdma_swapper_t swapper = {};

        swapping.memory = &memory;
        swapper.swap_in = swap_in;
        swapper.arg     = &swapping;
        ASSERT_EQ(0, nprdma_register_swapper(memory.address, LENGTH, &swapper));
        ASSERT_EQ(0, nprdma_notify_swap_out(memory.address, LENGTH));
        ASSERT_EQ(UCS_OK, memory.advise(0, LENGTH, UCP_MADV_WILLNEED));
        EXPECT_GE(swapping.calls, 1);
        EXPECT_EQ(UCS_OK, swapping.status);
        EXPECT_EQ(7, memory.address[LENGTH - 1]);
        EXPECT_EQ(0, nprdma_unregister_swapper(memory.address, LENGTH));
    });
}

TEST(Advice, OfNothingSpecialDoesNothing)
{
    run([](UcpNode &node) {
        Absent memory(node);

        ASSERT_EQ(UCS_OK, memory.advise(0, LENGTH, UCP_MADV_NORMAL));
        EXPECT_EQ(0u, memory.present());
    });
}

#if UCP_API_VERSION >= UCP_VERSION(1, 16)
static int compare(UcpNode &node, const UcpRemote &one, const UcpRemote &other)
{
    ucp_rkey_compare_params_t params = {};
    int result                       = -99;

    check(ucp_rkey_compare(node.worker, one.rkey, other.rkey, &params, &result),
          "ucp_rkey_compare");
    return result;
}

TEST(Keys, OfTheSameMemoryAreEqual)
{
    run([](UcpNode &node) {
        UcpMem memory(node, LENGTH, false), segment(node, LENGTH, true);
        UcpRemote one(node.ep, memory.describe());
        UcpRemote same(node.ep, memory.describe());
        UcpRemote other(node.ep, segment.describe());

        EXPECT_EQ(0, compare(node, one, same));
        EXPECT_NE(0, compare(node, one, other));
        EXPECT_EQ(compare(node, one, other) > 0, compare(node, other, one) < 0);
    });
}
#endif
