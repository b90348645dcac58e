package fat

import (
	"bytes"
	"debug/macho"
	"encoding/binary"
	"strings"
	"testing"
)

// thin is the smallest Mach-O file for a processor that debug/macho takes, and some bytes more.
func thin(cpu macho.Cpu, more int) []byte {
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, macho.FileHeader{Magic: macho.Magic64, Cpu: cpu, SubCpu: 3, Type: macho.TypeExec})
	return append(b.Bytes(), make([]byte, 4+more)...)
}

func TestProgramsOfTwoProcessorsComeOutAsTheyWentIn(t *testing.T) {
	intel, apple := thin(macho.CpuAmd64, 30000), thin(macho.CpuArm64, 7)
	file, err := Join(intel, apple)
	if err != nil {
		t.Fatal(err)
	}
	f, err := macho.NewFatFile(bytes.NewReader(file))
	if err != nil || len(f.Arches) != 2 {
		t.Fatal(f, err)
	}
	for i, want := range []struct {
		cpu  macho.Cpu
		size int
	}{{macho.CpuAmd64, len(intel)}, {macho.CpuArm64, len(apple)}} {
		if a := f.Arches[i]; a.Cpu != want.cpu || a.SubCpu != 3 || int(a.Size) != want.size || a.Align != 14 || a.Offset%(1<<14) != 0 {
			t.Errorf("%+v", a.FatArchHeader)
		}
	}
	if out, err := Split(file); err != nil || !bytes.Equal(out[0], intel) || !bytes.Equal(out[1], apple) {
		t.Error("not the same", err)
	}
	if out, err := Split(apple); err != nil || len(out) != 1 || !bytes.Equal(out[0], apple) {
		t.Error("a thin file is not itself", err)
	}
}

func TestWhatCannotBeOneProgramIsRefused(t *testing.T) {
	for why, programs := range map[string][][]byte{
		"there is none": {}, "two are for": {thin(macho.CpuArm64, 0), thin(macho.CpuArm64, 1)}, "file 2": {thin(macho.CpuArm64, 0), []byte("#!/bin/sh\n")},
	} {
		if _, err := Join(programs...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v does not say %q", err, why)
		}
	}
	file, _ := Join(thin(macho.CpuAmd64, 0), thin(macho.CpuArm64, 0))
	if _, err := Split(file[:len(file)-1]); err == nil {
		t.Error("cut, and no error")
	}
}
