/* SPDX-License-Identifier: BSD-3-Clause */
/* The world: what happens next, by chance. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sim_inside.h"

#include "nprdma/clock.h"


#define SIM_QUIET  200000u  /* steps after which all must have ended */

/* Of so many events one is a failure, and the end of a link */
static unsigned sim_fail_every, sim_end_every;

void (*sim_between)(void);
void (*sim_completed)(unsigned from);


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

static void sim_world_pages(void)
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
    if ((sim_num_ops > (SIM_OPS / 2)) || sim_links[from][to].is_ending) {
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

/* Pages go and come between two steps of a call, too */
static void sim_world_between(void)
{
    if (sim_below(16) == 0) {
        sim_world_pages();
    }
}

/* What a user does when it is told of something's end */
static void sim_world_completed(unsigned from)
{
    static int depth;
    const unsigned to = (from + 1 + sim_below(SIM_PROCESSES - 1)) %
                        SIM_PROCESSES;

    if ((depth > 1) || (sim_below(4) > 0)) {
        return;
    }

    ++depth;
    if ((sim_below(sim_end_every) == 0) &&
        (sim_links[from][to].life < (SIM_LIVES - 1))) {
        sim_tell("%u -> %u: cancelled within a completion", from, to);
        sim_links[from][to].is_ending = 1;
        np_ep_cancel(sim->link(from, to), UCS_ERR_CANCELED);
    }
    sim_operate(from, to);
    --depth;
}

/* Links that were cancelled begin anew */
static void sim_world_ends(void)
{
    unsigned p, q;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        for (q = 0; q < SIM_PROCESSES; ++q) {
            if (sim_links[p][q].is_ending) {
                sim_reopen(p, q);
            }
        }
    }
}

void sim_world_step(void)
{
    unsigned i;

    ++sim_counts.steps;
    sim_world_ends();
    sim_between   = sim_world_between;
    sim_completed = sim_world_completed;
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
void sim_settle_down(void)
{
    unsigned step, p, sent;

    sim_between   = NULL;
    sim_completed = NULL;
    sim_world_ends();
    for (p = 0; p < SIM_PROCESSES; ++p) {
        sim_op_t *op = sim_op_get(SIM_FLUSH_PORT, p, 0);
        unsigned q;

        for (q = 0; q < SIM_PROCESSES; ++q) {
            op->upto[q] = sim_links[p][q].number;
        }
        if (np_eps_flush(sim->links(p), op) == UCS_OK) {
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

void sim_world_close(void)
{
    sim_settle_down();
    sim_check_all();
    if (!sim->is_clean()) {
        sim_wrong("something is left");
    }
    sim->close();
}
