package frontdoor

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"kith.dev/core/local/apiproxy"
)

// behind has the front door lead to a handler, over HTTP/2, and HTTP/1.1 for upgrades.
func behind(t testing.TB, d *Door, prefix string, handler http.HandlerFunc) Destination {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	c := &cluster{name: "the stand-in", Server: s}
	to := c.destination(t)
	base, err := url.Parse(s.URL + prefix)
	if err != nil {
		t.Fatal(err)
	}
	to.Base = base
	d.Lead(to)
	return to
}

func TestNobodyIsAnsweredWithoutACertificate(t *testing.T) {
	var out atomic.Bool
	d := open(t, func(c *Config) {
		c.Allowed = func(u User) error {
			if u.Name == "mallory" && out.Load() {
				return errors.New("user mallory is not in the group kith any more")
			}
			return nil
		}
	})
	asked := 0
	behind(t, d, "", func(http.ResponseWriter, *http.Request) { asked++ })
	other := open(t, nil)
	_, _, ca, err := d.authority.admit(alice)
	if err != nil {
		t.Fatal(err)
	}
	with := func(cert, key []byte, http1 bool) *http.Client {
		config := as(t, d, alice)
		config.CertData, config.KeyData, config.CAData = cert, key, ca
		plain, upgrades, err := apiproxy.Transports(config)
		if err != nil {
			t.Fatal(err)
		}
		if http1 {
			plain = upgrades
		}
		c := &http.Client{Transport: plain}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	foreignCert, foreignKey, _, _ := other.authority.admit(alice)
	d.authority.now = func() time.Time { return time.Now().Add(-userHolds - 2*clockSkew) }
	d.authority.signer[0].cert.NotBefore = time.Time{} // else it would not have been made yet
	oldCert, oldKey, _, err := d.authority.admit(alice)
	if err != nil {
		t.Fatal(err)
	}
	d.authority.now = time.Now
	malloryCert, malloryKey, _, err := d.authority.admit(User{"mallory", 1001})
	if err != nil {
		t.Fatal(err)
	}
	out.Store(true)
	shown, err := d.authority.show(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cert, key []byte
		says      string
	}{
		"none":         {nil, nil, "kith kubeconfig"},
		"foreign":      {foreignCert, foreignKey, "not of this front door"},
		"ended":        {oldCert, oldKey, "ended on"},
		"not let in":   {malloryCert, malloryKey, "not in the group"},
		"the server's": {pemOf(shown), keyOf(t, shown), "not of this front door"},
	} {
		for _, http1 := range []bool{false, true} {
			for _, path := range []string{"/", "/healthz", "/livez", "/readyz", "/version", "/api", "/openapi/v3", "/metrics", "/api/v1/pods?watch=1"} {
				answer, body := get(t, with(c.cert, c.key, http1), d.url(path))
				s := status(t, body)
				if answer.StatusCode != 401 || s.Code != 401 || s.Reason != metav1.StatusReasonUnauthorized || !strings.Contains(s.Message, c.says) {
					t.Errorf("%s, %s: %s %+v", name, path, answer.Status, s)
				}
			}
		}
	}
	if asked > 0 {
		t.Errorf("%d requests were passed on", asked)
	}
	plain, err := http.Get("http://" + d.cfg.Address.String() + "/version")
	if err == nil && plain.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS: %s", plain.Status)
	}
	if _, err := tls.Dial("tcp", d.cfg.Address.String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if c, err := tls.Dial("tcp", d.cfg.Address.String(), &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
	}
}

// A certificate ends also for whoever is connected; in its last month each answer says so. The directory is asked once in a minute.
func TestACertificateEndsOnAnOpenConnectionToo(t *testing.T) {
	var later atomic.Int64
	var asked atomic.Int64
	d := open(t, func(c *Config) {
		c.Allowed = func(User) error { asked.Add(1); return nil }
	})
	d.authority.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	behind(t, d, "", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Warning", `299 - "of the cluster"`) })
	c := dial(t, d, alice, false)
	asked.Store(0)
	for _, step := range []struct {
		at     time.Duration
		code   int
		warns  string
		allows int64
	}{
		{0, 200, "", 1}, {verdictHolds / 2, 200, "", 1}, {2 * verdictHolds, 200, "", 2},
		{userHolds - tellUser/2, 200, "`kith kubeconfig` prints another", 3}, {userHolds + time.Minute, 401, "ended on", 3},
	} {
		later.Store(int64(step.at))
		answer, _ := get(t, c, d.url("/version"))
		warnings := strings.Join(answer.Header["Warning"], " ")
		if answer.StatusCode != step.code || !strings.Contains(warnings, step.warns) || step.warns == "" && strings.Contains(warnings, "kith") || asked.Load() != step.allows {
			t.Errorf("after %s: %s, %q, asked %d times", step.at, answer.Status, warnings, asked.Load())
		}
	}
}

// A watch asks nothing more, and its user may have left the group since it was opened.
func TestAStreamEndsWithTheRightToComeIn(t *testing.T) {
	var gone atomic.Bool
	var later atomic.Int64
	d := open(t, func(c *Config) {
		c.Allowed = func(User) error {
			if gone.Load() {
				return errors.New("user alice is not listed in the group kith")
			}
			return nil
		}
	})
	d.recheck = 20 * time.Millisecond
	d.authority.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	open := make(chan struct{})
	behind(t, d, "", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		close(open)
		<-r.Context().Done()
	})
	c := dial(t, d, alice, false)
	answer, err := c.Get(d.url("/api/v1/pods?watch=true"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	<-open
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, answer.Body)
	}()
	select {
	case <-ended:
		t.Fatal("it ended, and nothing had changed")
	case <-time.After(200 * time.Millisecond):
	}
	gone.Store(true)
	later.Store(int64(2 * verdictHolds))
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Error("it goes on for a user who may come in no more")
	}
}

