package memory

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// resident gives what of this process is in memory, in KiB.
func resident(t *testing.T, key string) (kib int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kib
}

func TestForgottenPagesComeBackWhenNeeded(t *testing.T) {
	before := resident(t, "RssFile")
	after := before
	for range 20 { // other threads run meanwhile, and need their pages at once
		forgetProgram()
		if after = resident(t, "RssFile"); after <= before-256 {
			break
		}
	}
	if after > before-256 {
		t.Errorf("%d KiB of the program are mapped, and were %d", after, before)
	}
	if text := fmt.Sprintf("%08.3f", 3.14159); text != "0003.142" {
		t.Errorf("code no longer works: %s", text)
	}
}

// As the dynamic linker leaves parts of a position-independent program: written, and only to be read from then on.
func TestWhatWasWrittenIsNotForgotten(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	part, err := unix.Mmap(int(self.Fd()), 0, 4*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(part)
	const text = "an address"
	copy(part, text)
	if err := unix.Mprotect(part, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	forgetProgram()
	if got := string(part[:len(text)]); got != text {
		t.Errorf("%q is there, and not what was written", got)
	}
}

func TestTidyingGivesMemoryBack(t *testing.T) {
	litter := make([][]byte, 64)
	for i := range litter {
		litter[i] = bytes.Repeat([]byte{1}, 1<<20)
	}
	full := resident(t, "RssAnon")
	clear(litter)
	if runtime.GC(); readMemory().waste < Daemon.Waste {
		t.Errorf("garbage of 64 MiB counts as %d bytes of waste", readMemory().waste)
	}
	collect(false)
	if is := resident(t, "RssAnon"); is > full-(48<<10) {
		t.Errorf("%d KiB are held, with the litter it was %d", is, full)
	}
	if m := readMemory(); m.waste > Daemon.Waste {
		t.Errorf("%d bytes are waste after tidying", m.waste)
	}
}
