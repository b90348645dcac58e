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
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/net/gateway"
	"kith.dev/core/trust/identity"
	"kith.dev/test/lab"
)

// TestHostileLinkDrawsNoTraffic: a consumer with its real key and contract names to its provider, by hand, ranges that others have. What
// the provider sends there goes on its way, and the tunnel that there was stays.
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
		return kubectl(t, bob, "get", "peer", "alice", "-o", "jsonpath={.status.network}")
	}
	before := link()
	office := netip.MustParsePrefix("172.20.1.0/24") // servers of bob's office, reached by its router: no route of bob's tells of them
	server := office.Addr().Next().String()
	route := func() string {
		out, stderr, err := bob.Exec(t.Context(), "ip", "route", "get", server)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		return out
	}
	if strings.Contains(route(), "kith0") {
		t.Fatalf("before anything was said: %s", route())
	}
	var was struct{ GuestsHere, GuestsThere string }
	if err := json.Unmarshal([]byte(before), &was); err != nil {
		t.Fatalf("%v: %s", err, before)
	}
	prefix := netip.MustParsePrefix
	if was.GuestsThere == "" { // bob has no guests at alice
		was.GuestsThere = "198.19.255.0/24"
	}
	honest := peering.Link{
		PublicKey: key.Public().String(), Port: 6450, Plan: peering.LinkPlan, Space: []netip.Prefix{prefix("10.42.0.0/16")}, Services: prefix("10.43.0.0/16"),
		At: netip.MustParseAddr("10.42.255.2"), Here: prefix(was.GuestsThere), AtHere: prefix(was.GuestsThere).Addr().Next(), There: prefix(was.GuestsHere),
	}
	for _, lie := range []struct {
		what string
		tell func(*peering.Link)
		no   bool // else others are chosen, elsewhere
	}{
		{"bob's guests have addresses of the office", func(l *peering.Link) { l.Here, l.AtHere = office, office.Addr().Next() }, false},
		{"hers have, at bob", func(l *peering.Link) { l.There = office }, false},
		{"bob's guests have all of 172/8", func(l *peering.Link) { l.Here = prefix("172.0.0.0/8") }, true},
		{"the office is in her address space", func(l *peering.Link) { l.Space = append(l.Space, prefix("172.16.0.0/12")) }, false},
		{"her address space is no list of ranges", func(l *peering.Link) { l.Space = nil }, true},
		{"she is of an older Kith", func(l *peering.Link) { l.Plan = 0 }, true},
	} {
		told := honest
		told.Space = slices.Clone(honest.Space)
		lie.tell(&told)
		code, text := putLink(t, alice, bob, me, told)
		t.Logf("%s: %d %s", lie.what, code, text)
		if lie.no && code < http.StatusBadRequest || code >= http.StatusInternalServerError && code != http.StatusNotImplemented {
			t.Errorf("%s: %d %s", lie.what, code, text)
		}
		var answer peering.Link // what bob would have, if she were to bind her key
		if code == http.StatusOK && (json.Unmarshal([]byte(text), &answer) != nil || answer.There.Overlaps(office) || answer.Here.Overlaps(office)) {
			t.Errorf("%s: bob would have his guests in %s, and hers in %s", lie.what, answer.There, answer.Here)
		}
		if out := route(); strings.Contains(out, "kith0") {
			t.Errorf("%s: what bob sends to %s goes to alice: %s", lie.what, server, out)
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
