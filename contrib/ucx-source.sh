#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches the distribution's UCX source package, for the private headers.
# The system's own apt configuration is read, never changed.
set -euo pipefail

usage="ucx-source.sh [--suite SUITE] DEST"
suite=()
case ${1-} in
-h | --help)
    echo "Usage: $usage"
    sed -n '3,4s/^# //p' "$0"
    echo "Without SUITE it is the version of the installed libucx-dev."
    exit 0
    ;;
--suite)
    suite=(--suite "${2-}")
    shift $(($# > 1 ? 2 : 1))
    ;;
esac
case ${1-} in
-*)
    echo "ucx-source.sh: unknown option '$1': $usage" >&2
    exit 1
    ;;
esac
if [ $# -ne 1 ] || [ "${suite[1]-x}" = "" ]; then
    echo "ucx-source.sh: a suite, if any, and one destination: $usage" >&2
    exit 1
fi
exec "$(dirname "$0")/debian-source.sh" "${suite[@]}" \
    --instead 'configure --with-ucx-source=DIR' ucx libucx-dev "$1"
