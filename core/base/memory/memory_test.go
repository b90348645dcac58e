package memory

import (
	"sync"
	"testing"
	"weak"
)

func TestTidyingEmptiesPools(t *testing.T) {
	var pool sync.Pool
	seen := func() weak.Pointer[[1 << 16]byte] {
		buffer := new([1 << 16]byte)
		pool.Put(buffer)
		return weak.Make(buffer)
	}()
	collect(true)
	if seen.Value() != nil {
		t.Error("a buffer that nobody uses is still in memory")
	}
	if pool.Get() != nil {
		t.Error("a buffer is still in its pool")
	}
}
