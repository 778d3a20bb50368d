// SPDX-License-Identifier: BSD-3-Clause
// What a program keeps to itself where nprdma alone registers memory: libc's
// functions, and signals.
#include "ucp_face.h"

#include <dlfcn.h>
#if __has_include(<infiniband/verbs.h>)
#  include <infiniband/verbs.h>
#  define HAS_VERBS 1
#endif
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

using namespace nt;

namespace {

constexpr size_t LENGTH = 1 << 20;

// Functions that UCX would patch to hear of memory that comes and goes.
const char *const FUNCTIONS[] = {"mmap", "munmap", "mremap", "brk", "sbrk",
                                 "madvise", "shmat", "shmdt"};

// The first instructions of a function as its library's file has them.
std::string code_in_file(const void *func)
{
    std::ifstream maps("/proc/self/maps");
    uintptr_t address = reinterpret_cast<uintptr_t>(func);
    std::string line;

    while (std::getline(maps, line)) {
        unsigned long start, end, offset;
        int at = 0;

        if ((sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %*s %n", &start, &end,
                    &offset, &at) == 3) && (at > 0) && (address >= start) &&
            (address < end)) {
            std::ifstream file(line.substr(at), std::ios::binary);
            std::string code(16, '\0');

            file.seekg(address - start + offset);
            if (file.read(&code[0], code.size())) {
                return code;
            }
        }
    }
    throw Failed("a function is in no file");
}

void message(UcpNode &node, uint8_t *to, uint8_t *from, uint64_t seed)
{
    pattern_fill(from, LENGTH, seed);
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(
            node.worker, to, LENGTH, seed, ~(ucp_tag_t)0, &no_params());
    node.finish(ucp_tag_send_nbx(node.ep, from, LENGTH, seed, &no_params()),
                "send");
    node.finish(receive, "receive");
    EXPECT_EQ("", pattern_diff(to, LENGTH, seed));
    node.sync();
}

TEST(Untouched, Libc)
{
    Mode{usual_protocols(), "auto", 2}.run([](Rank &rank) {
        if (!is_nprdma()) {
            throw Skipped("other transports listen to memory");
        }
        if (ucx_has(16) && !ucx_has(22)) {
            throw Skipped("UCX 1.16 to 1.21 crash without their registration "
                          "cache, which watches memory");
        }
        UcpNode node(rank, {UCP_FEATURE_TAG});
        std::vector<uint8_t> from(LENGTH), to(LENGTH);

        message(node, to.data(), from.data(), 1);
        for (const char *name : FUNCTIONS) {
            const void *func = dlsym(RTLD_DEFAULT, name);

            EXPECT_EQ(0, memcmp(func, code_in_file(func).data(), 16))
                    << name << " was patched: did nprdma-run not set "
                       "UCX_MEM_EVENTS=n?";
        }
    });
}

#if HAS_VERBS
// libibverbs as the program has loaded it, or a module of UCX.
template <typename Func> Func *verbs(const char *name)
{
    static void *library = dlopen("libibverbs.so.1", RTLD_NOW);

    return reinterpret_cast<Func*>(dlsym(library, name));
}

size_t count_mappings(const void *area, size_t length)
{
    std::ifstream maps("/proc/self/maps");
    uintptr_t from = reinterpret_cast<uintptr_t>(area);
    std::string line;
    size_t count = 0;

    while (std::getline(maps, line)) {
        unsigned long start, end;

        count += (sscanf(line.c_str(), "%lx-%lx", &start, &end) == 2) &&
                 (start < (from + length)) && (end > from);
    }
    return count;
}

// A registration leaves mappings alone where the kernel lets a child have its own
// pages. (Without an RNIC nothing can be registered; who is asked can be told.)
TEST(Untouched, ForkNeedsNoHelp)
{
    Mode{usual_protocols(), "auto", 2}.run([](Rank &rank) {
        if (!is_nprdma()) {
            throw Skipped("nprdma-run has it stand there");
        }
        UcpNode node(rank, {UCP_FEATURE_TAG});
        Dl_info info = {};
        int count    = 0;

        ASSERT_NE(0, dladdr(dlsym(RTLD_DEFAULT, "ibv_fork_init"), &info));
        EXPECT_NE(nullptr, strstr(info.dli_fname, "libnprdma_preload"));
        ibv_device **list = verbs<decltype(ibv_get_device_list)>(
                "ibv_get_device_list")(&count);
        if ((count == 0) ||
            (verbs<decltype(ibv_is_fork_initialized)>(
                     "ibv_is_fork_initialized")() != IBV_FORK_UNNEEDED)) {
            return;
        }

        ibv_context *context = verbs<decltype(ibv_open_device)>(
                "ibv_open_device")(list[0]);
        ibv_pd *pd = verbs<decltype(ibv_alloc_pd)>("ibv_alloc_pd")(context);
        uint8_t *area = static_cast<uint8_t*>(
                mmap(nullptr, LENGTH, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        const size_t before = count_mappings(area, LENGTH);
        ibv_mr *mr = verbs<ibv_mr*(ibv_pd*, void*, size_t, int)>("ibv_reg_mr")(
                pd, area + (LENGTH / 2), LENGTH / 4, IBV_ACCESS_LOCAL_WRITE);

        ASSERT_NE(nullptr, mr);
        EXPECT_EQ(before, count_mappings(area, LENGTH));
        verbs<decltype(ibv_dereg_mr)>("ibv_dereg_mr")(mr);
    });
}
#endif

uint8_t *fault_page;
int     fault_count;

void on_fault(int)
{
    ++fault_count;
    mprotect(fault_page, getpagesize(), PROT_READ | PROT_WRITE);
}

// A program that pages by itself, through SIGSEGV: it keeps its handler, and a
// message into and out of other memory does not call it.
TEST(Untouched, Signals)
{
    Mode{usual_protocols(), "auto", 2}.run([](Rank &rank) {
        struct sigaction action = {}, now = {};

        setenv("UCX_HANDLE_ERRORS", "none", 1);
        action.sa_handler = on_fault;
        sigaction(SIGSEGV, &action, nullptr);
        fault_page = static_cast<uint8_t*>(
                mmap(nullptr, getpagesize(), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        UcpNode node(rank, {UCP_FEATURE_TAG});
        std::vector<uint8_t> from(LENGTH), to(LENGTH);

        for (uint64_t i = 1; i <= 20; ++i) {
            message(node, to.data(), from.data(), i);
            EXPECT_EQ(int(i - 1), fault_count);
            *static_cast<volatile uint8_t*>(fault_page) = i;
            EXPECT_EQ(int(i), fault_count);
            mprotect(fault_page, getpagesize(), PROT_NONE);
        }
        sigaction(SIGSEGV, nullptr, &now);
        EXPECT_EQ(on_fault, now.sa_handler);
    });
}

// Memory that comes and goes all the time, in the same places, is received into
// whatever is there now.
TEST(Untouched, MemoryThatComesAndGoes)
{
    for (const Mode &mode : all_modes(true)) {
        SCOPED_TRACE(mode.name());
        mode.run([](Rank &rank) {
            UcpNode node(rank, {UCP_FEATURE_TAG});

            for (uint64_t i = 1; i <= 60; ++i) {
                void *base = mmap(nullptr, 2 * LENGTH, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                uint8_t *from = static_cast<uint8_t*>(base);

                message(node, from + LENGTH, from, i);
                if ((i % 3) == 0) {
                    madvise(base, 2 * LENGTH, MADV_DONTNEED);
                    message(node, from + LENGTH, from, 1000 + i);
                }
                munmap(base, 2 * LENGTH);
            }
        });
    }
}

} // namespace
