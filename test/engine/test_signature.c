/* SPDX-License-Identifier: BSD-3-Clause */
/* The signature: no absent unit is missed, and data is rarely suspected. */

#include "tap.h"

#include "nprdma/mem/signature.h"

#include <string.h>

#define LEN_MAX 600

/* Where the data lies: at any alignment, and what surrounds it is not read */
static uint8_t signature_room[LEN_MAX + 16];
static uint64_t signature_seed = 88172645463325252;


static uint64_t signature_random(void)
{
    signature_seed ^= signature_seed << 13;
    signature_seed ^= signature_seed >> 7;
    signature_seed ^= signature_seed << 17;
    return signature_seed;
}

/* Byte by byte, from the definition */
static uint8_t signature_byte(uint64_t va)
{
    return NP_SIGNATURE >> (8 * (va % 4));
}

/* Data without any byte of the signature: nothing of it is suspect */
static void signature_clean(uint8_t *data, size_t len)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        data[i] = signature_random() & 0x0f;
    }
}

/* Where the unit of offset @a at begins and ends, as offsets */
static size_t signature_unit_end(uint64_t remote, size_t len, unsigned unit,
                                 size_t at)
{
    return ucs_min(len, (((remote + at) / unit) + 1) * unit - remote);
}

/* Each single unit absent, at this place */
static unsigned signature_absent(uint64_t remote, size_t len, unsigned unit)
{
    uint8_t *data     = signature_room + (signature_random() % 8);
    unsigned failures = 0;
    size_t at, unit_end, found, end;

    signature_clean(data, len);
    for (at = 0; at < len; at = unit_end) {
        unit_end = signature_unit_end(remote, len, unit, at);
        np_signature_fill(data + at, remote + at, unit_end - at);
        found     = np_signature_find(data, remote, len, unit, 0, &end);
        failures += (found != at) || (end != unit_end);
        /* from within the unit, and from behind it */
        found     = np_signature_find(data, remote, len, unit, unit_end - 1,
                                      &end);
        failures += (found != (unit_end - 1)) || (end != unit_end);
        found     = np_signature_find(data, remote, len, unit, unit_end, &end);
        failures += (found != len) || (end != len);
        signature_clean(data + at, unit_end - at);
    }

    failures += np_signature_find(data, remote, len, unit, 0, &end) != len;
    return failures;
}

static void test_signature_places(unsigned unit, unsigned step)
{
    unsigned failures = 0;
    uint64_t remote;
    size_t len;

    for (remote = 0; remote < 256; remote += step) {
        for (len = 1; len <= LEN_MAX; ++len) {
            failures += signature_absent((UINT64_C(3) << 40) + remote, len,
                                         unit);
        }
    }

    TAP_CHECK(failures == 0, "each single unit of %u bytes is found absent: "
              "%u times not", unit, failures);
}

static void test_signature_fill(void)
{
    unsigned failures = 0;
    uint64_t remote;
    size_t len, i;

    for (remote = 0; remote < 8; ++remote) {
        for (len = 0; len < 64; ++len) {
            memset(signature_room, 0, sizeof(signature_room));
            np_signature_fill(signature_room, remote, len);
            for (i = 0; i < len; ++i) {
                failures += signature_room[i] != signature_byte(remote + i);
            }
            failures += signature_room[len] != 0;
        }
    }

    TAP_CHECK(failures == 0, "the pattern goes by the address: %u times not",
              failures);
}

static void test_signature_random(void)
{
    unsigned suspects = 0, i;
    size_t len, j, end;
    uint64_t remote, word;

    /* 100000 transfers of two or three units: a 4-byte coincidence has a
     * chance of about 1e-4 in all of them, and the seed is fixed; fragments
     * below 4 bytes do coincide, so there are none */
    for (i = 0; i < 100000; ++i) {
        remote = (signature_random() % 64) * 4;
        len    = ((signature_random() % (LEN_MAX / 4)) + 1) * 4;
        for (j = 0; j < len; j += 8) {
            word = signature_random();
            memcpy(signature_room + j, &word, sizeof(word));
        }
        suspects += np_signature_find(signature_room, remote, len, NP_DMA_UNIT,
                                      0, &end) != len;
    }
    TAP_CHECK(suspects == 0, "random data is not suspected: %u times",
              suspects);
}

static void test_signature_runs(void)
{
    uint8_t *data         = signature_room;
    const uint64_t remote = 4096 + 40;
    size_t found, end;

    /* units: 0..215 216..471 472..599 */
    signature_clean(data, LEN_MAX);
    np_signature_fill(data, remote, 472);
    found = np_signature_find(data, remote, LEN_MAX, 256, 0, &end);
    TAP_CHECK((found == 0) && (end == 472), "two units are one run");

    np_signature_fill(data, remote, LEN_MAX);
    found = np_signature_find(data, remote, LEN_MAX, 256, 0, &end);
    TAP_CHECK((found == 0) && (end == LEN_MAX), "all units are one run");
    found = np_signature_find(data, remote, LEN_MAX, 256, 300, &end);
    TAP_CHECK((found == 300) && (end == LEN_MAX),
              "a run that is entered in the middle");

    signature_clean(data + 216, 256);
    found = np_signature_find(data, remote, LEN_MAX, 256, 1, &end);
    TAP_CHECK((found == 1) && (end == 216), "the first of two runs");
    found = np_signature_find(data, remote, LEN_MAX, 256, end, &end);
    TAP_CHECK((found == 472) && (end == LEN_MAX), "the second of two runs");
    found = np_signature_find(data, remote, 0, 256, 0, &end);
    TAP_CHECK((found == 0) && (end == 0), "nothing has no unit");

    /* data that is there and looks like it */
    signature_clean(data, LEN_MAX);
    np_signature_fill(data + 216, remote + 216, 4);
    found = np_signature_find(data, remote, LEN_MAX, 256, 0, &end);
    TAP_CHECK((found == 216) && (end == 472), "coincidence is suspected");

    /* whole, but rotated: what an absent page would never give */
    signature_clean(data, LEN_MAX);
    np_signature_fill(data + 216, remote + 217, 256);
    TAP_CHECK(np_signature_find(data, remote, LEN_MAX, 256, 0, &end) ==
              LEN_MAX, "the pattern of another address is none");

    /* one byte of a fragment of three differs */
    np_signature_fill(data, 253, 3);
    TAP_CHECK((np_signature_find(data, 253, 3, 256, 0, &end) == 0) &&
              (end == 3), "three bytes that look like it");
    data[2] ^= 1;
    TAP_CHECK(np_signature_find(data, 253, 3, 256, 0, &end) == 3,
              "three bytes of which the last does not");
}

void test_signature(void)
{
    test_signature_fill();
    test_signature_places(256, 1);
    test_signature_places(64, 1);
    test_signature_places(4, 31);
    test_signature_random();
    test_signature_runs();
}
