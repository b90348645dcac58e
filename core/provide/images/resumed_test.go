package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// link is a home behind a link that is there or not: each question is answered over a connection of its own, which stands still for ever once the
// link was cut.
type link struct {
	text    string
	pause   time.Duration // between two bytes
	cuts    []int         // how many bytes a connection brings before it stands still; those after the last bring all
	mute    int           // how many questions, after the first, nobody answers
	wrong   bool          // the rest is not as long as it should be
	beside  int           // so much further on the rest begins, as long as it should be
	whole   bool          // the rest is answered with all
	refuses bool          // questions after the first
	asked   []string      // the ranges
	open    int           // connections
}

var errRefused = errors.New("refused")

func (l *link) ask(r *http.Request) (*http.Response, error) {
	l.asked = append(l.asked, r.Header.Get("Range"))
	n := len(l.asked) - 1
	if n > 0 && l.refuses {
		return nil, errRefused
	}
	if n > 0 && n <= l.mute {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	from := 0
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	if r.Header.Get("Range") != "" {
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		resp.StatusCode = http.StatusPartialContent
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(l.text)-1, len(l.text)))
	}
	if n > 0 && l.whole {
		resp.StatusCode, from = http.StatusOK, 0
	}
	if n > 0 && l.beside > 0 {
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+l.beside, len(l.text)-1, len(l.text)))
	}
	rest := l.text[from:]
	resp.ContentLength = int64(len(rest))
	if n > 0 && l.wrong {
		resp.ContentLength++
	}
	cut := len(rest)
	if n < len(l.cuts) {
		cut = l.cuts[n]
	}
	l.open++
	resp.Body = &wire{l: l, ctx: r.Context(), rest: rest, cut: cut}
	return resp, nil
}

// wire is a connection.
type wire struct {
	l    *link
	ctx  context.Context
	rest string
	cut  int // what still comes
	shut bool
}

func (w *wire) Read(b []byte) (int, error) {
	switch {
	case w.rest == "":
		return 0, io.EOF
	case w.cut == 0:
		<-w.ctx.Done()
		return 0, w.ctx.Err()
	}
	select {
	case <-time.After(w.l.pause):
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
	n := copy(b, w.rest[:min(1, w.cut)])
	w.rest, w.cut = w.rest[n:], w.cut-n
	return n, nil
}

func (w *wire) Close() error {
	if !w.shut {
		w.l.open--
	}
	w.shut = true
	return nil
}

var aPart = "https://home" + "/blobs/sha256:" + strings.Repeat("a", 64)

func request(t *testing.T, ctx context.Context, url, from string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if from != "" {
		r.Header.Set("Range", from)
	}
	return r
}

// TestAnAnswerThatStandsStillGoesOnElsewhere: each byte comes once, over a new connection, a second after nothing came any more.
func TestAnAnswerThatStandsStillGoesOnElsewhere(t *testing.T) {
	const text = "0123456789"
	for name, c := range map[string]struct {
		link  link
		from  string
		want  string
		asked string
		took  time.Duration
		wrong error
	}{
		"whole":                   {link{}, "", text, "[]", 0, nil},
		"cut once":                {link{cuts: []int{4}}, "", text, "[ bytes=4-]", still, nil},
		"cut before a byte":       {link{cuts: []int{0}}, "", text, "[ bytes=0-]", still, nil},
		"cut twice":               {link{cuts: []int{4, 3}}, "", text, "[ bytes=4- bytes=7-]", 2 * still, nil},
		"a rest that is cut":      {link{cuts: []int{3}}, "bytes=5-", text[5:], "[bytes=5- bytes=8-]", still, nil},
		"nobody there for 2 s":    {link{cuts: []int{4}, mute: 2}, "", text, "[ bytes=4- bytes=4- bytes=4-]", 3 * still, nil},
		"slow, but it comes":      {link{pause: still - 1}, "", text, "[]", 10 * (still - 1), nil},
		"for ever":                {link{cuts: []int{4}, mute: 100}, "", text[:4], "[ bytes=4- bytes=4- bytes=4- bytes=4- bytes=4-]", (1 + 1 + 1 + 2 + 4 + 8) * still, errStill},
		"another rest":            {link{cuts: []int{4}, wrong: true}, "", text[:4], "[ bytes=4-]", still, errAny},
		"a rest from elsewhere":   {link{cuts: []int{4}, beside: 1}, "", text[:4], "[ bytes=4-]", still, errAny},
		"all for the rest":        {link{cuts: []int{4}, whole: true}, "", text[:4], "[ bytes=4-]", still, errAny},
		"home refuses":            {link{cuts: []int{4}, refuses: true}, "", text[:4], "[ bytes=4-]", still, errRefused},
		"as slow as it always is": {link{pause: 3 * still / 2}, "", text, "[ bytes=0- bytes=0-]", 17 * still, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, fresh, began := c.link, 0, time.Now()
				l.text = text
				resp, err := resume(request(t, t.Context(), aPart, c.from), l.ask, func() { fresh++ })
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				took := time.Since(began)
				resp.Body.Close()
				if string(got) != c.want || !errors.Is(err, c.wrong) && (c.wrong != errAny || err == nil) {
					t.Errorf("%q %v, want %q %v", got, err, c.want, c.wrong)
				}
				if asked := fmt.Sprint(l.asked); asked != c.asked || took != c.took {
					t.Errorf("asked %s in %s, want %s in %s", asked, took, c.asked, c.took)
				}
				if l.open != 0 {
					t.Errorf("%d connections are left", l.open)
				}
				if fresh != len(l.asked)-1 {
					t.Errorf("%d times by a new connection, asked %q", fresh, l.asked)
				}
			})
		})
	}
}

var errAny = errors.New("any")

// TestOnlyPartsGoOn: what a tag names may be another a second later, and who asked may have gone.
func TestOnlyPartsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := link{text: "0123456789", cuts: []int{4}}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		resp, err := resume(request(t, ctx, "https://home/manifests/latest", ""), l.ask, t.FailNow)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "0123" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q %v", got, err)
		}
		l = link{text: "0123456789", cuts: []int{4}}
		ctx, stop = context.WithTimeout(t.Context(), still/2)
		defer stop()
		if resp, err = resume(request(t, ctx, aPart, ""), l.ask, t.FailNow); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "0123" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q %v", got, err)
		}
		resp.Body.Close()
		l = link{text: strings.Repeat("x", 10), cuts: []int{4}}
		odd := func(r *http.Request) (*http.Response, error) {
			resp, err := l.ask(r)
			resp.StatusCode, resp.ContentLength, resp.Body = http.StatusNotFound, -1, io.NopCloser(bytes.NewReader([]byte("no")))
			return resp, err
		}
		if resp, err = resume(request(t, t.Context(), aPart, ""), odd, t.FailNow); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Fatal(resp, err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "no" || err != nil {
			t.Errorf("%q %v", got, err)
		}
		resp.Body.Close()
	})
}
