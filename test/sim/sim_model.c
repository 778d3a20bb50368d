/* SPDX-License-Identifier: BSD-3-Clause */
/* Memories, what is under way, and what must come of it. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sim_inside.h"
#include "nprdma/thread_flags.h"

#include "nprdma/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIM_ARENA    (UINT64_C(1) << 30)
#define SIM_BASE     UINT64_C(0x300000000000)

const sim_device_t *sim;
sim_process_t sim_processes[SIM_PROCESSES];
sim_link_t sim_links[SIM_PROCESSES][SIM_PROCESSES];
sim_counts_t sim_counts;
int sim_is_told, sim_is_unloading;
sim_op_t sim_ops[SIM_OPS];
unsigned sim_num_ops;
static uint64_t sim_state;


void sim_seed(uint64_t seed)
{
    sim_state = seed;
}

/* splitmix64 */
uint64_t sim_random(void)
{
    uint64_t z;

    sim_state += UINT64_C(0x9e3779b97f4a7c15);
    z          = sim_state;
    z          = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z          = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

unsigned sim_below(unsigned bound)
{
    return (sim_random() >> 32) % bound;
}

void sim_hint(void)
{
    np_thread_set_flags(NP_THREAD_HOT, (sim_below(2) == 0) ? NP_THREAD_HOT : 0);
}

void sim_wrong(const char *format, ...)
{
    va_list args;

    printf("# wrong after %lu steps: ", sim_counts.steps);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
    _exit(1);
}

void sim_tell(const char *format, ...)
{
    va_list args;

    if (sim_is_told) {
        printf("# %lu: ", sim_counts.steps);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
    }
}

uint64_t sim_addr(unsigned from, unsigned to, uint64_t offset)
{
    return (uintptr_t)sim_processes[to].area[from] + offset;
}

np_key_t *sim_key(unsigned from, unsigned to)
{
    np_packed_key_t packed;
    np_arenas_t arenas;
    np_key_t *key;

    if (np_arenas_share(sim_addr(from, to, 0), SIM_AREA, &arenas) != UCS_OK) {
        sim_wrong("no arenas");
    }

    np_key_pack_arenas(&packed, arenas);
    if (np_key_unpack(&packed, &key) != UCS_OK) {
        sim_wrong("no key");
    }
    return key;
}

int sim_for_links(int (*each)(unsigned from, unsigned to))
{
    unsigned p, q;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        for (q = 0; q < SIM_PROCESSES; ++q) {
            if ((p != q) && !each(p, q)) {
                return 0;
            }
        }
    }
    return 1;
}

/* Memory across the border of two arenas, of whose pairs this is the n-th */
static uint8_t *sim_map(unsigned n, size_t len)
{
    const uint64_t border = SIM_BASE + ((4 * n) + 1) * SIM_ARENA;
    const uint64_t at     = (border - (len / 2)) & ~(SIM_PAGE - 1);
    void *bytes;

    bytes = mmap((void*)at, len, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE |
                 MAP_POPULATE, -1, 0);
    if (bytes != (void*)at) {
        sim_wrong("no memory at %#lx", at);
    }
    return bytes;
}

void sim_fill(uint8_t *bytes, size_t len)
{
    uint64_t word;
    size_t i;

    for (i = 0; i < len; i += sizeof(word)) {
        word = sim_random();
        memcpy(bytes + i, &word, ucs_min(len - i, sizeof(word)));
    }
}

int sim_has_memory(uint64_t va)
{
    const uint64_t border = ucs_align_up_pow2(va - SIM_ARENA / 2, SIM_ARENA);
    const unsigned n      = (border - SIM_BASE - SIM_ARENA) / (4 * SIM_ARENA);
    const unsigned which  = n % (SIM_PROCESSES + 1);
    const unsigned p      = (n / (SIM_PROCESSES + 1)) % SIM_PROCESSES;
    const unsigned life   = n / (SIM_PROCESSES + 1) / SIM_PROCESSES;
    const uint8_t *at     = (life >= SIM_LIVES) ? NULL :
                            (which == SIM_PROCESSES) ? sim_processes[p].pool :
                            sim_processes[p].areas[life][which];
    const size_t len      = (which == SIM_PROCESSES) ? SIM_POOL : SIM_AREA;

    return (at != NULL) && (va >= (uintptr_t)at) &&
           (va < ((uintptr_t)at + len));
}

/* New memory for the present life of a link */
void sim_open_area(unsigned from, unsigned to)
{
    sim_process_t *process = &sim_processes[to];
    sim_link_t *link       = &sim_links[from][to];
    uint8_t *area;
    size_t i;

    area = sim_map(((link->life * SIM_PROCESSES) + to) * (SIM_PROCESSES + 1) +
                   from, SIM_AREA);
    sim_fill(link->model, SIM_AREA);
    memcpy(area, link->model, SIM_AREA);
    memset(link->history, 0, SIM_AREA * sizeof(*link->history));
    for (i = 0; i < SIM_AREA; ++i) {
        memset(link->history[i].value, link->model[i], SIM_WRITES);
    }
    process->area[from]              = area;
    process->areas[link->life][from] = area;
}

