/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More memory than there may be: pages go to swap and come back while the
 * kernel's fault-in, processors and a device use them. Each word that a device
 * reads is the page's or the signature; each word that it writes while an entry
 * stays as it is, is there afterwards.
 */

#include "kmod.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define PRESSURE_LENGTH (12 * KMOD_SLICE)
#define PRESSURE_PAGES  (PRESSURE_LENGTH / KMOD_PAGE)
/* Pages that only the device writes come first */
#define PRESSURE_OWN    256u
#define PRESSURE_WORDS  512u /* of one DMA */

typedef struct pressure {
    kmod_region_t    region;
    char             *memory;
    time_t           end;
    _Atomic unsigned faults, again, touched;
    _Atomic unsigned wrong;
    unsigned         reads, absent, writes, landed, lost;
} pressure_t;

static uint32_t page_word(unsigned page)
{
    return 0x40000000 | page;
}

static unsigned draw(uint64_t *random, unsigned below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (*random >> 32) % below;
}

static void *fault_run(void *argument)
{
    pressure_t *pressure = argument;
    uint64_t random      = 0x9e3779b97f4a7c15;
    unsigned page;
    int ret;

    while (time(NULL) < pressure->end) {
        page = draw(&random, PRESSURE_PAGES - 16);
        ret  = kmod_fault(pressure->region.dev, pressure->region.number,
                          pressure->memory + page * KMOD_PAGE, 16 * KMOD_PAGE,
                          draw(&random, 2), NULL);
        ++pressure->faults;
        if (ret == -EAGAIN) {
            ++pressure->again;
        } else if (ret != 0) {
            printf("# FAULT: %s\n", strerror(-ret));
            ++pressure->wrong;
        }
    }
    return NULL;
}

static void *touch_run(void *argument)
{
    pressure_t *pressure = argument;
    uint64_t random      = 0xd1b54a32d192ed03;
    volatile uint32_t *word;
    unsigned page;

    while (time(NULL) < pressure->end) {
        page = PRESSURE_OWN + draw(&random, PRESSURE_PAGES - PRESSURE_OWN);
        word = (uint32_t*)(pressure->memory + page * KMOD_PAGE) +
               draw(&random, KMOD_PAGE / 4);
        if (*word != page_word(page)) {
            printf("# the processor reads %#x on page %u\n", *word, page);
            ++pressure->wrong;
        }
        *word = page_word(page);
        ++pressure->touched;
    }
    return NULL;
}

static void device_read(pressure_t *pressure, unsigned page)
{
    uint32_t words[PRESSURE_WORDS];
    unsigned i, absent = 0;

    kmod_dma_read(&pressure->region, pressure->memory + page * KMOD_PAGE,
                  words, sizeof(words));
    for (i = 0; i < PRESSURE_WORDS; ++i) {
        if (words[i] == NPRDMA_SIGNATURE) {
            ++absent;
        } else if (words[i] != page_word(page)) {
            printf("# the device reads %#x on page %u\n", words[i], page);
            ++pressure->wrong;
            return;
        }
    }
    ++pressure->reads;
    pressure->absent += absent > 0;
}

/* The pages' words before and after are known: nobody else writes them */
static void device_write(pressure_t *pressure, unsigned page)
{
    char *addr        = pressure->memory + page * KMOD_PAGE;
    uint32_t was      = *(volatile uint32_t*)addr;
    uint32_t word     = (was + PRESSURE_PAGES) | 0x40000000;
    uint32_t entry, after, is;

    if (kmod_in(&pressure->region, addr, NPRDMA_FAULT_WRITE) != 0) {
        return;
    }
    entry = kmod_entry(&pressure->region, addr);
    kmod_put(&pressure->region, addr, word);
    after = kmod_entry(&pressure->region, addr);
    /* Through swap, if it can be */
    madvise(addr, KMOD_PAGE, MADV_PAGEOUT);
    is = *(volatile uint32_t*)addr;
    ++pressure->writes;
    if (is == word) {
        ++pressure->landed;
    } else if ((is == was) && ((entry != after) ||
                               !(entry & NPRDMA_ENTRY_WRITE))) {
        ++pressure->lost;
    } else {
        printf("# page %u is %#x, was %#x, written %#x; entries %#x, %#x\n",
               page, is, was, word, entry, after);
        ++pressure->wrong;
    }
}

