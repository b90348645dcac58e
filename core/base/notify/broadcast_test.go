package notify

import "testing"

func TestAllWhoWaitAreWokenOnce(t *testing.T) {
	var b Broadcast
	b.Notify() // nobody waits
	first, second := b.Wait(), b.Wait()
	select {
	case <-first:
		t.Fatal("woken by what was before")
	default:
	}
	b.Notify()
	<-first
	<-second
	select {
	case <-b.Wait():
		t.Error("who waits anew is woken by what was before")
	default:
	}
}
