//go:build lab && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestConsumerCannotExhaust: with all it may open and send a consumer does not keep bob from his own work.
func TestConsumerCannotExhaust(t *testing.T) {
	h := newHostile(t)
	h.run("bodies without end", h.bodies)
	h.run("a thousand watches", h.watches)
	h.run("streams that are taken back at once", h.resets)
	h.run("slow headers, slow bodies, no handshake, header bombs", h.slow)
	h.run("ten thousand objects", h.objects)
	h.run("amounts behind bounds", h.amounts)
	h.run("a thousand namespaces", h.namespaces)
	h.run("is on record", h.recorded)
}

// What bob may feel of an attack: memory of his daemon and of his API server beyond what they had, and how long his own
// kubectl takes.
const (
	maxDaemonGrowth = 150 << 20
	maxEngineGrowth = 400 << 20
	maxKubectl      = 8 * time.Second
)

// endure runs an attack and sees to it that bob can work meanwhile.
func (h *hostile) endure(attack func()) {
	h.t.Helper()
	daemon, engine := rss(h.t, h, "kithd"), rss(h.t, h, "kith-k8s")
	ctx, stop := context.WithCancel(h.t.Context())
	var watch sync.WaitGroup
	var slowest, calls, failed atomic.Int64
	var daemonMost, engineMost int64
	watch.Go(func() {
		for ctx.Err() == nil {
			daemonMost, engineMost = max(daemonMost, rss(h.t, h, "kithd")), max(engineMost, rss(h.t, h, "kith-k8s"))
			time.Sleep(200 * time.Millisecond)
		}
	})
	watch.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			name := fmt.Sprintf("own%d", h.worked.Add(1))
			calls.Add(1)
			_, err := h.bob.Kubectl(h.t.Context(), "-n", "den", "create", "configmap", name)
			if err == nil {
				_, err = h.bob.Kith(h.t.Context(), "peers")
			}
			if err != nil && ctx.Err() == nil {
				failed.Add(1)
				h.t.Errorf("bob's own work: %v", err)
			}
			slowest.Store(max(slowest.Load(), int64(time.Since(began))))
			time.Sleep(300 * time.Millisecond)
		}
	})
	began := time.Now()
	attack()
	took := time.Since(began)
	stop()
	watch.Wait()
	h.t.Logf("attacked for %s: kithd %d MiB → %d, kith-k8s %d MiB → %d; %d times bob worked, at most %s", took.Round(time.Millisecond),
		daemon>>20, daemonMost>>20, engine>>20, engineMost>>20, calls.Load(), time.Duration(slowest.Load()).Round(time.Millisecond))
	if daemonMost-daemon > maxDaemonGrowth || engineMost-engine > maxEngineGrowth {
		h.t.Errorf("memory grew: kithd by %d MiB, kith-k8s by %d MiB", (daemonMost-daemon)>>20, (engineMost-engine)>>20)
	}
	if time.Duration(slowest.Load()) > maxKubectl {
		h.t.Errorf("bob waited %s", time.Duration(slowest.Load()))
	}
}

// rss of the oldest process of that name at bob, in bytes.
func rss(t *testing.T, h *hostile, name string) int64 {
	out, _, err := h.bob.Exec(context.WithoutCancel(t.Context()), "sh", "-c", "grep VmRSS /proc/$(pidof "+name+" | tr ' ' '\n' | sort -n | head -1)/status")
	fields := strings.Fields(out)
	if err != nil || len(fields) < 2 {
		t.Errorf("memory of %s: %q %v", name, out, err)
		return 0
	}
	n, _ := strconv.ParseInt(fields[1], 10, 64)
	return n << 10
}

// endless is a body of n bytes of JSON that never closes.
type endless struct {
	left int64
	read atomic.Int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.left)
	for i := range p[:n] {
		p[i] = ' '
	}
	e.left -= n
	e.read.Add(n)
	return int(n), nil
}

