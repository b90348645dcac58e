//go:build lab

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"kith.dev/core/gateway"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/test/lab"
)

// TestHostileLinkDrawsNoTraffic: a consumer with its real key and contract tells its provider, by hand, of ranges that are
// not its pods'. What the provider sends there goes on its way, and the tunnel that there was stays.
func TestHostileLinkDrawsNoTraffic(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "300m", "--memory", "256Mi", "--pods", "6")
	me, err := identity.Load(alice.Path("/var/lib/kith/identity"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := gateway.LoadKey(alice.Path("/var/lib/kith/wireguard.key"))
	if err != nil {
		t.Fatal(err)
	}
	link := func() string {
		return kubectl(t, bob, "get", "peer", "alice", "-o", "jsonpath={.status.network.theirs}{.status.network.ours}")
	}
	before := link()
	target := "172.20.1.1" // a server of bob's office, reached by its router
	route := func() string {
		out, stderr, err := bob.Exec(t.Context(), "ip", "route", "get", target)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		return out
	}
	if strings.Contains(route(), "kith0") {
		t.Fatalf("before anything was said: %s", route())
	}
	pods := func(p string) []peering.Range {
		return []peering.Range{{Name: "pods", Prefix: netip.MustParsePrefix(p)}}
	}
	beside := append(pods("10.42.0.0/16"), peering.Range{Name: "x", Prefix: netip.MustParsePrefix("172.16.0.0/12")})
	for _, lie := range []struct {
		what   string
		ranges []peering.Range
		no     bool // else an alias is found, elsewhere
	}{
		{"a range beside the pods'", beside, true},
		{"pods in the office's range", pods("172.16.0.0/12"), false},
		{"pods in all of 172/8", pods("172.0.0.0/8"), true},
	} {
		code, text := putLink(t, alice, bob, me, peering.Link{
			PublicKey: key.Public().String(), Port: 6450, Ranges: lie.ranges, Aliases: pods("10.99.0.0/16"),
		})
		t.Logf("%s: %d %s", lie.what, code, text)
		if lie.no && (code != http.StatusBadRequest || !strings.Contains(text, "range")) || code >= http.StatusInternalServerError {
			t.Errorf("%s: %d %s", lie.what, code, text)
		}
		if out := route(); strings.Contains(out, "kith0") {
			t.Errorf("%s: what bob sends to %s goes to alice: %s", lie.what, target, out)
		}
	}
	if after := link(); after != before {
		t.Errorf("bob's side of the link was %s, is %s", before, after)
	}
	eventually(t, 10*time.Second, "the refusals are on bob's record", func() string {
		var log bytes.Buffer
		if err := bob.Logs(t.Context(), &log, "kithd", false); err != nil {
			return err.Error()
		}
		if !strings.Contains(log.String(), "msg=refused door=peer-api peer=alice") {
			return "no line of the log says so"
		}
		return ""
	})
}

// putLink has somebody with a laptop's key and network say a link by hand.
func putLink(t *testing.T, from, to *lab.Laptop, as *identity.Identity, link peering.Link) (code int, text string) {
	t.Helper()
	var status struct{ ID string }
	if err := json.Unmarshal([]byte(kith(t, to, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	id, err := identity.ParseID(status.ID)
	if err != nil {
		t.Fatal(err)
	}
	at, err := to.Address()
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			tcp, err := from.Dial(ctx, "tcp", net.JoinHostPort(at.String(), "6450"))
			if err != nil {
				return nil, err
			}
			config := as.ClientTLS(id)
			config.NextProtos = []string{"http/1.1"}
			conn := tls.Client(tcp, config)
			return conn, conn.HandshakeContext(ctx)
		},
	}}
	body, err := json.Marshal(link)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("https://peer/%s/link", peering.Protocol), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(said)
}
