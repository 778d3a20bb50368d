# SPDX-License-Identifier: BSD-3-Clause
# Compiler flags: warnings, debug, sanitizers.

# Before AC_PROG_CC, which would set -g -O2 itself.
AC_DEFUN([NPRDMA_BUILD_TYPE], [
    AC_ARG_ENABLE([debug],
        [AS_HELP_STRING([--enable-debug],
                        [build with -O0 -g3 and the engine's assertions (default: no)])],
        [], [enable_debug=no])
    # Sanitizers multiply what -O2 takes to compile
    AS_CASE([$enable_debug/$enable_asan$enable_ubsan$enable_tsan],
            [yes/*], [nprdma_opt="-O0 -g3"],
            [*yes*], [nprdma_opt="-O1 -g"],
            [nprdma_opt="-O2 -g"])
    AS_IF([test -z "${CFLAGS+set}"], [CFLAGS=$nprdma_opt])
    AS_IF([test -z "${CXXFLAGS+set}"], [CXXFLAGS=$nprdma_opt])
])

# NPRDMA_SANITIZER(option, what, flags)
AC_DEFUN([NPRDMA_SANITIZER], [
    AC_ARG_ENABLE([$1], [AS_HELP_STRING([--enable-$1], [build with $2])],
                  [], [enable_$1=no])
    AS_IF([test "x$enable_$1" = xyes], [nprdma_sanitize="$nprdma_sanitize $3"])
])

AC_DEFUN([NPRDMA_FLAGS], [
    nprdma_sanitize=
    NPRDMA_SANITIZER([asan], [AddressSanitizer], [-fsanitize=address])
    NPRDMA_SANITIZER([ubsan], [UndefinedBehaviorSanitizer],
                     [-fsanitize=undefined -fno-sanitize-recover=undefined])
    NPRDMA_SANITIZER([tsan], [ThreadSanitizer], [-fsanitize=thread])
    AS_IF([test "x$enable_asan$enable_tsan" = xyesyes],
          [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other: choose one])])
    AS_IF([test -n "$nprdma_sanitize"],
          [nprdma_sanitize="$nprdma_sanitize -fno-omit-frame-pointer"
           nprdma_save_CFLAGS=$CFLAGS
           CFLAGS="$CFLAGS $nprdma_sanitize"
           AC_MSG_CHECKING([whether $CC links with$nprdma_sanitize])
           AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
                          [AC_MSG_RESULT([no])
                           AC_MSG_ERROR([$CC has no library for$nprdma_sanitize: install it or leave the option out])])
           CFLAGS=$nprdma_save_CFLAGS])

    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [make warnings errors])],
        [], [enable_werror=no])

    nprdma_warn="-Wall -Wextra"
    AS_IF([test "x$enable_werror" = xyes], [nprdma_warn="$nprdma_warn -Werror"])
    # The engine's assertions (np_assert)
    nprdma_debug=
    AS_IF([test "x$enable_debug" = xyes || test -n "$nprdma_sanitize"],
          [nprdma_debug="-DNPRDMA_DEBUG=1"])

    AC_SUBST([PLAIN_CFLAGS], ["-std=gnu11 $nprdma_warn"])
    AC_SUBST([AM_CFLAGS], ["-std=gnu11 $nprdma_warn $nprdma_sanitize"])
    AC_SUBST([AM_CXXFLAGS], ["-std=gnu++17 $nprdma_warn $nprdma_sanitize"])
    AC_SUBST([AM_LDFLAGS], ["$nprdma_sanitize"])
    AC_SUBST([NPRDMA_DEFS], ["$nprdma_debug"])
])
