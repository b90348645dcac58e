package daemon

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
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
	forgetProgram()
	if after := resident(t, "RssFile"); after > before-1024 {
		t.Errorf("%d KiB of the program are mapped, and were %d", after, before)
	}
	if text := fmt.Sprintf("%08.3f", 3.14159); text != "0003.142" {
		t.Errorf("code no longer works: %s", text)
	}
}

func TestTidyingGivesMemoryBack(t *testing.T) {
	litter := make([][]byte, 64)
	for i := range litter {
		litter[i] = bytes.Repeat([]byte{1}, 1<<20)
	}
	full := resident(t, "RssAnon")
	clear(litter)
	if runtime.GC(); readMemory().waste < waste {
		t.Errorf("garbage of 64 MiB counts as %d bytes of waste", readMemory().waste)
	}
	tidyNow()
	if is := resident(t, "RssAnon"); is > full-(48<<10) {
		t.Errorf("%d KiB are held, with the litter it was %d", is, full)
	}
	if m := readMemory(); m.waste > waste {
		t.Errorf("%d bytes are waste after tidying", m.waste)
	}
}
