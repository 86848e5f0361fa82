#!/bin/sh
# Cross-builds the NEON kernels and checks them against the scalar ones under qemu-aarch64. Exits 77 (skipped) where
# gcc-aarch64-linux-gnu, libc6-dev-arm64-cross or qemu-user is missing.
set -eu
cd "$(dirname "$0")/../.."
command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null || exit 77
test -e /usr/aarch64-linux-gnu/include/stdio.h || exit 77
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd policy/landmark
aarch64-linux-gnu-gcc -std=gnu17 -D_GNU_SOURCE -O2 -ffp-contract=off -fno-strict-aliasing -Wall -Wextra -Werror \
    -Wno-unused-parameter -I../.. -static -o "$out/neon" ../../tests/unit/emulated_neon.c score_neon.c score_scalar.c \
    grid.c isa.c rows.c rotate.c quantize.c layout.c -lm
qemu-aarch64 "$out/neon"
