#!/bin/sh
# The native kernels of this and of the other architecture against plain C: here, and on processors that are emulated.
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
flags="-std=gnu11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -pthread -Wall -Wextra -Werror"
build() { "$1" $flags -o "$out/$2" tests/native/sets.c src/chairlift/runner/native/*.c -lm; }

echo "$(uname -m), as it is"
build "${CC:-cc}" here
"$out/here"
for arch in x86_64 aarch64; do
    compiler=$arch-linux-gnu-gcc
    test "$(uname -m)" != "$arch" || compiler=${CC:-cc}
    if ! command -v "$compiler" >/dev/null || ! command -v "qemu-$arch" >/dev/null; then
        echo "$arch, emulated: not tried; needs Debian's qemu-user and gcc-$(echo $arch | tr _ -)-linux-gnu" >&2
        continue
    fi
    echo "$arch, emulated with all that qemu has"
    build "$compiler" "$arch"
    "qemu-$arch" -cpu max -L "/usr/$arch-linux-gnu" "$out/$arch"
done
