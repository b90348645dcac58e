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

// Gate admits a request of another cluster: it waits until the limits allow it, and reads the whole body before the API server sees the
// request. Otherwise a slow body would occupy the API server; and a body that the API server refuses early would block until the timeout:
// the client stops sending and waits for the end of the answer, while the proxy waits for the end of the body. Only requests without a
// natural end (Info.Stream) go on without deadlines once their body is here.
//
// ctx ends when the caller is shut out, with the cause ErrShut, and, unless the request is a stream, after Limits.Timeout. Call leave when
// the request is answered. The error is ErrShut, ErrBody, the context's own when the caller went away, or names the limit exceeded. Check
// an upgrade, which has no body, with CheckUpgrade before.
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

// Bring sets the body that Gate has read on a request.
func Bring(r *http.Request, body []byte) {
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
}
