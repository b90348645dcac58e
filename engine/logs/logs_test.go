package logs

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestErrorsOfAHealthyStartAreNoneAndOthersAre(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, slog.LevelInfo)
	line := expected[1]
	harmless := func() { l.Parts.Error(line.message, "err", errors.New("so: "+line.err)) }

	harmless()
	l.Parts.Error(line.message + ": so: " + line.err) // as klog.Errorf has it
	l.Parts.With("err", line.err).Warn(line.message)
	l.Parts.Info("what developers want")
	if out.Len() != 0 {
		t.Errorf("an owner sees %s", &out)
	}
	l.Own.Error(line.message, "err", line.err)
	l.Parts.Error(line.message, "err", "something else entirely")
	l.Parts.Error("the disk is full")
	if n := strings.Count(out.String(), "level=ERROR"); n != 3 {
		t.Errorf("of 3 real errors an owner sees %d: %s", n, &out)
	}

	out.Reset()
	l.now = func() time.Time { return l.began.Add(startup + time.Second) }
	if harmless(); !strings.Contains(out.String(), "level=ERROR") {
		t.Error("the same words long after the start are not seen")
	}
	out.Reset()
	l.Stopping()
	harmless()
	l.Parts.Error("connection refused")
	if l.Own.Info("stopped"); strings.Contains(out.String(), "ERROR") || !strings.Contains(out.String(), "stopped") {
		t.Errorf("parts that lose each other at the end: %s", &out)
	}
}

func TestADeveloperSeesAll(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, slog.LevelDebug)
	l.Parts.Error(expected[1].message, "err", expected[1].err)
	if !strings.Contains(out.String(), "level=DEBUG msg=") {
		t.Errorf("got %s", &out)
	}
}

// An entry that fits everything would hide everything.
func TestExpectedLinesAreNarrow(t *testing.T) {
	for _, line := range expected {
		if len(line.message) < 20 && line.err == "" || len(line.message) < 15 || line.why == "" {
			t.Errorf("%q %q fits too much, or has no reason", line.message, line.err)
		}
	}
}
