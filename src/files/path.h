/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Paths of an export, for what opens them.
 */

#ifndef NF_PATH_H_
#define NF_PATH_H_

#include "opened.h"

/** As open(), with its flags, beneath the root. Returns a descriptor, which is
 *  closed by exec, or a negative errno. */
int nf_path_open(const nf_export_t *export, const char *path, int flags,
                 mode_t mode);

/** What the wire says of an open file. Returns 0 or a negative errno. */
int nf_path_fill(int fd, nf_stat_t *stat);

#endif
