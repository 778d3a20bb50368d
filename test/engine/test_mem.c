/* SPDX-License-Identifier: BSD-3-Clause */
/* Arenas, keys, allocations, windows, and access on a peer's behalf. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/engine.h"
#include "nprdma/mem/access.h"
#include "nprdma/mem/alloc.h"
#include "nprdma/mem/arena.h"
#include "nprdma/mem/key.h"
#include "nprdma/mem/space.h"
#include "nprdma/mem/window.h"
#include "nprdma/segment.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)


static int mem_covers(const np_key_t *key, uint64_t va, uint64_t len)
{
    return np_key_covers(key, np_engine.id, va, len);
}

static void test_arenas(void)
{
    np_arenas_t arenas;
    uint64_t va;

    TAP_CHECK((np_arenas_of(5 * GIB, 1, &arenas) == UCS_OK) &&
              (arenas.first == 5) && (arenas.count == 1), "one arena");
    TAP_CHECK((np_arenas_of(5 * GIB - 1, 2, &arenas) == UCS_OK) &&
              (arenas.first == 4) && (arenas.count == 2),
              "two bytes across a border are in two arenas");
    TAP_CHECK((np_arenas_of(5 * GIB, GIB, &arenas) == UCS_OK) &&
              (arenas.count == 1), "a whole arena is one");
    TAP_CHECK((np_arenas_of(5 * GIB, 0, &arenas) == UCS_OK) &&
              (arenas.count == 1), "nothing is in one arena");
    TAP_CHECK(np_arenas_of(UINT64_MAX - 1, 4, &arenas) ==
              UCS_ERR_INVALID_PARAM, "a range that wraps is refused");
    TAP_CHECK(np_arenas_of(UINT64_C(1) << 60, 4, &arenas) ==
              UCS_ERR_INVALID_PARAM, "a kernel address is refused");

    TAP_CHECK(np_space_resolve(77 * GIB, 8, NP_RIGHT_READ, &va) ==
              UCS_ERR_INVALID_ADDR,
              "what was never shared may not be reached");
    TAP_CHECK(np_arenas_share(77 * GIB + 5, 8, &arenas) == UCS_OK,
              "sharing touches no memory");
    TAP_CHECK((np_space_resolve(77 * GIB, GIB, NP_RIGHT_BOTH, &va) ==
               UCS_OK) && (va == 77 * GIB),
              "its arena may be reached, at its own address");
    TAP_CHECK(np_space_resolve(77 * GIB, GIB + 1, NP_RIGHT_READ, &va) ==
              UCS_ERR_INVALID_ADDR,
              "the next one may not");
    TAP_CHECK(np_space_resolve(UINT64_MAX - 3, 8, NP_RIGHT_WRITE, &va) ==
              UCS_ERR_INVALID_ADDR,
              "a request that wraps is refused");
}

/* What each key lets its holder reach: -1, 0, or 1 */
static int mem_compare(const np_packed_key_t *packed1,
                       const np_packed_key_t *packed2)
{
    np_key_t *key1, *key2;
    int result = -9;

    if (np_key_unpack(packed1, &key1) != UCS_OK) {
        return result;
    }
    if (np_key_unpack(packed2, &key2) == UCS_OK) {
        result = np_key_compare(key1, key2);
        result = (result > 0) - (result < 0);
        np_key_release(key2);
    }
    np_key_release(key1);
    return result;
}

static void test_keys_compare(void)
{
    const np_arenas_t arenas = {3, 2}, more = {3, 3};
    np_packed_key_t packed[6];
    unsigned i, j, wrong = 0;

    np_key_pack_arenas(&packed[0], arenas);
    np_key_pack_arenas(&packed[1], more);
    np_key_pack_region(&packed[2], 3 * GIB, 4096);
    np_key_pack_segment(&packed[3], 7, 3 * GIB, 4096);
    np_key_pack_file(&packed[4], 3 * GIB, 4096);
    np_key_pack_file(&packed[5], 4 * GIB, 4096);
    for (i = 0; i < 6; ++i) {
        for (j = 0; j < 6; ++j) {
            wrong += (i == j) ? (mem_compare(&packed[i], &packed[j]) != 0) :
                     ((mem_compare(&packed[i], &packed[j]) == 0) ||
                      (mem_compare(&packed[i], &packed[j]) !=
                       -mem_compare(&packed[j], &packed[i])));
        }
    }
    TAP_CHECK(wrong == 0, "keys are equal if they reach the same, %u times not",
              wrong);
}

