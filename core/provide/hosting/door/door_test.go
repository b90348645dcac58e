package door

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/audit"
)

const aliceID = "AAAAAAA-BBBBBBB-CCCCCCC-DDDDDDD-EEEEEEE-FFFFFFF-GGGGGGG-HHHHHHH"

// guestList is an Access that can be changed.
type guestList struct {
	admitted atomic.Bool

	mu        sync.Mutex
	refused   map[string]int
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
	return audit.New(slog.New(slog.DiscardHandler), audit.Options{Count: func(_ audit.Door, reason string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.refused[reason]++
	}})
}

func (g *guestList) TermsIn(string) *grants.Terms { return g.terms }

func (g *guestList) Admitted(id string) bool { return id == aliceID && g.admitted.Load() }

// lane is a consumer's client, the door, and a real TLS upstream behind it.
type lane struct {
	*testing.T
	door  *Door
	list  *guestList
	front *httptest.Server
}

func newLane(t *testing.T, upstream http.HandlerFunc) *lane {
	t.Helper()
	up := httptest.NewUnstartedServer(upstream)
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.Close)
	list := &guestList{refused: map[string]int{}, most: Stored{1000, 1 << 30}}
	list.admitted.Store(true)
	door, err := NewDoor(&rest.Config{
		Host: up.URL, BearerToken: "daemon-token",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, list, list.audits(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		door.Serve(w, r, aliceID)
	}))
	front.EnableHTTP2 = true
	front.StartTLS()
	t.Cleanup(func() { door.Shut(aliceID); front.Close() })
	return &lane{t, door, list, front}
}

func (l *lane) do(method, path string, body io.Reader, header http.Header) *http.Response {
	l.Helper()
	req, err := http.NewRequest(method, l.front.URL+path, body)
	if err != nil {
		l.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := l.front.Client().Do(req)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (l *lane) status(resp *http.Response) metav1.Status {
	l.Helper()
	var s metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		l.Fatalf("answer is no Status: %v", err)
	}
	if s.Kind != "Status" || int(s.Code) != resp.StatusCode {
		l.Fatalf("answer %d is %+v", resp.StatusCode, s)
	}
	return s
}

const podsPath = "/kube/api/v1/namespaces/shop/pods"

func TestConsumerArrivesAsItselfWhateverItClaims(t *testing.T) {
	var got *http.Request
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) { got = r.Clone(context.Background()) })
	l.do("GET", podsPath+"?limit=5&labelSelector=a%3Db", nil, http.Header{
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
	resp := l.do("GET", podsPath+"?watch=true", nil, nil)
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
	gone.Add(1)
	l := newLane(t, echoOrHang(&gone))
	watch := l.do("GET", podsPath+"?watch=1", nil, nil)
	if _, err := bufio.NewReader(watch.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	exec := l.dialUpgrade("websocket", nil)
	fmt.Fprint(exec, "hello")
	if _, err := io.ReadFull(exec, make([]byte, 5)); err != nil {
		t.Fatalf("upgraded connection does not echo: %v", err)
	}

	l.list.admitted.Store(false)
	l.door.Shut(aliceID)
	if _, err := io.ReadAll(watch.Body); err == nil {
		t.Error("the watch ended cleanly: its reader would not notice it was cut")
	}
	_ = exec.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := exec.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the upgraded connection still talks, or is silent and open: %v", err)
	}
	gone.Wait() // the API server's side of the watch is gone too
	if s := l.status(l.do("GET", podsPath, nil, nil)); s.Code != 403 || !strings.Contains(s.Message, "no contract") {
		t.Errorf("afterwards: %+v", s)
	}
	// The next contract starts with a limiter of its own.
	l.list.admitted.Store(true)
	if resp := l.do("GET", podsPath, nil, nil); resp.StatusCode != 200 {
		t.Errorf("after the next contract: %s", resp.Status)
	}
}

// echoOrHang upgrades to an echo, or starts a watch that never ends; gone is done when a watch was cut.
func echoOrHang(gone *sync.WaitGroup) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
				"X-Protocols: %s\r\nX-User: %s\r\n\r\n", r.Header.Get("Upgrade"),
				r.Header.Get("Sec-Websocket-Protocol"), r.Header.Get("Impersonate-User"))
			_, _ = io.Copy(conn, rw)
			return
		}
		if r.URL.Query().Has("watch") {
			fmt.Fprintln(w, "event")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			gone.Done()
		}
	}
}

