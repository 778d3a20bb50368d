/* SPDX-License-Identifier: BSD-3-Clause */
/* What is right; see test_race.h. */

#include "test_race.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Violations of one setting after which the rest is not run */
#define RACE_ENOUGH 5

race_result_t *race_result;
static char label[256];


void race_set_label(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(label, sizeof(label), format, args);
    va_end(args);
}

void race_violation(const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    if (race_result->violations++ == 0) {
        snprintf(race_result->first, sizeof(race_result->first), "%s: %s",
                 label, text);
    }
}

int race_is_over(void)
{
    return race_result->violations >= RACE_ENOUGH;
}

static const char *race_name(const race_region_t *region)
{
    return (region == &race_remote) ? "remote" : "local";
}

static void race_judge_poison(const char *when, const race_region_t *region)
{
    unsigned page;

    for (page = region->first; page <= region->last; ++page) {
        if ((region->page[page].state == RACE_OUT) &&
            (memcmp(region->base + (page * NP_PAGE_SIZE),
                    region->content[RACE_POISON] + (page * NP_PAGE_SIZE),
                    NP_PAGE_SIZE) != 0)) {
            race_violation("%s, page %u of %s memory is written, and out", when,
                           page, race_name(region));
        }
    }
}

/* What a page holds without any transfer */
static const uint8_t *race_base(const race_region_t *region, size_t offset)
{
    const race_page_t *page = &region->page[offset / NP_PAGE_SIZE];

    return region->content[page->is_replaced ? RACE_NEW : RACE_OLD] + offset;
}

static void race_judge_base(const char *when, const race_region_t *region,
                            size_t from, size_t to)
{
    const race_page_t *page;
    size_t len;

    for (; from < to; from += len) {
        page = &region->page[from / NP_PAGE_SIZE];
        len  = ucs_min(NP_PAGE_SIZE - (from % NP_PAGE_SIZE), to - from);
        if (memcmp(race_holds(region, from), race_base(region, from), len) !=
            0) {
            race_violation("%s, %s memory around the transfer has changed: "
                           "%zu..%zu", when, race_name(region), from,
                           from + len);
        } else if (page->is_replaced &&
                   (memcmp(page->saved + (from % NP_PAGE_SIZE),
                           region->content[RACE_OLD] + from, len) != 0)) {
            race_violation("%s, what was saved of %s memory has changed around "
                           "the transfer: %zu..%zu", when, race_name(region),
                           from, from + len);
        }
    }
}

void race_judge_untouched(const char *when, const race_region_t *region)
{
    race_judge_base(when, region, region->first * NP_PAGE_SIZE,
                    (region->last + 1) * NP_PAGE_SIZE);
    race_judge_poison(when, region);
}

/* Is it what the source holds, or held before it was replaced? */
static int race_is_data(const uint8_t *found, const race_region_t *src,
                        size_t src_off, const uint8_t *data, size_t len)
{
    if (src == NULL) {
        return memcmp(found, data, len) == 0;
    }

    return (memcmp(found, src->content[RACE_OLD] + src_off, len) == 0) ||
           (src->page[src_off / NP_PAGE_SIZE].is_replaced &&
            (memcmp(found, src->content[RACE_NEW] + src_off, len) == 0));
}

/* Bytes from here on that are in one unit of either side, and so in one page,
 * and in one piece of a list. Regions begin at page borders. */
static size_t race_fragment(size_t dst, size_t src, size_t piece, size_t done,
                            size_t len)
{
    len = ucs_min(len - done, piece - (done % piece));
    len = ucs_min(len, (size_t)(NP_DMA_UNIT - (dst % NP_DMA_UNIT)));
    return ucs_min(len, (size_t)(NP_DMA_UNIT - (src % NP_DMA_UNIT)));
}

static void race_describe(char *text, size_t size, const uint8_t *found)
{
    snprintf(text, size, "%02x %02x %02x %02x", found[0], found[1], found[2],
             found[3]);
}

/* One fragment of a page that was not replaced, or was */
static void race_judge_fragment(const char *when, const race_region_t *dst,
                                size_t dst_off, const race_region_t *src,
                                size_t src_off, const uint8_t *data, size_t len,
                                int is_once)
{
    const race_page_t *page = &dst->page[dst_off / NP_PAGE_SIZE];
    const uint8_t *found    = race_holds(dst, dst_off);
    const uint8_t *saved    = page->saved + (dst_off % NP_PAGE_SIZE);
    uint8_t bytes[4]        = {0};
    char text[32];
    int is_there, was_there;

    is_there  = race_is_data(found, src, src_off, data, len);
    was_there = page->is_replaced &&
                race_is_data(saved, src, src_off, data, len);
    memcpy(bytes, found, ucs_min(len, sizeof(bytes)));
    race_describe(text, sizeof(text), bytes);

    if (!is_there && !was_there) {
        race_violation("%s, the data is not at %zu of %s memory, but %s", when,
                       dst_off, race_name(dst), text);
    } else if (!is_there &&
               (memcmp(found, dst->content[RACE_NEW] + dst_off, len) != 0)) {
        race_violation("%s, new content at %zu of %s memory is %s", when,
                       dst_off, race_name(dst), text);
    } else if (is_once && page->is_replaced && !was_there &&
               (memcmp(saved, dst->content[RACE_OLD] + dst_off, len) != 0)) {
        race_violation("%s, what was saved at %zu of %s memory is neither data "
                       "nor old", when, dst_off, race_name(dst));
    } else if (is_once && is_there && was_there) {
        race_violation("%s, the data was written twice at %zu of %s memory",
                       when, dst_off, race_name(dst));
    }
}

void race_judge_written(const char *when, const race_region_t *dst,
                        size_t dst_off, const race_region_t *src,
                        size_t src_off, const uint8_t *data, size_t len,
                        size_t piece, int is_once)
{
    size_t done, part;

    race_judge_poison(when, dst);
    race_judge_base(when, dst, dst->first * NP_PAGE_SIZE, dst_off);
    race_judge_base(when, dst, dst_off + len, (dst->last + 1) * NP_PAGE_SIZE);
    for (done = 0; done < len; done += part) {
        part = race_fragment(dst_off + done, (src == NULL) ? 0 : src_off + done,
                             piece, done, len);
        race_judge_fragment(when, dst, dst_off + done, src, src_off + done,
                            (data == NULL) ? NULL : data + done, part, is_once);
    }
}

void race_judge_read(const char *when, const uint8_t *data,
                     const race_region_t *src, size_t src_off, size_t len)
{
    size_t done, part;

    for (done = 0; done < len; done += part) {
        part = race_fragment(0, src_off + done, len, done, len);
        if (!race_is_data(data + done, src, src_off + done, NULL, part)) {
            race_violation("%s, %zu bytes at %zu are not what %s memory holds",
                           when, part, src_off + done, race_name(src));
        }
    }
}
