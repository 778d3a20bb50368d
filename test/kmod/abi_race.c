/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that do anything with one context at once: ioctls with arguments that
 * are mostly right, beside all that changes mappings. Nothing may crash, hang
 * or leak; what the counters say at the end must add up.
 */

#include "kmod_abi.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>

#define RACE_THREADS 8
#define RACE_REGIONS 8
#define RACE_DEATHS  10u

typedef struct race {
    int              dev;
    int              edu;      /* -1: no device is attached */
    char             *memory;
    uint64_t         length;
    time_t           end;
    _Atomic unsigned regions[RACE_REGIONS];
    _Atomic unsigned calls;
    _Atomic unsigned odd;      /* errors that nothing explains */
    _Atomic unsigned attached; /* in all */
    _Atomic unsigned free;     /* pages of nobody that the device reached */
} race_t;

typedef struct racer {
    race_t   *race;
    uint64_t random;
} racer_t;

static unsigned draw(racer_t *racer, unsigned below)
{
    racer->random ^= racer->random << 13;
    racer->random ^= racer->random >> 7;
    racer->random ^= racer->random << 17;
    return (racer->random >> 32) % below;
}

static void draw_range(racer_t *racer, char **addr, uint64_t *length)
{
    race_t *race    = racer->race;
    unsigned pages  = race->length / KMOD_PAGE;
    unsigned first  = draw(racer, pages);
    unsigned most[] = {1, 16, 600, pages};
    unsigned count  = 1 + draw(racer, most[draw(racer, 4)]);

    *addr   = race->memory + first * KMOD_PAGE;
    *length = ((count < pages - first) ? count : (pages - first)) * KMOD_PAGE;
    if (draw(racer, 64) == 0) {
        *length += draw(racer, 3) * KMOD_PAGE + draw(racer, 2);
    }
}

/* What any of these may say while others do what they like */
static void judge(race_t *race, int ret)
{
    static const int known[] = {
        EINVAL, ENOENT, EFAULT, EACCES, EBUSY, EAGAIN, EDQUOT, ENOMEM
    };
    unsigned i;

    ++race->calls;
    if (ret >= 0) {
        return;
    }
    for (i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        if (ret == -known[i]) {
            return;
        }
    }
    printf("# unexpected: %s\n", strerror(-ret));
    ++race->odd;
}

static void act_region(racer_t *racer)
{
    race_t *race = racer->race;
    unsigned i   = draw(racer, RACE_REGIONS), old;
    int region   = kmod_create(race->dev, race->memory, race->length,
                               draw(racer, 8) == 0);

    judge(race, region);
    old = atomic_exchange(&race->regions[i], (region > 0) ? region : 0);
    if (old != 0) {
        judge(race, kmod_destroy(race->dev, old));
    }
}

