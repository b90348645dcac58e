// Package codesign signs Mach-O files ad hoc and looks whether a signature is right. Ad hoc is without a certificate: it seals what the file
// holds, which macOS asks of every program for Apple's own processors, and says nothing of who made it. go-macho makes the signature; it is
// put into the file here, and what checks it shares no code with that. Source: Apple's xnu, osfmk/kern/cs_blobs.h and EXTERNAL_HEADERS/mach-o/loader.h.
package codesign

import (
	"bytes"
	"debug/macho"
	"errors"
	"fmt"

	"github.com/blacktop/go-macho/pkg/codesign"
	"github.com/blacktop/go-macho/pkg/codesign/types"

	"kith.dev/packaging/macos/fat"
)

// Seal is what a signature says besides the pages of the program.
type Seal struct {
	ID        string // such as dev.kith.kithd
	Info      []byte // Info.plist of the bundle whose program this is; nil: of none
	Resources []byte // CodeResources of that bundle; nil: none
}

// Sign gives a Mach-O file, thin or universal, with an ad-hoc signature in place of one it may have.
func Sign(file []byte, s Seal) ([]byte, error) {
	thin, err := fat.Split(file)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", s.ID, err)
	}
	for i, p := range thin {
		if thin[i], err = sign(p, s); err != nil {
			return nil, fmt.Errorf("sign %s: %w", s.ID, err)
		}
	}
	if len(thin) == 1 {
		return thin[0], nil
	}
	return fat.Join(thin...)
}

// pageOfSegments is what segments end on: a page of arm64, which is one of amd64 too.
const pageOfSegments = 1 << 14

func sign(program []byte, s Seal) ([]byte, error) {
	f, err := macho.NewFile(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	text := f.Segment("__TEXT")
	if f.Magic != macho.Magic64 || text == nil || f.Segment("__LINKEDIT") == nil {
		return nil, errors.New("it is no program of 64 bits")
	}
	c := &codesign.Config{ID: s.ID, IsMain: f.Type == macho.TypeExec, Flags: types.ADHOC, InfoPlist: s.Info, TextOffset: text.Offset, TextSize: text.Filesz}
	c.InitSlotHashes()
	if s.Resources != nil {
		c.SlotHashes.ResourceDir = sum(s.Resources)
		c.NSpecialSlots = slotResources
	}
	start, err := signatureStart(f, len(program))
	if err != nil {
		return nil, err
	}
	c.CodeSize = uint64(start)
	// The load commands name the size, and are signed themselves: it is known before, and the same for each signature.
	blank, err := codesign.Sign(bytes.NewReader(make([]byte, start)), c)
	if err != nil {
		return nil, err
	}
	size := (len(blank) + 15) &^ 15
	out := append(bytes.Clone(program[:min(start, len(program))]), make([]byte, max(start-len(program), 0))...)
	if err := announce(f, out, start, size); err != nil {
		return nil, err
	}
	signature, err := codesign.Sign(bytes.NewReader(out), c)
	if err != nil {
		return nil, err
	}
	return append(append(out, signature...), make([]byte, size-len(signature))...), nil
}

// signatureStart is where the signature is, or is to be: behind all else, on 16 bytes.
func signatureStart(f *macho.File, length int) (int, error) {
	for _, l := range f.Loads {
		if raw := l.Raw(); f.ByteOrder.Uint32(raw) == loadSignature {
			start, size := int(f.ByteOrder.Uint32(raw[8:])), int(f.ByteOrder.Uint32(raw[12:]))
			if start+size != length {
				return 0, errors.New("its signature is not at its end")
			}
			return start, nil
		}
	}
	last := f.Segment("__LINKEDIT")
	if end := int(last.Offset + last.Filesz); end != length {
		return 0, fmt.Errorf("its last segment ends at %d, and it has %d bytes", end, length)
	}
	return (length + 15) &^ 15, nil
}

// announce writes into the load commands that a signature of so many bytes is at start.
func announce(f *macho.File, program []byte, start, size int) error {
	const header, command, dataCommand = 32, 8, 16 // bytes
	const fileSize, memorySize = 48, 32            // in a segment's command
	put := f.ByteOrder.PutUint32
	at, signed := header, false
	for _, l := range f.Loads {
		raw := l.Raw()
		if s, ok := l.(*macho.Segment); ok && s.Name == "__LINKEDIT" {
			end := uint64(start+size) - s.Offset
			f.ByteOrder.PutUint64(program[at+fileSize:], end)
			f.ByteOrder.PutUint64(program[at+memorySize:], (end+pageOfSegments-1)&^(pageOfSegments-1))
		}
		if f.ByteOrder.Uint32(raw) == loadSignature {
			signed = true
			put(program[at+command+4:], uint32(size))
		}
		at += len(raw)
	}
	if signed {
		return nil
	}
	for _, s := range f.Sections {
		if s.Offset != 0 && int(s.Offset) < at+dataCommand {
			return fmt.Errorf("no room for another load command before %s", s.Name)
		}
	}
	put(program[16:], f.Ncmd+1)
	put(program[20:], f.Cmdsz+dataCommand)
	for i, v := range []int{loadSignature, dataCommand, start, size} {
		put(program[at+4*i:], uint32(v))
	}
	return nil
}
