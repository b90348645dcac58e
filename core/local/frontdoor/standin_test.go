package frontdoor

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/local/apiproxy"
)

// cluster is a stand-in for an API server: ConfigMaps of one namespace with versions of its own. It treats versions as API servers
// do, also those that it never gave out: of the past it tells what came since, for the future it waits.
type cluster struct {
	name string
	*httptest.Server

	mu      sync.Mutex
	version int
	oldest  int // versions before are too old
	objects map[string]*corev1.ConfigMap
	log     []event
	more    chan struct{}
	asked   []string // method, URL and user
}

type event struct {
	Type    string            `json:"type"`
	Object  *corev1.ConfigMap `json:"object"`
	version int
}

func newCluster(t testing.TB, name string, version int) *cluster {
	t.Helper()
	c := &cluster{name: name, version: version, oldest: version, objects: map[string]*corev1.ConfigMap{}, more: make(chan struct{})}
	c.Server = httptest.NewUnstartedServer(c)
	c.EnableHTTP2 = true
	c.StartTLS()
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

func (c *cluster) destination(t testing.TB) Destination {
	t.Helper()
	config := &rest.Config{Host: c.URL}
	config.TLSClientConfig.Insecure = true
	d, err := To(c.name, config, func(user User, asked http.Header) (http.Header, error) {
		return http.Header{"Impersonate-User": {user.Name}, "Impersonate-Group": {Group}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { (&generation{Destination: d}).rest() })
	return d
}

// put makes or changes an object, or takes it away.
func (c *cluster) put(kind, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	o := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: strconv.Itoa(c.version)}, Data: map[string]string{"of": c.name},
	}
	c.objects[name] = o
	if kind == "DELETED" {
		delete(c.objects, name)
	}
	c.log = append(c.log, event{kind, o, c.version})
	close(c.more)
	c.more = make(chan struct{})
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.asked = append(c.asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Impersonate-User"))
	c.mu.Unlock()
	if !strings.HasSuffix(r.URL.Path, "/configmaps") {
		apiproxy.Refuse(w, http.StatusNotFound, "the stand-in has no "+r.URL.Path)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if q := r.URL.Query(); q.Get("watch") != "" {
		c.watch(w, r, q)
		return
	}
	c.mu.Lock()
	list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}}
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		list.Items = append(list.Items, *c.objects[name])
	}
	c.mu.Unlock()
	json.NewEncoder(w).Encode(list)
}

func (c *cluster) watch(w http.ResponseWriter, r *http.Request, q url.Values) {
	since, _ := strconv.Atoi(q.Get("resourceVersion"))
	out := json.NewEncoder(w)
	send := func(e event) {
		out.Encode(e)
		w.(http.Flusher).Flush()
	}
	c.mu.Lock()
	if since > 0 && since < c.oldest && q.Get("sendInitialEvents") == "" {
		c.mu.Unlock()
		refuseStale(w, r, true)
		return
	}
	if since == 0 || q.Get("sendInitialEvents") != "" {
		for _, name := range slices.Sorted(maps.Keys(c.objects)) {
			send(event{Type: "ADDED", Object: c.objects[name]})
		}
		since = c.version
		if q.Get("sendInitialEvents") != "" {
			send(event{Type: "BOOKMARK", Object: &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{
				ResourceVersion: strconv.Itoa(c.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			}}})
		}
	}
	w.(http.Flusher).Flush()
	for next := 0; ; {
		for ; next < len(c.log); next++ {
			if c.log[next].version > since {
				send(c.log[next])
			}
		}
		more := c.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
		c.mu.Lock()
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("not within two minutes: " + what)
		}
	}
}

// open serves a Door, and stops it with the test.
func open(t testing.TB, change func(*Config)) *Door {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Dir: t.TempDir(), Address: netip.MustParseAddrPort(listener.Addr().String()), Allowed: func(User) error { return nil },
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return d
}

var alice = User{Name: "alice", UID: 1000}

// as gives a client's configuration, from the kubeconfig that the user gets.
func as(t testing.TB, d *Door, user User) *rest.Config {
	t.Helper()
	text, err := d.Kubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// dial gives a plain HTTP client of a user, over HTTP/2 or HTTP/1.1.
func dial(t testing.TB, d *Door, user User, http1 bool) *http.Client {
	t.Helper()
	plain, upgrades, err := apiproxy.Transports(as(t, d, user))
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: plain}
	if http1 {
		c.Transport = upgrades
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (d *Door) url(path string) string { return "https://" + d.cfg.Address.String() + path }

func get(t testing.TB, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	answer, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

// status reads a Status, and fails if it is none.
func status(t testing.TB, text string) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Kind != "Status" {
		t.Errorf("no Status: %s", text)
	}
	return s
}
