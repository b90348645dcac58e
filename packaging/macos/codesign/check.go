package codesign

import (
	"bytes"
	"crypto/sha256"
	"debug/macho"
	"encoding/binary"
	"fmt"

	"kith.dev/packaging/macos/fat"
)

// Numbers of cs_blobs.h.
const (
	loadSignature   = 0x1d // LC_CODE_SIGNATURE of mach-o/loader.h
	magicEmbedded   = 0xfade0cc0
	magicDirectory  = 0xfade0c02
	flagAdHoc       = 0x2
	flagLinker      = 0x20000
	hashSHA256      = 2
	slotInfo        = 1
	slotResources   = 3
	cdHashLength    = 20
	directoryHeader = 44
)

// Signed is what the code directory of one program says.
type Signed struct {
	CPU    macho.Cpu
	ID     string
	CDHash []byte // by which other code names this, 20 bytes
}

// Check looks whether each program of a file has an ad-hoc signature that fits: every page has the hash that stands there, the
// signature covers all that is before it, and Info.plist and CodeResources are those of the seal.
func Check(file []byte, s Seal) ([]Signed, error) {
	thin, err := fat.Split(file)
	if err != nil {
		return nil, err
	}
	var all []Signed
	for _, p := range thin {
		one, err := check(p, s)
		if err != nil {
			return nil, fmt.Errorf("%s for %v: %w", s.ID, one.CPU, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func check(program []byte, s Seal) (out Signed, err error) {
	f, err := macho.NewFile(bytes.NewReader(program))
	if err != nil {
		return out, err
	}
	out.CPU = f.Cpu
	start, size, err := place(f, len(program))
	if err != nil {
		return out, err
	}
	directory, err := blob(program[start:start+size], magicDirectory)
	if err != nil {
		return out, err
	}
	out.CDHash = sum(directory)[:cdHashLength]
	if len(directory) < directoryHeader {
		return out, fmt.Errorf("the code directory has %d bytes", len(directory))
	}
	word := func(at int) int { return int(binary.BigEndian.Uint32(directory[at:])) }
	flags, hashes, id, special, pages, limit := word(12), word(16), word(20), word(24), word(28), word(32)
	hashSize, hashType, pageBits := int(directory[36]), directory[37], directory[39]
	switch {
	case flags&flagAdHoc == 0 || flags&flagLinker != 0:
		return out, fmt.Errorf("its flags are %#x, not those of an ad-hoc signature", flags)
	case hashType != hashSHA256 || hashSize != sha256.Size:
		return out, fmt.Errorf("its hashes are of type %d, not SHA-256", hashType)
	case limit != start:
		return out, fmt.Errorf("it covers %d bytes of the %d before it", limit, start)
	case pageBits < 12 || pageBits > 14 || pages != (limit+1<<pageBits-1)>>pageBits:
		return out, fmt.Errorf("it has %d pages of 2^%d bytes for %d bytes", pages, pageBits, limit)
	case hashes-special*hashSize < directoryHeader || hashes+pages*hashSize > len(directory) || id >= len(directory):
		return out, fmt.Errorf("its hashes or its identifier lie outside of it")
	}
	name, _, _ := bytes.Cut(directory[id:], []byte{0})
	if out.ID = string(name); out.ID != s.ID {
		return out, fmt.Errorf("it is for %q", out.ID)
	}
	for page := range pages {
		from := page << pageBits
		want := directory[hashes+page*hashSize:][:hashSize]
		if !bytes.Equal(want, sum(program[from:min(from+1<<pageBits, limit)])) {
			return out, fmt.Errorf("page %d of %d is not what was signed", page, pages)
		}
	}
	for slot, content := range map[int][]byte{slotInfo: s.Info, slotResources: s.Resources} {
		got := make([]byte, hashSize)
		if slot <= special {
			got = directory[hashes-slot*hashSize:][:hashSize]
		}
		want := sum(content)
		if content == nil {
			want = make([]byte, hashSize)
		}
		if !bytes.Equal(got, want) {
			return out, fmt.Errorf("special slot %d is %x, not %x", slot, got, want)
		}
	}
	return out, nil
}

// place finds the signature: at the end of the last segment, which is the end of the file.
func place(f *macho.File, length int) (start, size int, err error) {
	for _, l := range f.Loads {
		raw := l.Raw()
		if f.ByteOrder.Uint32(raw) != loadSignature {
			continue
		}
		start, size = int(f.ByteOrder.Uint32(raw[8:])), int(f.ByteOrder.Uint32(raw[12:]))
		last := f.Segment("__LINKEDIT")
		if last == nil || start+size != length || int(last.Offset+last.Filesz) != length || start < int(last.Offset) {
			return 0, 0, fmt.Errorf("the signature does not end with the program")
		}
		return start, size, nil
	}
	return 0, 0, fmt.Errorf("it is not signed")
}

// blob gives the first blob of a kind out of a signature.
func blob(signature []byte, magic uint32) ([]byte, error) {
	outside := fmt.Errorf("the signature is cut")
	if len(signature) < 12 || binary.BigEndian.Uint32(signature) != magicEmbedded {
		return nil, fmt.Errorf("what is there is no signature")
	}
	for i := range binary.BigEndian.Uint32(signature[8:]) {
		at := 12 + 8*int(i)
		if at+8 > len(signature) {
			return nil, outside
		}
		offset := int(binary.BigEndian.Uint32(signature[at+4:]))
		if offset+8 > len(signature) {
			return nil, outside
		}
		if binary.BigEndian.Uint32(signature[offset:]) != magic {
			continue
		}
		if n := int(binary.BigEndian.Uint32(signature[offset+4:])); offset+n <= len(signature) {
			return signature[offset : offset+n], nil
		}
		return nil, outside
	}
	return nil, fmt.Errorf("it has no code directory")
}

// sum is SHA-256; of nothing, nil.
func sum(b []byte) []byte {
	if b == nil {
		return nil
	}
	h := sha256.Sum256(b)
	return h[:]
}