static void test_keys(void)
{
    np_packed_key_t packed, bad;
    np_arenas_t arenas = {3, 2};
    np_key_t *key;

    np_key_pack_arenas(&packed, arenas);
    TAP_CHECK(sizeof(packed) <= 96, "a packed key has %zu bytes",
              sizeof(packed));
    TAP_CHECK(np_key_unpack(&packed, &key) == UCS_OK, "a key comes back");
    TAP_CHECK(mem_covers(key, 3 * GIB, 2 * GIB), "it covers its arenas");
    TAP_CHECK(!mem_covers(key, 3 * GIB, 2 * GIB + 1), "not one byte more");
    TAP_CHECK(!mem_covers(key, 3 * GIB - 1, 1), "nor one before");
    TAP_CHECK(mem_covers(key, 5 * GIB - 1, 1), "the last byte is in");
    TAP_CHECK(!mem_covers(key, 5 * GIB - 1, UINT64_MAX),
              "a length that wraps is out");
    np_key_release(key);

    memset(&bad, 0, sizeof(bad));
    TAP_CHECK(np_key_unpack(&bad, &key) == UCS_ERR_UNREACHABLE,
              "zeroes are no key");
    bad         = packed;
    bad.version = packed.version + 1;
    TAP_CHECK(np_key_unpack(&bad, &key) == UCS_ERR_UNREACHABLE,
              "another version's key is none");
    bad             = packed;
    bad.arena_count = UINT32_MAX;
    TAP_CHECK(np_key_unpack(&bad, &key) == UCS_ERR_UNREACHABLE,
              "a key of too many arenas is none");
    bad            = packed;
    bad.segment_id = 1;
    TAP_CHECK(np_key_unpack(&bad, &key) == UCS_ERR_UNREACHABLE,
              "a key of a segment without bytes is none");
}

/* Without a key UCP would ask the owner of a file by other means */
static int mem_is_for_nothing(const np_packed_key_t *packed)
{
    np_key_t *key;
    int is_so;

    if (np_key_unpack(packed, &key) != UCS_OK) {
        return 0;
    }

    is_so = !np_key_covers(key, key->engine_id, 0, 1) &&
            !np_key_covers(key, key->engine_id, 1, 1) &&
            !np_key_covers(key, packed->engine_id, 3 * GIB, 1);
    np_key_release(key);
    return is_so;
}

static void test_keys_of_files(void)
{
    np_packed_key_t packed, bad;
    np_key_t *key;

    np_key_pack_file(&packed, 3 * GIB, 8192);
    TAP_CHECK(np_key_unpack(&packed, &key) == UCS_OK, "a file's key");
    TAP_CHECK(mem_covers(key, 0, 8192) && !mem_covers(key, 1, 8192) &&
              !mem_covers(key, 3 * GIB, 1), "it covers offsets, from 0 on");
    TAP_CHECK((key->base == 3 * GIB) && (np_key_base(key) == 3 * GIB),
              "which begin where the file is mapped");
    np_key_release(key);

    bad         = packed;
    bad.is_file = 2;
    TAP_CHECK(mem_is_for_nothing(&bad),
              "a key of neither file nor memory is for nothing");
    bad     = packed;
    bad.len = 0;
    TAP_CHECK(mem_is_for_nothing(&bad),
              "so is one of a file that can have no bytes");
    bad            = packed;
    bad.segment_id = 7;
    TAP_CHECK(mem_is_for_nothing(&bad), "one of a file and a segment");
    bad     = packed;
    bad.len = UINT64_MAX - 3 * GIB;
    TAP_CHECK(mem_is_for_nothing(&bad),
              "one of a file beyond all addresses");
    bad = packed;
    ++bad.version;
    TAP_CHECK(mem_is_for_nothing(&bad), "and one of another version");
}

