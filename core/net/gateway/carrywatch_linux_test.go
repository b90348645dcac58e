package gateway

import (
	"net/netip"
	"testing"
	"time"
)

// TestWhatALookAtACarrierTells: what is sent and comes within three seconds, again and again, and what follows first.
func TestWhatALookAtACarrierTells(t *testing.T) {
	for name, c := range map[string]struct {
		carried              bool
		data, sent, received uint64 // within each look
		every                int    // of how many looks something comes in one; 0: each
		keep                 bool
		want                 carryStep
		most                 time.Duration // within which it follows
	}{
		"nothing is sent":                         {carried: true, most: time.Hour, want: stepNone},
		"keepalives alone":                        {carried: true, sent: 32, most: time.Hour, want: stepNone},
		"packets pass":                            {carried: true, data: 1, sent: 96, received: 96, most: carryEvery, want: stepTry},
		"by UDP they pass":                        {sent: 96, received: 96, keep: true, most: time.Hour, want: stepNone},
		"by UDP nothing comes back":               {sent: 96, keep: true, most: carryAgain + 3*carryEvery, want: stepAgain},
		"by UDP one way, each ten seconds a word": {sent: 96, received: 32, every: 4, keep: true, most: time.Hour, want: stepNone},
		"by UDP handshakes alone":                 {sent: 148, keep: true, most: time.Hour, want: stepNone},
		"by UDP, and it is not kept":              {sent: 96, received: 96, most: carryIdle + 2*carryEvery, want: stepUnneeded},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			at, s, data := newCarryWatch(c.keep, began), Stats{Endpoint: netip.MustParseAddrPort("127.1.1.1:9")}, uint64(0)
			at.free = 0
			for n := 1; ; n++ {
				now := began.Add(time.Duration(n) * carryEvery)
				if now.Sub(began) > c.most {
					if c.want != stepNone {
						t.Errorf("nothing follows in %s", c.most)
					}
					return
				}
				data += c.data
				s.Sent += c.sent
				if c.every == 0 || n%c.every == 0 {
					s.Received += c.received
				}
				if got := at.look(now, s, c.carried, data); got != stepNone {
					if got != c.want {
						t.Errorf("after %s: %d, want %d", now.Sub(began), got, c.want)
					}
					return
				}
			}
		})
	}
}

// TestACarrierRests once it tried some times, when nothing is sent.
func TestACarrierRests(t *testing.T) {
	began := time.Now()
	at, tries, looks := newCarryWatch(true, began), 0, 0
	for now := began; now.Sub(began) < time.Hour; looks++ {
		now = now.Add(at.rest.Next())
		if at.look(now, Stats{}, true, 0) == stepTry {
			tries++
		}
	}
	if tries != carryFree || looks > 160 {
		t.Errorf("%d tries in an hour, %d looks", tries, looks)
	}
}

// TestACarrierThatPassesNothingIsGivenUp, and UDP is tried more and more seldom until then.
func TestACarrierThatPassesNothingIsGivenUp(t *testing.T) {
	began := time.Now()
	at, s := newCarryWatch(true, began), Stats{}
	tries := 0
	for n := 1; n < 20; n++ {
		s.Sent += 96
		switch at.look(began.Add(time.Duration(n)*carryEvery), s, true, uint64(n)) {
		case stepTry:
			tries++
		case stepDead:
			if tries < 1 || tries > 3 {
				t.Errorf("UDP was tried %d times", tries)
			}
			return
		}
	}
	t.Error("it is not given up")
}
