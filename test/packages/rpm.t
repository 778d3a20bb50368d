#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# RPM packages are made, looked at, and installed into a directory.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

for program in rpmbuild rpm rpmlint; do
    command -v "$program" >/dev/null ||
        tap_skip_all "no $program here (packages rpm, rpmlint)"
done
# What this build has its private headers from
source=$(sed -n 's/^UCX_SRC_CPPFLAGS = .*-isystem \(.*\)\/src\( .*\)*$/\1/p' \
    "$NPRDMA_BUILD/Makefile")
made=$TAP_DIR/made
root=$TAP_DIR/root
# rpm's own settings and data base, not the user's
export HOME=$TAP_DIR/home
mkdir -p "$HOME" "$root"
unset UCX_TLS RPM_PACKAGER

# rpm_of NAME: the file
rpm_of() {
    find "$made" -name "$1-[0-9]*.rpm" ! -name '*.src.rpm'
}

# said WORDS...: the output is these lines and no others
said() {
    diff <(printf '%s\n' "$@") <(sort "$TAP_OUT")
}

# is_there DIR ROOT: all files of DIR are in ROOT, and the same
is_there() {
    local file
    find "$1" -type f | grep . || return 1
    find "$1" -type f | while read -r file; do
        cmp "$file" "$2${file#"$1"}" || return 1
    done
}

run 20 "$NPRDMA_SRC/contrib/packages/rpm.sh" --ucx-source "$TAP_DIR"
tap_expect_error "rpm.sh wants a source tree of UCX" \
    "^rpm.sh: $TAP_DIR: no src/uct/base/uct_iface.h there"
mkdir -p "$TAP_DIR/other/src/uct/base"
touch "$TAP_DIR/other/src/uct/base/uct_iface.h"
sed 's/\(define(\[ucx_ver_minor\], *\)[0-9]*/\199/' "$source/configure.ac" \
    >"$TAP_DIR/other/configure.ac"
run 20 "$NPRDMA_SRC/contrib/packages/rpm.sh" --ucx-source "$TAP_DIR/other"
tap_expect_error "of the version that is installed" \
    "^rpm.sh: UCX .* is installed, but $TAP_DIR/other holds [0-9]+\.99\."

run 400 "$NPRDMA_SRC/contrib/packages/rpm.sh" --nodeps --out "$made" \
    --ucx-source "$source"
tap_expect_success "packages are made"
[ "$RC" -eq 0 ] || { tap_done; exit; }
ucx=$("$NPRDMA_PREFIX/bin/nprdma_info" --ucx)
ucx=${ucx%.*}
plugin=ucx$ucx-nprdma
next=${ucx%.*}.$((${ucx#*.} + 1))

# Debian's rpm makes packages of symbols from version 4.20 on
rm -f "$made"/nprdma-debug*.rpm
run 20 rpm -qp --qf '%{NAME}\n' "$made"/*.rpm
tap_check "they are those that there should be" said libnprdma \
    libnprdma_remote nprdma nprdma-devel nprdma-dkms nprdma-utils "$plugin"
run 20 rpm -qpR "$(rpm_of "$plugin")"
tap_check "the plug-in wants its UCX or later" \
    grep -qE "^ucx\(.*\) >= $ucx\$" "$TAP_OUT"
tap_check "and none of the next minor version" \
    grep -qE "^ucx\(.*\) < $next\$" "$TAP_OUT"
run 20 rpm -qp --provides "$(rpm_of "$plugin")" "$(rpm_of nprdma-utils)"
tap_check "each offers its own name" \
    test "$(grep -cE "^($plugin|nprdma-utils) = " "$TAP_OUT")" -eq 2
tap_check "and no plug-in as a library" test -z "$(grep -F .so "$TAP_OUT")"
# Another version has other words
version=$(rpmlint --version)
if [[ $version == 2.4.* ]]; then
    run 60 rpmlint -c "$NPRDMA_SRC/contrib/packages/rpmlint.toml" \
        "$made"/*.rpm
    tap_expect_success "rpmlint finds no error"
    tap_check "and warns of nothing" grep -q '; 0 errors, 0 warnings' \
        "$TAP_OUT"
else
    tap_skip "rpmlint finds nothing" "for rpmlint 2.4, and this is $version"
fi

if [ "$EUID" -ne 0 ]; then
    tap_skip "they are installed, used and removed" "only root may rpm --root"
    tap_done
    exit
fi
rpm_there() {
    run 60 rpm --root "$root" --dbpath /db --nodeps --noscripts "$@"
}
mapfile -t files < <(find "$made" -name '*.rpm' ! -name '*.src.rpm')
rpm_there -i "${files[@]}"
tap_expect_success "they are installed"
rpm_there -V libnprdma libnprdma_remote nprdma-devel \
    nprdma-dkms nprdma-utils "$plugin"
tap_expect_success "all files are there as they were packed"
run 20 "$root/usr/bin/nprdma-run" --version
tap_check "the launcher runs" grep -qF "(for UCX: $ucx)" "$TAP_OUT"
run 60 "$root/usr/bin/nprdma-run" ucx_info -d
tap_check "UCX has the transport" grep -q 'Transport: nprdma' "$TAP_OUT"
run 60 make -s -C "$NPRDMA_BUILD" install-kmod DESTDIR="$TAP_DIR/kmod"
rm "$TAP_DIR"/kmod/usr/src/nprdma-*/COPYING
tap_check "DKMS has what make install-kmod installs" is_there "$TAP_DIR/kmod" \
    "$root"
rpm_there -e libnprdma libnprdma_remote nprdma-devel \
    nprdma-dkms nprdma-utils "$plugin"
tap_expect_success "they are removed"
run 20 find "$root" -iname '*nprdma*'
tap_check "nothing of ours is left" test ! -s "$TAP_OUT"
tap_done