/* Of a hostile peer */
static void test_hostile_segments(void)
{
    np_packed_key_t packed;
    np_key_t *key = NULL;
    np_window_t *window;
    void *ptr;
    int fd;

    np_key_pack_segment(&packed, 7, 0, UINT64_MAX);
    TAP_CHECK(np_key_unpack(&packed, &key) == UCS_ERR_UNREACHABLE,
              "a key of a segment of all addresses is none");
    np_key_pack_segment(&packed, 7, UINT64_C(1) << 60, 4096);
    TAP_CHECK(np_key_unpack(&packed, &key) == UCS_ERR_UNREACHABLE,
              "nor is one of addresses that no process has");

    fd = memfd_create("test-short", MFD_ALLOW_SEALING);
    TAP_CHECK((fd >= 0) && (ftruncate(fd, 1) == 0) &&
              (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) &&
              (np_window_add(4711, 1, fd, 1, &window) ==
               UCS_ERR_INVALID_PARAM), "a segment that has no place for its head");
    close(fd);

    fd = memfd_create("test-huge", MFD_HUGETLB | MFD_ALLOW_SEALING);
    if ((fd < 0) || (ftruncate(fd, 2 * UCS_MBYTE) != 0) ||
        (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
        printf("ok %u - huge segments # SKIP no hugetlbfs in this kernel\n",
               ++tap_count);
    } else {
        TAP_CHECK(np_segment_map(fd, 2 * UCS_MBYTE, &ptr) ==
                  UCS_ERR_INVALID_PARAM, "a segment of huge pages is refused");
    }
    close(fd);
}

/* At an address that is reserved already, between neighbours that stay */
static void test_alloc_at(void)
{
    const size_t page = sysconf(_SC_PAGESIZE);
    size_t len        = 2 * page, size;
    char *room        = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    np_window_t *window;
    np_alloc_t *alloc;
    int fd;

    memset(room, 0x11, 4 * page);
    TAP_CHECK((np_alloc_create(room + page, &len, &alloc) == UCS_OK) &&
              (alloc->addr == room + page), "allocate at an address");
    TAP_CHECK((room[page - 1] == 0x11) && (room[3 * page] == 0x11),
              "what is beside it stays");
    TAP_CHECK((room[page] == 0) && (room[(3 * page) - 1] == 0),
              "what was there does not");
    room[3 * page - 1] = 0x5a;
    fd = np_alloc_dup_fd(alloc->id, &size);
    TAP_CHECK((fd >= 0) &&
              (np_window_add(4711, alloc->id, fd, size, &window) == UCS_OK) &&
              (((char*)window->base)[len - 1] == 0x5a), "a peer maps that");
    close(fd);
    np_alloc_free(alloc);
    TAP_CHECK(atomic_load(&window->head->ended), "and sees its end");
    np_window_put(window);
    TAP_CHECK((room[page - 1] == 0x11) && (room[3 * page] == 0x11),
              "what is beside it stays again");
    munmap(room, 4 * page);

    len = page;
    TAP_CHECK(np_alloc_create((void*)(uintptr_t)17, &len, &alloc) ==
              UCS_ERR_NO_MEMORY, "not at an address within a page");
}

static void test_alloc(void)
{
    size_t len = 10000, size = 0;
    np_window_t *window, *again;
    np_alloc_t *alloc;
    uint64_t id;
    int fd;

    TAP_CHECK(np_alloc_create(NULL, &len, &alloc) == UCS_OK, "allocate");
    TAP_CHECK((len >= 10000) && (len % sysconf(_SC_PAGESIZE) == 0),
              "whole pages: %zu", len);
    memset(alloc->addr, 0x5a, len);
    id = alloc->id;
    fd = np_alloc_dup_fd(id, &size);
    TAP_CHECK(fd >= 0, "its descriptor can be sent");
    TAP_CHECK(np_window_add(4711, id, fd, size + 4096, &window) ==
              UCS_ERR_INVALID_PARAM, "a false size is refused");
    TAP_CHECK(np_window_add(4711, id, fd, size, &window) == UCS_OK,
              "a peer maps it");
    TAP_CHECK(((char*)window->base)[len - 1] == 0x5a, "and sees its bytes");
    again = np_window_get(4711, id);
    TAP_CHECK(again == window, "one window for all");
    np_window_put(again);
    TAP_CHECK(np_window_get(4712, id) == NULL, "another process's is another");
    close(fd);

    np_alloc_free(alloc);
    TAP_CHECK(atomic_load(&window->head->ended), "its end is seen");
    TAP_CHECK(((char*)window->base)[len - 1] == 0, "its pages are gone");
    TAP_CHECK(np_alloc_dup_fd(id, &size) < 0, "its number is gone");
    np_window_put(window);
    TAP_CHECK(np_window_get(4711, id) == NULL, "the window is gone");
}

static void test_access(void)
{
    size_t page = sysconf(_SC_PAGESIZE);
    char buf[64] = "some bytes", back[64];
    char *mem;

    mem = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(mem + 2 * page, page);
    mprotect(mem + page, page, PROT_READ);

    TAP_CHECK((np_access_write((uintptr_t)mem, buf, 64) == UCS_OK) &&
              (memcmp(mem, buf, 64) == 0), "write");
    TAP_CHECK((np_access_read(back, (uintptr_t)mem, 64) == UCS_OK) &&
              (memcmp(back, buf, 64) == 0), "read");
    TAP_CHECK(np_access_write((uintptr_t)mem + page, buf, 64) ==
              UCS_ERR_INVALID_ADDR, "a protected page is an error");
    TAP_CHECK(np_access_write((uintptr_t)mem + 2 * page, buf, 64) ==
              UCS_ERR_INVALID_ADDR, "an absent mapping is an error");
    TAP_CHECK(np_access_read(back, (uintptr_t)mem + 2 * page - 32, 64) ==
              UCS_ERR_INVALID_ADDR, "half of it absent is an error");
    munmap(mem, 2 * page);
}

void test_mem(void)
{
    test_arenas();
    test_keys();
    test_keys_of_files();
    test_keys_compare();
    test_hostile_segments();
    test_alloc();
    test_alloc_at();
    test_access();
}
