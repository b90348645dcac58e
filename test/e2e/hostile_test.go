//go:build lab

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
	"kith.dev/test/lab"
)

// hostile is a consumer that holds alice's real key and contract and talks to bob's peer API by hand, from her network.
// Alice's own kithd is stopped: it would give up what her cluster does not want at bob.
type hostile struct {
	*world
	me       *identity.Identity
	bobID    identity.ID
	address  string // of bob's peer API
	contract string // ID
	lair     string // a twin namespace at bob
	web      *http.Client
	worked   atomic.Int64 // times bob did something of his own
}

const granted = "--cpu 300m --memory 256Mi --pods 6"

// TestHostileConsumer: what a consumer may not do it cannot do, each attempt is refused with a clear Status, and bob goes on
// as if nothing were.
func TestHostileConsumer(t *testing.T) {
	h := newHostile(t, (*hostile).snoops)
	h.run("sees and touches its tenant only", h.confined)
	h.run("by no spelling of a path, header or upgrade", h.spelled)
	h.run("makes no pod with power over the host", h.powerless)
	h.run("points no service at what is not its own", h.services)
	h.run("is on record", h.recorded)
	h.run("cannot exceed its contract", h.contractHolds)
	h.run("loses the door with the contract", h.shutOut)
}

// newHostile has alice do what is to be done before her own daemon stops.
func newHostile(t *testing.T, before ...func(*hostile, *testing.T)) *hostile {
	t.Helper()
	l := laptops(t, lab.Options{Laptops: 2})
	w := &world{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), apis: map[string]client.Client{}}
	befriend(t, w.alice, w.bob, strings.Fields(granted)...)
	kubectl(t, w.bob, "create", "namespace", "den")
	kubectl(t, w.bob, "-n", "den", "create", "secret", "generic", "gold", "--from-literal=weight=12kg")
	apply(t, w.bob, place("mine", "den", "bob"))
	waitReady(t, w.bob, 1, "-n", "den")
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
	contracts, err := w.contracts(w.bob)
	if err != nil || len(contracts) != 1 {
		t.Fatalf("%d contracts, %v", len(contracts), err)
	}
	h.contract = contracts[0].Spec.ID
	for _, f := range before {
		f(h, t)
	}
	// Her own daemon would give up at bob what her cluster does not want.
	if err := w.alice.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.web = h.client()
	h.lair = h.namespace("lair")
	return h
}

// client makes connections of its own, HTTP/2 where it can.
func (h *hostile) client() *http.Client {
	return caller(h.alice, h.address, h.me.ClientTLS(h.bobID))
}

func (h *hostile) dial(ctx context.Context, protocols ...string) (net.Conn, error) {
	config := h.me.ClientTLS(h.bobID)
	config.NextProtos = protocols
	return knock(ctx, h.alice, h.address, config)
}

// namespace has bob make a twin.
func (h *hostile) namespace(home string) string {
	h.t.Helper()
	a := h.ask(http.MethodPut, "/kith/v2/namespaces/"+home+"?contract="+url.QueryEscape(h.contract), "")
	var made struct{ Namespace string }
	if err := json.Unmarshal([]byte(a.text), &made); err != nil || made.Namespace == "" {
		h.t.Fatalf("namespace %s: %d %s", home, a.code, a.text)
	}
	return made.Namespace
}

// answer is what bob said.
type answer struct {
	code   int
	text   string
	status metav1.Status
	err    error
}

// ask sends one request; headers are "Name: value".
func (h *hostile) ask(method, path, body string, headers ...string) answer {
	return h.send(h.web, method, path, strings.NewReader(body), headers...)
}

func (h *hostile) send(c *http.Client, method, path string, body io.Reader, headers ...string) (a answer) {
	r, err := http.NewRequestWithContext(h.t.Context(), method, "https://bob"+path, body)
	if err != nil {
		return answer{err: err}
	}
	if body != nil && body != http.NoBody {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > 5*time.Second {
			h.t.Logf("%s %s took %s: %d %v", method, path, took, a.code, a.err)
		}
	}()
	resp, err := c.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	a = answer{code: resp.StatusCode, text: string(text), err: err}
	_ = json.Unmarshal(text, &a.status) // not every answer is one
	return a
}

// refused wants a Status that says no and why. "Not found" is no refusal: whoever hears it was allowed to look; nor is "not now".
func (h *hostile) refused(what string, a answer) {
	h.t.Helper()
	if a.err != nil || a.code < 400 || a.code == http.StatusNotFound || a.code == http.StatusTooManyRequests || a.code >= 500 || a.status.Kind != "Status" || a.status.Status != metav1.StatusFailure || a.status.Message == "" {
		h.t.Errorf("%s: %d %.300s %v", what, a.code, a.text, a.err)
	}
}

