# SPDX-License-Identifier: BSD-3-Clause
# The optional parts: verbs devices, MUNGE, MPI, OSU benchmarks, GoogleTest; and the summary.

AC_DEFUN([NPRDMA_VERBS], [
    AC_ARG_WITH([verbs],
        [AS_HELP_STRING([--with-verbs=yes|no|auto],
                        [RDMA devices, by libibverbs (default: if
                         found)])],
        [], [with_verbs=auto])
    have_verbs=no
    VERBS_LIBS=
    AS_CASE([$with_verbs],
        [no], [],
        [yes|auto],
        [nprdma_save_LIBS=$LIBS
         LIBS="-libverbs $LIBS"
         AC_MSG_CHECKING([for libibverbs])
         AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <infiniband/verbs.h>]],
                            [[struct ibv_port_attr attr;
                              return ibv_query_port(0, 1, &attr) +
                                     IBV_LINK_LAYER_ETHERNET;]])],
                        [have_verbs=yes])
         AC_MSG_RESULT([$have_verbs])
         LIBS=$nprdma_save_LIBS],
        [AC_MSG_ERROR([--with-verbs=$with_verbs: give it yes, no or auto])])
    AS_CASE([$with_verbs/$have_verbs],
        [yes/no],
        [AC_MSG_ERROR([--with-verbs: no libibverbs that links: install libibverbs-dev])],
        [*/yes],
        [VERBS_LIBS=-libverbs
         NPRDMA_DEFS="$NPRDMA_DEFS -DHAVE_VERBS=1"])
    AS_IF([test "x$have_verbs" = xyes], [NPRDMA_VERBS_DMABUF])
    AC_SUBST([VERBS_LIBS])
    AM_CONDITIONAL([HAVE_VERBS], [test "x$have_verbs" = xyes])
])

# Memory regions on dma-bufs: by the library, and by the kernel itself
AC_DEFUN([NPRDMA_VERBS_DMABUF], [
    nprdma_save_LIBS=$LIBS
    LIBS="-libverbs $LIBS"
    AC_MSG_CHECKING([for ibv_reg_dmabuf_mr])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <infiniband/verbs.h>]],
                        [[return ibv_reg_dmabuf_mr(0, 0, 0, 0, 0, 0) != 0;]])],
                   [AC_MSG_RESULT([yes])
                    NPRDMA_DEFS="$NPRDMA_DEFS -DHAVE_IBV_REG_DMABUF_MR=1"],
                   [AC_MSG_RESULT([no])])
    LIBS=$nprdma_save_LIBS
    AC_MSG_CHECKING([for UVERBS_METHOD_REG_DMABUF_MR])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <rdma/ib_user_ioctl_cmds.h>
                                         #include <rdma/rdma_user_ioctl_cmds.h>]],
                           [[return UVERBS_METHOD_REG_DMABUF_MR +
                                    RDMA_VERBS_IOCTL;]])],
                      [AC_MSG_RESULT([yes])
                       NPRDMA_DEFS="$NPRDMA_DEFS -DHAVE_UVERBS_DMABUF=1"],
                      [AC_MSG_RESULT([no])])
])

# For the server of files and its clients
AC_DEFUN([NPRDMA_MUNGE], [
    AC_ARG_WITH([munge],
        [AS_HELP_STRING([--with-munge=yes|no|auto],
                        [credentials of MUNGE, by libmunge (default: if
                         found)])],
        [], [with_munge=auto])
    have_munge=no
    MUNGE_LIBS=
    AS_CASE([$with_munge],
        [no], [],
        [yes|auto],
        [nprdma_save_LIBS=$LIBS
         LIBS="-lmunge $LIBS"
         AC_MSG_CHECKING([for libmunge])
         AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <munge.h>]],
                            [[return munge_encode(0, 0, 0, 0) +
                                     MUNGE_OPT_UID_RESTRICTION;]])],
                        [have_munge=yes])
         AC_MSG_RESULT([$have_munge])
         LIBS=$nprdma_save_LIBS],
        [AC_MSG_ERROR([--with-munge=$with_munge: give it yes, no or auto])])
    AS_CASE([$with_munge/$have_munge],
        [yes/no],
        [AC_MSG_ERROR([--with-munge: no libmunge that links: install libmunge-dev])],
        [*/yes],
        [MUNGE_LIBS=-lmunge
         NPRDMA_DEFS="$NPRDMA_DEFS -DHAVE_MUNGE=1"])
    AC_SUBST([MUNGE_LIBS])
])

