#!/usr/bin/env bash
# Draws the PNGs of assets/icon from its SVGs, with rsvg-convert of Debian's librsvg2-bin. They are committed: who only
# builds Kith needs no such program.
set -euo pipefail
cd "$(dirname "$0")/../assets/icon"
if ! command -v rsvg-convert >/dev/null; then
  echo "rsvg-convert is missing. Install it with: sudo apt-get install librsvg2-bin" >&2
  exit 1
fi
rm -rf png
mkdir png
for state in alone peered offering tethered problem gone; do
  for size in 16 22 24 32 48; do
    rsvg-convert -w $size -h $size "$state.svg" -o "png/$state-$size.png"
  done
  for size in 18 36; do # macOS takes black with alpha, and colours it as the menu bar wants
    sed 's/ color="#[0-9a-f]*"/ color="#000"/' "$state.svg" | rsvg-convert -w $size -h $size -o "png/$state-template-$size.png"
  done
done
for size in 48 128 256 512; do
  rsvg-convert -w $size -h $size kith.svg -o "png/kith-$size.png"
done
# What Finder shows behind the icons of the disk image for Macs.
rsvg-convert ../../packaging/macos/background.svg -o ../../packaging/macos/background.png
