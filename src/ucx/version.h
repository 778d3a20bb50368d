/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which UCX runs, and for which of them there is a plug-in: there is one for
 * each minor version, in a directory of its own. Needs no UCX.
 */
#ifndef UCX_VERSION_H_
#define UCX_VERSION_H_

#include <stddef.h>

/** The directory of one UCX, below that of nprdma's own libraries, and the
 *  plug-in in it: formats with its major and minor version */
#define UCX_VERSION_DIR    "ucx-%u.%u"
#define UCX_VERSION_PLUGIN UCX_VERSION_DIR "/libuct_nprdma.so.0"

typedef struct ucx_version {
    unsigned major;
    unsigned minor;
    unsigned release;
} ucx_version_t;

/** The UCX that runs in this process. libuct does not tell its version; libucp
 *  of the same directory does.
 *  @param [in] in_libuct  an address in libuct
 *  @return 0, or -1 if there is no libucp */
int ucx_version_running(const void *in_libuct, ucx_version_t *version);

/** Text of the versions that have a plug-in below a directory, for example
 *  "1.13, 1.18"; "none" if there is no such directory or it has none */
void ucx_version_installed(const char *dir, char *text, size_t size);

#endif