AC_DEFUN([NPRDMA_MPI], [
    AC_ARG_WITH([mpi],
        [AS_HELP_STRING([--with-mpi=DIR|yes|no],
                        [Open MPI, for benchmarks and tests (default: if
                         found)])],
        [], [with_mpi=auto])
    have_mpi=no
    AS_CASE([$with_mpi],
        [no], [MPICC=],
        [yes|auto], [AC_PATH_PROG([MPICC], [mpicc])],
        [AC_PATH_PROG([MPICC], [mpicc], [], [$with_mpi/bin])])
    AS_IF([test -n "$MPICC"],
          [MPI_CFLAGS=`$MPICC --showme:compile 2>/dev/null`
           MPI_LIBS=`$MPICC --showme:link 2>/dev/null`
           nprdma_save_CPPFLAGS=$CPPFLAGS nprdma_save_LIBS=$LIBS
           CPPFLAGS="$CPPFLAGS $MPI_CFLAGS" LIBS="$MPI_LIBS $LIBS"
           AC_MSG_CHECKING([whether MPI programs link])
           AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]],
                                           [[MPI_Init(0, 0);]])],
                          [have_mpi=yes])
           AC_MSG_RESULT([$have_mpi])
           CPPFLAGS=$nprdma_save_CPPFLAGS LIBS=$nprdma_save_LIBS])
    AS_CASE([$with_mpi/$have_mpi],
        [no/*|auto/*|*/yes], [],
        [AC_MSG_ERROR([--with-mpi=$with_mpi: no mpicc of Open MPI that links: install libopenmpi-dev, or name its prefix])])
    AC_SUBST([MPI_CFLAGS])
    AC_SUBST([MPI_LIBS])
    AM_CONDITIONAL([HAVE_MPI], [test "x$have_mpi" = xyes])
])

AC_DEFUN([NPRDMA_OSU], [
    AC_ARG_WITH([osu],
        [AS_HELP_STRING([--with-osu=DIR],
                        [installed OSU micro-benchmarks to measure with,
                         instead of those in osu-bench])],
        [], [with_osu=no])
    OSU_LATENCY=
    AS_CASE([$with_osu],
        [no], [],
        [yes], [AC_MSG_ERROR([--with-osu needs a directory: --with-osu=DIR, where osu_latency lies somewhere below])],
        [OSU_LATENCY=`find "$with_osu" -name osu_latency -type f -perm -u+x 2>/dev/null | head -n 1`
         AS_IF([test -z "$OSU_LATENCY"],
               [AC_MSG_ERROR([--with-osu=$with_osu: no program osu_latency below it])])
         OSU_DIR=`dirname "$OSU_LATENCY"`])
    AC_SUBST([OSU_DIR])
])

AC_DEFUN([NPRDMA_GTEST], [
    have_gtest=no
    GTEST_CFLAGS= GTEST_LIBS="-lgtest_main -lgtest -lpthread"
    AC_LANG_PUSH([C++])
    nprdma_save_LIBS=$LIBS nprdma_save_CXXFLAGS=$CXXFLAGS
    LIBS="$GTEST_LIBS $LIBS" CXXFLAGS="$CXXFLAGS -std=gnu++17"
    AC_MSG_CHECKING([for GoogleTest])
    AC_LINK_IFELSE([AC_LANG_SOURCE([[#include <gtest/gtest.h>
TEST(a, b) {}]])], [have_gtest=yes])
    AC_MSG_RESULT([$have_gtest])
    LIBS=$nprdma_save_LIBS CXXFLAGS=$nprdma_save_CXXFLAGS
    AC_LANG_POP([C++])
    AC_SUBST([GTEST_CFLAGS])
    AC_SUBST([GTEST_LIBS])
    AM_CONDITIONAL([HAVE_GTEST], [test "x$have_gtest" = xyes])
])

AC_DEFUN([NPRDMA_SUMMARY], [
    nprdma_verbs=$have_verbs
    AS_CASE([$with_verbs/$have_verbs],
            [no/*], [nprdma_verbs="no: switched off (--with-verbs)"],
            [*/no], [nprdma_verbs="no: no libibverbs (package libibverbs-dev)"])
    nprdma_munge=$have_munge
    AS_CASE([$with_munge/$have_munge],
            [no/*], [nprdma_munge="no: switched off (--with-munge)"],
            [*/no], [nprdma_munge="no: files between hosts by tokens alone (package libmunge-dev)"])
    nprdma_mpi="$MPICC"
    AS_IF([test "x$have_mpi" = xno],
          [nprdma_mpi="no: no osu-bench, no MPI tests (package libopenmpi-dev)"])
    nprdma_gtest=yes
    AS_IF([test "x$have_gtest" = xno],
          [nprdma_gtest="no: no UCT and UCP tests (package libgtest-dev)"])
    nprdma_osu=$OSU_DIR
    AS_IF([test -z "$OSU_DIR"], [nprdma_osu="those in osu-bench (--with-osu=DIR for others)"])
    AS_IF([command -v gnuplot >/dev/null], [nprdma_plot=gnuplot],
          [nprdma_plot="no: tables without plots (package gnuplot-nox)"])
    cat <<NPRDMA_END

nprdma $PACKAGE_VERSION
  prefix            $prefix
  UCX               $UCX_VERSION
  UCX source        $with_ucx_source
  RDMA devices      $nprdma_verbs
  MUNGE             $nprdma_munge
  MPI               $nprdma_mpi
  GoogleTest        $nprdma_gtest
  OSU benchmarks    $nprdma_osu
  plots             $nprdma_plot
  flags             $CFLAGS$nprdma_sanitize
  warnings          `test "x$enable_werror" = xyes && echo errors || echo shown`

NPRDMA_END
])