func TestWhoAsksIsWhomTheCertificateNames(t *testing.T) {
	d := open(t, nil)
	var got http.Header
	behind(t, d, "", func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	c := dial(t, d, alice, false)
	r, _ := http.NewRequest("GET", d.url("/api"), nil)
	for name, value := range map[string]string{
		"Authorization": "Bearer x", "Impersonate-User": "admin", "Impersonate-Group": "system:masters", "Impersonate-Extra-Scopes": "x", "Impersonate-Uid": "1",
		"X-Remote-User": "admin", "X-Remote-Extra-A": "b", "Cookie": "a=b", "Proxy-Authorization": "x", "Sec-Websocket-Protocol": "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA",
		"Audit-Id": "4711", "Kubectl-Command": "kubectl get", "Accept": "application/json;as=Table;v=v1;g=meta.k8s.io", "User-Agent": "kubectl/v1.36",
	} {
		r.Header.Set(name, value)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	want := "Accept: application/json;as=Table;v=v1;g=meta.k8s.io, Accept-Encoding: , Audit-Id: 4711, Impersonate-Group: kith:users, Impersonate-User: alice, " +
		"Kubectl-Command: kubectl get, Sec-Websocket-Protocol: v5.channel.k8s.io, User-Agent: kubectl/v1.36"
	got.Set("Accept-Encoding", "")
	var has []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		has = append(has, name+": "+strings.Join(got[name], ","))
	}
	if s := strings.Join(has, ", "); s != want {
		t.Errorf("came as\n%s, want\n%s", s, want)
	}
}

func TestEverythingPasses(t *testing.T) {
	d := open(t, nil)
	zipped := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write([]byte(text))
		w.Close()
		return b.Bytes()
	}
	list := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`
	behind(t, d, "/prefix", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "old"`)
		w.Header().Set("Audit-Id", r.Header.Get("Audit-Id"))
		w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "a")
		w.Header().Set("X-Kubernetes-Pf-Prioritylevel-Uid", "b")
		w.Header().Set("Asked", r.Method+" "+r.RequestURI)
		switch {
		case r.Header.Get("Upgrade") != "":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, both, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			line, _ := both.ReadString('\n')
			fmt.Fprintf(both, "heard %s", line)
			both.Flush()
		case r.Method == "POST" || r.Method == "PATCH":
			b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 3<<20)) // the API server's own limit
			if err != nil {
				apiproxy.Refuse(w, http.StatusRequestEntityTooLarge, "limit is 3145728")
				return
			}
			fmt.Fprint(w, r.Header.Get("Content-Type"), " ", len(b))
		case r.Header.Get("Accept-Encoding") == "gzip":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zipped(list))
		default:
			fmt.Fprint(w, "plain")
		}
	})
	for _, http1 := range []bool{false, true} {
		c := dial(t, d, alice, http1)
		do := func(method, path, body string, header ...string) (*http.Response, string) {
			t.Helper()
			r, err := http.NewRequest(method, d.url(path), strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			answer, err := c.Do(r)
			if err != nil {
				t.Fatal(method, path, err)
			}
			defer answer.Body.Close()
			b, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(method, path, err)
			}
			return answer, string(b)
		}
		answer, body := do("GET", "/api/v1/nodes/n/proxy/a%2Fb%20c?x=1;2&y=%zz", "", "Audit-Id", "4711")
		if h := answer.Header; body != "plain" || h.Get("Asked") != "GET /prefix/api/v1/nodes/n/proxy/a%2Fb%20c?x=1;2&y=%zz" || h.Get("Warning") != `299 - "old"` ||
			h.Get("Audit-Id") != "4711" || h.Get("X-Kubernetes-Pf-Flowschema-Uid") != "a" || h.Get("X-Kubernetes-Pf-Prioritylevel-Uid") != "b" {
			t.Errorf("%q %v", body, answer.Header)
		}
		answer, body = do("GET", "/api/v1/pods", "", "Accept-Encoding", "gzip")
		if answer.Header.Get("Content-Encoding") != "gzip" || body != string(zipped(list)) {
			t.Errorf("packed: %v, %d bytes", answer.Header, len(body))
		}
		for _, method := range []string{"POST", "PATCH"} {
			if _, body = do(method, "/api/v1/x", strings.Repeat("x", 3<<20), "Content-Type", "application/apply-patch+yaml"); body != "application/apply-patch+yaml 3145728" {
				t.Errorf("a body of 3 MiB: %.200s", body)
			}
		}
		began := time.Now()
		if answer, body = do("POST", "/api/v1/x", strings.Repeat("x", 16<<20)); answer.StatusCode != 413 || time.Since(began) > 5*time.Second {
			t.Errorf("a body of 16 MiB after %s: %s %.200s", time.Since(began), answer.Status, body)
		}
		for _, method := range []string{"PUT", "DELETE", "HEAD", "OPTIONS"} {
			if answer, _ = do(method, "/openapi/v3", ""); answer.Header.Get("Asked") != method+" /prefix/openapi/v3" {
				t.Errorf("%s: %v", method, answer.Header)
			}
		}
	}
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		conn, both := upgrade(t, d, protocol)
		fmt.Fprintf(conn, "hello\n")
		if line, err := both.ReadString('\n'); line != "heard hello\n" {
			t.Errorf("%s: %q %v", protocol, line, err)
		}
		conn.Close()
	}
}