static void act_export(racer_t *racer, unsigned region)
{
    race_t *race = racer->race;
    int fd       = kmod_export(race->dev, region, draw(racer, 5));
    void *addr;

    judge(race, fd);
    if (fd < 0) {
        return;
    }
    addr = mmap(NULL, KMOD_PAGE, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (addr != MAP_FAILED) {
        munmap(addr, KMOD_PAGE);
    }
}

static void act_attach(racer_t *racer, unsigned region)
{
    race_t *race             = racer->race;
    struct edu_attach attach = {
        .fd = kmod_export(race->dev, region, 1 + draw(racer, 3))
    };

    judge(race, attach.fd);
    if (attach.fd < 0) {
        return;
    }
    if (ioctl(race->edu, EDU_IOC_ATTACH, &attach) == 0) {
        ++race->attached;
        if (attach.slot >= EDU_SLOTS) {
            ioctl(race->edu, EDU_IOC_DETACH, attach.slot);
        }
    }
    close(attach.fd);
}

/* Looks at a part of what the device can reach, most of the time */
static void act_device(racer_t *racer, unsigned region)
{
    race_t *race           = racer->race;
    struct edu_audit audit = {
        .slot   = draw(racer, EDU_SLOTS),
        .offset = draw(racer, race->length / KMOD_SLICE) * KMOD_SLICE +
                  draw(racer, 32) * KMOD_SLICE / 32,
        .length = KMOD_SLICE / 32
    };

    switch (draw(racer, 16)) {
    case 0:
        act_attach(racer, region);
        break;
    case 1:
        ioctl(race->edu, EDU_IOC_DETACH, audit.slot);
        break;
    default:
        if (ioctl(race->edu, EDU_IOC_AUDIT, &audit) == 0) {
            race->free += audit.free;
        }
    }
}

static void act_ioctl(racer_t *racer)
{
    static const unsigned long requests[] = {
        NPRDMA_IOC_PREFETCH, NPRDMA_IOC_INVALIDATE, NPRDMA_IOC_SWAP_OUT,
        NPRDMA_IOC_SWAP_IN, NPRDMA_IOC_SWAP_IN
    };
    race_t *race    = racer->race;
    unsigned region = race->regions[draw(racer, RACE_REGIONS)];
    uint64_t length;
    char *addr;

    draw_range(racer, &addr, &length);
    switch (draw(racer, (race->edu >= 0) ? 14 : 12)) {
    case 0:
        act_region(racer);
        break;
    case 12:
    case 13:
        act_device(racer, region);
        break;
    case 1:
        act_export(racer, region);
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        judge(race, kmod_range(race->dev, requests[draw(racer, 5)], region,
                               addr, length, draw(racer, 2)));
        break;
    default:
        judge(race, kmod_fault(race->dev, region, addr, length,
                               draw(racer, 4), NULL));
    }
}

static void act_memory(racer_t *racer)
{
    race_t *race = racer->race;
    uint64_t length;
    char *addr;
    pid_t pid;

    draw_range(racer, &addr, &length);
    length = (length + KMOD_PAGE - 1) & ~(KMOD_PAGE - 1);
    if (addr + length > race->memory + race->length) {
        length = KMOD_PAGE;
    }
    switch (draw(racer, 13)) {
    case 6:
        madvise(addr, length, MADV_FREE);
        break;
    case 7:
        /* Of what is shared */
        madvise(addr, length, MADV_REMOVE);
        break;
    case 0:
        madvise(addr, length, MADV_DONTNEED);
        break;
    case 1:
        madvise(addr, length, MADV_PAGEOUT);
        break;
    case 2:
        mprotect(addr, length, draw(racer, 4) ? PROT_READ | PROT_WRITE :
                                                PROT_READ);
        break;
    case 3:
        mmap(addr, length, PROT_READ | PROT_WRITE,
             (draw(racer, 4) ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS |
             MAP_FIXED | MAP_NORESERVE, -1, 0);
        break;
    case 4:
        madvise(addr, length, draw(racer, 2) ? MADV_HUGEPAGE :
                                               MADV_NOHUGEPAGE);
        break;
    case 5:
        if (draw(racer, 8) == 0) {
            pid = fork();
            if (pid == 0) {
                _exit(0);
            }
            waitpid(pid, NULL, 0);
        }
        break;
    default:
        /* By the kernel: the page may be gone or forbidden */
        if (getrandom(addr, 64, 1) < 0) {
            break;
        }
    }
}

static void *race_run(void *argument)
{
    racer_t *racer = argument;

    while (time(NULL) < racer->race->end) {
        if (draw(racer, 4) == 0) {
            act_memory(racer);
        } else {
            act_ioctl(racer);
        }
    }
    return NULL;
}

static void race_begin(race_t *race, racer_t *racers, pthread_t *threads,
                       uint64_t seed, time_t seconds)
{
    unsigned i;

    race->end = time(NULL) + seconds;
    for (i = 0; i < RACE_THREADS; ++i) {
        racers[i] = (racer_t){
            .race   = race,
            .random = (seed + i + 1) * 0x9e3779b97f4a7c15ull
        };
        if (pthread_create(&threads[i], NULL, race_run, &racers[i]) != 0) {
            kmod_bail("pthread_create");
        }
    }
}

static void race_end(race_t *race)
{
    struct nprdma_kernel_counters counters;
    unsigned i, tries;

    for (i = 0; i < RACE_REGIONS; ++i) {
        if (race->regions[i] != 0) {
            kmod_destroy(race->dev, race->regions[i]);
        }
    }
    for (i = 0; (race->edu >= 0) && (i < EDU_SLOTS); ++i) {
        ioctl(race->edu, EDU_IOC_DETACH, i);
    }
    /* Prefetches under way end by themselves */
    for (tries = 0; tries < 1000; ++tries) {
        counters = kmod_counters(race->dev);
        if (counters.kernel_bytes == 0) {
            break;
        }
        usleep(10000);
    }
    printf("# %u calls, %u attachments, %llu pages mapped, %llu batches begun "
           "again, %llu invalidations; left: %u regions, %llu "
           "bytes\n", race->calls, race->attached,
           (unsigned long long)counters.mapped,
           (unsigned long long)counters.retries,
           (unsigned long long)counters.invalidations, counters.regions,
           (unsigned long long)counters.kernel_bytes);
    TAP_CHECK((race->edu < 0) || ((race->attached > 0) && (race->free == 0) &&
                                  (counters.attached == 0)),
              "no device ever reaches a page that is free (%u)", race->free);
    TAP_CHECK((counters.mapped == counters.unmapped) &&
              (counters.mapped > 0), "what was mapped was unmapped");
    TAP_CHECK((counters.regions == 0) &&
              (counters.kernel_bytes == 0), "nothing is left");
}

void abi_race(int dev, int edu, char *memory, uint64_t length)
{
    const char *seconds = getenv("KMOD_RACE_SECONDS");
    const char *seed    = getenv("KMOD_RACE_SEED");
    race_t race         = {
        .dev = dev, .edu = edu, .memory = memory, .length = length
    };
    pthread_t threads[RACE_THREADS];
    racer_t racers[RACE_THREADS];
    unsigned long long first;
    unsigned i;

    first = (seed != NULL) ? strtoull(seed, NULL, 0) : (unsigned)time(NULL);
    printf("# KMOD_RACE_SEED=%llu\n", first);
    race_begin(&race, racers, threads, first,
               (seconds != NULL) ? atoi(seconds) : 20);
    for (i = 0; i < RACE_THREADS; ++i) {
        pthread_join(threads[i], NULL);
    }
    TAP_CHECK((race.calls > 0) && (race.odd == 0),
              "threads race on one context, and get no strange error");
    race_end(&race);
}

/* Until it is killed; what it exports is still attached then */
static void death_child(int edu, char *memory, uint64_t length, uint64_t seed)
{
    race_t race = {
        .dev = kmod_open(), .edu = edu, .memory = memory, .length = length
    };
    pthread_t threads[RACE_THREADS];
    racer_t racers[RACE_THREADS];

    race_begin(&race, racers, threads, seed, 3600);
    pause();
}

static unsigned death_free(int edu, uint64_t length)
{
    struct edu_audit audit = {.length = length};
    unsigned found         = 0;

    for (audit.slot = 0; audit.slot < EDU_SLOTS; ++audit.slot) {
        if (ioctl(edu, EDU_IOC_AUDIT, &audit) == 0) {
            found += audit.free;
            ioctl(edu, EDU_IOC_DETACH, audit.slot);
        }
    }
    return found;
}

void abi_deaths(int edu, char *memory, uint64_t length)
{
    int dev        = kmod_open();
    unsigned found = 0, tries, i;
    pid_t pid;

    for (i = 0; i < RACE_DEATHS; ++i) {
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            death_child(edu, memory, length, i);
        }
        usleep(100000 + i * 30000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        found += death_free(edu, length);
    }
    TAP_CHECK(found == 0, "of %u processes that were killed no device reaches "
              "a page that is free", i);
    for (tries = 0; tries < 1000; ++tries) {
        if (kmod_info(dev).table_used == 0) {
            break;
        }
        usleep(10000);
    }
    TAP_CHECK(kmod_info(dev).table_used == 0, "nothing is left of them");
    close(dev);
}
