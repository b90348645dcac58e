// Package fat writes universal Mach-O files: the programs of several processors in one file, of which macOS takes the one that fits.
// It is what lipo(1) does on a Mac. Source: mach-o/fat.h.
package fat

import (
	"bytes"
	"debug/macho"
	"encoding/binary"
	"fmt"
	"math"
)

// align is where programs begin, as a power of two: a page of arm64, the largest of macOS.
const align = 14

// Join makes one file of thin Mach-O files, each for another processor, in the order they are given.
func Join(programs ...[]byte) ([]byte, error) {
	if len(programs) == 0 {
		return nil, fmt.Errorf("join Mach-O files: there is none")
	}
	type arch struct{ CPU, SubCPU, Offset, Size, Align uint32 }
	heads, seen := []arch{}, map[macho.Cpu]bool{}
	at := 8 + 20*len(programs)
	for i, p := range programs {
		f, err := macho.NewFile(bytes.NewReader(p))
		if err != nil {
			return nil, fmt.Errorf("join Mach-O files: file %d: %w", i+1, err)
		}
		if seen[f.Cpu] {
			return nil, fmt.Errorf("join Mach-O files: two are for %v", f.Cpu)
		}
		seen[f.Cpu] = true
		at = (at + 1<<align - 1) &^ (1<<align - 1)
		heads = append(heads, arch{uint32(f.Cpu), f.SubCpu, uint32(at), uint32(len(p)), align})
		if at += len(p); at > math.MaxUint32 {
			return nil, fmt.Errorf("join Mach-O files: they have more than 4 GiB")
		}
	}
	var out bytes.Buffer
	for _, v := range []any{macho.MagicFat, uint32(len(heads)), heads} {
		if err := binary.Write(&out, binary.BigEndian, v); err != nil {
			return nil, err
		}
	}
	for i, p := range programs {
		out.Write(make([]byte, int(heads[i].Offset)-out.Len()))
		out.Write(p)
	}
	return out.Bytes(), nil
}

// Split gives the programs of a universal file, or the one that a thin file is.
func Split(file []byte) ([][]byte, error) {
	if len(file) < 4 || binary.BigEndian.Uint32(file) != macho.MagicFat {
		return [][]byte{file}, nil
	}
	f, err := macho.NewFatFile(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, a := range f.Arches {
		if uint64(a.Offset)+uint64(a.Size) > uint64(len(file)) {
			return nil, fmt.Errorf("the program for %v ends behind the file", a.Cpu)
		}
		out = append(out, file[a.Offset:a.Offset+a.Size])
	}
	return out, nil
}
