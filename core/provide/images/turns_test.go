package images

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPartsOfAnImageComeOneAfterTheOther: each at once when the one before it is at its end or given up, and some of it meanwhile.
func TestPartsOfAnImageComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		part := func(name, text string) io.ReadCloser {
			return line.take(t.Context(), name, io.NopCloser(strings.NewReader(text)))
		}
		began := time.Now()
		read := func(r io.Reader, want string, after time.Duration) {
			t.Helper()
			b := make([]byte, 2)
			n, err := r.Read(b)
			if string(b[:n]) != want || want == "" != (err == io.EOF) || time.Since(began) != after {
				t.Errorf("%q %v after %s, want %q after %s", b[:n], err, time.Since(began), want, after)
			}
		}
		first, second, third, other := part("a", "one"), part("a", "twotwo"), part("a", "three"), part("b", "four")
		read(first, "on", 0)
		read(other, "fo", 0)
		read(second, "tw", aside)
		read(second, "ot", aside)
		read(first, "e", aside)
		read(first, "", aside) // its end
		read(second, "wo", aside)
		read(third, "th", 2*aside)
		second.Close() // given up
		read(third, "re", 2*aside)
		first.Close()
		third.Close()
		fourth := part("a", "five")
		read(fourth, "fi", 2*aside)
		fifth := part("a", "six")
		fourth.Close()
		read(fifth, "si", 2*aside)
		fifth.Close()
		other.Close()
		if len(line.lines) > 0 {
			t.Errorf("lines are left: %v", line.lines)
		}
	})
}

// TestHomeDoesNotGiveUpWhoStandsInLine: a piece comes in a few seconds.
func TestHomeDoesNotGiveUpWhoStandsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		line.take(t.Context(), "a", io.NopCloser(strings.NewReader("x")))
		began := time.Now()
		n, err := io.CopyN(io.Discard, line.take(t.Context(), "a", io.NopCloser(strings.NewReader(strings.Repeat("y", 2*piece)))), piece)
		if took := time.Since(began); n != piece || err != nil || took < 3*aside || took > 5*aside {
			t.Errorf("%d bytes, %v, after %s", n, err, took)
		}
	})
}

// TestWhoStandsInLineCanGo: an asker who is gone does not wait for his turn.
func TestWhoStandsInLineCanGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		ctx, cancel := context.WithCancel(t.Context())
		line.take(t.Context(), "a", io.NopCloser(strings.NewReader("x")))
		second := line.take(ctx, "a", io.NopCloser(strings.NewReader("y")))
		began := time.Now()
		cancel()
		if _, err := second.Read(make([]byte, 1)); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
