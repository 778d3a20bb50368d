/* SPDX-License-Identifier: BSD-3-Clause */
/* The world: memories, what is done to them, and what must come of it. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sim.h"

#include "nprdma/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIM_PAGE     4096ul
#define SIM_ARENA    (UINT64_C(1) << 30)
#define SIM_BASE     UINT64_C(0x300000000000)
#define SIM_QUIET    200000u     /* steps after which all must have ended */

/* What an active message says */
typedef struct sim_text {
    uint16_t from;
    uint16_t life;
    uint32_t len;
    uint64_t number;
    uint64_t fence;    /* operations that must be seen before it */
} sim_text_t;

const sim_device_t *sim;
sim_process_t sim_processes[SIM_PROCESSES];
sim_link_t sim_links[SIM_PROCESSES][SIM_PROCESSES];
sim_counts_t sim_counts;
int sim_is_told;
static sim_op_t sim_ops[SIM_OPS];
static unsigned sim_num_ops;
static uint64_t sim_state;
/* Of so many events one is a failure, and the end of a link */
static unsigned sim_fail_every, sim_end_every;


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

static void sim_tell(const char *format, ...)
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

static void sim_fill(uint8_t *bytes, size_t len)
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
static void sim_open_area(unsigned from, unsigned to)
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

static void sim_open_process(unsigned p)
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

