/* SPDX-License-Identifier: BSD-3-Clause */
/* What the MPI programs share: start and end, patterns, guarded buffers. */
#ifndef MPI_CHECK_H
#define MPI_CHECK_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#define MC_GUARD     64
#define MC_MAX_SIZE  (4ul << 20)

/* A buffer with MC_GUARD known bytes on either side of what is used. */
typedef struct {
    uint8_t *raw;
    size_t  capacity;
    uint8_t *data;
    size_t  size;
} mc_buf_t;

extern int mc_rank;
extern int mc_size;

/* Right-hand and left-hand neighbour in the ring of all ranks. */
extern int mc_right;
extern int mc_left;

void mc_init(int *argc_p, char ***argv_p, int thread_level);

/* Meets all ranks and prints one line with the number of checks. */
int mc_finish(void);

void mc_fail(const char *fmt, ...)
        __attribute__((noreturn, format(printf, 1, 2)));

/* Counts one more check; fails with the text unless cond. */
#define MC_REQUIRE(_cond, _fmt, ...) \
    do { \
        mc_count(); \
        if (!(_cond)) { \
            mc_fail("%s:%d: " _fmt, __func__, __LINE__, ##__VA_ARGS__); \
        } \
    } while (0)

void mc_count(void);

/* The seed of a message: differs by sender, subject and turn. */
uint32_t mc_seed(int sender, int subject, int turn);

void mc_fill(void *buf, size_t size, uint32_t seed);

/* Fails with the offset of the first wrong byte. */
void mc_check(const char *what, const void *buf, size_t size, uint32_t seed);

void mc_buf_init(mc_buf_t *buf, size_t capacity);
void mc_buf_free(mc_buf_t *buf);

/* Prepare for size bytes at the given misalignment; data holds no pattern. */
void mc_buf_reset(mc_buf_t *buf, size_t size, size_t align);
void mc_buf_check(const char *what, const mc_buf_t *buf, uint32_t seed);
void mc_buf_check_guards(const char *what, const mc_buf_t *buf);

/* Sizes from 0 to max around every threshold; returns how many. */
int mc_sizes(size_t *sizes, int max_sizes, size_t max);

/* A reproducible random number below limit. */
uint32_t mc_random(uint64_t *state, uint32_t limit);

#endif
