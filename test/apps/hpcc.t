#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# HPC Challenge (Debian's hpcc) on two ranks; it checks its own results.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

command -v hpcc > /dev/null ||
    tap_skip_all "Debian's package hpcc is not installed"

cd "$TAP_DIR"
cat > hpccinf.txt << 'END'
HPLinpack benchmark input file
Written by the test
HPL.out      output file name (if any)
8            device out (6=stdout,7=stderr,file)
2            # of problems sizes (N)
300 1200     Ns
1            # of NBs
64           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
2            # of process grids (P x Q)
1 2          Ps
2 1          Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
2            # of broadcast
1 3          BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
0            Number of additional problem sizes for PTRANS
0            values of N
0            number of additional blocking sizes for PTRANS
0            values of NB
END

run_mpi 120 2 hpcc
tap_expect_success "hpcc ends well"
touch hpccoutf.txt
cat hpccoutf.txt >> "$TAP_OUT"
tap_check "hpcc says that all went well" grep -q '^Success=1' hpccoutf.txt
passed=$(grep -c '\.\.\.\.\.\. PASSED' hpccoutf.txt || true)
tap_check "Linpack: all eight residuals are small" test "$passed" -ge 8
tap_check "nothing failed" \
    bash -c '! grep -qE "FAILED|Failed .*[1-9]|ERROR" hpccoutf.txt'
tap_check "random access: no word is wrong" \
    bash -c 'grep -q "^Found 0 errors" hpccoutf.txt &&
             ! grep -E "^Found [1-9][0-9]* errors" hpccoutf.txt'

tap_done
