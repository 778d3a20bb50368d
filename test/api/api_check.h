/* SPDX-License-Identifier: BSD-3-Clause */
/* One case after the other: the first thing that is wrong is named, and ends
 * the program with exit code 1. */
#ifndef API_CHECK_H
#define API_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_EQ(_expr, _wanted) \
    do { \
        long long _got  = (_expr); \
        long long _want = (_wanted); \
        \
        if (_got != _want) { \
            fprintf(stderr, "%s:%d: %s is %lld, %lld wanted\n", __FILE__, \
                    __LINE__, #_expr, _got, _want); \
            exit(1); \
        } \
    } while (0)

#define API_TRUE(_expr) API_EQ(!!(_expr), 1)

typedef struct api_case {
    const char *name;
    void       (*run)(void);
} api_case_t;

/* Runs the case that the command line names; without one prints all names. */
static inline int
api_main(const api_case_t *cases, size_t count, int argc, char **argv)
{
    size_t i;

    for (i = 0; i < count; ++i) {
        if (argc < 2) {
            puts(cases[i].name);
        } else if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    return (argc < 2) ? 0 : 2;
}

#define API_MAIN(_cases) \
    int main(int argc, char **argv) \
    { \
        return api_main(_cases, sizeof(_cases) / sizeof((_cases)[0]), argc, \
                        argv); \
    }

#endif
