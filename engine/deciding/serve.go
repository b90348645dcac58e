package deciding

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"
)

// message is what is said on the socket, to it and by it.
type message struct {
	On *bool `json:"on"`
}

// Serve answers on the socket until ctx ends: GET /deciding tells whether it is on, as {"on":true}; PUT /deciding with the same
// turns it on or off, and answers when that is done. Whoever can connect may do both.
func (s *Switch) Serve(ctx context.Context, socket net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /deciding", func(w http.ResponseWriter, _ *http.Request) { s.tell(w) })
	mux.HandleFunc("PUT /deciding", s.put)
	server := &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, MaxHeaderBytes: 4 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(socket); ctx.Err() == nil {
		return err
	}
	return nil
}

func (s *Switch) put(w http.ResponseWriter, r *http.Request) {
	var m message
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil || m.On == nil {
		http.Error(w, `want {"on":true} or {"on":false}`, http.StatusBadRequest)
		return
	}
	switch err := s.Set(r.Context(), *m.On); {
	case errors.Is(err, ErrOverruled):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		s.tell(w)
	}
}

func (s *Switch) tell(w http.ResponseWriter) {
	on := s.On()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(message{On: &on})
}
