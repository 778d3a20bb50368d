/* SPDX-License-Identifier: BSD-3-Clause */
#include "zipf.h"

#include <math.h>
#include <stdlib.h>

double *zipf_sums(size_t items, double skew)
{
    double *sums = malloc(items * sizeof(*sums));
    double sum   = 0;
    size_t i;

    for (i = 0; (sums != NULL) && (i < items); ++i) {
        sum    += pow(i + 1, -skew);
        sums[i] = sum;
    }
    return sums;
}

uint32_t zipf_rank(const double *sums, size_t items, double random)
{
    const double wanted = random * sums[items - 1];
    uint32_t low = 0, high = items - 1, middle;

    while (low < high) {
        middle = (low + high) / 2;
        if (sums[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
