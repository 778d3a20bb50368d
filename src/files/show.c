/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma-file: what is known of files, for people and for programs.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Names of a directory that are sorted */
typedef struct tool_names {
    char   **names;
    size_t count;
} tool_names_t;


/* Bytes of the character of UTF-8 that a text begins with; 0: it is none */
static unsigned tool_utf8(const unsigned char *text)
{
    const unsigned len = (text[0] < 0x80) ? 1 : (text[0] < 0xc2) ? 0 :
                         (text[0] < 0xe0) ? 2 : (text[0] < 0xf0) ? 3 :
                         (text[0] < 0xf5) ? 4 : 0;
    unsigned i;

    for (i = 1; i < len; ++i) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return len;
}

/* A string as JSON has it, with its quotes */
static void tool_print_json(const char *text)
{
    unsigned len;

    putchar('"');
    for (; *text != '\0'; text += (len > 0) ? len : 1) {
        len = tool_utf8((const unsigned char*)text);
        if ((*text == '"') || (*text == '\\')) {
            printf("\\%c", *text);
        } else if (len == 0) {
            /* a name may be any bytes: as Python takes them */
            printf("\\udc%02x", (unsigned char)*text);
        } else if ((unsigned char)*text < ' ') {
            printf("\\u%04x", *text);
        } else {
            fwrite(text, len, 1, stdout);
        }
    }
    putchar('"');
}

/* A name; a terminal must not take it for a command */
static void tool_print_name(const char *name)
{
    const int is_terminal = isatty(STDOUT_FILENO);

    for (; *name != '\0'; ++name) {
        putchar((is_terminal && (((unsigned char)*name < ' ') ||
                                 (*name == 127))) ? '?' : *name);
    }
    putchar('\n');
}

static void tool_show_stat(const tool_t *tool, const char *name,
                           const struct stat *stat)
{
    const struct timespec *mtime = &stat->st_mtim;
    const mode_t mode            = stat->st_mode;
    const char type              = S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' :
                                   S_ISREG(mode) ? '-' : '?';
    char when[32];
    struct tm tm;

    if ((localtime_r(&mtime->tv_sec, &tm) == NULL) ||
        (strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm) == 0)) {
        strcpy(when, "?");
    }
    if (tool->is_json) {
        printf("{\"name\": ");
        tool_print_json(name);
        printf(", \"type\": \"%c\", \"size\": %ld, \"mode\": \"%04o\", "
               "\"uid\": %u, \"gid\": %u, \"mtime\": %ld.%09ld, "
               "\"inode\": %lu}\n", type, stat->st_size, mode & 07777,
               stat->st_uid, stat->st_gid, mtime->tv_sec, mtime->tv_nsec,
               stat->st_ino);
    } else {
        printf("%c%04o %5u %5u %14ld %s ", type, mode & 07777, stat->st_uid,
               stat->st_gid, stat->st_size, when);
        tool_print_name(name);
    }
}

static int tool_names_add(void *arg, const char *name, int type)
{
    tool_names_t *names = arg;
    char **more;

    more = realloc(names->names, (names->count + 1) * sizeof(*more));
    if (more == NULL) {
        return -ENOMEM;
    }

    names->names               = more;
    names->names[names->count] = strdup(name);
    return (names->names[names->count++] == NULL) ? -ENOMEM : 0;
}

static int tool_names_compare(const void *name1, const void *name2)
{
    return strcmp(*(char *const*)name1, *(char *const*)name2);
}

/* One of a directory; it may have gone meanwhile, or lead out of it */
static int
tool_show_name(const tool_t *tool, const char *dir, const char *name)
{
    char path[2 * TOOL_PATH_MAX];
    struct stat stat;
    int ret;

    if (!tool->is_long && !tool->is_json) {
        tool_print_name(name);
        return 0;
    }

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    ret = nprdma_remote_stat(tool->server, path, &stat);
    if (ret != 0) {
        return tool_fail("look at", path, ret);
    }

    tool_show_stat(tool, name, &stat);
    return 0;
}

static int tool_ls_dir(tool_t *tool, const char *path)
{
    tool_names_t names = {0};
    int ret, failed = 0;
    size_t i;

    ret = nprdma_remote_list(tool->server, path, tool_names_add, &names);
    qsort(names.names, names.count, sizeof(*names.names), tool_names_compare);
    for (i = 0; i < names.count; ++i) {
        if (ret == 0) {
            failed |= tool_show_name(tool, path, names.names[i]);
        }
        free(names.names[i]);
    }
    free(names.names);
    return (ret == 0) ? failed : tool_fail("list", path, ret);
}

int tool_stat(tool_t *tool, char **paths)
{
    struct stat stat;
    int ret = nprdma_remote_stat(tool->server, paths[0], &stat);

    if (ret != 0) {
        return tool_fail("find", paths[0], ret);
    }

    tool_show_stat(tool, paths[0], &stat);
    return 0;
}

int tool_ls(tool_t *tool, char **paths)
{
    struct stat stat;
    int ret = nprdma_remote_stat(tool->server, paths[0], &stat);

    if (ret != 0) {
        return tool_fail("find", paths[0], ret);
    }

    return S_ISDIR(stat.st_mode) ? tool_ls_dir(tool, paths[0]) :
           tool_stat(tool, paths);
}
