package door

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/local/apiproxy"
	"kith.dev/core/local/apiproxy/doortest"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/audit"
)

const aliceID = "AAAAAAA-BBBBBBB-CCCCCCC-DDDDDDD-EEEEEEE-FFFFFFF-GGGGGGG-HHHHHHH"

// guestList is an Access that can be changed.
type guestList struct {
	admitted atomic.Bool

	mu        sync.Mutex
	refused   map[audit.Reason]int
	has, most Stored
	counted   int
	terms     *grants.Terms
}

func (g *guestList) Kept(context.Context, string) (has, most Stored, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counted++
	return g.has, g.most, nil
}

func (g *guestList) audits() *audit.Log {
	return audit.New(slog.New(slog.DiscardHandler), audit.Options{Count: func(_ audit.Door, reason audit.Reason) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.refused[reason]++
	}})
}

func (g *guestList) TermsIn(string) *grants.Terms { return g.terms }

func (g *guestList) Admitted(id string) bool { return id == aliceID && g.admitted.Load() }

// lane is a consumer's client, the door, and a real TLS upstream behind it.
type lane struct {
	*doortest.Lane
	door *Door
	list *guestList
}

func newLane(t *testing.T, upstream http.HandlerFunc) *lane {
	t.Helper()
	l := &lane{Lane: doortest.New(t, "", upstream), list: &guestList{refused: map[audit.Reason]int{}, most: Stored{1000, 1 << 30}}}
	l.list.admitted.Store(true)
	var err error
	if l.door, err = NewDoor(l.Config, l.list, l.list.audits(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	l.Open(func(w http.ResponseWriter, r *http.Request) { l.door.Serve(w, r, aliceID) }, func() { l.door.Shut(aliceID) })
	return l
}

const podsPath = "/kube/api/v1/namespaces/shop/pods"

func TestConsumerArrivesAsItselfWhateverItClaims(t *testing.T) {
	var got *http.Request
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) { got = r.Clone(context.Background()) })
	l.Do("GET", podsPath+"?limit=5&labelSelector=a%3Db", nil, http.Header{
		"Authorization":         {"Bearer stolen"},
		"Impersonate-User":      {"system:admin"},
		"Impersonate-Group":     {"system:masters"},
		"Impersonate-UID":       {"1"},
		"Impersonate-Extra-Foo": {"x"},
		"X-Remote-User":         {"root"},
		"X-Remote-Group":        {"system:masters"},
		"X-Forwarded-For":       {"127.0.0.1"},
		"Cookie":                {"a=b"},
		"Accept":                {"application/vnd.kubernetes.protobuf"},
	})
	if got.URL.String() != "/api/v1/namespaces/shop/pods?limit=5&labelSelector=a%3Db" {
		t.Errorf("upstream saw %s", got.URL)
	}
	want := map[string]string{
		"Authorization": "Bearer daemon-token", "Impersonate-User": "kith:peer:" + aliceID,
		"Impersonate-Group": "kith:peers", "Accept": "application/vnd.kubernetes.protobuf",
	}
	for name, values := range got.Header {
		switch name {
		case "User-Agent", "Accept-Encoding":
			continue
		}
		if w, ok := want[name]; !ok || len(values) != 1 || values[0] != w {
			t.Errorf("upstream saw %s: %q", name, values)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("upstream missed %v", want)
	}
}

func TestWatchEventsAreNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "event %d\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	resp := l.Do("GET", podsPath+"?watch=true", nil, nil)
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n') // hangs, and the test times out, if the event is held
		if err != nil || line != fmt.Sprintf("event %d\n", i) {
			t.Fatalf("event %d: %q, %v", i, line, err)
		}
		next <- struct{}{}
	}
}

func TestEndOfContractCutsWatchesAndExec(t *testing.T) {
	var gone sync.WaitGroup
	gone.Add(2)
	l := newLane(t, doortest.Streams(&gone))
	l.EndCutsAll(podsPath, &gone, "no contract", func() {
		l.list.admitted.Store(false)
		l.door.Shut(aliceID)
	})
	// The next contract starts with a limiter of its own.
	l.list.admitted.Store(true)
	if resp := l.Do("GET", podsPath, nil, nil); resp.StatusCode != 200 {
		t.Errorf("after the next contract: %s", resp.Status)
	}
}