// upgrade takes a connection over, as exec and port-forward do.
func upgrade(t *testing.T, d *Door, protocol string) (*tls.Conn, *bufio.Reader) {
	t.Helper()
	cert, key, _, err := d.authority.admit(alice)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", d.cfg.Address.String(), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /api/v1/namespaces/x/pods/y/exec?command=sh HTTP/1.1\r\nHost: kith\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
	both := bufio.NewReader(conn)
	answer, err := http.ReadResponse(both, nil)
	if err != nil || answer.StatusCode != 101 || answer.Header.Get("Upgrade") != protocol {
		t.Fatal(protocol, answer, err)
	}
	return conn, both
}

func TestPodsInProtobuf(t *testing.T) {
	d := open(t, nil)
	encode, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	behind(t, d, "", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "watch") {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			return
		}
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "4711"}}
		for range 100 {
			list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "12"}})
		}
		if err := scheme.Codecs.EncoderForVersion(encode.Serializer, corev1.SchemeGroupVersion).Encode(list, w); err != nil {
			t.Error(err)
		}
	})
	config := as(t, d, alice)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 100 {
		t.Fatal(err)
	}
	for _, version := range []string{"12", "4711"} { // an item's, and the list's
		w, err := kube.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		if e, gone := <-w.ResultChan(); gone != (version == "12") {
			t.Errorf("a watch from %s: %v", version, e)
		}
	}
}