void sim_open_process(unsigned p)
{
    sim_process_t *process = &sim_processes[p];
    sim_link_t *link;
    unsigned q;

    for (q = 0; q < SIM_PROCESSES; ++q) {
        if (q != p) {
            link          = &sim_links[q][p];
            link->model   = malloc(SIM_AREA);
            link->history = malloc(SIM_AREA * sizeof(*link->history));
            sim_open_area(q, p);
        }
    }

    process->pool       = sim_map(p * (SIM_PROCESSES + 1) + SIM_PROCESSES,
                                  SIM_POOL);
    process->pool_model = malloc(SIM_POOL);
    process->pool_busy  = calloc(SIM_POOL / SIM_PAGE, 1);
    sim_fill(process->pool_model, SIM_POOL);
    memcpy(process->pool, process->pool_model, SIM_POOL);
}

/* May a byte have this value when all operations up to this one are complete?
 * What they have left there, or what a later one has written already: of that
 * anything may be seen before it is complete, unless it was copied. */
static int sim_may_be(const sim_history_t *history, uint64_t upto,
                      uint8_t value)
{
    unsigned i;

    for (i = 0; i < SIM_WRITES; ++i) {
        if (history->value[i] == value) {
            return 1;
        }
        if (history->number[i] <= upto) {
            return 0;
        }
        if (!history->is_exact[i]) {
            return 1;
        }
    }
    return 1; /* nobody remembers */
}

void sim_check_area(unsigned from, unsigned to, uint64_t upto,
                           const char *when)
{
    const sim_link_t *link = &sim_links[from][to];
    const uint8_t *area    = sim_processes[to].area[from];
    size_t i;

    if (memcmp(area, link->model, SIM_AREA) == 0) {
        return;
    }
    for (i = 0; i < SIM_AREA; ++i) {
        if (!sim_may_be(&link->history[i], upto, area[i])) {
            sim_wrong("%u -> %u: byte %#zx (%p) is %#x, not %#x of operation "
                      "%u, %s %lu", from, to, i, &area[i], area[i],
                      link->history[i].value[0], link->history[i].number[0],
                      when, upto);
        }
    }
}

sim_op_t *sim_op_get(sim_kind_t kind, unsigned from, unsigned to)
{
    unsigned i, p;

    for (i = 0; i < SIM_OPS; ++i) {
        if (!sim_ops[i].is_used) {
            sim_ops[i] = (sim_op_t){
                .is_used = 1,
                .kind    = kind,
                .from    = from,
                .to      = to
            };
            for (p = 0; p < SIM_PROCESSES; ++p) {
                /* what begins while a life ends may end with it */
                sim_ops[i].life[p] = sim_links[from][p].life -
                                     (sim_links[from][p].is_ending != 0);
            }
            ++sim_num_ops;
            return &sim_ops[i];
        }
    }
    return NULL;
}

static void sim_pool_use(const np_iov_t *iov, int is_used,
                         sim_process_t *process)
{
    const size_t first = (uint8_t*)iov->base - process->pool;

    if (iov->len > 0) {
        memset(&process->pool_busy[first / SIM_PAGE], is_used,
               (first + iov->len - 1) / SIM_PAGE - first / SIM_PAGE + 1);
    }
}

void sim_op_put(sim_op_t *op)
{
    size_t i;

    for (i = 0; i < op->iovcnt; ++i) {
        sim_pool_use(&op->iov[i], 0, &sim_processes[op->from]);
    }
    free(op->expected);
    op->is_used = 0;
    --sim_num_ops;
}

/* Buffers for so many bytes; returns 0: there is no room */
int sim_pool_get(sim_op_t *op, size_t len, unsigned count)
{
    sim_process_t *process = &sim_processes[op->from];
    const size_t pages     = SIM_POOL / SIM_PAGE;
    size_t i, part, need, page, tries;

    for (op->iovcnt = 0; op->iovcnt < count; ++op->iovcnt) {
        i    = op->iovcnt;
        part = (i == count - 1) ? len : sim_below(len + 1);
        need = (part / SIM_PAGE) + 2;
        len -= part;
        for (tries = 0; tries < 16; ++tries) {
            page = sim_below(pages - need);
            if (memchr(&process->pool_busy[page], 1, need) == NULL) {
                break;
            }
        }
        if (tries == 16) {
            return 0;
        }

        op->iov[i] = (np_iov_t){
            process->pool + (page * SIM_PAGE) +
            ((sim_below(2) == 0) ? 0 : sim_below(SIM_PAGE)), part
        };
        sim_pool_use(&op->iov[i], 1, process);
    }
    return 1;
}

/* It has begun, and writes these bytes */
void sim_written(const sim_op_t *op, uint64_t offset, const void *bytes,
                        size_t len, int is_exact)
{
    sim_link_t *link = &sim_links[op->from][op->to];
    sim_history_t *history;
    size_t i;

    memcpy(link->model + offset, bytes, len);
    for (i = 0; i < len; ++i) {
        history = &link->history[offset + i];
        memmove(&history->number[1], &history->number[0],
                (SIM_WRITES - 1) * sizeof(history->number[0]));
        memmove(&history->value[1], &history->value[0], SIM_WRITES - 1);
        memmove(&history->is_exact[1], &history->is_exact[0], SIM_WRITES - 1);
        history->number[0]   = op->number;
        history->value[0]    = link->model[offset + i];
        history->is_exact[0] = is_exact;
    }
    sim_counts.bytes += len;
}

