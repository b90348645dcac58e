package backoff

import (
	"testing"
	"time"
)

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	d := Doubling{First: time.Second, Most: 5 * time.Second}
	for range 2 {
		for _, want := range []time.Duration{1, 2, 4, 5, 5} {
			if got := d.Next(); got != want*time.Second {
				t.Errorf("%s, want %d s", got, want)
			}
		}
		d.Reset()
	}
}

func TestJitterLengthensOnlyThePauseItself(t *testing.T) {
	d := Doubling{First: time.Second, Most: 2 * time.Second, Jitter: 0.5}
	for n := range 100 {
		least := min(time.Duration(n+1), 2) * time.Second
		if got := d.Next(); got < least || got > least*3/2 {
			t.Fatalf("pause %d is %s", n, got)
		}
	}
}
