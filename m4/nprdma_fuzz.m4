# SPDX-License-Identifier: BSD-3-Clause
# clang with libFuzzer, for test/fuzz alone; FUZZ_CC=... chooses another.

AC_DEFUN([NPRDMA_FUZZ], [
    AC_ARG_VAR([FUZZ_CC], [clang with libFuzzer and AddressSanitizer])
    AC_CHECK_PROGS([FUZZ_CC], [clang])
    have_fuzzer=no
    AS_IF([test -n "$FUZZ_CC"], [
        nprdma_save_CC=$CC nprdma_save_CFLAGS=$CFLAGS
        CC=$FUZZ_CC CFLAGS="-fsanitize=fuzzer,address,undefined"
        AC_MSG_CHECKING([whether $FUZZ_CC has libFuzzer])
        AC_LINK_IFELSE([AC_LANG_SOURCE([[
int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size);
int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size)
{
    return size != 0 && data[0] == 1;
}]])], [have_fuzzer=yes])
        AC_MSG_RESULT([$have_fuzzer])
        CC=$nprdma_save_CC CFLAGS=$nprdma_save_CFLAGS
    ])
    AM_CONDITIONAL([HAVE_FUZZER], [test "x$have_fuzzer" = xyes])
])
