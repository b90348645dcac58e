#!/usr/bin/env bash
# Makes the disk image for Macs out of what scripts/darwin.sh built: build/Kith.dmg, with Kith.app in it. The same sources give the same bytes.
# Nothing of it ever ran on a Mac: docs/macos.md says what was looked at instead.
# usage: dmg.sh            make the image
#        dmg.sh --check    look at build/Kith.dmg with programs of others and our own, and whether it comes out again the same
#   KITH_BIN=bin             where the programs were built
#   KITH_SIGN=IDENTITY       on a Mac: sign with this Developer ID (docs/macos.md)
#   KITH_NOTARY=PROFILE      and have Apple notarise the image, with a profile of `notarytool store-credentials`
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-trimpath -buildvcs=false" LC_ALL=C TZ=UTC
umask 022
bin=${KITH_BIN:-$PWD/bin} work=build/macos image=build/Kith.dmg
fail() { echo "dmg.sh: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || fail "$1 is missing: install it with $2"; }
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
# All times in the image are that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1)}
export SOURCE_DATE_EPOCH
mkdir -p "$work"
CGO_ENABLED=0 go build -o "$work/macos" ./packaging/macos

tree() { # DIR
  "$work/macos" tree "$version" "$bin" "$1"
  find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

disk() { # DIR FILE: an HFS+ volume of a tree, with a serial number that stays; xorriso would take one at random
  rm -f "$2"
  xorriso -report_about SORRY -as mkisofs -hfsplus -hfsplus-serial-no 4b49544844495343 -D -l -no-pad -R -uid 0 -gid 0 -V Kith \
    --modification-date="$(stamp)00" -o "$2" "$1" 2>&1 | grep -vE '^$|^xorriso 1' || [ "${PIPESTATUS[0]}" = 0 ]
}
stamp() { date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S; }

make_image() { # FILE
  tree "$work/tree"
  disk "$work/tree" "$work/disk.img"
  "$work/macos" pack "$work/disk.img" "$1"
}

on_a_mac() {
  "$work/macos" tree "$version" "$bin" "$work/tree"
  local program
  if [ -n "${KITH_SIGN:-}" ]; then
    for program in kith kithd kith-tray; do
      codesign --force --options runtime --timestamp --sign "$KITH_SIGN" "$work/tree/Kith.app/Contents/MacOS/$program"
    done
    codesign --force --options runtime --timestamp --sign "$KITH_SIGN" "$work/tree/Kith.app"
  fi
  codesign --verify --deep --strict --verbose=2 "$work/tree/Kith.app"
  rm -f "$image"
  hdiutil create -quiet -volname Kith -srcfolder "$work/tree" -fs HFS+ -format UDZO "$image"
  [ -z "${KITH_SIGN:-}" ] || codesign --timestamp --sign "$KITH_SIGN" "$image"
  if [ -n "${KITH_NOTARY:-}" ]; then
    [ -n "${KITH_SIGN:-}" ] || fail "Apple notarises only what is signed: set KITH_SIGN"
    xcrun notarytool submit "$image" --keychain-profile "$KITH_NOTARY" --wait
    xcrun stapler staple "$image"
  fi
}

check() {
  need 7z "apt-get install p7zip-full"
  need dmg2img "apt-get install dmg2img"
  need plistutil "apt-get install libplist-utils"
  need xorriso "apt-get install xorriso"
  local out=$work/check plist app
  rm -rf "$out"
  mkdir -p "$out"
  7z t "$image" >"$out/7z.txt" && grep -q '^Everything is Ok' "$out/7z.txt" || fail "7z: $(cat "$out/7z.txt")"
  dmg2img -s "$image" "$out/dmg2img.img" >"$out/dmg2img.txt" 2>&1 || fail "dmg2img: $(cat "$out/dmg2img.txt")"
  "$work/macos" unpack "$image" "$out/volume.img" # looks at the checksums, which dmg2img does not
  cmp "$out/dmg2img.img" "$out/volume.img"
  echo "image: 7z and dmg2img read it, the checksums are right"
  7z x -y -tHFS -o"$out/volume" "$out/volume.img" >/dev/null
  tree "$out/tree"
  app=$out/volume/Kith/Kith.app
  diff -r "$app" "$out/tree/Kith.app"
  cmp "$out/volume/Kith/.background/background.png" packaging/macos/background.png
  [ -L "$out/volume/Kith/Applications" ] || fail "there is no link to Applications"
  (cd "$app" && find . -type f -perm -0100 | sort | tr '\n' ' ') | grep -qx './Contents/MacOS/kith ./Contents/MacOS/kith-tray ./Contents/MacOS/kithd ' || fail "other files than the programs can be executed, or they cannot"
  echo "volume: HFS+, with the files that were put in and their modes"
  for plist in "$app"/Contents/Info.plist "$app"/Contents/Library/LaunchAgents/*.plist "$app"/Contents/_CodeSignature/CodeResources; do
    # It ends with 0 also when it fails, and then writes nothing.
    plistutil -i "$plist" -f bin -o "$out/plist" && [ "$(head -c 8 "$out/plist")" = bplist00 ] || fail "plistutil does not read $plist"
    rm -f "$out/plist"
  done
  echo "plists: plistutil reads them"
  "$work/macos" check "$out/volume/Kith"
  echo "Kith.app: both processors in each program, every page has its hash in the code directory, the seal lists what is there"
  disk "$out/tree" "$out/again.img"
  "$work/macos" pack "$out/again.img" "$out/again.dmg"
  cmp "$image" "$out/again.dmg"
  echo "image: made again it has the same bytes"
  rm -rf "$out"
}

case ${1:-} in
  '')
    [ -x "$bin/darwin-arm64/kithd" ] || fail "not built yet: run make darwin"
    if command -v codesign >/dev/null && command -v hdiutil >/dev/null; then
      on_a_mac
    else
      need xorriso "apt-get install xorriso, or brew install xorriso"
      make_image "$image"
    fi
    echo "$image: $(wc -c <"$image") bytes, $(sha256sum <"$image" | cut -d' ' -f1)"
    ;;
  --check) check ;;
  *) fail "no option $1 (--check)" ;;
esac