static void device_run(pressure_t *pressure)
{
    uint64_t random = 0x2545f4914f6cdd1d;
    unsigned page;

    while (time(NULL) < pressure->end) {
        page = draw(&random, PRESSURE_PAGES - PRESSURE_OWN) + PRESSURE_OWN;
        /* Half of them have just been brought in */
        if (draw(&random, 2)) {
            kmod_in(&pressure->region, pressure->memory + page * KMOD_PAGE, 0);
        }
        device_read(pressure, page);
        device_write(pressure, draw(&random, PRESSURE_OWN));
    }
}

static unsigned long swapped_out(void)
{
    char line[128];
    unsigned long value = 0;
    FILE *file          = fopen("/proc/vmstat", "r");

    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "pswpout %lu", &value) == 1) {
            break;
        }
    }
    fclose(file);
    return value;
}

static unsigned wrong_pages(pressure_t *pressure)
{
    unsigned page, i, wrong = 0;
    uint32_t *words;

    for (page = PRESSURE_OWN; page < PRESSURE_PAGES; ++page) {
        words = (uint32_t*)(pressure->memory + page * KMOD_PAGE);
        for (i = 0; i < KMOD_PAGE / 4; ++i) {
            wrong += words[i] != page_word(page);
        }
    }
    return wrong;
}

static void say(pressure_t *pressure, unsigned long swapped)
{
    struct nprdma_kernel_counters counters = kmod_counters(pressure->region.dev);

    printf("# %u faults (%u in vain), %u words touched, %lu pages to swap\n",
           pressure->faults, pressure->again, pressure->touched, swapped);
    printf("# device: %u reads (%u saw absence), %u writes (%u landed, %u on "
           "pages that went)\n", pressure->reads, pressure->absent,
           pressure->writes, pressure->landed, pressure->lost);
    printf("# %llu invalidations, %llu pages mapped, %llu unmapped, %llu "
           "batches begun again, %llu calls refused\n",
           (unsigned long long)counters.invalidations,
           (unsigned long long)counters.mapped,
           (unsigned long long)counters.unmapped,
           (unsigned long long)counters.retries,
           (unsigned long long)counters.refused);
}

int main(void)
{
    const char *seconds = getenv("KMOD_PRESSURE_SECONDS");
    unsigned long swapped;
    pthread_t threads[2];
    pressure_t pressure = {};
    unsigned page;
    int dev = kmod_open(), edu = kmod_edu_open();

    setvbuf(stdout, NULL, _IOLBF, 0);
    if ((dev < 0) || (edu < 0)) {
        kmod_bail("opening " NPRDMA_DEVICE " and " EDU_DEVICE);
    }
    pressure.memory = kmod_map(PRESSURE_LENGTH);
    madvise(pressure.memory, PRESSURE_LENGTH, MADV_NOHUGEPAGE);
    kmod_region_open(&pressure.region, dev, pressure.memory, PRESSURE_LENGTH,
                     edu);
    swapped = swapped_out();
    for (page = 0; page < PRESSURE_PAGES; ++page) {
        kmod_fill(pressure.memory + page * KMOD_PAGE, KMOD_PAGE,
                  page_word(page));
    }
    pressure.end = time(NULL) + ((seconds != NULL) ? atoi(seconds) : 30);
    pthread_create(&threads[0], NULL, fault_run, &pressure);
    pthread_create(&threads[1], NULL, touch_run, &pressure);
    device_run(&pressure);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    swapped = swapped_out() - swapped;
    say(&pressure, swapped);
    TAP_CHECK(swapped > PRESSURE_PAGES / 4, "pages go to swap");
    TAP_CHECK((pressure.reads > 0) && (pressure.landed > 0) &&
              (pressure.wrong == 0), "no wrong word, read or written");
    TAP_CHECK(wrong_pages(&pressure) == 0, "nor in memory");
    TAP_CHECK(kmod_counters(dev).gaps == 0, "no view has a gap");
    kmod_region_close(&pressure.region);
    TAP_CHECK((kmod_counters(dev).mapped == kmod_counters(dev).unmapped) &&
              (kmod_counters(dev).kernel_bytes == 0), "nothing is left");
    return kmod_done();
}
