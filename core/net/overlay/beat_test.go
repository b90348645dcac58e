package overlay

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func FuzzReadBeat(f *testing.F) {
	f.Add(beat{kind: answer, number: 1 << 63}.bytes())
	f.Add(append(beat{missed: 3, number: 7}.bytes(), make([]byte, 30)...)) // as Ethernet pads
	f.Add([]byte("kith\x01\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		is, ok := readBeat(b)
		if !ok {
			return
		}
		if again, ok := readBeat(is.bytes()); !ok || again != is {
			t.Errorf("%v became %v", is, again)
		}
	})
}

// TestWhoListensKnowsWhatIsCut, and before it listens for long enough it says nothing of anybody.
func TestWhoListensKnowsWhatIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Ways
		b, c := addr("192.0.2.12"), addr("192.0.2.13")
		is := func(why string, ofB, ofC Direction) {
			t.Helper()
			if b, port := w.Cut(b); b != ofB || port != w.port {
				t.Errorf("%s: b is %q, want %q", why, b, ofB)
			}
			if c, _ := w.Cut(c); c != ofC {
				t.Errorf("%s: c is %q, want %q", why, c, ofC)
			}
		}
		is("nobody listens", Open, Open)
		w.begin(time.Now(), 6451)
		is("nobody asked yet", Open, Open)
		for range 3 {
			time.Sleep(asks)
			w.note(b, beat{}, time.Now())
		}
		is("one asked, and the other may be about to", Open, Open)
		time.Sleep(asks)
		is("the other never asked", Open, To)
		for missed := range uint8(5) {
			time.Sleep(asks)
			w.note(b, beat{missed: missed}, time.Now())
			w.note(c, beat{}, time.Now())
		}
		is("one is not answered", From, Open)
		w.note(b, beat{}, time.Now())
		is("it is again", Open, Open)
		still := w.Most()
		w.note(b, beat{kind: farewell}, time.Now())
		if !still() {
			t.Error("one of two is not most")
		}
		time.Sleep(4 * asks)
		if still() {
			t.Error("nobody is heard any more")
		}
		if still = w.Most(); !still() {
			t.Error("there was nobody who could turn to another")
		}
		time.Sleep(4 * asks)
		is("nobody is heard any more", To, To)
		w.begin(time.Now(), 6451)
		is("it begins anew", Open, Open)
		for n := range uint32(2 * mostNodes) {
			w.note(addr("10.0.0.0").Prev(), beat{}, time.Now())
			a := addr("10.0.0.0").As4()
			a[1], a[2], a[3] = byte(n>>16), byte(n>>8), byte(n)
			w.note(netip.AddrFrom4(a), beat{}, time.Now())
		}
		if len(w.heard) > mostNodes {
			t.Errorf("%d nodes are remembered", len(w.heard))
		}
	})
}
