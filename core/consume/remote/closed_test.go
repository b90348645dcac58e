package remote

import (
	"slices"
	"testing"
	"time"
)

func TestThePeerSaysThatNoneOfItsNodesTakesPods(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, _ func() []string) {
		var heard []string
		v.OnClosed(func() { heard = append(heard, v.Closed()) })
		says := func(want ...string) {
			t.Helper()
			if !slices.Equal(heard, want) {
				t.Errorf("heard %q, want %q", heard, want)
			}
			heard = nil
		}
		cordoned := `{"kind":"Closed","object":{"metadata":{"name":"closed","labels":{"kith.dev/closed":"cordoned"}}}}`
		p.say(synced)
		says()
		p.say(cordoned, cordoned)
		says("cordoned")
		p.say(`{"kind":"Closed","gone":true,"object":{"metadata":{"name":"closed"}}}`)
		says("")
		p.say(`{"kind":"Closed","object":{"metadata":{"name":"closed"}}}`)
		says("unknown")

		p.out.Close() // said again, it is no news; and a peer that is back and says nothing has a node that is open
		pass(time.Second)
		p.say(cordoned, synced)
		says("cordoned")
		p.out.Close()
		pass(time.Second)
		says()
		p.say(synced)
		says("")
	})
}
