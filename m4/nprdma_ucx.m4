# SPDX-License-Identifier: BSD-3-Clause
# UCX itself, its private headers, and its own config.h.

# Sets UCX_CPPFLAGS, UCX_LIBS, UCX_INFO, UCX_VERSION, UCX_MINOR_VERSION.
AC_DEFUN([NPRDMA_UCX], [
    AC_ARG_WITH([ucx],
        [AS_HELP_STRING([--with-ucx=PREFIX],
                        [UCX to build against (default: the system's)])],
        [], [with_ucx=yes])
    AS_IF([test "x$with_ucx" = xno],
          [AC_MSG_ERROR([--without-ucx: nprdma is a UCX transport and cannot be built without UCX])])

    UCX_CPPFLAGS= nprdma_ucx_ldflags=
    AS_IF([test "x$with_ucx" = xyes],
          [AC_PATH_PROG([UCX_INFO], [ucx_info])],
          [AS_IF([test ! -f "$with_ucx/include/uct/api/uct.h"],
                 [AC_MSG_ERROR([--with-ucx=$with_ucx: no include/uct/api/uct.h there: name the prefix that UCX was installed with])])
           nprdma_triplet=`$CC -print-multiarch 2>/dev/null`
           for nprdma_dir in "$with_ucx/lib/$nprdma_triplet" \
                             "$with_ucx/lib64" "$with_ucx/lib"; do
               AS_IF([test -e "$nprdma_dir/libuct.so"], [break])
           done
           AS_IF([test "x$with_ucx" != x/usr],
                 [UCX_CPPFLAGS="-isystem $with_ucx/include"
                  nprdma_ucx_ldflags="-L$nprdma_dir -Wl,-rpath,$nprdma_dir"])
           AC_PATH_PROG([UCX_INFO], [ucx_info], [], [$with_ucx/bin])])
    AS_IF([test -z "$UCX_INFO"],
          [AC_MSG_ERROR([ucx_info is missing (it tells how UCX was configured): install ucx-utils, or run contrib/setup.sh])])

    UCX_LIBS="$nprdma_ucx_ldflags -lucp -luct -lucs"
    UCT_LIBS="$nprdma_ucx_ldflags -luct -lucs"
    nprdma_save_CPPFLAGS=$CPPFLAGS nprdma_save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $UCX_CPPFLAGS" LIBS="$UCX_LIBS $LIBS"
    AC_MSG_CHECKING([for UCX headers and libraries])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>]],
        [[uct_release_component_list(0); return ucp_get_version_string() == 0;]])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([no usable UCX: install libucx-dev, run contrib/setup.sh, or name one with --with-ucx=PREFIX])])

    AC_MSG_CHECKING([for the version of UCX])
    AC_LANG_CONFTEST([AC_LANG_SOURCE([[#include <uct/api/version.h>
nprdma_version=UCT_VERNO_MAJOR.UCT_VERNO_MINOR.UCT_VERNO_PATCH]])])
    UCX_VERSION=`$CC -E -P $CPPFLAGS conftest.$ac_ext | \
                 $SED -n 's/^nprdma_version=//p' | tr -d ' '`
    rm -f conftest.$ac_ext
    AC_MSG_RESULT([$UCX_VERSION])
    CPPFLAGS=$nprdma_save_CPPFLAGS LIBS=$nprdma_save_LIBS

    nprdma_ver=`$UCX_INFO -v 2>/dev/null | \
                $SED -n 's/^# .*ersion:* *v*\(@<:@0-9.@:>@*\).*/\1/p' | \
                head -n 1`
    AS_IF([test "x$nprdma_ver" != "x$UCX_VERSION"],
          [AC_MSG_ERROR([$UCX_INFO is of UCX $nprdma_ver, the headers are of $UCX_VERSION: name one installation with --with-ucx=PREFIX])])

    AC_SUBST([UCX_CPPFLAGS])
    AC_SUBST([UCX_LIBS])
    AC_SUBST([UCT_LIBS])
    AC_SUBST([UCX_VERSION])
    AC_SUBST([UCX_MINOR_VERSION], [${UCX_VERSION%.*}])
])

