package program

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/api"
)

func TestProgressIsDrawnOnATerminalWhenItTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		p := &Program{Env: Env{Err: &screen, ErrTerminal: true, Now: time.Now, Getenv: func(string) string { return "1" }}}
		quick := p.Progress("waiting for kithd")
		time.Sleep(900 * time.Millisecond)
		quick.Stop()
		if screen.Len() > 0 {
			t.Errorf("a quick call drew %q", screen.String())
		}
		slow := p.Progress("waiting for kithd")
		time.Sleep(1300 * time.Millisecond)
		slow.Report(api.Progress{Message: "asked bob", Code: "402817"})
		slow.Report(api.Progress{Message: "still waiting\x1b[2J", Code: "402817"})
		time.Sleep(time.Second)
		slow.Stop()
		got := screen.String()
		for _, want := range []string{"waiting for kithd (1s)", "code 402 817", "still waiting\uFFFD[2J (2s)"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q lacks %q", got, want)
			}
		}
		if strings.Count(got, "code 402 817") != 1 || !strings.HasSuffix(got, "\r\x1b[K") {
			t.Errorf("%q: the code must come once, and the last line be taken away", got)
		}
	})
}

func TestProgressIsPlainLinesElsewhere(t *testing.T) {
	var out bytes.Buffer
	p := &Program{Env: Env{Err: &out, Now: time.Now, Getenv: func(string) string { return "" }}}
	g := p.Progress("waiting for kithd")
	g.Report(api.Progress{Message: "asked bob", Code: "402817"})
	g.Report(api.Progress{Message: "bob accepted"})
	g.Stop()
	if want := "asked bob\ncode 402 817: the other owner must see the same\nbob accepted\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
