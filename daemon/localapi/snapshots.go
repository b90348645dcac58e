package localapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"kith.dev/core/api"
)

const (
	// together is how long changes are collected before they are sent: one cause mostly changes several things.
	together = 100 * time.Millisecond
	// lookAgain is for what changes without anybody noticing: a disk that fills, a handshake that does not come.
	lookAgain = 3 * time.Second
	// life is the pause between signs of life.
	life = 30 * time.Second
)

// serveSnapshots answers GET /v1/snapshot, and with ?follow=true sends another one after each change, as lines, until
// the caller or kithd leaves.
func (s *Server) serveSnapshots(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query().Get("follow")
	follow, err := strconv.ParseBool(query)
	if err != nil && query != "" {
		fail(w, api.Invalid("follow", query, "true or false"))
		return
	}
	if !follow {
		snapshot, err := s.snapshot(r.Context())
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.CallTimeout))
		reply(w, snapshot, err)
		return
	}
	out := newLines(w)
	var last []byte
	for sent := time.Now(); ; {
		changed := s.Backend.Changed()
		snapshot, err := s.snapshot(r.Context())
		if err != nil {
			out.write(failure{asError(err)})
			return
		}
		steady, err := json.Marshal(snapshot.Steady())
		switch {
		case err != nil:
			out.write(failure{asError(err)})
			return
		case !bytes.Equal(steady, last):
			last, sent = steady, time.Now()
			err = out.write(snapshot)
		case time.Since(sent) > life:
			sent = time.Now()
			err = out.write()
		}
		if err != nil || !pause(r.Context(), changed) {
			return
		}
	}
}

func (s *Server) snapshot(ctx context.Context) (api.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.CallTimeout)
	defer cancel()
	return s.Backend.Snapshot(ctx)
}

// pause waits until it is worth looking again. False: the caller left.
func pause(ctx context.Context, changed <-chan struct{}) bool {
	again := time.NewTimer(lookAgain)
	defer again.Stop()
	select {
	case <-again.C:
		return true
	case <-ctx.Done():
		return false
	case <-changed:
	}
	select {
	case <-time.After(together):
		return true
	case <-ctx.Done():
		return false
	}
}