// bodies sends a gigabyte each, with and without saying so.
func (h *hostile) bodies(t *testing.T) {
	h.endure(func() {
		var crowd sync.WaitGroup
		for i := range 40 {
			crowd.Go(func() {
				c := h.client()
				defer c.CloseIdleConnections()
				for _, path := range []string{h.in("configmaps"), "/kith/v2/requests", "/kith/v2/contracts"} {
					body := &endless{left: 1 << 30}
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://bob"+path, body)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Content-Type", "application/json")
					if i%2 == 0 {
						r.ContentLength = 1 << 30
					}
					resp, err := c.Do(r)
					if err == nil {
						if resp.StatusCode < 400 || resp.StatusCode >= 500 {
							t.Errorf("%s: %s", path, resp.Status)
						}
						resp.Body.Close()
					}
					if n := body.read.Load(); n > 8<<20 {
						t.Errorf("%s: bob read %d bytes (%v)", path, n, err)
					}
				}
			})
		}
		crowd.Wait()
	})
	big := h.ask("POST", h.in("configmaps"), strings.Repeat(" ", 3<<20))
	h.refused("a body of 3 MiB", big)
	if big.code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 3 MiB: %d", big.code)
	}
}

// watches opens a thousand, on several connections.
func (h *hostile) watches(t *testing.T) {
	var opened, refused atomic.Int64
	h.endure(func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var crowd sync.WaitGroup
		clients := []*http.Client{h.client(), h.client(), h.client(), h.client()}
		for i := range 1000 {
			crowd.Go(func() {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://bob"+h.in("secrets?watch=1"), nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := (&http.Client{Transport: clients[i%4].Transport}).Do(r)
				switch {
				case err != nil:
					refused.Add(1)
				case resp.StatusCode == 200:
					opened.Add(1)
				case resp.StatusCode == 429:
					refused.Add(1)
					resp.Body.Close()
				default:
					t.Errorf("a watch: %s", resp.Status)
				}
			})
		}
		crowd.Wait()
		time.Sleep(5 * time.Second)
	})
	t.Logf("%d watches were opened, %d refused", opened.Load(), refused.Load())
	if opened.Load() == 0 || opened.Load() > 128 || opened.Load()+refused.Load() != 1000 {
		t.Errorf("%d watches are open", opened.Load())
	}
	eventually(t, 15*time.Second, "places are free again", func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://bob"+h.in("secrets?watch=1&timeoutSeconds=1"), nil)
		if err != nil {
			return err.Error()
		}
		resp, err := h.web.Do(r)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return resp.Status
		}
		return ""
	})
}