// in is a path in the lair.
func (h *hostile) in(path string) string { return "/kube/api/v1/namespaces/" + h.lair + "/" + path }

func (h *hostile) offloadedPath(namespace, name string) string {
	return strings.TrimSuffix("/kube/apis/kith.dev/v1alpha1/namespaces/"+namespace+"/offloadedpods/"+name, "/")
}

// rewrite changes the template of an OffloadedPod, as it is now; what is in the way of that is what it answers.
func (h *hostile) rewrite(namespace, name, template string) answer {
	path := h.offloadedPath(namespace, name)
	now := h.ask("GET", path, "")
	var object map[string]any
	if now.code != 200 || json.Unmarshal([]byte(now.text), &object) != nil {
		return now
	}
	if meta, ok := object["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	if spec, ok := object["spec"].(map[string]any); ok {
		spec["template"] = json.RawMessage(template)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return answer{err: err}
	}
	if a := h.ask("PUT", path, string(text)); a.code != http.StatusConflict {
		return a
	}
	return h.rewrite(namespace, name, template) // bob wrote its status in between
}

// confined tries what a Kubernetes client can say.
func (h *hostile) confined(t *testing.T) {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"evil"},"spec":{"containers":[{"name":"c","image":"kith.dev/echo:1"}]}}`
	merge := "Content-Type: application/merge-patch+json"
	eventually(t, 30*time.Second, "bob's cluster has put its own ConfigMap into the lair", func() string {
		if _, err := h.bob.Kubectl(t.Context(), "-n", h.lair, "get", "configmap", "kube-root-ca.crt"); err != nil {
			return err.Error()
		}
		return ""
	})
	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["x"]}}`
	for _, c := range []struct{ method, path, body, header string }{
		{"GET", "/kube/api/v1/nodes", "", ""},
		{"GET", "/kube/api/v1/nodes/bob", "", ""},
		{"GET", "/kube/api/v1/nodes/bob/proxy/pods", "", ""},
		{"GET", "/kube/api/v1/namespaces", "", ""},
		{"GET", "/kube/api/v1/namespaces/den", "", ""},
		{"GET", "/kube/api/v1/secrets", "", ""},
		{"GET", "/kube/api/v1/pods", "", ""},
		{"GET", "/kube/api/v1/pods?watch=1", "", ""},
		{"GET", "/kube/api/v1/watch/namespaces/den/secrets", "", ""},
		{"GET", "/kube/api/v1/namespaces/den/secrets", "", ""},
		{"GET", "/kube/api/v1/namespaces/den/secrets?watch=true", "", ""},
		{"GET", "/kube/api/v1/namespaces/den/secrets/gold", "", ""},
		{"GET", "/kube/api/v1/namespaces/den/pods", "", ""},
		{"GET", "/kube/api/v1/namespaces/den/pods/mine/log", "", ""},
		{"POST", "/kube/api/v1/namespaces/den/pods/mine/exec?command=/app&stdout=1", "", ""},
		{"GET", "/kube/api/v1/namespaces/den/services", "", ""},
		{"GET", "/kube/api/v1/namespaces/kube-system/secrets", "", ""},
		{"GET", "/kube/api/v1/namespaces/kube-system/configmaps", "", ""},
		{"GET", "/kube/api/v1/namespaces/default/endpoints", "", ""},
		{"GET", h.offloadedPath("den", ""), "", ""},
		{"POST", h.offloadedPath("den", ""), offloadedText("den", "x", plainSpec), ""},
		{"GET", "/kube/apis/kith.dev/v1alpha1/peers", "", ""},
		{"GET", "/kube/apis/kith.dev/v1alpha1/contracts", "", ""},
		{"GET", "/kube/apis/kith.dev/v1alpha1/sharingpolicies", "", ""},
		{"GET", "/kube/apis/rbac.authorization.k8s.io/v1/namespaces/" + h.lair + "/rolebindings", "", ""},
		{"GET", "/kube/apis/apps/v1/namespaces/" + h.lair + "/deployments", "", ""},
		{"GET", "/kube/apis/networking.k8s.io/v1/namespaces/" + h.lair + "/networkpolicies", "", ""},
		{"GET", "/kube/openapi/v2", "", ""},
		{"GET", "/kube/metrics", "", ""},
		{"GET", "/kube/logs/", "", ""},
		{"GET", "/kube/debug/pprof/heap", "", ""},
		{"POST", h.in("pods"), pod, ""},
		{"POST", h.in("pods/evil/binding"), `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"evil"},"target":{"kind":"Node","name":"bob"}}`, ""},
		{"POST", h.in("pods/evil/eviction"), `{}`, ""},
		{"PATCH", h.in("pods/evil"), `{"metadata":{"labels":{"a":"b"}}}`, merge},
		{"PATCH", h.in("pods/evil/ephemeralcontainers"), `{}`, merge},
		{"PATCH", h.in("pods/evil/resize"), `{}`, merge},
		{"PATCH", h.in("pods/evil/status"), `{}`, merge},
		{"DELETE", h.in("pods/evil"), "", ""},
		{"DELETE", h.in("pods"), "", ""},
		{"DELETE", h.in("secrets"), "", ""},
		{"DELETE", h.offloadedPath(h.lair, ""), "", ""},
		{"PATCH", h.offloadedPath(h.lair, "x/status"), `{"status":{"phase":"Accepted"}}`, merge},
		{"GET", h.in("serviceaccounts"), "", ""},
		{"POST", h.in("serviceaccounts/default/token"), review, ""},
		{"POST", "/kube/api/v1/namespaces/kube-system/serviceaccounts/default/token", review, ""},
		{"GET", h.in("services/x/proxy"), "", ""},
		{"GET", h.in("pods/x/proxy"), "", ""},
		{"GET", h.in("resourcequotas"), "", ""},
		{"PATCH", h.in("resourcequotas/kith"), `{"spec":{"hard":{"count/secrets":"9999"}}}`, merge},
		{"DELETE", h.in("resourcequotas/kith"), "", ""},
		{"GET", h.in("limitranges"), "", ""},
		{"POST", h.in("persistentvolumeclaims"), `{}`, ""},
		{"PATCH", "/kube/api/v1/namespaces/" + h.lair, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"},"finalizers":["x/y"],"ownerReferences":[]}}`, merge},
		{"PUT", "/kube/api/v1/namespaces/" + h.lair + "/finalize", `{}`, ""},
		{"DELETE", "/kube/api/v1/namespaces/" + h.lair, "", ""},
		{"POST", h.in("events"), `{}`, ""},
		{"POST", "/kube/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{}`, ""},
		{"PATCH", h.in("configmaps/kube-root-ca.crt"), `{"data":{"ca.crt":"mine"}}`, merge},
		{"DELETE", h.in("configmaps/kube-root-ca.crt"), "", ""},
	} {
		headers := []string{}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		h.refused(c.method+" "+c.path, h.ask(c.method, c.path, c.body, headers...))
	}
	if a := h.ask("GET", h.in("secrets?fieldSelector=metadata.namespace%3Dden"), ""); a.code != 200 || strings.Contains(a.text, "gold") {
		t.Errorf("own secrets: %d %.200s", a.code, a.text)
	}
	if out := kubectl(t, h.bob, "get", "namespace", h.lair, "-o", "jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/enforce} {.metadata.finalizers}"); out != "baseline " {
		t.Errorf("the twin namespace is now %q", out)
	}
}

// spelled tries headers that claim an identity, paths that mean something else, and upgrades.
func (h *hostile) spelled(t *testing.T) {
	for _, header := range []string{
		"Impersonate-User: system:admin", "Impersonate-Group: system:masters", "Authorization: Bearer x", "X-Remote-User: system:admin",
		"X-Remote-Group: system:masters", "X-Forwarded-Client-Cert: x", "X-Http-Method-Override: DELETE",
	} {
		h.refused(header, h.ask("GET", "/kube/api/v1/namespaces/den/secrets", "", header, "Impersonate-Uid: 0"))
	}
	for _, path := range []string{
		"/kube/api/v1/namespaces/" + h.lair + "/../den/secrets", "/kube/../kith/v1/hello", "/kube/../api/v1/nodes", "/kube//api/v1/nodes",
		"/kube/./api/v1/nodes", "/kube/%2e%2e/api/v1/nodes", "/kube/api/v1/namespaces/" + h.lair + "/secrets/..%2f..%2fden%2fsecrets",
		"/kube/api/v1/namespaces/" + h.lair + "/secrets%2F..%2F..%2Fden", "/kube/api/v1/namespaces/den%2Fsecrets/pods", "/kube/api/v1/namespaces/" + h.lair + "/pods;x=1",
		"/kube/api/v1/namespaces/" + h.lair + "/pods%00", "/kube/api/v1/namespaces//secrets", "/kube/api/v1/namespaces/" + h.lair + "/secrets//gold", "/kube/",
	} {
		h.refused(path, h.wire("GET "+path+" HTTP/1.1\r\nHost: bob\r\n\r\n"))
	}
	for what, text := range map[string]string{
		"an absolute URL":          "GET https://10.42.255.1:6443/api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT":                  "CONNECT 10.42.255.1:6443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"two lengths":              "POST " + h.in("configmaps") + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"a length and chunks":      "POST " + h.in("configmaps") + " HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /kube/api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n",
		"no path":                  "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
		"a folder above the doors": "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
		"two slashes":              "GET //kube/api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		if a := h.wire(text); a.code < 400 || a.code >= 500 || strings.Contains(a.text, "NodeList") {
			t.Errorf("%s: %d %.300s %v", what, a.code, a.text, a.err)
		}
	}
	upgrade := func(path, protocol, more string) answer {
		return h.wire("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n" + more)
	}
	h.refused("h2c", upgrade(h.in("pods"), "h2c", "HTTP2-Settings: AAAA\r\n\r\n"))
	h.refused("websocket on a list", upgrade(h.in("secrets"), "websocket", "\r\nGET /kube/api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n"))
	h.refused("websocket on a watch", upgrade(h.in("secrets")+"?watch=1", "websocket", "\r\n"))
	h.refused("exec in bob's own pod", upgrade("/kube/api/v1/namespaces/den/pods/mine/exec?command=/app&stdout=1", "websocket", "Sec-WebSocket-Protocol: v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c3lzdGVtOmFkbWlu\r\n\r\n"))
	h.refused("an upgrade with a body", upgrade(h.in("pods/x/exec?command=/app&stdout=1"), "websocket", "Content-Length: 10\r\n\r\n0123456789"))
	h.refused("port-forward by services", upgrade(h.in("services/x/portforward"), "websocket", "\r\n"))
}

