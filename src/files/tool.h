/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma-file: what its commands have in common.
 */

#ifndef NF_TOOL_H_
#define NF_TOOL_H_

#include "clock.h"
#include "program.h"
#include "way.h"

#include <nprdma/nprdma_remote.h>

#include <limits.h>
#include <stdint.h>

/** Bytes of a path of the server, with no zero at its end */
#define TOOL_PATH_MAX  (PATH_MAX - 1)

/** What the command line says */
typedef struct tool {
    nprdma_server_params_t where;
    nf_way_t               way;        /**< as --auth says */
    nprdma_server_t        *server;
    int                    is_json;
    int                    is_long;    /**< ls: more than names */
    int                    is_quiet;   /**< no progress */
    int                    by_lines;   /**< append: each line by itself */
    int                    is_durable; /**< on the disk before the command
                                            ends */
    int                    is_dir;     /**< rm: a directory */
} tool_t;

/** How far a copy is; shown on a terminal alone */
typedef struct tool_progress {
    const char *name;
    uint64_t   total;       /**< bytes; 0: nobody knows */
    uint64_t   done;
    uint64_t   begin, shown; /**< nf_now() */
    int        is_shown;
} tool_progress_t;

/** A line that says what has failed, and why. Returns 1, to exit with. */
int tool_fail(const char *what, const char *path, int error);

void tool_progress_begin(const tool_t *tool, tool_progress_t *progress,
                         const char *name, uint64_t total);
void tool_progress_add(tool_progress_t *progress, uint64_t bytes);

/** And what it was in all */
void tool_progress_end(const tool_t *tool, tool_progress_t *progress);

/** Commands that show what is known of a file, or of all in a directory. Return
 *  what to exit with. */
int tool_stat(tool_t *tool, char **paths);
int tool_ls(tool_t *tool, char **paths);

/** Copies between a server's file and one of ours; "-": standard output or
 *  input. Return what to exit with. */
int tool_get(tool_t *tool, const char *remote, const char *local);
int tool_put(tool_t *tool, const char *local, const char *remote);

/** Append what a file of ours has; "-": standard input */
int tool_append(tool_t *tool, const char *local, const char *remote);

/** Append to a log, write it to standard output, or look at it: here, or of the
 *  server if there is one. Returns what to exit with. */
int tool_log(tool_t *tool, char **paths);

/** Measure calls for a file of the server; system calls as well, if it is at
 *  @a here on this host, not NULL */
int tool_bench(tool_t *tool, const char *remote, const char *here);

#endif
