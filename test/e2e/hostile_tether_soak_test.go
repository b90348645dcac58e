//go:build lab && soak

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/trust/identity"
	"kith.dev/test/lab"
)

// TestATetheredLaptopCannotExhaust: whoever has the key of a tethered laptop sends the company's API server what costs most for its size.
// The company goes on working, and its memory with it.
func TestATetheredLaptopCannotExhaust(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	w := &world{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), apis: map[string]client.Client{}}
	eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, w.bob) })
	kubectl(t, w.bob, "create", "namespace", "den")
	kubectl(t, w.bob, "create", "namespace", "team")
	kubectl(t, w.bob, "-n", "team", "create", "configmap", "x")
	apply(t, w.bob, fmt.Sprintf(laptopsOfTheCompany, false))
	tethered(t, w.alice, w.bob)

	h := &hostile{world: w}
	var err error
	if h.me, err = identity.Load(w.alice.Path("/var/lib/kith/identity")); err != nil {
		t.Fatal(err)
	}
	var status struct{ ID string }
	if err := json.Unmarshal([]byte(kith(t, w.bob, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	if h.bobID, err = identity.ParseID(status.ID); err != nil {
		t.Fatal(err)
	}
	at, err := w.bob.Address()
	if err != nil {
		t.Fatal(err)
	}
	h.address = net.JoinHostPort(at.String(), "6450")
	h.web = h.client()
	if a := h.ask(http.MethodGet, "/company/api/v1/namespaces/team/configmaps/x", ""); a.code != http.StatusOK {
		t.Fatalf("the door is not open at all: %d %s", a.code, a.text)
	}
	h.run("patches that weigh more than their bytes", h.patches)
	h.run("bodies that never end", h.unfinished)
}

// heavyPatches are patches of n bytes by what is dear about them.
func heavyPatches(n int) map[string]string {
	nested := func(depth int) string {
		one := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		return list(n, func(i int) string { return fmt.Sprintf(`"k%d":%s`, i, one) })
	}
	return map[string]string{
		"nested 60 deep":   `{"data":{` + nested(60) + `}}`,
		"nested 230 deep":  `{"data":{` + nested(230) + `}}`,
		"a key repeated":   `{"data":{"b":{` + list(n, func(int) string { return `"a":1` }) + `}}}`,
		"unknown fields":   `{` + list(n, func(i int) string { return fmt.Sprintf(`"f%d":{}`, i) }) + `}`,
		"many short keys":  `{"data":{` + list(n, func(i int) string { return fmt.Sprintf(`"k%d":"v"`, i) }) + `}}`,
		"labels by number": `{"metadata":{"labels":{` + list(n, func(i int) string { return fmt.Sprintf(`"l%d":1`, i) }) + `}}}`,
		"nulls in a list":  `{"metadata":{"finalizers":[` + list(n, func(int) string { return "null" }) + `]}}`,
	}
}

// list joins elements by commas until they are n bytes.
func list(n int, element func(i int) string) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(element(i))
	}
	return b.String()
}

func (h *hostile) patches(t *testing.T) {
	const size = 540 << 10
	heads := []string{"", "Upgrade: foo\r\n", "Connection: Upgrade\r\nUpgrade: foo\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"}
	h.endure(func() {
		for kind, body := range heavyPatches(size) {
			for _, of := range []string{"merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"} {
				for i, head := range heads {
					path := "/company/api/v1/namespaces/team/configmaps/x?fieldValidation=Strict&fieldManager=x"
					text := fmt.Sprintf("PATCH %s HTTP/1.1\r\nHost: bob\r\nContent-Type: application/%s\r\n%s", path, of, head)
					if i%2 == 0 {
						text += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
					} else {
						text += fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
					}
					began := time.Now()
					a := h.wire(text)
					if took := time.Since(began); a.code < 400 && a.code != 0 || took > 5*time.Second {
						t.Logf("%s by %s, %q: %d after %s %.100s", kind, of, head, a.code, took.Round(time.Millisecond), a.text)
					}
				}
			}
		}
	})
}

// unfinished opens more requests than a laptop may have and ends the body of none.
func (h *hostile) unfinished(t *testing.T) {
	h.endure(func() {
		var open []net.Conn
		defer func() {
			for _, c := range open {
				c.Close()
			}
		}()
		for range 200 {
			c, err := h.dial(t.Context(), "http/1.1")
			if err != nil {
				break // bob takes no more
			}
			open = append(open, c)
			fmt.Fprintf(c, "PATCH /company/api/v1/namespaces/team/configmaps/x HTTP/1.1\r\nHost: bob\r\nContent-Type: application/merge-patch+json\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n%s", strings.Repeat(" ", 60<<10))
		}
		if len(open) == 0 {
			t.Error("bob took no connection")
			return
		}
		began := time.Now()
		eventually(t, 3*time.Minute, "bob cuts the first", func() string {
			_ = open[0].SetReadDeadline(time.Now().Add(time.Second))
			if n, err := open[0].Read(make([]byte, 4096)); n == 0 && err != nil && strings.Contains(err.Error(), "timeout") {
				return "it is open"
			}
			return ""
		})
		t.Logf("%d connections; the first was answered or cut after %s", len(open), time.Since(began).Round(time.Second))
	})
}