// slow keeps connections without using them.
func (h *hostile) slow(t *testing.T) {
	tcp := func(ctx context.Context) (net.Conn, error) { return h.alice.Dial(ctx, "tcp", h.address) }
	secure := func(ctx context.Context) (net.Conn, error) { return h.dial(ctx, "http/1.1") }
	kinds := map[string]struct {
		dial        func(context.Context) (net.Conn, error)
		first, drop string
	}{
		"no handshake":         {tcp, "", ""},
		"half a handshake":     {tcp, "\x16\x03\x01\x02\x00\x01\x00", "\x00"},
		"garbage":              {tcp, "GET / HTTP/1.1\r\n", "x"},
		"headers by drops":     {secure, "GET /kith/v1/hello HTTP/1.1\r\nHost: x\r\n", "X: y\r\n"},
		"a body by drops":      {secure, "POST /kith/v2/requests HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", " "},
		"a header bomb":        {secure, "GET /kith/v1/hello HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "x"},
		"many headers":         {secure, "GET /kith/v1/hello HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 100_000) + "\r\n", "x"},
		"HTTP/2, then silence": {func(ctx context.Context) (net.Conn, error) { return h.dial(ctx, "h2") }, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x10\x00\x01\x04\x00\x00\x00\x01", ""},
	}
	h.endure(func() {
		var crowd sync.WaitGroup
		var open, most, cut atomic.Int64
		for name, k := range kinds {
			idle := strings.HasPrefix(name, "HTTP/2")
			for range 40 {
				crowd.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					conn, err := k.dial(ctx)
					if err != nil {
						cut.Add(1)
						return
					}
					defer conn.Close()
					began := time.Now()
					most.Store(max(most.Load(), open.Add(1)))
					defer open.Add(-1)
					conn.SetWriteDeadline(began.Add(40 * time.Second))
					go func() {
						io.WriteString(conn, k.first)
						for k.drop != "" {
							time.Sleep(500 * time.Millisecond)
							if _, err := io.WriteString(conn, k.drop); err != nil {
								return
							}
						}
					}()
					patience := 40 * time.Second
					if idle {
						patience = 15 * time.Second // it may be as idle as any client's for two minutes
					}
					conn.SetReadDeadline(began.Add(patience))
					_, err = io.Copy(io.Discard, conn)
					if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() && !idle {
						t.Errorf("%s: not cut within 40 s", name)
					}
				})
			}
		}
		crowd.Wait()
		t.Logf("%d connections at most were open at once, %d were refused", most.Load(), cut.Load())
		if most.Load() < int64(len(kinds)) {
			t.Error("hardly any connection was open, so nothing was tried")
		}
	})
	eventually(t, 30*time.Second, "who is known is let in again", func() string {
		if a := h.ask("GET", h.in("configmaps"), ""); a.code != 200 {
			return fmt.Sprintf("%d %.200s %v", a.code, a.text, a.err)
		}
		return ""
	})
}

// What a contract of a few pods lets a consumer keep at bob (core/provide/hosting).
const (
	keptObjects    = 4060
	keptBytes      = 16_973_824
	keptNamespaces = 1000
)

// objects tries to keep ten thousand at bob.
func (h *hostile) objects(t *testing.T) {
	const large = 20_000
	var made, bytes, full, limited, other atomic.Int64
	var said atomic.Value
	names := make(chan int)
	h.endure(func() {
		var crowd sync.WaitGroup
		for range 16 {
			crowd.Go(func() {
				for i := range names {
					var a answer
					switch i % 3 {
					case 0:
						a = h.offload(h.lair, fmt.Sprintf("o%d", i), `{"containers":[{"name":"c","image":"x","env":[{"name":"A","value":"`+strings.Repeat("x", large)+`"}]}],"hostPID":true}`)
					case 1:
						a = h.ask("POST", h.in("configmaps"), fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o%d","labels":{"kith.dev/managed-by":"kith"}},"data":{"a":%q}}`, i, strings.Repeat("x", large)))
					default:
						a = h.offload(h.lair, fmt.Sprintf("o%d", i), `{"containers":[{"name":"c","image":"x"}],"hostPID":true}`)
					}
					switch {
					case a.code == 201:
						made.Add(1)
						if i%3 < 2 {
							bytes.Add(large)
						}
					case a.code == 403 && strings.Contains(a.status.Message, "kept here"):
						full.Add(1)
						said.Store(a.status.Message)
					case a.code == 403 && strings.Contains(a.status.Message, "exceeded quota"):
						full.Add(1)
					case a.code == 429:
						limited.Add(1)
					default:
						other.Add(1)
						t.Logf("%d %.200s %v", a.code, a.text, a.err)
					}
				}
			})
		}
		for i := range 10_000 {
			names <- i
		}
		close(names)
		crowd.Wait()
		time.Sleep(2 * time.Second)
	})
	t.Logf("%d objects were made, %d refused as too many, %d for now, %d otherwise: %v", made.Load(), full.Load(), limited.Load(), other.Load(), said.Load())
	if made.Load() > keptObjects || bytes.Load() > keptBytes || bytes.Load() < keptBytes/2 || said.Load() == nil || other.Load() > 0 {
		t.Errorf("%d objects with more than %d bytes of the consumer are kept at bob", made.Load(), bytes.Load())
	}
	// Patches that make little into much: copies of copies.
	grow := `[{"op":"add","path":"/data","value":{"a":"` + strings.Repeat("x", 500_000) + `"}}`
	for i := range 12 {
		grow += fmt.Sprintf(`,{"op":"copy","from":"/data","path":"/data%d"}`, i)
	}
	h.refused("an object grown by copies", h.ask("PATCH", h.in("configmaps/o1"), grow+"]", "Content-Type: application/json-patch+json"))
	// What is deleted makes room.
	for i := range 300 {
		h.ask("DELETE", h.offloadedPath(h.lair, fmt.Sprintf("o%d", i)), "")
	}
	eventually(t, 60*time.Second, "there is room again", func() string {
		if a := h.offload(h.lair, "again", `{"containers":[{"name":"c","image":"x"}],"hostPID":true}`); a.code != 201 && a.code != 409 {
			return a.text
		}
		return ""
	})
}

// amounts sends objects that are small and cost much. None is kept, and neither daemon nor API server grow.
func (h *hostile) amounts(t *testing.T) {
	const merge, apply = "Content-Type: application/merge-patch+json", "Content-Type: application/apply-patch+yaml"
	slices := "/kube/apis/discovery.k8s.io/v1/namespaces/" + h.lair + "/endpointslices"
	list := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	slice := func(name string, addresses, ports int) string {
		return `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"` + name + `","labels":{"kith.dev/managed-by":"kith","endpointslice.kubernetes.io/managed-by":"kith.dev","kubernetes.io/service-name":"svc"}},"addressType":"IPv4","endpoints":` +
			list(`{"addresses":["10.77.0.1"]}`, addresses) + `,"ports":` + list(`{"name":"a","port":1}`, ports) + `}`
	}
	deep := func(depth int) string {
		return strings.Repeat(`{"`+strings.Repeat("k", 200)+`":`, depth) + "0" + strings.Repeat("}", depth)
	}
	entries := strings.Builder{}
	for i := range 60_000 {
		fmt.Fprintf(&entries, `"%x":"",`, i)
	}
	daemon, engine := rss(t, h, "kithd"), rss(t, h, "kith-k8s")
	h.endure(func() {
		for i := range 20 {
			name := fmt.Sprintf("much%d", i)
			for what, a := range map[string]answer{
				"a pod 3000 deep":           h.offload(h.lair, name, deep(3000)),
				"a pod of empty containers": h.offload(h.lair, name, `{"containers":`+list("{}", 200_000)+`}`),
				"a pod of nothings":         h.offload(h.lair, name, `{"a":`+list("{}", 300_000)+`}`),
				"a million pairs":           h.ask("POST", slices, slice(name, 200, 5000)),
				"a million pairs, applied":  h.ask("PATCH", slices+"/"+name+"?fieldManager=x", slice(name, 200, 5000), apply),
				"twenty million pairs":      h.ask("POST", slices, slice(name, 1000, 20_000)),
				"ports, patched in":         h.ask("PATCH", slices+"/"+name, `{"ports":`+list(`{"port":1}`, 5000)+`}`, merge),
				"a ConfigMap of crumbs": h.ask("POST", h.in("configmaps"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`","labels":{"kith.dev/managed-by":"kith"}},"data":{`+
					strings.TrimSuffix(entries.String(), ",")+`}}`),
				"an owner": h.ask("POST", h.offloadedPath(h.lair, ""), `{"apiVersion":"kith.dev/v1alpha1","kind":"OffloadedPod","metadata":{"name":"`+name+
					`","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]},"spec":{"homeNamespace":"lair","homeUID":"x","template":{}}}`),
				"a finalizer": h.ask("POST", h.offloadedPath(h.lair, ""), `{"apiVersion":"kith.dev/v1alpha1","kind":"OffloadedPod","metadata":{"name":"`+name+
					`","finalizers":["a.b/c"]},"spec":{"homeNamespace":"lair","homeUID":"x","template":{}}}`),
				"a label": h.ask("POST", h.offloadedPath(h.lair, ""), `{"apiVersion":"kith.dev/v1alpha1","kind":"OffloadedPod","metadata":{"name":"`+name+
					`","labels":{"app":"x"}},"spec":{"homeNamespace":"lair","homeUID":"x","template":{}}}`),
			} {
				h.refused(what, a)
			}
		}
	})
	if d, e := rss(t, h, "kithd")-daemon, rss(t, h, "kith-k8s")-engine; d > 64<<20 || e > 96<<20 {
		t.Errorf("kithd grew by %d MiB, kith-k8s by %d MiB", d>>20, e>>20)
	}
}

// namespaces tries to have as many as there are.
func (h *hostile) namespaces(t *testing.T) {
	had, many := 0, 0
	h.endure(func() {
		for i := 0; i < keptNamespaces+30; i++ {
			a := h.ask(http.MethodPut, fmt.Sprintf("/kith/v2/namespaces/many%d?contract=%s", i, h.contract), "")
			switch {
			case a.code == 200:
				had++
			case a.code == 429:
				time.Sleep(time.Second)
				i--
			case a.code == 403 && strings.Contains(a.text, "more are not allowed"):
				many++
			default:
				t.Errorf("namespace %d: %d %s %v", i, a.code, a.text, a.err)
			}
		}
	})
	if had > keptNamespaces || had < keptNamespaces-10 || many == 0 {
		t.Errorf("%d namespaces were made, %d refused", had, many)
	}
}
