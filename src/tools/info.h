/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of nprdma_info share.
 */

#ifndef NPRDMA_INFO_H_
#define NPRDMA_INFO_H_

#include <uct/api/uct.h>

#include <stddef.h>
#include <sys/types.h>

/** Longest line about one thing */
#define INFO_LINE 1024

/** Seconds that a child may take */
#define INFO_CHILD_LIMIT 20

/** Where the kernel lists RDMA devices */
#define INFO_RDMA_DIR "/sys/class/infiniband"

typedef enum info_result {
    INFO_OK,
    INFO_WARNING,  /**< works, but slower or for fewer */
    INFO_MISSING   /**< nprdma does not work here */
} info_result_t;

/** One thing that soft0 needs */
typedef struct info_check {
    const char    *name;
    /** Try it. @a text: what was found, or the reason and the cure */
    info_result_t (*run)(char *text, size_t size);
} info_check_t;

extern const info_check_t info_checks[];
extern const unsigned info_num_checks;

/** What the engine said since the last info_log_clear(); "" if nothing */
extern char info_log_text[INFO_LINE];

void info_log_clear(void);

/** The version of the UCX that programs here would load. Returns 0, or -1 and
 *  in @a text why there is none. */
int info_ucx_version(char *text, size_t size);

/** Where an installed file is: @a name in nprdma's library directory, which is
 *  found from this program's, even if both were moved */
void info_lib_path(const char *name, char *path, size_t size);

/** The versions of UCX that there are plug-ins for, as text */
void info_plugins(char *text, size_t size);

/** Print which plug-in and stub nprdma-run would use */
void info_show_paths(void);

/** Run a function in a child process, so that what it loads does no harm here.
 *  Returns its result, or -1; in @a text what it printed. */
int info_in_child(int (*func)(void), char *text, size_t size);

/** Load the plug-in, in such a child. Returns its handle, by which functions of
 *  UCX are found, and its component; or NULL, and prints the reason. */
void *info_load_component(uct_component_h *component_p);

/** Checks: UCX, and what nprdma-run would load into it */
info_result_t info_check_ucx(char *text, size_t size);
info_result_t info_check_plugin(char *text, size_t size);
info_result_t info_check_stub(char *text, size_t size);

/** Check: would UCX take what the environment says? */
info_result_t info_check_env(char *text, size_t size);

/** First line of a file without the newline, "" if it cannot be read */
const char *info_read_line(const char *path, char *buf, size_t size);

/** Does any RDMA device work here? @a text: "yes: " and which, or "no: ", the
 *  reason and the cure. INFO_WARNING: one works, but slower. */
info_result_t info_verbs_works(char *text, size_t size);

/** Can an RDMA device reach memory by views of nprdma.ko? As
 *  info_verbs_works. */
info_result_t info_kmod_works(char *text, size_t size);

/** Names of ports that are up, each after a blank */
void info_verbs_names(char *text, size_t size);

/** Print a line about each of them */
void info_verbs_show(void);

/** Check: without an RDMA device all is well, for one host */
info_result_t info_check_verbs(char *text, size_t size);

/** Print the counters of a process. With an @a interval (seconds) above 0,
 *  print them again and again, with rates, until the process ends.
 *  @return 0, or 1 after a line on standard error that says why not. */
int info_stats_show(pid_t pid, double interval);

/** Print which processes of this user have counters; returns as
 *  info_stats_show */
int info_stats_list(void);

#endif
