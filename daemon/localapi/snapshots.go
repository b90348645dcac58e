package localapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"kith.dev/core/api"
)

const (
	// together is how long changes are collected before they are sent: one cause mostly changes several things.
	together = 100 * time.Millisecond
	// life is the pause between signs of life on a stream.
	life = 30 * time.Second
)

// serveSnapshots answers GET /v1/snapshot, and with ?follow=true sends another one after each change, as lines, until
// the caller or kithd leaves. Nobody looks while nothing changes: the Backend tells (Changed).
func (s *Server) serveSnapshots(w http.ResponseWriter, r *http.Request) {
	follow, err := follows(r)
	if err != nil {
		fail(w, asError(err))
		return
	}
	if !follow {
		snapshot, err := s.snapshot(r.Context())
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.CallTimeout))
		reply(w, snapshot, err)
		return
	}
	out := newLines(w)
	signs := time.NewTicker(life)
	defer signs.Stop()
	var last []byte
	for {
		changed := s.Backend.Changed()
		snapshot, err := s.snapshot(r.Context())
		if err != nil {
			out.write(failure{asError(err)})
			return
		}
		steady, err := json.Marshal(snapshot.Steady())
		if err != nil {
			out.write(failure{asError(err)})
			return
		}
		if !bytes.Equal(steady, last) {
			last = steady
			err = out.write(snapshot)
		}
		if err != nil || !pause(r.Context(), changed, func() error { return out.write() }, signs.C) {
			return
		}
	}
}

func (s *Server) snapshot(ctx context.Context) (api.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.CallTimeout)
	defer cancel()
	return s.Backend.Snapshot(ctx)
}

// pause waits until it is worth looking again, and gives signs of life meanwhile. False: the caller left.
func pause(ctx context.Context, changed <-chan struct{}, live func() error, signs <-chan time.Time) bool {
	for quiet := true; quiet; {
		select {
		case <-signs:
			if live() != nil {
				return false
			}
		case <-ctx.Done():
			return false
		case <-changed:
			quiet = false
		}
	}
	select {
	case <-time.After(together):
		return true
	case <-ctx.Done():
		return false
	}
}
