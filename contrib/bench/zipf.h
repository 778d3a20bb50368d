/* SPDX-License-Identifier: BSD-3-Clause */
/* Zipf's law: of items the k-th comes k^-skew times as often as the first. */
#ifndef BENCH_ZIPF_H_
#define BENCH_ZIPF_H_

#include <stddef.h>
#include <stdint.h>

/* Weights of the items up to each, to be freed; NULL: no memory */
double *zipf_sums(size_t items, double skew);

/* The item for a random number from 0 to below 1; 0 is the most frequent */
uint32_t zipf_rank(const double *sums, size_t items, double random);

#endif