// counted calls begin before each request, and what that gives once the request is over: it failed, or its answer's body was closed.
type counted struct {
	http.RoundTripper
	begin func() (end func())
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	end := c.begin()
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	answer.Body = countedBody{answer.Body, end}
	return answer, nil
}

// CloseIdleConnections is what http.Client looks for.
func (c counted) CloseIdleConnections() {
	(&http.Client{Transport: c.RoundTripper}).CloseIdleConnections()
}

type countedBody struct {
	io.ReadCloser
	end func()
}

func (b countedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// Long answers of two clusters, and switches all the time: each answer is of one, and after a switch nobody gets one of the former.
func TestNoAnswerMixesTwoClusters(t *testing.T) {
	d := open(t, nil)
	var under [2]atomic.Int64 // at the front door, which waits for those that it cuts: the servers see the cut a moment later
	handler := func(of int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 20 {
				fmt.Fprint(w, of)
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		})
	}
	var clusters [2]*cluster
	for i := range clusters {
		clusters[i] = &cluster{name: fmt.Sprint(i), Server: httptest.NewUnstartedServer(handler(i))}
		clusters[i].EnableHTTP2 = true
		clusters[i].StartTLS()
		defer clusters[i].Close()
	}
	to := func(of int) Destination {
		there := clusters[of].destination(t)
		there.Transport = counted{there.Transport, func() func() {
			if n := under[1-of].Load(); n > 0 {
				t.Errorf("%d requests are under way at the other cluster", n)
			}
			under[of].Add(1)
			return sync.OnceFunc(func() { under[of].Add(-1) })
		}}
		return there
	}
	c := dial(t, d, alice, false)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var leads atomic.Int64
	d.Lead(to(0))
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				before := leads.Load()
				answer, err := c.Get(d.url("/x"))
				if err != nil {
					t.Error(err)
					return
				}
				body, _ := io.ReadAll(answer.Body) // may be cut
				answer.Body.Close()
				switch text := string(body); {
				case answer.StatusCode == 503: // cut before it began
				case strings.Contains(text, "0") && strings.Contains(text, "1"):
					t.Errorf("mixed: %s", text)
				case before == leads.Load() && before%2 == 0 && text != "" && text[0] != byte('0'+before/2%2):
					t.Errorf("after switch %d: %s", before/2, text)
				}
			}
		})
	}
	for i := 1; i <= 10; i++ {
		time.Sleep(10 * time.Millisecond)
		leads.Add(1) // odd: under way
		d.Lead(to(i % 2))
		leads.Add(1)
	}
	stop()
	clients.Wait()
}

