# SPDX-License-Identifier: BSD-3-Clause
# How the lab talks: progress on standard error, one line for a mistake.
# shellcheck shell=bash disable=SC2034

LAB_QUIET=${LAB_QUIET:-no}
LAB_ME=${LAB_ME:-lab}

# Exit codes of the lab's own; a job's go through as they are.
LAB_RC_USAGE=2
LAB_RC_SKIP=77
LAB_RC_LOG=97
LAB_RC_GUEST=98
LAB_RC_TIME=124

say() {
    if [ "$LAB_QUIET" = no ]; then
        echo "$LAB_ME: $*" >&2
    fi
}

# die CODE TEXT...
die() {
    local code=$1
    shift
    echo "$LAB_ME: $*" >&2
    exit "$code"
}

# need PROGRAM PACKAGE: what is missing is had by installing a package
need() {
    if ! PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null; then
        die "$LAB_RC_SKIP" "$1 is missing: apt-get install $2, or run" \
            "contrib/setup.sh"
    fi
}
