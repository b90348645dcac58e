//go:build lab

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
	"kith.dev/test/lab"
)

// atDoor is a consumer that holds a laptop's key and contract and asks its provider's peer API by hand.
type atDoor struct {
	t        *testing.T
	me       *identity.Identity
	contract string
	http     *http.Client
}

func knockAs(t *testing.T, consumer, provider *lab.Laptop) *atDoor {
	t.Helper()
	me, err := identity.Load(consumer.Path("/var/lib/kith/identity"))
	if err != nil {
		t.Fatal(err)
	}
	var status struct{ ID string }
	if err := json.Unmarshal([]byte(kith(t, provider, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	to, err := identity.ParseID(status.ID)
	if err != nil {
		t.Fatal(err)
	}
	at, err := provider.Address()
	if err != nil {
		t.Fatal(err)
	}
	d := &atDoor{t: t, me: me, contract: kubectl(t, provider, "get", "contracts", "-o", "jsonpath={.items[0].spec.id}")}
	d.http = &http.Client{Timeout: time.Minute, Transport: &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := consumer.Dial(ctx, "tcp", net.JoinHostPort(at.String(), "6450"))
		if err != nil {
			return nil, err
		}
		secured := tls.Client(conn, me.ClientTLS(to))
		return secured, secured.HandshakeContext(ctx)
	}}}
	t.Cleanup(d.http.CloseIdleConnections)
	return d
}

func (d *atDoor) ask(method, path string) (int, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, "https://provider"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := d.http.Do(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(text)
}

func (d *atDoor) namespace(method, home, mapping string) (int, string) {
	d.t.Helper()
	return d.ask(method, "/kith/v2/namespaces/"+home+"?"+url.Values{"contract": {d.contract}, "mapping": {mapping}}.Encode())
}

// nobodysNamespaceIsTakenOver: a consumer who claims the names that add-ons have gets others, and does not see what the
// provider's owner installs there later.
func nobodysNamespaceIsTakenOver(t *testing.T, alice, bob *lab.Laptop) {
	d := knockAs(t, alice, bob)
	short := d.me.ID().Short()
	// Her own daemon would give up what her cluster does not want; afterwards it does.
	if err := alice.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	put := func(home, mapping string) string {
		t.Helper()
		code, text := d.namespace("PUT", home, mapping)
		var made struct{ Namespace string }
		if err := json.Unmarshal([]byte(text), &made); code != 200 || err != nil {
			t.Fatalf("%s: %d %s", home, code, text)
		}
		return made.Namespace
	}
	for _, home := range []string{"cert-manager", "argocd", "monitoring", "default", "kube-system"} {
		if got := put(home, "Default"); got != home+"-"+short {
			t.Errorf("the twin of %s is %s", home, got)
		}
	}
	refused := func(home, why string) {
		t.Helper()
		if code, text := d.namespace("PUT", home, "SameName"); code != 403 || !strings.Contains(text, why) {
			t.Errorf("%s under its own name: %d %s", home, code, text)
		}
	}
	for _, home := range []string{"vault", "books"} {
		refused(home, "its owner does not allow that")
	}

	kubectl(t, bob, "create", "namespace", "monitoring")
	kubectl(t, bob, "-n", "monitoring", "create", "secret", "generic", "gold", "--from-literal=weight=12kg")
	// A copy of the twin's manifest brings its labels along; nothing else that makes a twin one.
	twin := "monitoring-" + short
	var ns struct {
		Metadata struct{ Labels map[string]string }
	}
	if err := json.Unmarshal([]byte(kubectl(t, bob, "get", "namespace", twin, "-o", "json")), &ns); err != nil {
		t.Fatal(err)
	}
	var labels []string
	for k, v := range ns.Metadata.Labels {
		if strings.HasPrefix(k, "kith.dev/") {
			labels = append(labels, k+"="+v)
		}
	}
	if len(labels) < 4 {
		t.Fatalf("the twin has labels %v", labels)
	}
	kubectl(t, bob, append([]string{"label", "namespace", "monitoring"}, labels...)...)
	if got := put("monitoring", "Default"); got != twin {
		t.Errorf("asked for again it is %s", got)
	}
	for _, path := range []string{"secrets", "secrets/gold", "secrets?watch=1&timeoutSeconds=1", "configmaps", "pods"} {
		if code, text := d.ask("GET", "/kube/api/v1/namespaces/monitoring/"+path); code != 403 || strings.Contains(text, "12kg") || strings.Contains(text, "MTJrZw") {
			t.Errorf("%s of what the owner installed: %d %.300s", path, code, text)
		}
	}
	eventually(t, 10*time.Second, "its own twin is open to it", func() string {
		if code, text := d.ask("GET", "/kube/api/v1/namespaces/"+twin+"/secrets"); code != 200 || strings.Contains(text, "gold") {
			return fmt.Sprintf("%d %.300s", code, text)
		}
		return ""
	})

	t.Run("the same name where the owner allows it", func(t *testing.T) {
		kith(t, bob, "share", "--same-name")
		eventually(t, 20*time.Second, "the policy holds", func() string {
			if code, text := d.namespace("PUT", "books", "SameName"); code != 200 || !strings.Contains(text, `"books"`) {
				return fmt.Sprintf("%d %s", code, text)
			}
			return ""
		})
		refused("vault", `\"vault\" is reserved there`)
		refused("monitoring", `\"monitoring\" is reserved there`)
		kith(t, bob, "share", "--same-name=false")

		if err := alice.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "alice's daemon is back", func() string {
			if out, err := alice.Kith(t.Context(), "peers", "bob", "-o", "json"); err != nil || !strings.Contains(out, `"outgoing": "connected"`) {
				return fmt.Sprintf("%v %q", err, out)
			}
			return ""
		})
		kubectl(t, alice, "create", "namespace", "tales")
		eventually(t, 20*time.Second, "alice is told that the owner does not allow it any more", func() string {
			out := kith(t, alice, "offload", "tales", "--same-name")
			status := kubectl(t, alice, "-n", "tales", "get", "namespaceoffloading", "offloading", "-o", `jsonpath={.status.conditions[?(@.type=="Named.bob")].message}`)
			const sentence = `namespace "tales" cannot keep its name at the provider: its owner does not allow that`
			if !strings.Contains(out, "bob: not ready, "+sentence) || !strings.Contains(status, sentence) {
				return out + status
			}
			return ""
		})
		kith(t, alice, "unoffload", "tales")
		kubectl(t, alice, "delete", "namespace", "tales", "--wait=false")
	})
	if out := kubectl(t, bob, "-n", "monitoring", "get", "secret", "gold", "-o", "jsonpath={.data.weight}"); out == "" {
		t.Error("the owner's Secret is gone")
	}
	kubectl(t, bob, "delete", "namespace", "monitoring", "--wait=false")
}
