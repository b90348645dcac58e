package apiproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ErrBody is why a request was not let in whose body is larger than the limit, or did not come whole and in time.
var ErrBody = errors.New("request body")

// Gate lets a request of another cluster in, whole: it waits for its turn, and its body is here before the API server hears of it. Else a
// body that comes slowly would hold the API server up; and one that the API server refuses before it came would hold up everybody for the
// whole timeout: the caller's client stops sending and waits for the end of the answer, the proxy waits for the end of the body first.
// Only what has no natural end (Info.Stream) goes on without deadlines, once its body is here.
//
// ctx ends when the caller is shut out, with the cause ErrShut, and for what is no stream at Limits.Timeout. Call leave when the request is
// answered. Errors are ErrShut, ErrBody, the context's own when the caller went away, and else the limit that it is over. An upgrade has to
// be checked before (CheckUpgrade): it has no body.
func (l *Limiter) Gate(w http.ResponseWriter, r *http.Request, info Info) (ctx context.Context, body []byte, leave func(), err error) {
	if r.ContentLength > l.limits.Body {
		return nil, nil, nil, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrBody, r.ContentLength, l.limits.Body)
	}
	out, err := l.Enter(r.Context(), info, l.limits.Weight(r))
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	cut := context.AfterFunc(l.Open, func() { cancel(ErrShut) })
	end := func() {
		cut()
		cancel(nil)
		out()
	}
	clock := http.NewResponseController(w) // errors: a writer without deadlines has none to set
	_ = clock.SetReadDeadline(time.Now().Add(l.limits.Timeout))
	_ = clock.SetWriteDeadline(time.Now().Add(l.limits.Timeout + time.Second))
	if r.Body != nil && r.ContentLength != 0 {
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, l.limits.Body)); err != nil {
			end()
			return nil, nil, nil, fmt.Errorf("%w: %w", ErrBody, err)
		}
	}
	if info.Stream {
		_ = clock.SetReadDeadline(time.Time{})
		_ = clock.SetWriteDeadline(time.Time{})
		return ctx, body, end, nil
	}
	bounded, stop := context.WithTimeout(ctx, l.limits.Timeout)
	return bounded, body, func() { stop(); end() }, nil
}

// Bring gives a request the body that the Gate let in.
func Bring(r *http.Request, body []byte) {
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
}
