package images

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// drip gives three bytes each time, after a pause, and then an error.
type drip struct {
	pause time.Duration
	left  int
}

var errBroken = errors.New("broken")

func (d *drip) Read(b []byte) (int, error) {
	if d.left == 0 {
		return 0, errBroken
	}
	time.Sleep(d.pause)
	d.left--
	return copy(b, "abc"), nil
}

func (*drip) Close() error { return nil }

// TestPiecesAreWholeWhereThatTakesNoTime: a slow home's bytes are passed on as they come, or kith-image would take it for one that stands still.
func TestPiecesAreWholeWhereThatTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			from  drip
			n     int
			wrong error
		}{
			{drip{0, 4}, 10, nil},
			{drip{0, 2}, 6, errBroken},
			{drip{soon, 4}, 3, nil},
			{drip{soon / 2, 4}, 6, nil},
			{drip{0, 0}, 0, errBroken},
		} {
			b := make([]byte, 10)
			if n, err := (whole{&c.from}).Read(b); n != c.n || !errors.Is(err, c.wrong) {
				t.Errorf("%+v: %d %v", c.from, n, err)
			}
		}
		all, err := io.ReadAll(whole{&drip{time.Second, 5}})
		if string(all) != "abcabcabcabcabc" || !errors.Is(err, errBroken) {
			t.Errorf("%q %v", all, err)
		}
	})
}
