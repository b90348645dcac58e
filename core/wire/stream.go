package wire

import (
	"fmt"
	"io"
	"net/http"
)

// Transport carries requests to a peer: of what it answers at most Answer bytes are read, and of a watch at most Frame
// bytes for each event. What it sends is not unpacked: a thousandth of the bytes could stand for all.
type Transport struct {
	http.RoundTripper
	Answer, Frame int64
}

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Accept-Encoding") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Accept-Encoding", "identity") // else the transport asks for gzip, and unpacks it
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if r.URL.Query().Has("watch") && resp.StatusCode == http.StatusOK {
		resp.Body = Frames(resp.Body, t.Frame)
	} else {
		resp.Body = http.MaxBytesReader(nil, resp.Body, t.Answer)
	}
	return resp, nil
}

// WrappedRoundTripper is for those who look for the transport that dials.
func (t Transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// Frames passes a stream of JSON objects on, and ends it with an error at one of more than most bytes: readers gather one
// whole before they look at it.
func Frames(stream io.ReadCloser, most int64) io.ReadCloser {
	return &frames{ReadCloser: stream, most: most}
}

type frames struct {
	io.ReadCloser
	most, length   int64
	depth          int64
	quoted, escape bool
}

func (f *frames) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	for i, c := range p[:n] {
		f.length++
		switch {
		case f.escape:
			f.escape = false
		case f.quoted:
			f.escape, f.quoted = c == '\\', c != '"'
		case c == '"':
			f.quoted = true
		case c == '{', c == '[':
			f.depth++
		case c == '}', c == ']':
			if f.depth--; f.depth <= 0 {
				f.depth, f.length = 0, 0
			}
		}
		if f.length > f.most {
			return i, fmt.Errorf("the peer sent an event of more than %d bytes", f.most)
		}
	}
	return n, err
}
