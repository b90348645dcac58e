//go:build !linux

package hostnet

import (
	"sync"
	"time"
)

// Changes has those who listen look every few seconds; to read the lists is cheap, and they compare.
type Changes struct{}

// Listen gives a channel that holds a token every five seconds. Call stop in the end.
func (*Changes) Listen(Kinds) (changed <-chan struct{}, stop func(), err error) {
	ticker, news, done := time.NewTicker(5*time.Second), make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				select {
				case news <- struct{}{}:
				default:
				}
			}
		}
	}()
	return news, sync.OnceFunc(func() { close(done) }), nil
}