func TestUpgradesPassAndCarryNoTokens(t *testing.T) {
	l := newLane(t, doortest.Streams(nil))
	l.UpgradesCarryNoTokens(podsPath, "kith:peer:"+aliceID)
	if _, answer := l.Upgrade(podsPath+"/web/exec?command=sh", "h2c", nil); answer.StatusCode != 403 {
		t.Errorf("upgrade to h2c: %s", answer.Status)
	}
}

func TestLimitsPerConsumer(t *testing.T) {
	t.Run("streams", func(t *testing.T) {
		var gone sync.WaitGroup
		gone.Add(3)
		l := newLane(t, doortest.Streams(&gone))
		l.door.Limits.Streams = 3
		for range 3 {
			if resp := l.Do("GET", podsPath+"?watch=1", nil, nil); resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
		}
		resp := l.Do("GET", podsPath+"?watch=1", nil, nil)
		if s := l.Status(resp); s.Code != 429 || s.Details.RetryAfterSeconds != 1 || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%+v", s)
		}
		if resp := l.Do("GET", podsPath, nil, nil); resp.StatusCode != 200 {
			t.Errorf("streams stand in the way of a plain request: %s", resp.Status)
		}
		l.door.Shut(aliceID)
		gone.Wait()
	})
	t.Run("requests", func(t *testing.T) {
		release := make(chan struct{})
		arrived := make(chan struct{}, 2)
		l := newLane(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
		l.door.Limits.Requests = 2
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() { l.Do("GET", podsPath, nil, nil) })
		}
		<-arrived
		<-arrived
		if s := l.Status(l.Do("GET", podsPath, nil, nil)); s.Code != 429 {
			t.Errorf("%+v", s)
		}
		close(release)
		done.Wait()
	})
	t.Run("lists", func(t *testing.T) {
		release := make(chan struct{})
		var lists, others, most, asked atomic.Int32
		l := newLane(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" && !strings.HasSuffix(r.URL.Path, "/pods") || r.Method == "POST" {
				others.Add(1)
				return
			}
			now := lists.Add(1)
			defer lists.Add(-1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			asked.Add(1)
			<-release
		})
		var done sync.WaitGroup
		for i := range 40 {
			done.Go(func() {
				if resp := l.Do([]string{"GET", "DELETE"}[i%2], podsPath, nil, nil); resp.StatusCode != 200 {
					t.Errorf("a list that waited for its turn: %s", resp.Status)
				}
			})
		}
		for asked.Load() < int32(l.door.Limits.Lists) {
			runtime.Gosched()
		}
		for _, one := range [][2]string{{"GET", podsPath + "/web"}, {"GET", podsPath + "/web/log"}, {"GET", "/kube/api/v1"}, {"POST", podsPath}} {
			if resp := l.Do(one[0], one[1], nil, nil); resp.StatusCode != 200 {
				t.Errorf("%s %s waits for lists: %s", one[0], one[1], resp.Status)
			}
		}
		close(release)
		done.Wait()
		if n := most.Load(); int(n) != l.door.Limits.Lists || asked.Load() != 40 || others.Load() != 4 {
			t.Errorf("%d lists at once, %d in all, %d others", n, asked.Load(), others.Load())
		}
	})
	t.Run("lists without end", func(t *testing.T) {
		began := make(chan struct{}, 4)
		l := newLane(t, func(_ http.ResponseWriter, r *http.Request) { began <- struct{}{}; <-r.Context().Done() })
		l.door.Limits.Turn = 10 * time.Millisecond
		var done sync.WaitGroup
		for range l.door.Limits.Lists {
			done.Go(func() { l.Do("GET", podsPath+"?watch=0", nil, nil) })
			<-began
		}
		if s := l.Status(l.Do("GET", podsPath, nil, nil)); s.Code != 429 || !strings.Contains(s.Message, "lists: 4 are under way") {
			t.Errorf("%+v", s)
		}
		l.door.Shut(aliceID)
		done.Wait()
	})
	t.Run("rate", func(t *testing.T) {
		l := newLane(t, func(http.ResponseWriter, *http.Request) {})
		l.door.Limits.Rate, l.door.Limits.Burst, l.door.Limits.Patience = 0.01, 3, 10*time.Millisecond
		for range 3 {
			if resp := l.Do("GET", podsPath, nil, nil); resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
		}
		if s := l.Status(l.Do("GET", podsPath, nil, nil)); s.Code != 429 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("time", func(t *testing.T) {
		l := newLane(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		l.door.Limits.Timeout = 50 * time.Millisecond
		if s := l.Status(l.Do("GET", podsPath, nil, nil)); s.Code != 504 || s.Reason != metav1.StatusReasonTimeout || l.list.refused[apiproxy.RefusedTimeout] != 1 {
			t.Errorf("%+v, noted %v", s, l.list.refused)
		}
	})
	t.Run("body", func(t *testing.T) {
		l := newLane(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
		})
		l.door.Limits.Body = 1000
		path := "/kube/apis/kith.dev/v1alpha1/namespaces/shop/offloadedpods"
		if resp := l.Do("POST", path, strings.NewReader("{}"+strings.Repeat(" ", 998)), nil); resp.StatusCode != 200 {
			t.Errorf("a body of just the limit: %s", resp.Status)
		}
		if s := l.Status(l.Do("POST", path, strings.NewReader(strings.Repeat("x", 1001)), nil)); s.Code != 413 {
			t.Errorf("a body over the limit: %+v", s)
		}
		if s := l.Status(l.Do("POST", path, io.MultiReader(strings.NewReader(strings.Repeat("x", 5000))), nil)); s.Code != 413 {
			t.Errorf("a body over the limit, length not told: %+v", s)
		}
	})
}

func TestStrangersAndDeadServersGetAStatus(t *testing.T) {
	l := newLane(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if s := l.Status(l.Do("GET", podsPath, nil, nil)); s.Code != 503 || s.Details.RetryAfterSeconds == 0 {
		t.Errorf("API server that hangs up: %+v", s)
	}
	w := httptest.NewRecorder()
	l.door.Serve(w, httptest.NewRequest("GET", podsPath, nil), "SOMEBODY-ELSE")
	if w.Code != 403 {
		t.Errorf("stranger: %d", w.Code)
	}
}

func TestDoorTellsWhyItRefuses(t *testing.T) {
	l := newLane(t, func(http.ResponseWriter, *http.Request) {})
	l.door.Limits.Body = 10
	l.Do("GET", "/kube/api/v1/nodes", nil, nil)
	l.Do("POST", podsPath, strings.NewReader("more than ten bytes"), nil)
	l.Do("GET", podsPath, nil, nil)
	l.list.admitted.Store(false)
	l.Do("GET", podsPath, nil, nil)
	l.list.mu.Lock()
	defer l.list.mu.Unlock()
	reasons := l.list.refused
	if reasons[apiproxy.RefusedPath] != 1 || reasons[apiproxy.RefusedBody] != 1 || reasons[RefusedContract] != 1 || len(reasons) != 3 {
		t.Errorf("refusals were counted so: %v", reasons)
	}
}

// slowly gives what it reads after a while.
type slowly struct {
	io.Reader
	wait time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.wait)
	return s.Reader.Read(p)
}

// An API server that says no before the body came: Go's client then stops sending it, and waits for the end of the answer.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	l := newLane(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	for i := range 30 {
		resp := l.Do("POST", podsPath, slowly{strings.NewReader(strings.Repeat("x", 500)), time.Duration(i%7) * 100 * time.Microsecond}, nil)
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusForbidden {
			t.Fatalf("request %d: %s", i, resp.Status)
		}
	}
}