// wire writes HTTP/1.1 as it is.
func (h *hostile) wire(text string) (a answer) {
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	conn, err := h.dial(ctx, "http/1.1")
	if err != nil {
		return answer{err: err}
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, text); err != nil {
		return answer{err: err}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return answer{err: err}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	a = answer{code: resp.StatusCode, text: string(body), err: err}
	_ = json.Unmarshal(body, &a.status) // not every answer is one
	return a
}

const plainSpec = `{"terminationGracePeriodSeconds":1,"containers":[{"name":"c","image":"kith.dev/echo:1","imagePullPolicy":"IfNotPresent","resources":{"requests":{"cpu":"10m","memory":"8Mi"}}}]}`

// offloadedText is an OffloadedPod with that pod spec.
func offloadedText(namespace, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"kith.dev/v1alpha1","kind":"OffloadedPod","metadata":{"name":%q,"namespace":%q},"spec":{"homeNamespace":"lair","homeUID":"11111111-2222-3333-4444-555555555555","template":{"spec":%s}}}`, name, namespace, spec)
}

// offload asks for a pod at bob.
func (h *hostile) offload(namespace, name, spec string) answer {
	return h.ask("POST", h.offloadedPath(namespace, ""), offloadedText(namespace, name, spec))
}

// verdict is the status of an OffloadedPod. Its spec is not read: there are amounts in it that take hours to parse.
func (h *hostile) verdict(namespace, name string) v1alpha1.OffloadedPodStatus {
	h.t.Helper()
	var o struct{ Status v1alpha1.OffloadedPodStatus }
	if a := h.ask("GET", h.offloadedPath(namespace, name), ""); a.code != 200 || json.Unmarshal([]byte(a.text), &o) != nil {
		return v1alpha1.OffloadedPodStatus{Message: a.text}
	}
	return o.Status
}

// recorded: bob's log, metrics and events tell of alice.
func (h *hostile) recorded(t *testing.T) {
	lines := 0
	for line := range strings.SplitSeq(logOf(t, h.bob), "\n") {
		if strings.Contains(line, "msg=refused") && strings.Contains(line, "peer=alice") {
			lines++
			if lines == 1 {
				t.Log(line)
			}
			for _, key := range []string{"door", "id", "what", "why"} {
				if !strings.Contains(line, " "+key+"=") {
					t.Errorf("a refusal without %s: %s", key, line)
				}
			}
		}
	}
	if lines == 0 || lines > 200 {
		t.Errorf("%d refusals of alice are in the log", lines)
	}
	out, err := h.bob.Kith(t.Context(), "events")
	if err != nil || !strings.Contains(out, "alice was refused 10 times within a minute") {
		t.Errorf("kith events says nothing of it: %v\n%s", err, out)
	}
	for line := range strings.SplitSeq(out, "\n") {
		if strings.Contains(line, "was refused") {
			t.Log(line)
		}
	}
	var counted float64
	for _, m := range scrape(t, h.bob)["kith_refusals_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "door" && l.GetValue() == "kube" {
				counted += m.GetCounter().GetValue()
			}
		}
	}
	if counted < 5 {
		t.Errorf("%v refusals at the door are counted", counted)
	}
	t.Logf("%d lines in the log; counted at the door: %v", lines, counted)
}

// guestsNow are the pods of alice at bob.
func (h *hostile) guestsNow() []corev1.Pod {
	h.t.Helper()
	list, err := h.guests()
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}