// What is open ends with a switch, whatever it is, and however little its client cares.
func TestASwitchIsShortWhateverIsOpen(t *testing.T) {
	d := open(t, nil)
	reached := make(chan string, 16)
	behind(t, d, "", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, _, _ := http.NewResponseController(w).Hijack()
			reached <- "upgrade"
			for {
				if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
		reached <- r.URL.Path
		switch r.URL.Path {
		case "/hangs":
			<-r.Context().Done()
		case "/floods":
			for r.Context().Err() == nil {
				w.Write(make([]byte, 64<<10))
			}
		default:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	type outcome struct {
		what string
		code int
		err  error
	}
	outcomes := make(chan outcome, 16)
	for _, http1 := range []bool{false, true} {
		c := dial(t, d, alice, http1)
		for _, path := range []string{"/hangs", "/floods", "/api/v1/namespaces/x/pods/y/log?follow=true", "/api/v1/pods?watch=1"} {
			go func() {
				answer, err := c.Get(d.url(path))
				if err != nil {
					outcomes <- outcome{path, 0, err}
					return
				}
				defer answer.Body.Close()
				if path == "/floods" {
					outcomes <- outcome{path, 0, nil} // and does not read it
					<-t.Context().Done()
					return
				}
				_, err = io.ReadAll(answer.Body)
				outcomes <- outcome{path, answer.StatusCode, err}
			}()
			<-reached
		}
	}
	conn, _ := upgrade(t, d, "SPDY/3.1") // nobody reads it
	defer conn.Close()
	<-reached
	began := time.Now()
	d.Lead(Destination{Refusal: "closed for the test"})
	if took := time.Since(began); took > time.Minute { // what reads nothing would hold it for ever
		t.Errorf("it took %s", took)
	}
	for range 8 {
		o := <-outcomes
		switch {
		case o.what == "/floods":
		case o.what == "/hangs":
			if o.code != 503 { // and to ask again
				t.Errorf("not answered yet: %+v, want 503", o)
			}
		case strings.Contains(o.what, "watch"):
			if o.err != nil {
				t.Errorf("a watch: %v, want its end", o.err)
			}
		default:
			if o.err == nil {
				t.Errorf("%s ended as if it were whole", o.what)
			}
		}
	}
	answer, body := get(t, dial(t, d, alice, false), d.url("/version"))
	if s := status(t, body); answer.StatusCode != 503 || s.Message != "kith: closed for the test" || answer.Header.Get("Retry-After") != "" {
		t.Errorf("%s %+v", answer.Status, s)
	}
}

func TestADestinationThatDoesNotAnswer(t *testing.T) {
	d := open(t, nil)
	c := dial(t, d, alice, false)
	if answer, body := get(t, c, d.url("/api")); answer.StatusCode != 503 || !strings.Contains(status(t, body).Message, "not ready yet") || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("before it leads anywhere: %s %s", answer.Status, body)
	}
	// kubectl reads a sentence about what it asks for, and a warning while it asks which kinds there are.
	for path, warned := range map[string]bool{"/api": true, "/apis": true, "/version": true, "/api/v1/pods": false} {
		if answer, _ := get(t, c, d.url(path)); strings.Contains(answer.Header.Get("Warning"), "not ready yet") != warned {
			t.Errorf("%s: %v", path, answer.Header)
		}
	}
	gone := newCluster(t, "the Kubernetes of this laptop", 1)
	to := gone.destination(t)
	gone.Close()
	d.Lead(to)
	if answer, body := get(t, c, d.url("/api")); answer.StatusCode != 503 || !strings.Contains(status(t, body).Message, "the Kubernetes of this laptop does not answer") {
		t.Errorf("%s %s", answer.Status, body)
	}
	to = newCluster(t, "corp", 1).destination(t)
	to.As = func(User, http.Header) (http.Header, error) { return nil, errors.New("not as somebody else") }
	d.Lead(to)
	if answer, body := get(t, c, d.url("/api")); answer.StatusCode != 403 || !strings.Contains(status(t, body).Message, "not as somebody else") {
		t.Errorf("%s %s", answer.Status, body)
	}
}

func TestKubeconfigsAreForUsersWhoMayComeIn(t *testing.T) {
	d := open(t, func(c *Config) {
		c.Allowed = func(u User) error {
			if u.UID != 1000 {
				return errors.New("not in the group")
			}
			return nil
		}
	})
	for _, u := range []User{{"bob", 1001}, {"", 1000}, {"system:admin", 1000}} {
		if text, err := d.Kubeconfig(u); err == nil {
			t.Errorf("%v: %s", u, text)
		}
	}
	if info, err := os.Stat(d.cfg.Dir + "/authority.pem"); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
}

// A desktop has many connections open all day, on which nothing happens.
func TestAnIdleConnectionCostsNoMoreThanOfAnyServer(t *testing.T) {
	d := open(t, nil)
	behind(t, d, "", func(http.ResponseWriter, *http.Request) {})
	plain := newCluster(t, "plain", 1)
	const many = 50
	grown := func(dial func() *http.Client, url string) int {
		before := goruntime.NumGoroutine()
		for range many {
			get(t, dial(), url)
		}
		time.Sleep(100 * time.Millisecond) // those of the requests end
		return goruntime.NumGoroutine() - before
	}
	config := as(t, d, alice)
	front := grown(func() *http.Client {
		to, _, err := apiproxy.Transports(config)
		if err != nil {
			t.Fatal(err)
		}
		c := &http.Client{Transport: to}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}, d.url("/api"))
	other := grown(func() *http.Client {
		c := &http.Client{Transport: plain.destination(t).Transport}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}, plain.URL+"/api")
	if front > other+many/2 { // the front door's own connections to where it leads are among them
		t.Errorf("%d connections of the front door hold %d goroutines, of another server %d", many, front, other)
	}
}
