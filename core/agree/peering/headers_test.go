package peering

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"kith.dev/core/trust/identity"
)

// bomb sends requests whose header is some bytes that stand for many (RFC 7541, section 7.3: an entry of the table, named over and over),
// until it is cut or has sent so many.
func bomb(t testing.TB, who *identity.Identity, d *daemon, path string, requests int) (sent int) {
	t.Helper()
	config := who.ClientTLS(d.ID())
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", d.addr, config)
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	_, err = conn.Write([]byte(http2.ClientPreface))
	must(t, err)
	framer := http2.NewFramer(conn, conn)
	must(t, framer.WriteSettings())
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		for {
			if _, err := framer.ReadFrame(); err != nil {
				return
			}
		}
	}()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	cookie := strings.Repeat("c", 3500)
	for stream := uint32(1); sent < requests; stream += 2 {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "bob"}, {":path", path}} {
			must(t, encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
		}
		for range 9 {
			must(t, encoder.WriteField(hpack.HeaderField{Name: "cookie", Value: cookie}))
		}
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}) != nil {
			break
		}
		sent++
		select {
		case <-cut:
			return sent
		default:
		}
	}
	select {
	case <-cut:
	case <-time.After(2 * time.Minute):
		t.Errorf("%s: nobody cut after %d requests", path, sent)
	}
	return sent
}

func TestHeadersThatStandForMuchMoreEndTheConnection(t *testing.T) {
	alice := someone(t)
	var answered atomic.Int64
	bob := bob(t, Limits{}, func(s *Server) {
		s.config.Answered = func(string, int) { answered.Add(1) }
		s.Handle("/far/", func(w http.ResponseWriter, _ *http.Request, _ Caller) {})
	})
	for _, path := range []string{"/kith/v2/hello", "/far/away"} {
		answered.Store(0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sent := bomb(t, alice, bob, path, 2000)
		runtime.ReadMemStats(&after)
		t.Logf("%s: %d sent, %d came to a handler, %d KiB were allocated", path, sent, answered.Load(), (after.TotalAlloc-before.TotalAlloc)>>10)
		if answered.Load() > 300 {
			t.Errorf("%s: %d requests of 32 KiB each came to a handler", path, answered.Load())
		}
	}
	if _, err := dialer(t, alice, bob.ID(), bob.addr).Hello(within(t, patience)); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// TestManyRequestsWithOrdinaryHeadersGoThrough: a company's kubectl names its user in each, with the groups.
func TestManyRequestsWithOrdinaryHeadersGoThrough(t *testing.T) {
	alice := someone(t)
	bob := bob(t, Limits{}, func(s *Server) {
		s.Handle("/far/", func(http.ResponseWriter, *http.Request, Caller) {})
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: alice.ClientTLS(bob.ID()), ForceAttemptHTTP2: true, MaxConnsPerHost: 1}}
	t.Cleanup(client.CloseIdleConnections)
	for range 800 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+bob.addr+"/far/away", nil)
		must(t, err)
		for i := range 20 {
			r.Header.Add("Impersonate-Group", strings.Repeat("g", i))
		}
		resp, err := client.Do(r)
		must(t, err)
		resp.Body.Close()
	}
}
