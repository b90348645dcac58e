package apiproxy

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"kith.dev/core/trust/audit"
)

// steps is a Policy that notes which steps were taken; the API server notes itself.
type steps struct {
	policy   Policy
	door     *Door
	taken    []string
	recorded []audit.Reason
	admitted func(look int) bool
	looks    int
}

func newSteps(t *testing.T) *steps {
	s := &steps{admitted: func(int) bool { return true }}
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.taken = append(s.taken, "aim") }))
	t.Cleanup(api.Close)
	s.policy = Policy{
		Door: audit.Kube, Server: "the API server", Closed: Refusal{http.StatusForbidden, "closed", "closed"},
		Parse: func(r *http.Request) (Info, *Refusal) {
			s.taken = append(s.taken, "parse")
			if r.URL.Path == "/no" {
				return Info{}, &Refusal{http.StatusForbidden, RefusedPath, "no"}
			}
			return Info{Path: r.URL.Path, Stream: r.URL.RawQuery == "watch=1"}, nil
		},
		Admit: func(context.Context, string) bool {
			s.taken = append(s.taken, "admit")
			s.looks++
			return s.admitted(s.looks)
		},
		Check: func() Check {
			return func(_ context.Context, r *Request) *Refusal {
				s.taken = append(s.taken, "check "+string(r.Body))
				if string(r.Body) == "bad" {
					return &Refusal{http.StatusBadRequest, RefusedBody, "bad"}
				}
				r.Body = nil
				return nil
			}
		},
		As: func(*Request) http.Header { return nil },
	}
	limits := DefaultLimits()
	limits.Body, limits.Bodies = 10, 10
	audits := audit.New(slog.New(slog.DiscardHandler), audit.Options{Count: func(_ audit.Door, reason audit.Reason) { s.recorded = append(s.recorded, reason) }})
	var err error
	if s.door, err = NewDoor(&rest.Config{Host: api.URL}, s.policy, limits, audits, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return s
}

// body notes when it is read.
type body struct {
	io.Reader
	steps *steps
}

func (b body) Read(p []byte) (int, error) {
	b.steps.taken = append(b.steps.taken, "read")
	return b.Reader.Read(p)
}

func TestWhoIsRefusedCostsNothingOfTheNextStep(t *testing.T) {
	yes, no := func(int) bool { return true }, func(int) bool { return false }
	first := func(look int) bool { return look == 1 } // it was shut out between the two looks
	for what, c := range map[string]struct {
		path, body string
		length     int64
		admitted   func(look int) bool
		prepare    func(*Door)
		code       int
		reason     audit.Reason
		taken      string
		kept       bool
	}{
		"all is well":           {"/yes", "good", 4, yes, nil, 200, "", "parse admit admit read check good aim", true},
		"a path":                {"/no", "good", 4, yes, nil, 403, RefusedPath, "parse", false},
		"a stranger":            {"/yes", "good", 4, no, nil, 403, "closed", "parse admit", false},
		"one who is shut out":   {"/yes", "good", 4, first, nil, 403, "closed", "parse admit admit", false},
		"a body too large":      {"/yes", "eleven more", 11, yes, nil, 413, RefusedBody, "parse admit admit", true},
		"that does not say so":  {"/yes", "eleven more", -1, yes, nil, 413, RefusedBody, "parse admit admit read", true},
		"a body of a stream":    {"/yes?watch=1", "good", 4, yes, nil, 413, RefusedBody, "parse admit admit", true},
		"the same, unannounced": {"/yes?watch=1", "good", -1, yes, nil, 413, RefusedBody, "parse admit admit", true},
		"too many at once":      {"/yes", "good", 4, yes, func(d *Door) { d.Limits.Requests = 0 }, 429, RefusedLimits, "parse admit admit", true},
		"too many bodies":       {"/yes", "good", 4, yes, func(d *Door) { d.Limits.Bodies = 3 }, 429, RefusedLimits, "parse admit admit", true},
		"what the check finds":  {"/yes", "bad", 3, yes, nil, 400, RefusedBody, "parse admit admit read check bad", true},
	} {
		s := newSteps(t)
		s.admitted = c.admitted
		if c.prepare != nil {
			c.prepare(s.door)
		}
		r := httptest.NewRequest(http.MethodPost, c.path, body{strings.NewReader(c.body), s})
		r.ContentLength = c.length
		w := httptest.NewRecorder()
		s.door.Serve(w, r, "ALICE")
		var recorded []audit.Reason
		if c.reason != "" {
			recorded = []audit.Reason{c.reason}
		}
		taken := strings.Join(slices.CompactFunc(s.taken, func(a, b string) bool { return a == b && a == "read" }), " ")
		if w.Code != c.code || !slices.Equal(s.recorded, recorded) || taken != c.taken {
			t.Errorf("%s: %d %s, recorded %v, took %s", what, w.Code, w.Body, s.recorded, taken)
		}
		if kept := len(s.door.Callers()) > 0; kept != c.kept {
			t.Errorf("%s: something is kept of the caller: %v", what, kept)
		}
	}
}

// Who is refused before his body is here does not have the answer wait for the rest of it.
func TestARefusalEndsAConnectionWithABodyOnIt(t *testing.T) {
	s := newSteps(t)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.door.Serve(w, r, "ALICE") }))
	defer front.Close()
	for request, closes := range map[string]bool{
		"POST /no HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n":          true,
		"POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n":                   true,
		"POST /yes?watch=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n": true,
		"GET /no HTTP/1.1\r\nHost: a\r\n\r\n":                                         false,
		"POST /yes HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad":               false,
	} {
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, request)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode < 400 || answer.Close != closes {
			t.Errorf("%q: %+v, %v", request, answer, err)
		}
	}
}