// dialUpgrade speaks HTTP/1.1 by hand, as client-go's executors do.
func (l *lane) dialUpgrade(protocol string, header http.Header) *upgraded {
	l.Helper()
	conn, err := tls.Dial("tcp", l.front.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { conn.Close() })
	req, _ := http.NewRequest("GET", "https://peer/kube/api/v1/namespaces/shop/pods/web/exec?command=sh", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	for name, values := range header {
		req.Header[name] = values
	}
	if err := req.Write(conn); err != nil {
		l.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		l.Fatal(err)
	}
	return &upgraded{conn, r, resp}
}

type upgraded struct {
	*tls.Conn
	r    *bufio.Reader
	resp *http.Response
}

func (u *upgraded) Read(p []byte) (int, error) { return u.r.Read(p) }

func TestUpgradesPassAndCarryNoTokens(t *testing.T) {
	l := newLane(t, echoOrHang(nil))
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		u := l.dialUpgrade(protocol, http.Header{"Sec-Websocket-Protocol": {
			"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c3RvbGVu", "BASE64URL.bearer.authorization.k8s.io.x",
		}})
		if u.resp.StatusCode != 101 {
			t.Fatalf("%s: %s", protocol, u.resp.Status)
		}
		if got := u.resp.Header.Get("X-Protocols"); got != "v5.channel.k8s.io" {
			t.Errorf("%s: the API server was offered %q", protocol, got)
		}
		if got := u.resp.Header.Get("X-User"); got != "kith:peer:"+aliceID {
			t.Errorf("%s: the API server saw user %q", protocol, got)
		}
		msg := strings.Repeat("x", 100_000)
		go fmt.Fprint(u, msg)
		back := make([]byte, len(msg))
		if _, err := io.ReadFull(u, back); err != nil || string(back) != msg {
			t.Errorf("%s: echo came back broken: %v", protocol, err)
		}
	}
	if u := l.dialUpgrade("h2c", nil); u.resp.StatusCode != 403 {
		t.Errorf("upgrade to h2c: %s", u.resp.Status)
	}
}

func TestLimitsPerConsumer(t *testing.T) {
	t.Run("streams", func(t *testing.T) {
		var gone sync.WaitGroup
		gone.Add(3)
		l := newLane(t, echoOrHang(&gone))
		l.door.Limits.Streams = 3
		for range 3 {
			if resp := l.do("GET", podsPath+"?watch=1", nil, nil); resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
		}
		resp := l.do("GET", podsPath+"?watch=1", nil, nil)
		if s := l.status(resp); s.Code != 429 || s.Details.RetryAfterSeconds != 1 || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%+v", s)
		}
		if resp := l.do("GET", podsPath, nil, nil); resp.StatusCode != 200 {
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
			done.Go(func() { l.do("GET", podsPath, nil, nil) })
		}
		<-arrived
		<-arrived
		if s := l.status(l.do("GET", podsPath, nil, nil)); s.Code != 429 {
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
				if resp := l.do([]string{"GET", "DELETE"}[i%2], podsPath, nil, nil); resp.StatusCode != 200 {
					t.Errorf("a list that waited for its turn: %s", resp.Status)
				}
			})
		}
		for asked.Load() < int32(l.door.Limits.Lists) {
			runtime.Gosched()
		}
		for _, one := range [][2]string{{"GET", podsPath + "/web"}, {"GET", podsPath + "/web/log"}, {"GET", "/kube/api/v1"}, {"POST", podsPath}} {
			if resp := l.do(one[0], one[1], nil, nil); resp.StatusCode != 200 {
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
			done.Go(func() { l.do("GET", podsPath+"?watch=0", nil, nil) })
			<-began
		}
		if s := l.status(l.do("GET", podsPath, nil, nil)); s.Code != 429 || !strings.Contains(s.Message, "lists: 4 are under way") {
			t.Errorf("%+v", s)
		}
		l.door.Shut(aliceID)
		done.Wait()
	})
	t.Run("rate", func(t *testing.T) {
		l := newLane(t, func(http.ResponseWriter, *http.Request) {})
		l.door.Limits.Rate, l.door.Limits.Burst, l.door.Limits.Patience = 0.01, 3, 10*time.Millisecond
		for range 3 {
			if resp := l.do("GET", podsPath, nil, nil); resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
		}
		if s := l.status(l.do("GET", podsPath, nil, nil)); s.Code != 429 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("time", func(t *testing.T) {
		l := newLane(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		l.door.Limits.Timeout = 50 * time.Millisecond
		if s := l.status(l.do("GET", podsPath, nil, nil)); s.Code != 504 || s.Reason != metav1.StatusReasonTimeout {
			t.Errorf("%+v", s)
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
		if resp := l.do("POST", path, strings.NewReader("{}"+strings.Repeat(" ", 998)), nil); resp.StatusCode != 200 {
			t.Errorf("a body of just the limit: %s", resp.Status)
		}
		if s := l.status(l.do("POST", path, strings.NewReader(strings.Repeat("x", 1001)), nil)); s.Code != 413 {
			t.Errorf("a body over the limit: %+v", s)
		}
		if s := l.status(l.do("POST", path, io.MultiReader(strings.NewReader(strings.Repeat("x", 5000))), nil)); s.Code != 413 {
			t.Errorf("a body over the limit, length not told: %+v", s)
		}
	})
}

func TestStrangersAndDeadServersGetAStatus(t *testing.T) {
	l := newLane(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if s := l.status(l.do("GET", podsPath, nil, nil)); s.Code != 503 || s.Details.RetryAfterSeconds == 0 {
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
	l.do("GET", "/kube/api/v1/nodes", nil, nil)
	l.do("POST", podsPath, strings.NewReader("more than ten bytes"), nil)
	l.do("GET", podsPath, nil, nil)
	l.list.admitted.Store(false)
	l.do("GET", podsPath, nil, nil)
	l.list.mu.Lock()
	defer l.list.mu.Unlock()
	reasons := l.list.refused
	if reasons[RefusedPath] != 1 || reasons[RefusedBody] != 1 || reasons[RefusedContract] != 1 || len(reasons) != 3 {
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
		resp := l.do("POST", podsPath, slowly{strings.NewReader(strings.Repeat("x", 500)), time.Duration(i%7) * 100 * time.Microsecond}, nil)
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusForbidden {
			t.Fatalf("request %d: %s", i, resp.Status)
		}
	}
}
