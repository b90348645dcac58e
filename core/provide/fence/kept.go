package fence

import (
	"errors"
	"sync"
)

// ErrUntold says that Set was not called yet: the fence in the kernel is closed for all guests, or is that of the process before.
var ErrUntold = errors.New("the fence was not told of the guests here yet")

// kept is how the last try to have the kernel hold the tables ended.
type kept struct {
	mu     sync.Mutex
	wasSet bool
	err    error
}

func (k *kept) note(wasSet bool, err error, changed func()) {
	k.mu.Lock()
	differs := k.wasSet != wasSet || (k.err == nil) != (err == nil)
	k.wasSet, k.err = wasSet, err
	k.mu.Unlock()
	if differs && changed != nil {
		changed()
	}
}

func (k *kept) why() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil || k.wasSet {
		return k.err
	}
	return ErrUntold
}
