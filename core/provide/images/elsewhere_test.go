package images

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/consume/images"
	local "kith.dev/core/local/images"
	"kith.dev/core/trust/identity"
)

// serve has a peer API answer a route, and gives a client of it.
func serve(t *testing.T, at, by *identity.Identity, route string, handle func(http.ResponseWriter, *http.Request, peering.Caller)) *peering.Client {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server := peering.NewServer(peering.ServerConfig{Identity: at, Name: func() string { return "x" }, Version: "1", Handler: nobody{}, Log: log})
	server.Handle(route, handle)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	client := peering.NewClient(peering.ClientConfig{Identity: by, Expect: at.ID(), Addresses: []string{l.Addr().String()}, Log: log})
	t.Cleanup(func() {
		client.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return client
}

// one is a store with one part of an image.
type one struct {
	image, digest, text string
}

func (o one) Open(_ context.Context, p local.Part) (local.Description, io.ReadCloser, error) {
	if p.Image != o.image || p.Digest != o.digest {
		return local.Description{}, nil, local.ErrNotFound
	}
	return local.Description{MediaType: "application/x", Digest: o.digest, Size: int64(len(o.text))}, io.NopCloser(strings.NewReader(o.text[p.From:])), nil
}

// TestALayerComesFromWhereHomeSendsIt: from the other peer when that gives it, else from home.
func TestALayerComesFromWhereHomeSendsIt(t *testing.T) {
	home, bob, carol, mallory := newIdentity(t), newIdentity(t), newIdentity(t), newIdentity(t)
	digest := "sha256:" + strings.Repeat("b", 64)
	image := "docker.io/shop/web@sha256:" + strings.Repeat("a", 64)
	ticket := images.Ticket{Holder: bob.ID(), Taker: carol.ID(), Image: image, Digest: digest, Until: time.Now().Add(time.Minute)}
	signer := home
	var asked atomic.Int64 // at home, without being sent on
	atHome := serve(t, home, carol, "GET "+images.Path, func(w http.ResponseWriter, r *http.Request, _ peering.Caller) {
		if r.Header.Get(images.HeaderElsewhere) == "" {
			asked.Add(1)
			fmt.Fprint(w, "from home "+r.Header.Get("Range"))
			return
		}
		sent, err := ticket.Sign(signer)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set(images.HeaderTicket, sent)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	hands, allowed := true, true
	log := slog.New(slog.DiscardHandler)
	holder := &Homes{
		Me: bob.ID(), Log: log, Giver: images.New(one{image, digest, "from bob"}, bob, log), Rate: func(string) (int64, bool) { return 10, allowed },
		Hands: func(_ context.Context, consumer, which string) bool {
			return hands && consumer == home.ID().Compact() && which == image
		},
	}
	route := "GET " + images.HeldPath + "{digest}"
	atBob := serve(t, bob, carol, route, func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
		if r.Header.Get(images.HeaderElsewhere) != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("%v", r.Header)
		}
		holder.Held(w, r, caller.ID)
	})
	known := true
	taker := &Homes{Log: log, Rate: func(string) (int64, bool) { return 0, true }, Client: func(id string) (*peering.Client, bool) {
		switch {
		case id == home.ID().Compact():
			return atHome, true
		case id == bob.ID().Compact() && known:
			return atBob, true
		}
		return nil, false
	}}
	get := func() (int, string) {
		r := httptest.NewRequest("GET", "/"+home.ID().Compact()+"/shop/web/blobs/"+digest+"?ns=docker.io", nil)
		r.Header.Set("Range", "bytes=5-")
		w := httptest.NewRecorder()
		taker.serve(w, r)
		return w.Code, w.Body.String()
	}
	if code, text := get(); code != http.StatusPartialContent || text != "bob" || asked.Load() != 0 {
		t.Errorf("%d %q", code, text)
	}
	if limit := holder.limit(home.ID().Compact(), 10); limit.Tokens() > burst-2 {
		t.Errorf("%v left: what went out was not counted", limit.Tokens())
	}
	for what, change := range map[string]func() (back func()){
		"the holder is not known here":        func() func() { known = false; return func() { known = true } },
		"its owner lets no others have it":    func() func() { hands = false; return func() { hands = true } },
		"its contract with home ended":        func() func() { allowed = false; return func() { allowed = true } },
		"the ticket is for somebody else":     func() func() { ticket.Taker = mallory.ID(); return func() { ticket.Taker = carol.ID() } },
		"it names another holder":             func() func() { holder.Me = mallory.ID(); return func() { holder.Me = bob.ID() } },
		"somebody else signed it":             func() func() { signer = mallory; return func() { signer = home } },
		"the holder has no such image of his": func() func() { ticket.Image = image[:len(image)-1] + "c"; return func() { ticket.Image = image } },
		"it is for another part": func() func() {
			ticket.Digest = image[len("docker.io/shop/web@"):]
			return func() { ticket.Digest = digest }
		},
	} {
		before, back := asked.Load(), change()
		if code, text := get(); code != 200 || text != "from home bytes=5-" || asked.Load() != before+1 {
			t.Errorf("%s: %d %q, home asked %d times", what, code, text, asked.Load()-before)
		}
		back()
	}
	atBob.Cut()
	atBob.SetAddresses([]string{"127.0.0.1:1"})
	if code, text := get(); code != 200 || text != "from home bytes=5-" {
		t.Errorf("the holder is away: %d %q", code, text)
	}
	// Whoever comes to a holder by himself learns nothing.
	stranger := serve(t, bob, mallory, route, func(w http.ResponseWriter, r *http.Request, caller peering.Caller) { holder.Held(w, r, caller.ID) })
	for what, header := range map[string]string{"no ticket": "", "no good one": "e30.AA"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", stranger.BaseURL()+images.HeldPath+digest, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(images.HeaderTicket, header)
		resp, err := stranger.Transport().RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", what, resp.StatusCode)
		}
	}
}
