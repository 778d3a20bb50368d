/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies that leave the caches to others.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "bypass.h"

#include <stdio.h>

#ifdef __SSE2__
#  include <emmintrin.h>
#endif

#define NP_BYPASS_CACHES 10

size_t np_bypass_min = SIZE_MAX;


#ifdef __SSE2__

/* What the kernel says of a cache of the first CPU, as @a format reads it.
 * Returns 0 if it says nothing. */
static int np_bypass_read(unsigned number, const char *name,
                          const char *format, void *value)
{
    char path[96];
    FILE *file;
    int count;

    snprintf(path, sizeof(path),
             "/sys/devices/system/cpu/cpu0/cache/index%u/%s", number, name);
    file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }

    count = fscanf(file, format, value);
    fclose(file);
    return count == 1;
}

/* Its size; 0: there is none of this number, or it is not for data */
static size_t np_bypass_cache(unsigned number)
{
    char type[16];
    size_t size;

    return (np_bypass_read(number, "type", "%15s", type) &&
            ((strcmp(type, "Unified") == 0) || (strcmp(type, "Data") == 0)) &&
            np_bypass_read(number, "size", "%zuK", &size)) ?
           (size * UCS_KBYTE) : 0;
}

void np_bypass_start(void)
{
    size_t largest = 0;
    unsigned i;

    for (i = 0; i < NP_BYPASS_CACHES; ++i) {
        largest = ucs_max(largest, np_bypass_cache(i));
    }
    np_bypass_min = (largest > 0) ? (largest / 2) : SIZE_MAX;
}

void np_bypass_copy(void *dst, const void *src, size_t len)
{
    const size_t head = ucs_min(len, -(uintptr_t)dst % NP_LINE);
    const __m128i *from;
    __m128i *to, line[4];
    size_t lines;

    memcpy(dst, src, head);
    to   = UCS_PTR_BYTE_OFFSET(dst, head);
    from = UCS_PTR_BYTE_OFFSET(src, head);
    for (lines = (len - head) / NP_LINE; lines > 0; --lines) {
        line[0] = _mm_loadu_si128(&from[0]);
        line[1] = _mm_loadu_si128(&from[1]);
        line[2] = _mm_loadu_si128(&from[2]);
        line[3] = _mm_loadu_si128(&from[3]);
        _mm_stream_si128(&to[0], line[0]);
        _mm_stream_si128(&to[1], line[1]);
        _mm_stream_si128(&to[2], line[2]);
        _mm_stream_si128(&to[3], line[3]);
        from += 4;
        to   += 4;
    }
    _mm_sfence(); /* such stores are not ordered otherwise */
    memcpy(to, from, (len - head) % NP_LINE);
}

#else

void np_bypass_start(void) {}

void np_bypass_copy(void *dst, const void *src, size_t len)
{
    memcpy(dst, src, len);
}

#endif