void sim_world_open(int has_views)
{
    unsigned p;

    np_clock_of_test = NP_CLOCK_SEC;
    sim_fail_every   = 2 << sim_below(7);
    sim_end_every    = 8 << sim_below(6);
    for (p = 0; p < SIM_PROCESSES; ++p) {
        sim_open_process(p);
    }
    if (!sim->open(has_views)) {
        sim_wrong("the device cannot be opened");
    }
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

static void sim_check_area(unsigned from, unsigned to, uint64_t upto,
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

static sim_op_t *sim_op_get(sim_kind_t kind, unsigned from, unsigned to)
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
                sim_ops[i].life[p] = sim_links[from][p].life;
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

static void sim_op_put(sim_op_t *op)
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
static int sim_pool_get(sim_op_t *op, size_t len, unsigned count)
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

static size_t sim_len(size_t max)
{
    static const size_t sizes[] = {8, 64, 1024, 8192, 65536, SIM_PUT_MAX};

    return 1 + sim_below(ucs_min(max, sizes[sim_below(6)]));
}

/* A link's next operation begins: what it is about */
static void sim_begin(sim_op_t *op, size_t max)
{
    op->number = sim_links[op->from][op->to].number + 1;
    op->len    = sim_len(max);
    op->offset = sim_below(SIM_AREA - op->len + 1);
    if (sim_below(3) > 0) { /* many meet each other */
        op->offset = (sim_below(2) == 0) ? 0 : sim_below(16) * 64;
        op->offset = ucs_min(op->offset, SIM_AREA - op->len);
    }
}

/* It has begun, and writes these bytes */
static void sim_written(const sim_op_t *op, uint64_t offset, const void *bytes,
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

static void sim_begun(const sim_op_t *op)
{
    sim_links[op->from][op->to].number = op->number;
}

/* What fails although something relies on it ends its link */
static int sim_may_fence(unsigned from, unsigned to)
{
    return sim_links[from][to].num_bad == 0;
}

/* Of the status of what would have begun: has it not? */
static int sim_is_refused(ucs_status_t status, const char *what)
{
    if (status == UCS_ERR_NO_RESOURCE) {
        ++sim_counts.refused;
        return 1;
    }

    if ((status != UCS_OK) && (status != UCS_INPROGRESS)) {
        sim_wrong("%s has failed: %s", what, ucs_status_string(status));
    }
    return 0;
}

static void sim_put_copied(unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get(SIM_PUT, from, to);
    uint8_t bytes[64];
    ucs_status_t status;

    sim_begin(op, sizeof(bytes));
    if (sim_below(2) == 0) { /* one after the other at the same place */
        op->len    = 24;
        op->offset = sim_below(2) * 64;
    }
    sim_fill(bytes, op->len);
    status = sim->put(from, to, bytes, op->len, sim_addr(from, to, op->offset));
    if (!sim_is_refused(status, "a short put")) {
        sim_tell("%u -> %u: %lu: short put of %zu at %#lx", from, to,
                 op->number, op->len, op->offset);
        ++sim_counts.puts;
        sim_begun(op);
        sim_written(op, op->offset, bytes, op->len, 1);
    }
    sim_op_put(op);
}

size_t sim_pack(void *dest, void *arg)
{
    sim_op_t *op = arg;

    sim_fill(dest, op->len);
    op->expected = malloc(op->len);
    memcpy(op->expected, dest, op->len);
    return op->len;
}

static void sim_put_packed(unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get(SIM_PUT, from, to);
    ssize_t len;

    sim_begin(op, sim->max_copied);
    len = sim->put_packed(from, to, op->len, sim_addr(from, to, op->offset),
                          op);
    if (!sim_is_refused((len < 0) ? (ucs_status_t)len : UCS_OK,
                        "a packed put")) {
        sim_tell("%u -> %u: %lu: packed put of %zu at %#lx", from, to,
                 op->number, op->len, op->offset);
        ++sim_counts.puts;
        sim_begun(op);
        sim_written(op, op->offset, op->expected, op->len, 1);
    }
    sim_op_put(op);
}

/* Bytes of buffers, as the model of the pool has them */
static void sim_gather(const sim_op_t *op, uint8_t *bytes)
{
    const sim_process_t *process = &sim_processes[op->from];
    size_t i;

    for (i = 0; i < op->iovcnt; bytes += op->iov[i++].len) {
        memcpy(bytes, process->pool_model +
                      ((uint8_t*)op->iov[i].base - process->pool),
               op->iov[i].len);
    }
}

static void sim_move(np_dir_t dir, unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get((dir == NP_DIR_PUT) ? SIM_PUT : SIM_GET, from,
                              to);
    ucs_status_t status;

    sim_begin(op, SIM_PUT_MAX);
    if (!sim_pool_get(op, op->len, (sim_below(4) == 0) ? 3 : 1)) {
        sim_op_put(op);
        return;
    }

    op->expected = malloc(op->len);
    if (dir == NP_DIR_PUT) {
        sim_gather(op, op->expected);
    } else {
        memcpy(op->expected, sim_links[from][to].model + op->offset, op->len);
    }
    sim_tell("%u -> %u: %lu: %s of %zu at %#lx in %zu pieces", from, to,
             op->number, (dir == NP_DIR_PUT) ? "put" : "get", op->len,
             op->offset, op->iovcnt);
    status = sim->move(dir, from, to, op->iov, op->iovcnt,
                       sim_addr(from, to, op->offset), op);
    if (sim_is_refused(status, "a transfer")) {
        sim_tell("refused");
        sim_op_put(op);
        return;
    }

    sim_begun(op);
    if (dir == NP_DIR_PUT) {
        ++sim_counts.puts;
        sim_written(op, op->offset, op->expected, op->len, 0);
    } else {
        ++sim_counts.gets;
    }
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

void sim_take_bytes(void *arg, const void *data, size_t len)
{
    sim_op_t *op = arg;

    if ((len != op->len) || (memcmp(data, op->expected, len) != 0)) {
        sim_wrong("%u -> %u: operation %lu has brought other bytes", op->from,
                  op->to, op->number);
    }
    op->result = 1;
}

static void sim_get_unpacked(unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get(SIM_UNPACK, from, to);
    ucs_status_t status;

    sim_begin(op, sim->max_copied);
    op->expected = malloc(op->len);
    memcpy(op->expected, sim_links[from][to].model + op->offset, op->len);
    status = sim->unpack(from, to, op->len, sim_addr(from, to, op->offset), op);
    if (sim_is_refused(status, "a buffered get")) {
        sim_op_put(op);
        return;
    }

    sim_tell("%u -> %u: %lu: buffered get of %zu at %#lx", from, to,
             op->number, op->len, op->offset);
    ++sim_counts.gets;
    sim_begun(op);
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

static uint64_t sim_apply(np_atomic_op_t what, uint64_t old, uint64_t value,
                          uint64_t compare)
{
    switch (what) {
    case NP_ATOMIC_ADD:
        return old + value;
    case NP_ATOMIC_AND:
        return old & value;
    case NP_ATOMIC_OR:
        return old | value;
    case NP_ATOMIC_XOR:
        return old ^ value;
    case NP_ATOMIC_SWAP:
        return value;
    default:
        return (old == compare) ? value : old;
    }
}

static void sim_atomic(unsigned from, unsigned to)
{
    const np_atomic_op_t what = sim_below(NP_ATOMIC_LAST);
    const size_t size         = (sim_below(2) == 0) ? 4 : 8;
    const int has_result      = (what >= NP_ATOMIC_SWAP) || (sim_below(2) == 0);
    sim_op_t *op              = sim_op_get(SIM_ATOMIC, from, to);
    uint64_t value            = sim_random(), compare, old = 0, new;
    ucs_status_t status;

    if (!sim_may_fence(from, to)) { /* it comes after all that was before */
        sim_op_put(op);
        return;
    }

    value      = (size == 4) ? (uint32_t)value : value;
    op->number = sim_links[from][to].number + 1;
    op->len    = size;
    op->offset = sim_below((sim_below(2) == 0) ? 16 : (SIM_AREA / 8)) * 8;
    memcpy(&old, sim_links[from][to].model + op->offset, size);
    compare    = (sim_below(2) == 0) ? old : value;
    op->value  = old;
    op->result = has_result ? 0 : old;
    status     = sim->atomic(from, to, what, size, value, compare,
                             sim_addr(from, to, op->offset),
                             has_result ? &op->result : NULL, op);
    if (sim_is_refused(status, "an atomic")) {
        sim_op_put(op);
        return;
    }

    sim_tell("%u -> %u: %lu: atomic %d of %zu at %#lx", from, to, op->number,
             what, size, op->offset);
    ++sim_counts.atomics;
    new = sim_apply(what, old, value, compare);
    sim_begun(op);
    sim_written(op, op->offset, &new, size, 1);
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

static void sim_send(unsigned from, unsigned to)
{
    sim_link_t *link = &sim_links[from][to];
    sim_text_t text  = {
        .from   = from,
        .life   = link->life,
        .number = link->sent + 1,
        .fence  = link->fence
    };
    uint8_t bytes[SIM_MESSAGE];
    ucs_status_t status;

    text.len = sizeof(text) + sim_below(SIM_MESSAGE - sizeof(text) + 1);
    memset(bytes, text.number, sizeof(bytes));
    memcpy(bytes, &text, sizeof(text));
    status = sim->message(from, to, bytes, text.len, sim_below(3));
    if (!sim_is_refused(status, "a message")) {
        ++sim_counts.messages;
        ++link->sent;
        sim_tell("%u -> %u: message %lu, after %lu", from, to, link->sent,
                 link->fence);
    }
}

void sim_message(unsigned to, const void *data, size_t len)
{
    const uint8_t *bytes = data;
    sim_link_t *link;
    sim_text_t text;
    size_t i;

    if (len < sizeof(text)) {
        sim_wrong("a message of %zu bytes", len);
    }

    memcpy(&text, data, sizeof(text));
    if (text.from >= SIM_PROCESSES) {
        sim_wrong("a message from %u", text.from);
    }
    link = &sim_links[text.from][to];
    if (text.life != link->life) {
        return; /* on its way when its link ended */
    }
    if ((len != text.len) || (text.number != link->received + 1)) {
        sim_wrong("%u -> %u: message %lu of %zu bytes after %lu", text.from, to,
                  text.number, len, link->received);
    }
    for (i = sizeof(text); i < len; ++i) {
        if (bytes[i] != (uint8_t)text.number) {
            sim_wrong("%u -> %u: message %lu: wrong bytes", text.from, to,
                      text.number);
        }
    }
    sim_tell("%u -> %u: message %lu has come", text.from, to, text.number);
    link->received = text.number;
    sim_check_area(text.from, to, text.fence, "at a message after a fence of");
}

static void sim_flush(unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get(SIM_FLUSH, from, to);
    ucs_status_t status;

    op->upto[to] = sim_links[from][to].number;
    status       = sim->flush(from, to, op);
    if (sim_is_refused(status, "a flush")) {
        sim_op_put(op);
        return;
    }

    sim_tell("%u -> %u: flush of %lu: %s", from, to, op->upto[to],
             ucs_status_string(status));
    ++sim_counts.flushes;
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

static void sim_flush_port(unsigned from)
{
    sim_op_t *op = sim_op_get(SIM_FLUSH_PORT, from, 0);
    ucs_status_t status;
    unsigned p;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        op->upto[p] = sim_links[from][p].number;
    }
    status = sim->flush_port(from, op);
    if (sim_is_refused(status, "a flush of a port")) {
        sim_op_put(op);
        return;
    }

    sim_tell("%u: flush of its port: %s", from, ucs_status_string(status));
    ++sim_counts.flushes;
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

static void sim_fence(unsigned from, unsigned to)
{
    if (!sim_may_fence(from, to)) {
        return;
    }

    sim->fence(from, to);
    sim_links[from][to].fence = sim_links[from][to].number;
    sim_tell("%u -> %u: fence of %lu", from, to, sim_links[from][to].fence);
}

static void sim_fence_port(unsigned from)
{
    unsigned p;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        if (!sim_may_fence(from, p)) {
            return;
        }
    }
    sim->fence_port(from);
    for (p = 0; p < SIM_PROCESSES; ++p) {
        sim_links[from][p].fence = sim_links[from][p].number;
    }
    sim_tell("%u: fence of its port", from);
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
static void sim_give_back(const sim_op_t *op)
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
    sim_op_put(op);
}

/* A get of memory that is not there: an error, and no harm done. (A put of such
 * may end its link: small ones are told of by nobody else.) */
static void sim_get_bad(unsigned from, unsigned to)
{
    sim_op_t *op     = sim_op_get(SIM_GET, from, to);
    sim_link_t *link = &sim_links[from][to];
    ucs_status_t status;

    sim_begin(op, SIM_PUT_MAX);
    if (!sim_pool_get(op, op->len, 1)) {
        sim_op_put(op);
        return;
    }

    op->offset += SIM_AREA;
    op->is_bad  = 1;
    status      = sim->move(NP_DIR_GET, from, to, op->iov, op->iovcnt,
                            sim_addr(from, to, op->offset), op);
    if (status == UCS_INPROGRESS) {
        sim_tell("%u -> %u: %lu: bad get of %zu", from, to, op->number,
                 op->len);
        ++sim_counts.bad;
        ++link->num_bad;
        sim_begun(op);
        return;
    }

    if (status == UCS_OK) {
        sim_wrong("%u -> %u: a transfer of no memory has gone well", from, to);
    }
    sim_give_back(op);
    sim_op_put(op);
}

/* The link's life ends, and its next one begins, with another area: what was
 * sent before may still arrive in this one */
static void sim_reopen(unsigned from, unsigned to)
{
    const int is_cancelled = sim_below(2) == 0;
    sim_link_t *link       = &sim_links[from][to];
    sim_op_t *op;

    if (link->life == (SIM_LIVES - 1)) {
        return;
    }

    sim_tell("%u -> %u: the link ends, and begins anew", from, to);
    ++sim_counts.ends;
    link->is_ending = 1;
    ++link->life;
    sim_open_area(from, to);
    link->number   = 0;
    link->fence    = 0;
    link->sent     = 0;
    link->received = 0;
    link->num_bad  = 0;
    sim->reopen(from, to, is_cancelled);
    link->is_ending = 0;
    for (op = sim_ops; op < &sim_ops[SIM_OPS]; ++op) {
        if (op->is_used && (op->kind != SIM_FLUSH_PORT) &&
            (op->from == from) && (op->to == to)) {
            if (is_cancelled) {
                sim_wrong("%u -> %u: operation %lu was not cancelled", from, to,
                          op->number);
            }
            sim_give_back(op);
            sim_op_put(op);
        }
    }
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
            if ((p != op->from) &&
                (op->life[p] == sim_links[op->from][p].life)) {
                sim_check_area(op->from, p, op->upto[p],
                               "after a flush of the port, of");
            }
        }
        break;
    default:
        break; /* a put is seen after a flush */
    }
    sim_op_put(op);
}

/* Something that is under way with bytes; NULL: nothing is */
static const sim_op_t *sim_some_op(void)
{
    const unsigned first = sim_below(SIM_OPS);
    unsigned i;

    for (i = 0; (i < SIM_OPS) && (sim_num_ops > 0); ++i) {
        if (sim_ops[(first + i) % SIM_OPS].is_used &&
            (sim_ops[(first + i) % SIM_OPS].len > 0)) {
            return &sim_ops[(first + i) % SIM_OPS];
        }
    }
    return NULL;
}

/* Pages that it needs, on either side */
static void *sim_needed_pages(const sim_op_t *op, size_t *len)
{
    const np_iov_t *iov;
    uint64_t va, end;

    if ((op->iovcnt > 0) && (sim_below(2) == 0)) {
        iov = &op->iov[sim_below(op->iovcnt)];
        va  = (uintptr_t)iov->base;
        end = va + ucs_max(iov->len, 1ul);
    } else {
        va  = sim_addr(op->from, op->to, op->offset);
        end = va + op->len;
    }
    va  += sim_below(end - va);
    end  = ucs_min(end, va + sim_below(2 * SIM_PAGE) + 1);
    va   = ucs_align_down_pow2(va, SIM_PAGE);
    *len = ucs_align_up_pow2(end, SIM_PAGE) - va;
    return (void*)va;
}

/* Some pages of a process: of its pool, or of an area */
static void *sim_pages(size_t *len)
{
    const unsigned p             = sim_below(SIM_PROCESSES);
    const unsigned which         = (p + 1 + sim_below(SIM_PROCESSES)) %
                                   (SIM_PROCESSES + 1);
    const sim_process_t *process = &sim_processes[p];
    const sim_op_t *op           = sim_some_op();
    const unsigned how           = sim_below(4);
    const size_t pages           = SIM_AREA / SIM_PAGE; /* a pool has more */
    uint8_t *bytes               = (which == SIM_PROCESSES) ? process->pool :
                                   process->area[which];
    size_t page;

    if ((op != NULL) && (how < 2)) {
        return sim_needed_pages(op, len);
    }

    if (bytes == NULL) {
        bytes = process->area[(p + 1) % SIM_PROCESSES];
    }
    page = (how == 2) ? 0 : sim_below(pages); /* the first is used most */
    *len = 1 + sim_below((sim_below(8) == 0) ? pages - page : 2);
    *len = ucs_min(*len, pages - page) * SIM_PAGE;
    return bytes + page * SIM_PAGE;
}

static void sim_pass(uint64_t nsec)
{
    np_clock_of_test += 1 + sim_below(nsec);
}

static void sim_progress(unsigned max)
{
    const unsigned p = sim_below(SIM_PROCESSES);
    unsigned count   = 1 + sim_below(max);

    for (; count > 0; --count) {
        sim->progress(p);
    }
}

void sim_world_pages(void)
{
    size_t len;
    void *va = sim_pages(&len);

    if (sim_below(3) > 0) {
        sim_tell("%zu bytes at %p are taken", len, va);
        ++sim_counts.takes;
        sim->take(va, len);
    } else {
        sim_tell("%zu bytes at %p come back", len, va);
        ++sim_counts.gives;
        sim->give(va, len, sim_below(2));
    }
}

static void sim_event(void)
{
    const unsigned from = sim_below(SIM_PROCESSES);
    const unsigned to   = (from + 1 + sim_below(SIM_PROCESSES - 1)) %
                          SIM_PROCESSES;

    switch (sim_below(16)) {
    case 0:
        if ((sim_below(sim_fail_every) == 0) && sim->fail()) {
            sim_tell("a queue pair fails");
            ++sim_counts.failures;
        }
        break;
    case 1:
        if (sim_below(sim_end_every) == 0) {
            sim_reopen(from, to);
        }
        break;
    case 2 ... 7:
        sim_world_pages();
        break;
    default:
        (void)sim->settle();
        break;
    }
}

static void sim_operate(unsigned from, unsigned to)
{
    if (sim_num_ops > (SIM_OPS / 2)) {
        return;
    }

    switch (sim_below(25)) {
    case 0 ... 5:
        sim_put_copied(from, to);
        break;
    case 6 ... 7:
        sim_put_packed(from, to);
        break;
    case 8 ... 10:
        sim_move(NP_DIR_PUT, from, to);
        break;
    case 11 ... 13:
        sim_move(NP_DIR_GET, from, to);
        break;
    case 14 ... 15:
        sim_get_unpacked(from, to);
        break;
    case 16 ... 17:
        sim_atomic(from, to);
        break;
    case 18 ... 19:
        sim_send(from, to);
        break;
    case 20:
        sim_fence(from, to);
        break;
    case 21:
        sim_flush(from, to);
        break;
    case 22:
        sim_flush_port(from);
        break;
    case 23:
        sim_get_bad(from, to);
        break;
    default:
        sim_fence_port(from);
        break;
    }
}

/* One, or several of one link, which take a while to be under way */
static void sim_operation(void)
{
    const unsigned from = sim_below(SIM_PROCESSES);
    const unsigned to   = (from + 1 + sim_below(SIM_PROCESSES - 1)) %
                          SIM_PROCESSES;
    unsigned count      = 1 + ((sim_below(4) == 0) ? sim_below(8) : 0);

    for (; count > 0; --count) {
        sim_operate(from, to);
    }
}

void sim_world_step(void)
{
    unsigned i;

    ++sim_counts.steps;
    sim_pass(2000);
    switch (sim_below(8)) {
    case 0:
    case 1:
        sim_operation();
        break;
    case 2:
        sim_event();
        break;
    case 3:
    case 4:
        sim_progress((sim_below(16) == 0) ? 128 : 4);
        break;
    default:
        for (i = 1 + sim_below(8); (i > 0) && (sim->turn() > 0); --i) {
            ++sim_counts.turns;
        }
        break;
    }
}

/* Long enough for all to notice what has ended without a word */
static void sim_wait(void)
{
    unsigned step, p, i;

    for (step = 0; (sim_counts.ends > 0) && (step < 2000); ++step) {
        sim_pass(NP_CLOCK_SEC);
        for (p = 0; p < SIM_PROCESSES; ++p) {
            for (i = 0; i < 64; ++i) {
                sim->progress(p);
            }
        }
        while (sim->turn() > 0) {
        }
    }
}

/* Nothing goes wrong any more: all that has begun ends */
static void sim_settle_down(void)
{
    unsigned step, p, sent;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        sim_op_t *op = sim_op_get(SIM_FLUSH_PORT, p, 0);
        unsigned q;

        for (q = 0; q < SIM_PROCESSES; ++q) {
            op->upto[q] = sim_links[p][q].number;
        }
        if (sim->flush_port(p, op) == UCS_OK) {
            sim_complete(op, UCS_OK);
        }
    }

    for (step = 0; step < SIM_QUIET; ++step) {
        ++sim_counts.steps;
        sim_pass(1000000);
        (void)sim->settle();
        for (p = 0; p < SIM_PROCESSES; ++p) {
            sim->progress(p);
        }
        while (sim->turn() > 0) {
        }
        for (sent = 0, p = 0; p < SIM_LINKS; ++p) {
            sent += sim_links[p / SIM_PROCESSES][p % SIM_PROCESSES].sent !=
                    sim_links[p / SIM_PROCESSES][p % SIM_PROCESSES].received;
        }
        if ((sim_num_ops == 0) && (sent == 0) && ((step % 2048) == 2047)) {
            sim_wait();
            return;
        }
    }

    for (p = 0; p < SIM_OPS; ++p) {
        if (sim_ops[p].is_used) {
            sim_wrong("%u -> %u: operation %lu of kind %d never ends",
                      sim_ops[p].from, sim_ops[p].to, sim_ops[p].number,
                      sim_ops[p].kind);
        }
    }
    sim_wrong("%u links' messages never come", sent);
}

static void sim_check_all(void)
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

void sim_world_close(void)
{
    sim_settle_down();
    sim_check_all();
    if (!sim->is_clean()) {
        sim_wrong("something is left");
    }
    sim->close();
}
