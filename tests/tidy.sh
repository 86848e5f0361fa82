#!/usr/bin/env bash
# Style as a test: who may include whom, lengths of files, functions and lines, clang-format, words that do not
# belong. Prints each offence; exits 1 if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

offences=0
offend() {
  echo "tidy: $*"
  offences=$((offences + 1))
}

list() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done; }
mapfile -t sources < <(list '*.c' '*.h')

# ---- who may include whom (the design's table) ----
allowed() { # folder -> the folders it may include
  case "$1" in
  proto) echo proto ;;
  policy) echo proto policy ;;
  storage) echo proto storage ;;
  client) echo proto client cairn ;;
  daemon) echo proto policy storage daemon ;;
  *) echo proto policy storage daemon client cairn tests ;;
  esac
}
for file in "${sources[@]}"; do
  room=${file%%/*}
  may=" $(allowed "$room") "
  while read -r target; do
    other=${target%%/*}
    case "$other" in proto | policy | storage | daemon | client | tests)
      [[ $may == *" $other "* ]] || offend "$file includes $target; $room may include:$may"
      ;;
    esac
  done < <(sed -nE 's/^#include "([a-z_]+\/[^"]+)".*/\1/p' "$file")
done

# ---- one owner a third-party library ----
owner() { # pattern of the include, path allowed to use it
  for file in "${sources[@]}"; do
    [[ $file =~ $2 ]] && continue
    if grep -qE "^#include <$1" "$file"; then offend "$file includes <$1>; only $2 may"; fi
  done
}
owner 'lmdb\.h' '^(storage/catalog(_check|_audit|_note)?\.[ch]|tests/)'
owner 'liburing' '^(storage/device_uring\.c|tests/)'
owner 'seccomp\.h' '^daemon/sandbox\.c'
owner 'microhttpd' '^daemon/metrics\.c'
owner 'uv\.h' '^(daemon/|tests/)'
owner 'protobuf-c' '^proto/codec\.c'
owner 'sodium' '^proto/key\.c'
owner 'xxhash' '^proto/checksum\.c'
owner '[a-z]*intrin\.h' '^(policy/landmark/[a-z0-9_]*_(avx2|avx512|amx|isa|x86)\.[ch]|policy/landmark/isa\.c|tests/)'
owner 'arm_neon' '^(policy/landmark/[a-z0-9_]*_neon\.[ch]|tests/)'
for file in "${sources[@]}"; do
  [[ $file == proto/codec.c || $file == tests/* ]] && continue
  if grep -qE '\bprotobuf_c_[a-z_]+\(' "$file"; then offend "$file calls protobuf-c; only proto/codec.c may"; fi
done

# ---- lengths ----
for file in "${sources[@]}"; do
  [[ $file == */grids.h ]] && continue
  lines=$(wc -l <"$file")
  [ "$lines" -le 800 ] || offend "$file has $lines lines; at most 800"
  awk -v file="$file" 'length($0) > 100 { printf "tidy: %s:%d has %d columns; at most 100\n", file, FNR, length($0); bad = 1 }
    END { exit bad }' "$file" || offences=$((offences + 1))
  # A function begins with { in column 0 after a line that is no struct or initialiser, and ends with } in column 0.
  awk -v file="$file" '
    /^\{/ { begin = FNR; next }
    /^\}/ { if (begin && FNR - begin - 1 > 70) {
              printf "tidy: %s:%d a function of %d lines; at most 70\n", file, begin, FNR - begin - 1; bad = 1 }
            begin = 0 }
    END { exit bad }' "$file" || offences=$((offences + 1))
  head -1 "$file" | grep -qE '^(//|/\*)' || offend "$file does not begin with a comment that says its purpose"
done

# ---- format ----
if command -v clang-format >/dev/null; then
  for file in "${sources[@]}"; do
    clang-format --dry-run -Werror "$file" >/dev/null 2>&1 || offend "$file: run clang-format -i on it"
  done
else
  offend "clang-format is missing: run deploy/dependencies test"
fi

# ---- headers stand alone; words that do not belong ----
for file in "${sources[@]}"; do
  [[ $file == *.h ]] && { grep -qE '^#ifndef CAIRN_[A-Z0-9_]+_H$' "$file" || offend "$file has no CAIRN_*_H guard"; }
  if grep -nE '\b(TODO|FIXME|XXX)\b' "$file"; then offend "$file leaves something open"; fi
  if grep -nE '^typedef struct' "$file"; then offend "$file: no typedef of structs"; fi
  if grep -nE '\b(strcpy|strcat|sprintf|gets)\(' "$file" | grep -v '^tests/' >/dev/null && [[ $file != tests/* ]]; then
    offend "$file uses an unbounded string call"
  fi
done

[ "$offences" -eq 0 ] && echo "tidy: ${#sources[@]} files, no offence"
[ "$offences" -eq 0 ]