void sim_begun(const sim_op_t *op)
{
    sim_links[op->from][op->to].number = op->number;
}

/* The bytes of a get have come */
static void sim_check_get(const sim_op_t *op)
{
    sim_process_t *process = &sim_processes[op->from];
    size_t i, done, at;

    for (i = 0, done = 0; i < op->iovcnt; done += op->iov[i++].len) {
        at = (uint8_t*)op->iov[i].base - process->pool;
        if (memcmp(op->iov[i].base, op->expected + done, op->iov[i].len) != 0) {
            for (at = 0; ((uint8_t*)op->iov[i].base)[at] ==
                         op->expected[done + at]; ++at) {
            }
            sim_wrong("%u -> %u: get %lu of %zu at %#lx: byte %zu is %#x, not "
                      "%#x", op->from, op->to, op->number, op->len, op->offset,
                      done + at, ((uint8_t*)op->iov[i].base)[at],
                      op->expected[done + at]);
        }
        memcpy(process->pool_model + at, op->iov[i].base, op->iov[i].len);
    }
}

/* Its buffers are the program's again, with whatever is in them */
void sim_give_back(const sim_op_t *op)
{
    sim_process_t *process = &sim_processes[op->from];
    size_t i, at;

    for (i = 0; (op->kind == SIM_GET) && (i < op->iovcnt); ++i) {
        at = (uint8_t*)op->iov[i].base - process->pool;
        memcpy(process->pool_model + at, op->iov[i].base, op->iov[i].len);
    }
}

/* Has a link's life ended that it is about? */
static int sim_has_ended(const sim_op_t *op)
{
    unsigned p;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        if (((op->kind == SIM_FLUSH_PORT) || (p == op->to)) &&
            (sim_links[op->from][p].is_ending ||
             (op->life[p] != sim_links[op->from][p].life))) {
            return 1;
        }
    }
    return 0;
}

/* And its user does something else in there */
static void sim_op_ends(sim_op_t *op)
{
    const unsigned from = op->from;

    sim_op_put(op);
    if (sim_completed != NULL) {
        sim_completed(from);
    }
}

/* It has not gone well, or should not */
static void sim_failed(sim_op_t *op, ucs_status_t status)
{
    if (!sim_has_ended(op) && (!op->is_bad || (status == UCS_OK))) {
        sim_wrong("%u -> %u: operation %lu of kind %d has ended: %s", op->from,
                  op->to, op->number, op->kind, ucs_status_string(status));
    }

    sim_tell("%u -> %u: %lu has failed: %s", op->from, op->to, op->number,
             ucs_status_string(status));
    if (op->is_bad && !sim_has_ended(op)) {
        --sim_links[op->from][op->to].num_bad;
    }
    sim_give_back(op);
    sim_op_ends(op);
}

void sim_complete(void *comp, ucs_status_t status)
{
    sim_op_t *op = comp;
    unsigned p;

    if (!op->is_used) {
        sim_wrong("something has completed twice");
    }
    if (op->is_bad || (status != UCS_OK)) {
        sim_failed(op, status);
        return;
    }

    sim_tell("%u -> %u: %lu is complete (kind %d)", op->from, op->to,
             op->number, op->kind);
    switch (op->kind) {
    case SIM_GET:
        sim_check_get(op);
        break;
    case SIM_UNPACK:
        if (!op->result) {
            sim_wrong("%u -> %u: get %lu has brought nothing", op->from,
                      op->to, op->number);
        }
        break;
    case SIM_ATOMIC:
        if (op->result != op->value) {
            sim_wrong("%u -> %u: atomic %lu at %#lx brought %#lx, not %#lx",
                      op->from, op->to, op->number, op->offset, op->result,
                      op->value);
        }
        break;
    case SIM_FLUSH:
        sim_check_area(op->from, op->to, op->upto[op->to], "after a flush of");
        break;
    case SIM_FLUSH_PORT:
        for (p = 0; p < SIM_PROCESSES; ++p) {
            if ((p != op->from) && !sim_links[op->from][p].is_ending &&
                (op->life[p] == sim_links[op->from][p].life)) {
                sim_check_area(op->from, p, op->upto[p],
                               "after a flush of the port, of");
            }
        }
        break;
    default:
        break; /* a put is seen after a flush */
    }
    sim_op_ends(op);
}

void sim_check_all(void)
{
    unsigned p, q;
    size_t i;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        for (q = 0; q < SIM_PROCESSES; ++q) {
            if (p != q) {
                sim_check_area(p, q, UINT64_MAX, "at the end of");
            }
        }
        for (i = 0; i < SIM_POOL; ++i) {
            if (sim_processes[p].pool[i] != sim_processes[p].pool_model[i]) {
                sim_wrong("%u: byte %#zx of its own memory was written", p, i);
            }
        }
    }
}