# Sets UCX_SRC_CPPFLAGS, and UCX_V2_CPPFLAGS for headers that are public but not
# installed (uct_v2.h); writes ucx-config/config.h.
AC_DEFUN([NPRDMA_UCX_SOURCE], [
    AC_ARG_WITH([ucx-source],
        [AS_HELP_STRING([--with-ucx-source=DIR],
                        [UCX source tree of the installed version, for its
                         private headers (default: ./ucx-source)])],
        [], [with_ucx_source=yes])
    AS_IF([test "x$with_ucx_source" = xyes],
          [with_ucx_source=`pwd`/ucx-source
           AS_IF([test ! -d "$with_ucx_source"],
                 [AC_MSG_ERROR([the private headers of UCX $UCX_VERSION are missing: run $srcdir/contrib/ucx-source.sh ucx-source, or name a source tree with --with-ucx-source=DIR])])])
    AS_IF([test ! -f "$with_ucx_source/src/uct/base/uct_iface.h"],
          [AC_MSG_ERROR([--with-ucx-source=$with_ucx_source: no src/uct/base/uct_iface.h there: name the top of a UCX source tree])])
    with_ucx_source=`cd "$with_ucx_source" && pwd`

    AC_MSG_CHECKING([for the version of the UCX source])
    nprdma_ver=`$SED -n 's/^def@<:@a-z@:>@*(@<:@ucx_ver_@<:@a-z@:>@*@:>@, *\(@<:@0-9@:>@@<:@0-9@:>@*\)).*/\1/p' \
                "$with_ucx_source/configure.ac" | tr '\n' '.' | \
                $SED 's/\.$//'`
    AC_MSG_RESULT([$nprdma_ver])
    AS_IF([test "x$nprdma_ver" != "x$UCX_VERSION"],
          [AC_MSG_ERROR([UCX $UCX_VERSION is installed, but $with_ucx_source holds $nprdma_ver: private headers must be of the very version installed (contrib/ucx-source.sh fetches them)])])

    # UCX's headers lay out their structures by its own configuration.
    AS_MKDIR_P([ucx-config])
    $UCX_INFO -b 2>/dev/null | $GREP '^#define' >ucx-config/config.h.new
    AS_IF([$GREP -q UCX_CONFIG_H ucx-config/config.h.new], [],
          [AC_MSG_ERROR([$UCX_INFO -b printed no configuration: is it UCX's ucx_info?])])
    AS_IF([cmp -s ucx-config/config.h.new ucx-config/config.h],
          [rm -f ucx-config/config.h.new],
          [mv ucx-config/config.h.new ucx-config/config.h])

    UCX_SRC_CPPFLAGS="-DHAVE_CONFIG_H -I`pwd`/ucx-config"
    UCX_SRC_CPPFLAGS="$UCX_SRC_CPPFLAGS -isystem $with_ucx_source/src"
    UCX_SRC_CPPFLAGS="$UCX_SRC_CPPFLAGS $UCX_CPPFLAGS"
    UCX_V2_CPPFLAGS="-idirafter $with_ucx_source/src"
    AC_MSG_CHECKING([whether the private headers of UCX compile])
    AC_LANG_CONFTEST([AC_LANG_SOURCE([[#include "config.h"
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>]])])
    AS_IF([$CC $UCX_SRC_CPPFLAGS -fsyntax-only conftest.$ac_ext \
           >&AS_MESSAGE_LOG_FD 2>&1],
          [AC_MSG_RESULT([yes])],
          [AC_MSG_RESULT([no])
           AC_MSG_ERROR([the headers in $with_ucx_source do not compile: see config.log])])
    rm -f conftest.$ac_ext
    AC_SUBST([UCX_SRC_CPPFLAGS])
    AC_SUBST([UCX_V2_CPPFLAGS])
])
