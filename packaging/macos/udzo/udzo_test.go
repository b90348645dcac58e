package udzo

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

// disk has text, zeros for more than a chunk, noise, and ends within a chunk.
func disk() []byte {
	b := bytes.Repeat([]byte("all that is on a disk"), 20000)
	b = append(b, make([]byte, 3*chunk*sector)...)
	random := rand.NewPCG(1, 2)
	for range 50000 {
		b = binary.LittleEndian.AppendUint64(b, random.Uint64())
	}
	return append(b, make([]byte, sector-len(b)%sector)...)
}

func image(t *testing.T, disk []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, disk); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestADiskComesOutAsItWentIn(t *testing.T) {
	for _, want := range [][]byte{disk(), make([]byte, sector), disk()[:sector]} {
		file := image(t, want)
		if got, err := Read(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d: %v", len(got), len(want), err)
		}
		if !bytes.Equal(file, image(t, want)) {
			t.Error("not the same twice")
		}
		if end := file[len(file)-sector:]; string(end[:4]) != "koly" || binary.BigEndian.Uint32(end[8:]) != sector {
			t.Errorf("%q", end[:16])
		}
	}
	if file := image(t, disk()); len(file) > len(disk())/3 {
		t.Errorf("%d bytes of %d", len(file), len(disk()))
	}
}

func TestWhatIsDamagedIsFound(t *testing.T) {
	whole := image(t, disk())
	for at := 0; at < len(whole); at += len(whole)/64 + 1 {
		bad := bytes.Clone(whole)
		bad[at] ^= 4
		got, err := Read(bad)
		if err == nil && !bytes.Equal(got, disk()) {
			t.Errorf("byte %d of %d: another disk, and no error", at, len(whole))
		}
	}
	for _, bad := range [][]byte{nil, whole[:len(whole)-1], whole[sector:], make([]byte, 2*sector)} {
		if _, err := Read(bad); err == nil {
			t.Error("no error")
		}
	}
	if err := Write(new(bytes.Buffer), make([]byte, 700)); err == nil || !strings.Contains(err.Error(), "sectors") {
		t.Error(err)
	}
}
