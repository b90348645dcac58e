package localapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"kith.dev/core/api"
)

// serve wraps a route: bounds in size and time, the log of who changed what, and the answer.
func (s *Server) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Backend: s.Backend, ctx: r.Context(), r: r, w: w}
		err := c.receive(s.CallTimeout)
		if err == nil {
			c.dry, err = api.ParseDryRun(r.URL.Query())
		}
		if err == nil && bool(c.dry) && !drily[rt.method+" "+rt.path] {
			err = &api.Error{Code: api.CodeInvalid, Message: r.Method + " " + r.URL.Path + " knows no dry run", Reason: "nothing was done", Field: api.QueryDryRun}
		}
		switch {
		case err != nil:
			fail(w, asError(err))
		case rt.long:
			err = s.serveLong(c, rt)
		default:
			var cancel context.CancelFunc
			c.ctx, cancel = context.WithTimeout(c.ctx, s.CallTimeout)
			defer cancel()
			var answer any
			answer, err = rt.answer(c)
			c.control().SetWriteDeadline(time.Now().Add(s.CallTimeout))
			reply(w, answer, err)
		}
		if r.Method != http.MethodGet {
			who := r.Context().Value(callerKey{}).(*caller)
			about := []any{"call", r.Method + " " + r.URL.Path, "uid", who.uid, "pid", who.pid}
			if c.dry {
				about = append(about, "dryRun", true)
			}
			if err != nil {
				about = append(about, "err", err)
			}
			s.Log.Info("local API call", about...)
		}
	})
}

func checkName(field, name string) error {
	if name == "" || len(name) > 256 || strings.ContainsFunc(name, unicode.IsControl) {
		return api.Invalid(field, name, "a name of 1 to 256 bytes without control characters")
	}
	return nil
}

// receive reads the whole request within timeout. The read deadline is gone afterwards: while a long call runs, a
// read only tells that the caller left.
func (c *call) receive(timeout time.Duration) (err error) {
	c.control().SetReadDeadline(time.Now().Add(timeout))
	c.sent, err = io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, api.MaxBody))
	c.control().SetReadDeadline(time.Time{})
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return unreadable(fmt.Sprintf("it is larger than %d bytes", tooLarge.Limit))
	}
	if err != nil {
		return unreadable(err.Error())
	}
	return nil
}

// body decodes the request's JSON. No body is the same as {}. A key that is not known is an error, because a caller
// who sends it means something by it.
func body[T any](c *call) (in T, err error) {
	if len(c.sent) == 0 {
		return in, nil
	}
	d := json.NewDecoder(bytes.NewReader(c.sent))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, unreadable(err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return in, unreadable("something follows the JSON value")
	}
	return in, nil
}

func unreadable(reason string) *api.Error {
	return &api.Error{Code: api.CodeInvalid, Message: "the request cannot be read", Reason: reason}
}

func (c *call) control() *http.ResponseController { return http.NewResponseController(c.w) }

// file is an answer that is not JSON.
type file struct {
	mediaType string
	bytes     []byte
}

func reply(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		fail(w, asError(err))
		return
	}
	if f, ok := answer.(file); ok {
		w.Header().Set("Content-Type", f.mediaType)
		w.Write(f.bytes)
		return
	}
	b, err := json.Marshal(answer)
	if err != nil {
		fail(w, asError(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n'))
}

func fail(w http.ResponseWriter, e *api.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Code.HTTPStatus())
	json.NewEncoder(w).Encode(failure{e})
}

// failure is an error on the wire.
type failure struct {
	Error *api.Error `json:"error"`
}

// asError gives every error a code.
func asError(err error) *api.Error {
	var e *api.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return &api.Error{Code: api.CodeTimeout, Message: "it took too long", Reason: err.Error(), Do: "try again; `kith status` says how the engine is"}
	case errors.Is(err, context.Canceled):
		return &api.Error{Code: api.CodeUnavailable, Message: "kithd stopped before it was done", Do: "try again"}
	default:
		return &api.Error{Code: api.CodeInternal, Message: err.Error()}
	}
}
