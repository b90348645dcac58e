package daemon

import (
	"sync"
	"testing"
	"weak"
)

func TestTidyingEmptiesPools(t *testing.T) {
	buffer := new([1 << 16]byte)
	seen := weak.Make(buffer)
	var pool sync.Pool
	pool.Put(buffer)
	buffer = nil
	tidyNow()
	if seen.Value() != nil {
		t.Error("a buffer that nobody uses is still in memory")
	}
	if pool.Get() != nil {
		t.Error("a buffer is still in its pool")
	}
}
