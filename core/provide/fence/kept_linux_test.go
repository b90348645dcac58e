package fence

import (
	"errors"
	"testing"
)

// Who asks is told of the kernel: a fence that was told of nobody, or that cannot be written, is none.
func TestWhetherTheFenceIsKept(t *testing.T) {
	var k kept
	rang := 0
	changed := func() { rang++ }
	no := errors.New("no nftables")
	if !errors.Is(k.why(), ErrUntold) {
		t.Errorf("at first: %v", k.why())
	}
	for i, c := range []struct {
		told bool
		err  error
		want error
		rang int
	}{{false, nil, ErrUntold, 0}, {false, no, no, 1}, {true, no, no, 2}, {true, nil, nil, 3}, {true, nil, nil, 3}, {true, no, no, 4}, {true, no, no, 4}, {true, nil, nil, 5}} {
		if k.note(c.told, c.err, changed); !errors.Is(k.why(), c.want) || rang != c.rang {
			t.Errorf("%d: %v, want %v; it rang %d times, want %d", i, k.why(), c.want, rang, c.rang)
		}
	}
}
